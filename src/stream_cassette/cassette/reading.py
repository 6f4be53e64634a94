"""YAML text → `Cassette`. Reading walks yaml's nodes instead of its values, so that every error knows its line.

Nothing of YAML that the format does not use (tags, aliases, merge keys, dates) gets a meaning.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast, get_args

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .. import framing
from ..errors import CassetteError
from ..model import Cassette, Ending, EndingKind, Exchange, Headers, Interaction, Read, Request
from .writing import FORMAT, JSON_FLOAT, json_bytes

try:
    from yaml import CSafeLoader as _YamlLoader
except ImportError:  # PyYAML without libyaml: slower
    from yaml import SafeLoader as _YamlLoader  # type: ignore[assignment]

LARGEST = 1 << 30  # bytes of a file
_DEEPEST = 100  # levels of nesting in a file; libyaml itself stops at 1000
_READ = re.compile(r"([0-9]{1,10}):([1-9][0-9]{0,9})")
_CONFLICT = re.compile(rb"^(?:<{7}|={7}|>{7})(?= |\r?$)", re.MULTILINE)

_AGAIN = "restore the file from version control, or record it again: pytest --stream-record=all"


class CassetteWarning(UserWarning):
    """A cassette that can be used, but not quite as it stands; the text names the file and what to do."""


class _Loader(_YamlLoader):
    """Composes nodes. What is written without a tag gets one of ours, JSON's kinds of values; so any other tag was written out."""

    DEFAULT_SCALAR_TAG = "str"  # type: ignore[misc]
    DEFAULT_SEQUENCE_TAG = "list"  # type: ignore[misc]
    DEFAULT_MAPPING_TAG = "mapping"  # type: ignore[misc]


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver("null", re.compile(r"(?:~|null|)\Z"), ["~", "n", ""])
_Loader.add_implicit_resolver("bool", re.compile(r"(?:true|false)\Z"), ["t", "f"])
_Loader.add_implicit_resolver("int", re.compile(r"-?(?:0|[1-9][0-9]*)\Z"), list("-0123456789"))
_Loader.add_implicit_resolver("float", JSON_FLOAT, list("-0123456789."))

_SCALARS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": lambda text: float(text.replace(".inf", "inf").replace(".nan", "nan")),
    "bool": "true".__eq__,
    "null": lambda text: None,
}


class _Fault(Exception):
    """What is wrong at a node; `loads` adds the file."""

    def __init__(self, what: str, node: Node, mend: str = _AGAIN) -> None:
        super().__init__(what)
        self.line, self.mend = node.start_mark.line + 1, mend


def loads(text: bytes | str, *, name: str) -> Cassette:
    """The cassette that a file's text says; `name` stands for the file in errors. Errors and warnings are those of `load`."""
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(data) > LARGEST:
        raise CassetteError(f"a cassette has at most {LARGEST} bytes", where=name, mend="split it")
    try:
        return _cassette(_compose(data), name)
    except _Fault as fault:
        raise CassetteError(str(fault), where=f"{name}, line {fault.line}", mend=fault.mend) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise _not_yaml(error, data, name) from error


def _compose(data: bytes) -> Node | None:
    loader = _Loader(data)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _not_yaml(error: Exception, data: bytes, name: str) -> CassetteError:
    if conflict := _CONFLICT.search(data):
        line = data.count(b"\n", 0, conflict.start()) + 1
        what = "a merge conflict is not resolved"
        mend = "resolve it, or record the cassette again: pytest --stream-record=all"
    else:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else data.count(b"\n", 0, getattr(error, "position", None) or 0) + 1
        what = f"not YAML: {getattr(error, 'problem', None) or getattr(error, 'reason', None) or error}"
        here = data.split(b"\n", line)[line - 1 : line]  # none where yaml counts other line ends than LF
        mend = "indent with spaces, not tabs" if b"\t" in b"".join(here) else _AGAIN
    return CassetteError(what, where=f"{name}, line {line}", mend=mend)


def _cassette(root: Node | None, name: str) -> Cassette:
    if not isinstance(root, MappingNode) or not any(key.value == "format" for key, _ in root.value):
        raise CassetteError(
            "not a cassette: a cassette has `format: 1`",
            where=f"{name}, line 1",
            mend="name the file that was recorded",
        )
    found = next(value for key, value in root.value if key.value == "format")
    if _number(found, "format", 1) > FORMAT:
        raise _Fault(
            f"the cassette has format {found.value}, this version reads up to {FORMAT}",
            found,
            "upgrade the package: pip install --upgrade pytest-stream-cassette",
        )
    _check_tree(root)
    top = _fields(root, "the cassette", ("format", "recorded", "interactions"))
    recorded = _fields(top["recorded"], "recorded", ("at", "by"))
    return Cassette(
        tuple(_interaction(item, name) for item in _items(top["interactions"], "interactions")),
        at=_string(recorded["at"], "at"),
        by=_string(recorded["by"], "by"),
    )


def _check_tree(root: Node) -> None:
    """Refuses what YAML has beyond JSON. Aliases share a node, so this meets no node twice and ends on any file."""
    seen: set[int] = set()
    todo: list[tuple[Node, int]] = [(root, 0)]
    while todo:
        node, depth = todo.pop()
        if id(node) in seen:
            raise _Fault("an alias (*) stands for what is here", node, "write the value out in both places")
        seen.add(id(node))
        if depth > _DEEPEST:
            raise _Fault(f"nested deeper than {_DEEPEST} levels", node)
        if isinstance(node, MappingNode):
            _check_kind(node, "mapping")
            _check_keys(node)
            todo += [(part, depth + 1) for pair in node.value for part in pair]
        elif isinstance(node, SequenceNode):
            _check_kind(node, "list")
            todo += [(part, depth + 1) for part in node.value]
        else:
            _check_kind(node, *_SCALARS)


def _check_kind(node: Node, *tags: str) -> None:
    if node.tag not in tags:
        raise _Fault(f"the tag {node.tag} is not allowed", node, "take the tag away; no value of a cassette has one")


def _check_keys(node: MappingNode) -> None:
    seen = set()
    for key, _ in node.value:
        if key.tag != "str":
            raise _Fault(f"a key must be a string, not {_shown(key)}", key, "put it in quotes")
        if key.value == "<<" and not key.style:
            raise _Fault("merge keys (<<) are not allowed", key, "write the values out")
        if key.value in seen:
            raise _Fault(f"the key {key.value!r} stands twice in one mapping", key, "take one of them away")
        seen.add(key.value)


def _interaction(node: Node, name: str) -> Interaction:
    found = _fields(node, "an interaction", ("request", "response"), ("test", "assembled"))
    response = _fields(
        found["response"],
        "a response",
        ("status", "headers", "ending", "reads", "body"),
        ("dialect", "error", "newline"),
    )
    exchange = Exchange(
        _request(found["request"]),
        _number(response["status"], "status", 100, 999),
        _headers(response["headers"]),
        _reads(response["reads"], _body(response), name),
        _ending(response),
    )
    return Interaction(
        exchange,
        test=_string(found["test"], "test") if "test" in found else None,
        dialect=_string(response["dialect"], "dialect") if "dialect" in response else None,
        assembled=_assembled(found["assembled"]) if "assembled" in found else None,
    )


def _request(node: Node) -> Request:
    found = _fields(node, "a request", ("method", "url", "headers"), tuple(_BODIES))
    bodies = [key for key in _BODIES if key in found]
    if len(bodies) > 1:
        raise _Fault(f"a request has one body, not {' and '.join(bodies)}", found[bodies[1]], "take one of them away")
    body = _BODIES[bodies[0]](found[bodies[0]]) if bodies else b""
    return Request(_string(found["method"], "method"), _string(found["url"], "url"), _headers(found["headers"]), body)


def _from_text(node: Node) -> bytes:
    return _encoded(_string(node, "text"), node)


def _from_base64(node: Node) -> bytes:
    try:
        return base64.b64decode("".join(_string(node, "base64").split()), validate=True)
    except ValueError as error:
        raise _Fault(f"not base64: {error}", node) from None


def _from_json_text(node: Node) -> Any:
    return _from_json(_encoded(_string(node, "json_text"), node), node)


def _from_json(raw: bytes, node: Node) -> Any:
    try:
        return json.loads(raw.decode(errors="surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise _Fault(f"not JSON: {error}", node) from None


_BODIES: Mapping[str, Callable[[Node], bytes]] = {
    "json": lambda node: json_bytes(_value(node)),
    "json_text": lambda node: json_bytes(_from_json_text(node)),
    "text": _from_text,
    "base64": _from_base64,
}


def _body(response: Mapping[str, Node]) -> bytes:
    crlf = "newline" in response and bool(_choice(response["newline"], "newline", ("crlf",)))
    node = response["body"]
    pieces = _items(node, "body") if isinstance(node, SequenceNode) else [node]
    return b"".join([_piece(piece, crlf) for piece in pieces])


def _piece(node: Node, crlf: bool) -> bytes:
    if isinstance(node, MappingNode):
        found = _fields(node, "a piece of a body", (), ("text", "base64"))
        if len(found) != 1:
            raise _Fault("a piece of a body has either text or base64", node)
        if "base64" in found:
            return _from_base64(found["base64"])
        node = found["text"]
    text = _string(node, "body")
    return _encoded(text.replace("\n", "\r\n") if crlf else text, node)


def _reads(node: Node, body: bytes, name: str) -> tuple[Read, ...]:
    matches = []
    for item in _string(node, "reads").split():
        match = _READ.fullmatch(item)
        if match is None:
            raise _Fault(
                f"{item[:40]!r} is no read",
                node,
                "write milliseconds:bytes, separated by spaces, as in `reads: 0:187 41:95`",
            )
        matches.append(match)
    sizes = [int(match[2]) for match in matches]
    if sum(sizes) != len(body):
        warnings.warn(
            f"{name}, line {node.start_mark.line + 1}: the body has {len(body)} bytes, `reads` has {sum(sizes)}; edited by hand? It is replayed "
            "with one read per event. Mend `reads`, or record the cassette again: pytest --stream-record=all",
            CassetteWarning,
            stacklevel=2,
        )
        return _read_per_event(body)
    ends = list(itertools.accumulate(sizes, initial=0))
    return tuple(
        [Read(int(match[1]), body[at : at + size]) for match, size, at in zip(matches, sizes, ends, strict=False)]
    )


def _read_per_event(body: bytes) -> tuple[Read, ...]:
    """A read ends with each frame that carries data; what follows the last one is a read of its own."""
    reads: list[Read] = []
    waiting = b""
    for frame in framing.frames(body):
        waiting += frame.raw
        if frame.data is not None:
            reads.append(Read(0, waiting))
            waiting = b""
    return (*reads, Read(0, waiting)) if waiting else tuple(reads)


def _ending(response: Mapping[str, Node]) -> Ending:
    kind = cast("EndingKind", _choice(response["ending"], "ending", get_args(EndingKind)))
    if (kind == "disconnected") != ("error" in response):
        raise _Fault(
            "`error` stands beside `ending: disconnected`, and only there",
            response["ending"],
            "write `error: protocol` or `error: read`",
        )
    if kind != "disconnected":
        return Ending(kind)
    return Ending(kind, cast("Literal['protocol', 'read']", _choice(response["error"], "error", ("protocol", "read"))))


def _headers(node: Node) -> Headers:
    if isinstance(node, SequenceNode):
        pairs = [_items(item, "a header") for item in node.value]
        if wrong := next((item for item, pair in zip(node.value, pairs, strict=True) if len(pair) != 2), None):
            raise _Fault("a header in a list is [name, value]", wrong)
        return tuple((_string(key, "a header name"), _string(value, "a header")) for key, value in pairs)
    if not isinstance(node, MappingNode):
        raise _Fault(f"headers must be a mapping or a list of pairs, not {_shown(node)}", node)
    return tuple(
        (key.value, _string(item, f"the header {key.value!r}"))
        for key, value in node.value
        for item in (value.value if isinstance(value, SequenceNode) else [value])
    )


def _assembled(node: Node) -> dict[str, Any]:
    if not isinstance(node, MappingNode):
        raise _Fault(f"assembled must be a mapping, not {_shown(node)}", node)
    match [key.value for key, _ in node.value]:
        case ["json_text"]:
            value = _from_json_text(node.value[0][1])
        case ["base64"]:
            value = _from_json(_from_base64(node.value[0][1]), node)
        case _:
            value = _value(node)
    if not isinstance(value, dict):
        raise _Fault("assembled must be a JSON object", node)
    return value


def _value(node: Node) -> Any:
    """The JSON value of a node that `_check_tree` has passed."""
    if isinstance(node, MappingNode):
        return {key.value: _value(value) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return [_value(item) for item in node.value]
    try:
        return _SCALARS[node.tag](node.value)
    except ValueError:
        raise _Fault("a number has too many digits", node) from None


def _fields(node: Node, what: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Node]:
    """The values of a mapping by key, where it has all of `required` and nothing beyond them and `optional`."""
    if not isinstance(node, MappingNode):
        raise _Fault(f"{what} must be a mapping, not {_shown(node)}", node)
    known = required + optional
    if unknown := next((key for key, _ in node.value if key.value not in known), None):
        raise _Fault(f"{what} has no key {unknown.value!r}", unknown, f"its keys are {', '.join(known)}")
    found = {key.value: value for key, value in node.value}
    if missing := [key for key in required if key not in found]:
        raise _Fault(f"{what} lacks {', '.join(missing)}", node)
    return found


def _items(node: Node, what: str) -> list[Node]:
    if not isinstance(node, SequenceNode):
        raise _Fault(f"{what} must be a list, not {_shown(node)}", node)
    return cast("list[Node]", node.value)


def _string(node: Node, what: str) -> str:
    if node.tag != "str":
        raise _Fault(f"{what} must be a string, not {_shown(node)}", node, "put it in quotes")
    return cast(str, node.value)


def _choice(node: Node, what: str, allowed: tuple[str, ...]) -> str:
    if node.value not in allowed:
        raise _Fault(f"{what} must be {' or '.join(allowed)}, not {_shown(node)}", node)
    return cast(str, node.value)


def _number(node: Node, what: str, least: int, most: int | None = None) -> int:
    value = _value(node) if node.tag == "int" else least - 1
    if value < least or (most is not None and value > most):
        raise _Fault(
            f"{what} must be a whole number from {least}{f' to {most}' if most else ''}, not {_shown(node)}", node
        )
    return cast(int, value)


def _encoded(text: str, node: Node) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # yaml's own parser takes "\ud800", libyaml does not
        raise _Fault("a text with lone surrogates", node) from None


def _shown(node: Node) -> str:
    """How an error names a value."""
    if not isinstance(node, ScalarNode):
        return f"a {node.tag}"
    return repr(node.value[:40]) if node.tag == "str" else node.value[:40] or "nothing"

"""JSON's values in YAML that a person can read: what the files of this package are made of.

Reading walks yaml's nodes instead of its values, so that every error knows its line; what YAML has beyond JSON (tags, aliases, merge keys, dates)
gets no meaning.
"""

from __future__ import annotations

import base64
import contextlib
import io
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, TypeVar, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .errors import CassetteError
from .literals import UNSAFE, Encoded, Literal, put_back, without_literals

try:
    from yaml import CSafeDumper as _YamlDumper
    from yaml import CSafeLoader as _YamlLoader
except ImportError:  # PyYAML without libyaml: the same files, slower; to mypy they are other classes
    from yaml import SafeDumper as _YamlDumper  # type: ignore[assignment]
    from yaml import SafeLoader as _YamlLoader  # type: ignore[assignment]

T = TypeVar("T")

# ------------------------------------------------------------------------------------------------------------------- writing

JSON_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)\Z|-?\.inf\Z|\.nan\Z")

DEEPEST_JSON = 64  # levels of a JSON value written as YAML; deeper ones are written as JSON text
_WIDEST_INT = 10_000  # bits, well below the digits that Python converts
WIDTH = 100  # columns

_SURROGATE = re.compile("[\ud800-\udfff]")
# What goes into a literal of yaml's emitter; libyaml ends the whole document after one with blank lines at its end.
_PARAGRAPHS = re.compile(r"[^ \n](?s:.*[^\n])?\n?")
_PRIVATE = range(0xE000, 0xF900)
_OWN_PRIVATE = re.compile("[\ue000-\uf8ff]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_ESCAPED = re.compile(r"\\U([0-9A-F]{8})")
_FILLED_LINE = re.compile(r"\n(?!\n|\Z)")  # the start of each line that is not blank


class Block(dict[str, Any]):
    """A mapping that is written with one line per key even where all values are short."""


class _Dumper(_YamlDumper):
    stand_ins: Mapping[int, int]

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def block(self, data: Block) -> Node:
        return self.represent_mapping("tag:yaml.org,2002:map", data, flow_style=False)

    def text(self, data: str) -> Node:
        style = None
        if self.stand_ins:  # a search is faster than to translate each character
            data = _ASTRAL.sub(lambda found: chr(self.stand_ins.get(code := ord(found[0]), code)), data)
        if "\n" in data or UNSAFE.search(data):
            style = "|" if _PARAGRAPHS.fullmatch(data) and not UNSAFE.search(data) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


# YAML 1.1's resolvers decide what must be quoted, so that other tools read our strings as strings too. Two differences: dates need no quotes
# here, and what JSON takes for a number (1e5) does.
_Dumper.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in pairs if not tag.endswith(":timestamp")]
    for first, pairs in _YamlDumper.yaml_implicit_resolvers.items()
}
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", JSON_FLOAT, list("-0123456789."))
_Dumper.add_representer(Block, _Dumper.block)
_Dumper.add_representer(str, _Dumper.text)


def fits_yaml(value: Any, room: int) -> bool:
    """Whether YAML can carry the value: JSON, no lone surrogates, not nested deeper than `room`."""
    kind = type(value)
    if kind is str:
        return not _SURROGATE.search(value)
    if kind is dict:
        return room > 0 and all(type(k) is str and fits_yaml(k, 0) and fits_yaml(v, room - 1) for k, v in value.items())
    if kind is list:
        return room > 0 and all(fits_yaml(item, room - 1) for item in value)
    if kind is int:
        return bool(value.bit_length() < _WIDEST_INT)
    return value is None or kind is bool or (kind is float and not math.isnan(value))


def literal(text: str, pad: str) -> str:
    """A literal block of a text without unsafe characters, `pad` being two columns more than its key's.

    `+` keeps the final line ends, `-` says that there is none.
    """
    filled = indented(f"\n{text}", pad)
    return f"|2+{filled}" if text.endswith("\n") else f"|2-{filled}\n"


def indented(text: str, pad: str) -> str:
    return _FILLED_LINE.sub(f"\n{pad}", text)


def dump(value: Mapping[str, object], pad: str) -> str:
    """Block YAML of a mapping, every line behind `pad`; mappings and lists of nothing but short values stand on one line."""
    text = _emitted(value, {})
    # libyaml's emitter escapes emoji. Where it did, it is shown private characters in their place, if the text has none of its own.
    astral = {code for code in (int(digits, 16) for digits in _ESCAPED.findall(text)) if code <= sys.maxunicode}
    if astral and len(astral) <= len(_PRIVATE) and not _OWN_PRIVATE.search(text):
        private = dict(zip(sorted(astral), _PRIVATE, strict=False))
        codes = {stand_in: code for code, stand_in in private.items()}
        text = _OWN_PRIVATE.sub(lambda found: chr(codes[ord(found[0])]), _emitted(value, private))
    return indented(f"\n{text}", pad)[1:]


def _emitted(value: Mapping[str, object], stand_ins: Mapping[int, int]) -> str:
    out = io.StringIO()
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": WIDTH, "default_flow_style": None}
    dumper = _Dumper(out, **options)
    dumper.stand_ins = stand_ins
    try:
        dumper.open()
        dumper.represent(Block(value))
        dumper.close()
    except UnicodeEncodeError as error:
        raise CassetteError(f"a text with lone surrogates cannot be written: {error.object[:80]!r}") from error
    finally:
        dumper.dispose()
    return out.getvalue()


# ------------------------------------------------------------------------------------------------------------------- reading

LARGEST = 1 << 30  # bytes of a file
MOST_NODES = 1_000_000  # values in a file; each takes half a kilobyte
_DEEPEST = 100  # levels of nesting in a file; libyaml itself stops at 1000
_CONFLICT = re.compile(rb"^(?:<{7}|={7}|>{7})(?= |\r?$)", re.MULTILINE)

RECORD = "pytest --stream-record=once"
AGAIN = f"restore the file from version control, or delete it and record it anew:\n{RECORD}"


class Loader(_YamlLoader):
    """Composes nodes. What is written without a tag gets one of ours, JSON's kinds of values; so any other tag was written out."""

    # The stubs take PyYAML's own values for the only ones.
    DEFAULT_SCALAR_TAG = "str"  # type: ignore[misc]
    DEFAULT_SEQUENCE_TAG = "list"  # type: ignore[misc]
    DEFAULT_MAPPING_TAG = "mapping"  # type: ignore[misc]
    nodes = 0

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        """Called for every node; it would look for resolvers by path, of which there are none."""
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise Fault(f"more than {MOST_NODES} values in one file", current_node, "split it")

    def ascend_resolver(self) -> None:
        pass


Loader.yaml_implicit_resolvers = {}
Loader.add_implicit_resolver("null", re.compile(r"(?:~|null|)\Z"), ["~", "n", ""])
Loader.add_implicit_resolver("bool", re.compile(r"(?:true|false)\Z"), ["t", "f"])
Loader.add_implicit_resolver("int", re.compile(r"-?(?:0|[1-9][0-9]*)\Z"), list("-0123456789"))
Loader.add_implicit_resolver("float", JSON_FLOAT, list("-0123456789."))

_SCALARS: Mapping[str, Callable[[str], Any]] = {
    "str": str,  # of a `Literal` or an `Encoded` too
    "int": int,
    "float": lambda text: float(text.replace(".inf", "inf").replace(".nan", "nan")),
    "bool": "true".__eq__,
    "null": lambda text: None,
}


class Fault(Exception):
    """What is wrong at a node; `read` adds the file."""

    def __init__(self, what: str, node: Node, mend: str | None = None) -> None:
        super().__init__(what)
        self.line, self.mend = node.start_mark.line + 1, mend


def read(source: bytes | BinaryIO, name: str, build: Callable[[Node | None], T], *, again: str = AGAIN) -> T:
    """What `build` makes of the root node of a YAML text; `name` stands for the file, `again` for how to come by a sound one.

    Raises `CassetteError` with file and line. A node may have a `Literal` or an `Encoded` for its value; `string`, `value_of`, `pieces` and `decoded` know.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    if file.seek(0, io.SEEK_END) > LARGEST:
        raise CassetteError(f"a file has at most {LARGEST} bytes", where=name, mend="split it")
    try:
        return build(_root(file))
    except (Fault, yaml.YAMLError, RecursionError) as error:
        file.seek(0)
        raise _broken(error, file.read(), name, again) from error


def _root(file: BinaryIO) -> Node | None:
    file.seek(0)
    outline, literals = without_literals(file)
    if literals:
        with contextlib.suppress(yaml.YAMLError, RecursionError):
            root = _compose(outline)
            if put_back(root, literals):
                return root
    # Something stands there that only looks like a literal of ours, or the file is broken: yaml has the word.
    file.seek(0)
    return _compose(file.read())


def _compose(data: bytes) -> Node | None:
    loader = Loader(data)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _broken(error: Exception, data: bytes, name: str, again: str) -> CassetteError:
    if conflict := _CONFLICT.search(data):
        line = data.count(b"\n", 0, conflict.start()) + 1
        what = "a merge conflict is not resolved"
        mend = f"resolve it, or {again}"
    elif isinstance(error, Fault):
        what, line, mend = str(error), error.line, error.mend or again
    else:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else data.count(b"\n", 0, getattr(error, "position", None) or 0) + 1
        what = f"not YAML: {getattr(error, 'problem', None) or getattr(error, 'reason', None) or error}"
        here = data.split(b"\n", line)[line - 1 : line]  # none where yaml counts other line ends than LF
        mend = "indent with spaces, not tabs" if b"\t" in b"".join(here) else again
    return CassetteError(what, where=f"{name}, line {line}", mend=mend)


def check_tree(root: Node) -> None:
    """Refuses what YAML has beyond JSON. Aliases share a node, so this meets no node twice and ends on any file."""
    seen: set[Node] = set()  # a node equals itself alone
    level, depth = [root], 0
    while level:
        below: list[Node] = []
        for node in level:
            if node in seen:
                raise Fault("an alias (*) stands for what is here", node, "write the value out in both places")
            seen.add(node)
            if isinstance(node, ScalarNode):
                if node.tag not in _SCALARS:
                    raise _strange(node)
            elif isinstance(node, MappingNode):
                if node.tag != "mapping":
                    raise _strange(node)
                _check_keys(node)
                for pair in node.value:
                    below += pair
            else:
                if node.tag != "list":
                    raise _strange(node)
                below += node.value
        level, depth = below, depth + 1
        if level and depth > _DEEPEST:
            raise Fault(f"nested deeper than {_DEEPEST} levels", level[0])


def _strange(node: Node) -> Fault:
    return Fault(f"the tag {node.tag} is not allowed", node, "take the tag away; no value of a cassette has one")


def _check_keys(node: MappingNode) -> None:
    seen = set()
    for key, _ in node.value:
        if key.tag != "str":
            raise Fault(f"a key must be a string, not {shown(key)}", key, "put it in quotes")
        if key.value == "<<" and not key.style:
            raise Fault("merge keys (<<) are not allowed", key, "write the values out")
        if key.value in seen:
            raise Fault(f"the key {key.value!r} stands twice in one mapping", key, "take one of them away")
        seen.add(key.value)


def value_of(node: Node) -> Any:
    """The JSON value of a node that `check_tree` has passed."""
    if isinstance(node, MappingNode):
        return {key.value: value_of(value) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return [value_of(item) for item in node.value]
    try:
        return _SCALARS[node.tag](node.value)
    except ValueError:
        raise Fault("a number has too many digits", node) from None


def fields(node: Node, what: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Node]:
    """The values of a mapping by key, where it has all of `required` and nothing beyond them and `optional`."""
    if not isinstance(node, MappingNode):
        raise Fault(f"{what} must be a mapping, not {shown(node)}", node)
    known = required + optional
    if unknown := next((key for key, _ in node.value if key.value not in known), None):
        raise Fault(f"{what} has no key {unknown.value!r}", unknown, f"its keys are {', '.join(known)}")
    found = {key.value: value for key, value in node.value}
    if missing := [key for key in required if key not in found]:
        raise Fault(f"{what} lacks {', '.join(missing)}", node)
    return found


def items(node: Node, what: str) -> list[Node]:
    if not isinstance(node, SequenceNode):
        raise Fault(f"{what} must be a list, not {shown(node)}", node)
    return cast("list[Node]", node.value)


def string(node: Node, what: str) -> str:
    if node.tag != "str":
        raise Fault(f"{what} must be a string, not {shown(node)}", node, "put it in quotes")
    return str(node.value)


def choice(node: Node, what: str, allowed: tuple[str, ...]) -> str:
    if node.value not in allowed:
        raise Fault(f"{what} must be {' or '.join(allowed)}, not {shown(node)}", node)
    return cast(str, node.value)


def number(node: Node, what: str, least: int, most: int | None = None) -> int:
    value = value_of(node) if node.tag == "int" else least - 1
    if value < least or (most is not None and value > most):
        raise Fault(
            f"{what} must be a whole number from {least}{f' to {most}' if most else ''}, not {shown(node)}", node
        )
    return cast(int, value)


def pieces(node: Node, what: str) -> Iterable[bytes]:
    """The string at a node as UTF-8, in pieces that join to it; may be iterated several times, as long as the file is open."""
    return node.value if isinstance(node.value, Literal) else [encoded(string(node, what), node)]


def decoded(node: Node) -> Iterable[bytes]:
    """What the base64 at a node says, otherwise as `pieces`."""
    if isinstance(node.value, Encoded):
        return node.value
    try:
        return [base64.b64decode("".join(string(node, "base64").split()), validate=True)]
    except ValueError as error:
        raise Fault(f"not base64: {error}", node) from None


def encoded(text: str, node: Node) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # yaml's own parser takes "\ud800", libyaml does not
        raise Fault("a text with lone surrogates", node) from None


def shown(node: Node) -> str:
    """How an error names a value."""
    if not isinstance(node, ScalarNode):
        return f"a {node.tag}"
    value = str(node.value)[:40]
    return repr(value) if node.tag == "str" else value or "nothing"

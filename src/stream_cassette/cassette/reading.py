"""YAML text → `Cassette`."""

from __future__ import annotations

import json
import re
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from typing import Any, BinaryIO, cast, get_args
from urllib.parse import urlsplit

from yaml.nodes import MappingNode, Node, SequenceNode

from .. import framing, yamltext
from ..dialects import dialect
from ..errors import CassetteError, UnknownDialect
from ..headers import MEND, unfit
from ..literals import Encoded, Literal
from ..model import Cassette, Ending, EndingError, EndingKind, Exchange, Headers, Interaction, Read, Request
from ..yamltext import (
    Fault,
    check_tree,
    choice,
    decoded,
    encoded,
    fields,
    items,
    number,
    pieces,
    shown,
    string,
    value_of,
)
from .writing import FORMAT, json_bytes

_SLACK = 1000  # reads beyond the bytes of the body that an error or warning still counts
# So many at once: as fast as all of them, and as strings they take many times the memory.
_READS = re.compile(r"(?:[0-9]{1,10}:[1-9][0-9]{0,9}(?:\s++|\Z)){1,1000}+")


_read = partial(tuple.__new__, Read)  # as a tuple is made: twice as fast as `Read(...)`


class CassetteWarning(UserWarning):
    """A cassette that can be used, but not quite as it stands; the text names the file and what to do."""


def loads(text: bytes | str | BinaryIO, *, name: str, like: Cassette | None = None) -> Cassette:
    """The cassette that a file's text (or an open file) says; `name` stands for it in errors. Errors and warnings are those of `load`.

    What reads of `like` say as well, place by place, is not kept a second time.
    """
    source = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    known = [each.exchange.reads for each in like.interactions] if like else []
    return yamltext.read(source, name, lambda root: _cassette(root, name, known))


def _cassette(root: Node | None, name: str, known: Sequence[Sequence[Read]]) -> Cassette:
    if root is None:
        raise CassetteError("the file is empty", where=f"{name}, line 1", mend=yamltext.AGAIN)
    if not isinstance(root, MappingNode) or not any(key.value == "format" for key, _ in root.value):
        raise CassetteError(
            "not a cassette: a cassette has `format: 1`",
            where=f"{name}, line 1",
            mend="name the file that was recorded",
        )
    found = next(value for key, value in root.value if key.value == "format")
    if number(found, "format", 1) > FORMAT:
        raise Fault(
            f"the cassette has format {found.value}, this version reads up to {FORMAT}",
            found,
            "upgrade the package: pip install --upgrade pytest-stream-cassette",
        )
    check_tree(root)
    top = fields(root, "the cassette", ("format", "recorded", "interactions"))
    recorded = fields(top["recorded"], "recorded", ("at", "by"))
    return Cassette(
        tuple(
            _interaction(item, name, reads)
            for item, reads in zip(items(top["interactions"], "interactions"), chain(known, repeat(())), strict=False)
        ),
        at=string(recorded["at"], "at"),
        by=string(recorded["by"], "by"),
    )


def _interaction(node: Node, name: str, known: Sequence[Read]) -> Interaction:
    found = fields(node, "an interaction", ("request", "response"), ("test", "assembled"))
    response = fields(
        found["response"],
        "a response",
        ("status", "headers", "ending", "reads", "body"),
        ("dialect", "error", "newline", "was"),
    )
    exchange = Exchange(
        _request(found["request"]),
        number(response["status"], "status", 100, 999),
        _headers(response["headers"]),
        _reads(response["reads"], _body(response), name, known),
        _ending(response),
        string(response["was"], "was") if "was" in response else "",
    )
    return Interaction(
        exchange,
        test=string(found["test"], "test") if "test" in found else None,
        dialect=_dialect(response["dialect"]) if "dialect" in response else None,
        assembled=_assembled(found["assembled"]) if "assembled" in found else None,
    )


def _request(node: Node) -> Request:
    found = fields(node, "a request", ("method", "url", "headers"), tuple(_BODIES))
    bodies = [key for key in _BODIES if key in found]
    if len(bodies) > 1:
        raise Fault(f"a request has one body, not {' and '.join(bodies)}", found[bodies[1]], "take one of them away")
    body = _BODIES[bodies[0]](found[bodies[0]]) if bodies else b""
    return Request(string(found["method"], "method"), _url(found["url"]), _headers(found["headers"]), body)


def _url(node: Node) -> str:
    url = string(node, "url")
    try:
        urlsplit(url).port  # noqa: B018 - every part of it is looked at somewhere
    except ValueError as error:
        raise Fault(f"{url[:80]!r} is no URL: {error}", node, "write it as the client asks for it") from None
    return url


def _dialect(node: Node) -> str:
    name = string(node, "dialect")
    try:
        dialect(name)
    except UnknownDialect as error:
        raise Fault(error.what, node, error.mend) from None
    return name


def _from_text(node: Node) -> bytes:
    return encoded(string(node, "text"), node)


def _from_json_text(node: Node) -> Any:
    return _from_json(encoded(string(node, "json_text"), node), node)


def _from_json(raw: bytes, node: Node) -> Any:
    try:
        return json.loads(raw.decode(errors="surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise Fault(f"not JSON: {error}", node) from None


_BODIES: Mapping[str, Callable[[Node], bytes]] = {
    "json": lambda node: json_bytes(value_of(node)),
    "json_text": lambda node: json_bytes(_from_json_text(node)),
    "text": _from_text,
    "base64": lambda node: b"".join(decoded(node)),
}


Parts = list[tuple[Iterable[bytes], bool]]
"""A body: the pieces of each of its parts, to be iterated as often as needed, and whether LF stands for CRLF in them."""


def _body(response: Mapping[str, Node]) -> Parts:
    crlf = "newline" in response and bool(choice(response["newline"], "newline", ("crlf",)))
    node = response["body"]
    return [_part(each, crlf) for each in (items(node, "body") if isinstance(node, SequenceNode) else [node])]


def _part(node: Node, crlf: bool) -> tuple[Iterable[bytes], bool]:
    if isinstance(node, MappingNode):
        found = fields(node, "a piece of a body", (), ("text", "base64"))
        if len(found) != 1:
            raise Fault("a piece of a body has either text or base64", node)
        if "base64" in found:
            return decoded(found["base64"]), False
        node = found["text"]
    return pieces(node, "body"), crlf


def _data(body: Parts) -> Iterator[bytes]:
    for part, crlf in body:
        for piece in filter(None, part):
            yield piece.replace(b"\n", b"\r\n") if crlf else piece


class _OtherSize(Exception):
    """A body is shorter or longer than its reads."""


def _reads(node: Node, body: Parts, name: str, known: Sequence[Read]) -> tuple[Read, ...]:
    reads = _times_and_sizes(node, _most(body))
    if reads is not None:
        with suppress(_OtherSize):
            return _cut(body, reads, known)
    length = sum(map(len, _data(body)))
    said = "more" if reads is None else sum(reads[1::2])
    warnings.warn(
        f"{name}, line {node.start_mark.line + 1}: the body has {length} bytes, `reads` has {said}; edited by hand? It is replayed "
        "with one read per event. Mend `reads`, or record the cassette again: pytest --stream-record=all",
        CassetteWarning,
        stacklevel=2,
    )
    return read_per_event(b"".join(_data(body)))


def _most(body: Parts) -> int:
    """No fewer bytes than the body has; to count them takes as long as to cut it."""
    return sum(
        (part.size if isinstance(part, Literal | Encoded) else sum(map(len, part))) * (1 + crlf) for part, crlf in body
    )


def _cut(body: Parts, reads: array[int], known: Sequence[Read]) -> tuple[Read, ...]:
    """The body read by read; the very reads of `known` where they say the same in the same place. Raises `_OtherSize`."""
    cut = map(_read, zip(reads[0::2], _slices(_data(body), reads[1::2]), strict=True))
    if not known:
        return tuple(cut)
    return tuple(old if old == new else new for new, old in zip(cut, chain(known, repeat(None)), strict=False))


def _times_and_sizes(node: Node, most: int) -> array[int] | None:
    """Milliseconds and bytes of each read in turn; None where there are more reads than `most`."""
    text, found = string(node, "reads").lstrip(), array("Q")
    at = 0
    while at < len(text):
        match = _READS.match(text, at)
        if match is None:
            raise Fault(
                f"{text[at : at + 40].split()[0]!r} is no read",
                node,
                "write milliseconds:bytes, separated by spaces, as in `reads: 0:187 41:95`",
            )
        found.extend(map(int, match[0].replace(":", " ").split()))
        if len(found) > 2 * (most + _SLACK):
            return None
        at = match.end()
    return found


def _slices(pieces: Iterator[bytes], sizes: Iterable[int]) -> Iterator[bytes]:
    """What the pieces join to, cut anew. Raises `_OtherSize` where they are not used up, or too soon."""
    piece, at = b"", 0
    for size in sizes:
        if size <= len(piece) - at:
            yield piece[at : at + size]
            at += size
            continue
        parts = []
        while size > len(piece) - at:
            parts.append(piece[at:])
            size -= len(piece) - at
            piece, at = next(pieces, b""), 0
            if not piece:
                raise _OtherSize
        parts.append(piece[at : at + size])
        at += size
        yield b"".join(parts)
    if at < len(piece) or next(pieces, b""):
        raise _OtherSize


def read_per_event(body: bytes) -> tuple[Read, ...]:
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
    kind = cast("EndingKind", choice(response["ending"], "ending", get_args(EndingKind)))
    if (kind == "disconnected") != ("error" in response):
        raise Fault(
            "`error` stands beside `ending: disconnected`, and only there",
            response["ending"],
            "write `error: protocol`, `error: chunk` or `error: read`",
        )
    if kind != "disconnected":
        return Ending(kind)
    errors = get_args(EndingError)[1:]  # all but none
    return Ending(kind, cast("EndingError", choice(response["error"], "error", errors)))


def _headers(node: Node) -> Headers:
    if isinstance(node, SequenceNode):
        pairs = [items(item, "a header") for item in node.value]
        if wrong := next((item for item, pair in zip(node.value, pairs, strict=True) if len(pair) != 2), None):
            raise Fault("a header in a list is [name, value]", wrong)
        return tuple(_header(string(key, "a header name"), value) for key, value in pairs)
    if not isinstance(node, MappingNode):
        raise Fault(f"headers must be a mapping or a list of pairs, not {shown(node)}", node)
    return tuple(
        _header(key.value, item)
        for key, value in node.value
        for item in (value.value if isinstance(value, SequenceNode) else [value])
    )


def _header(name: str, node: Node) -> tuple[str, str]:
    value = string(node, f"the header {name!r}")
    if problem := unfit(name, value):
        raise Fault(problem, node, MEND)
    return name, value


def _assembled(node: Node) -> dict[str, Any]:
    if not isinstance(node, MappingNode):
        raise Fault(f"assembled must be a mapping, not {shown(node)}", node)
    match [key.value for key, _ in node.value]:
        case ["json_text"]:
            value = _from_json_text(node.value[0][1])
        case ["base64"]:
            value = _from_json(b"".join(decoded(node.value[0][1])), node)
        case _:
            value = value_of(node)
    if not isinstance(value, dict):
        raise Fault("assembled must be a JSON object", node)
    return value

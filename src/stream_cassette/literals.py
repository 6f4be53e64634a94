"""Long texts in a YAML file, read past yaml.

A response body is most of a cassette, and yaml would hold it four times over. So the literals and the base64 that stand where a cassette has its
bodies are cut out line by line, and yaml is shown as many blank lines. What yaml then makes of the file says whether that was right.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import BinaryIO

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

PIECE = 1 << 20  # bytes
# No place in a YAML literal, or invisible in one: a parser refuses it, takes it for a line end, or an editor loses it.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SAFE_ASCII = bytes([9, 10, *range(0x20, 0x7F)])
# A body and its columns, as `writing` writes them; the indentation of the text is what the 2 says beyond that of the key.
_OPENING = re.compile(rb"    (?:body|(-) text): \|2([-+])\n")
_OPENING_BASE64 = re.compile(rb"(    - base64: ')([A-Za-z0-9+/]{80}\n)")
_BASE64_LINE = re.compile(rb"        (?:[A-Za-z0-9+/]{80}|([A-Za-z0-9+/]{1,80}={0,2})')\n")
_LINE_OF_BASE64 = re.compile(".{1,80}")


class Safety:
    """Whether a text that comes in pieces is UTF-8 without unsafe characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def passes(self, piece: bytes, *, final: bool = False) -> bool:
        if not self._decoder.getstate()[0] and not piece.translate(None, _SAFE_ASCII):
            return True
        try:
            return not UNSAFE.search(self._decoder.decode(piece, final))
        except UnicodeDecodeError:
            return False


class Literal:
    """One literal of an open file. Iterating, as often as one likes, reads its text as UTF-8 in pieces of about `PIECE`.

    `sound` is False where yaml would not take it so.
    """

    style = "|"

    def __init__(self, file: BinaryIO, pad: bytes, keeps_end: bool) -> None:
        self.sound = True
        self._file, self._start, self._size = file, file.tell(), 0
        self._pad, self._keeps_end = pad, keeps_end
        self._lines = 0
        self._waiting = bytearray()
        self._safety = Safety()

    def take(self, line: bytes, fresh: bool) -> bytes | None:
        """What yaml is shown for the next line, or for a part of one that is not its start (`fresh`); None if it does not belong to this."""
        if fresh and line != b"\n" and not line.startswith(self._pad):
            return None
        self._size += len(line)
        self._waiting += line
        if len(self._waiting) >= PIECE:
            self._check()
        ends = line.endswith(b"\n")
        self._lines += ends
        return b"\n" * ends

    def close(self) -> None:
        self._check()
        self.sound = self.sound and self._safety.passes(b"", final=True)

    def _check(self) -> None:
        self.sound = self.sound and self._safety.passes(bytes(self._waiting))
        self._waiting.clear()

    @property
    def blank(self) -> str:
        """What yaml says of as many blank lines."""
        return "\n" * self._lines if self._keeps_end else ""

    def __iter__(self) -> Iterator[bytes]:
        pad = b"\n" + self._pad
        held, before = b"\n", 1  # a line end before the first line, which is none of the text
        for data in _stretch(self._file, self._start, self._size):
            held += data
            # What follows the last line end may be a pad that is not whole yet.
            end = held.rfind(b"\n", max(0, len(held) - len(pad)))
            end = len(held) if end < 0 else end
            if not self._keeps_end:
                end = len(held[:end].rstrip(b"\n"))
            if end:
                yield held[:end].replace(pad, b"\n")[before:]
                held, before = held[end:], 0
        held = held.replace(pad, b"\n")[before:]
        yield held if self._keeps_end else held.rstrip(b"\n")

    def __str__(self) -> str:
        return b"".join(self).decode()


class Encoded:
    """What a text of base64 in single quotes says, as `writing` writes one of several lines; otherwise as a `Literal`."""

    style = "'"

    def __init__(self, file: BinaryIO, first: bytes) -> None:
        self.sound = False  # until its end was seen
        self._file, self._start, self._size = file, file.tell() - len(first), len(first)
        self._lines = 0

    def take(self, line: bytes, fresh: bool) -> bytes | None:
        """As of a `Literal`."""
        match = None if self.sound else _BASE64_LINE.fullmatch(line)
        if match is None or not fresh:
            return None
        self._size += len(line)
        if match[1] is None:
            self._lines += 1
            return b"\n"
        self.sound = _is_base64(match[1])
        return b"        '\n"

    def close(self) -> None:
        pass

    @property
    def blank(self) -> str:
        """What yaml says of as many blank lines between quotes."""
        return "\n" * self._lines or " "

    def __iter__(self) -> Iterator[bytes]:
        held = b""
        for data in _stretch(self._file, self._start, self._size):
            held += data.translate(None, b" \n'")
            end = len(held) - len(held) % 4
            yield binascii.a2b_base64(held[:end])
            held = held[end:]

    def __str__(self) -> str:
        return " ".join(_LINE_OF_BASE64.findall(base64.b64encode(b"".join(self)).decode()))


def _is_base64(text: bytes) -> bool:
    """Whether it is base64 and the only spelling of what it says."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)) == text
    except binascii.Error:
        return False


def _stretch(file: BinaryIO, start: int, size: int) -> Iterator[bytes]:
    end = start + size
    while start < end:
        file.seek(start)
        data = file.read(min(PIECE, end - start))
        if not data:  # somebody made the file shorter meanwhile
            return
        start += len(data)
        yield data


def without_literals(file: BinaryIO) -> tuple[bytes, dict[int, Literal | Encoded]]:
    """A YAML text with blank lines in the place of its literals; and these, by the line (from 0) where each begins.

    They stay in the file, from where they are read when they are needed; so a long body is in memory only as what is made of it.
    """
    outline = bytearray()
    found: dict[int, Literal | Encoded] = {}
    literal: Literal | Encoded | None = None
    number, fresh = 0, True  # of the line, and whether the next piece is the start of one
    for line in iter(partial(file.readline, PIECE), b""):
        ends = line.endswith(b"\n")
        shown = literal.take(line, fresh) if literal is not None else None
        if literal is not None and shown is None:
            literal.close()
            literal = None
        if shown is None:
            shown = line
            if fresh and (opening := _OPENING.fullmatch(line)):
                literal = found[number] = Literal(file, b" " * (8 if opening[1] else 6), opening[2] == b"+")
            elif fresh and (opening := _OPENING_BASE64.fullmatch(line)):
                literal = found[number] = Encoded(file, opening[2])
                shown = opening[1] + b"\n"
        outline += shown
        number, fresh = number + ends, ends
    if literal is not None:
        literal.close()
        literal.sound = literal.sound and fresh
    return bytes(outline), found


def put_back(root: Node | None, literals: Mapping[int, Literal | Encoded]) -> bool:
    """Gives the nodes of an outline their literals as values; False, and nothing is done, where one of them is not what yaml sees there."""
    places = {(node.start_mark.line, node.style): node for node in _literal_nodes(root)}
    found = [(places.get((line, literal.style)), literal) for line, literal in literals.items()]
    if not all(literal.sound and node is not None and node.value == literal.blank for node, literal in found):
        return False
    for node, literal in found:
        assert node is not None
        node.value = literal
    return True


def _literal_nodes(root: Node | None) -> Iterator[ScalarNode]:
    seen: set[int] = set()
    todo = [root] if root is not None else []
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, MappingNode):
            todo += [part for pair in node.value for part in pair]
        elif isinstance(node, SequenceNode):
            todo += node.value
        elif isinstance(node, ScalarNode) and node.style in ("|", "'"):
            yield node

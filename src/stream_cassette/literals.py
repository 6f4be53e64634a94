"""Long texts in a YAML file, read past yaml.

A response body is most of a cassette, and yaml would hold it four times over. So the literals and the base64 that stand where a cassette has its
bodies are cut out, and yaml is shown as many blank lines. What yaml then makes of the file says whether that was right.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import errno
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import BinaryIO

from yaml.nodes import MappingNode, Node, ScalarNode

PIECE = 1 << 16  # bytes; a processor has them at hand, which makes this faster than pieces of a megabyte
_FIRST = 1 << 13  # bytes of the first piece; a file may have many short literals
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
        decoder = codecs.getincrementaldecoder("utf-8")
        self._whole, self._rare = decoder(), decoder()

    def passes(self, piece: bytes, *, final: bool = False) -> bool:
        rare = piece.translate(None, _SAFE_ASCII)
        if not rare and not self._whole.getstate()[0]:
            return True
        try:
            self._whole.decode(piece, final)
            # What is left of UTF-8 without some ASCII is UTF-8; and to search the whole text takes many times as long.
            return not UNSAFE.search(self._rare.decode(rare, final))
        except UnicodeDecodeError:
            return False


class Literal:
    """The literal whose text begins where an open file stands; then the file stands behind it.

    Iterating, as often as one likes, reads the text as UTF-8 in pieces of about `PIECE`. `size` is how many bytes it takes in the file, `outline` what
    yaml is shown in its place; `sound` is False where yaml would not take the text so.
    """

    style = "|"

    def __init__(self, file: BinaryIO, pad: bytes, keeps_end: bool) -> None:
        self._file, self._start = file, file.tell()
        self._pad, self._keeps_end = pad, keeps_end
        self.size, self._lines, self.sound = self._measured()
        self.outline = b"\n" * self._lines
        file.seek(self._start + self.size)

    def _measured(self) -> tuple[int, int, bool]:
        """Its bytes and lines, and whether they are sound."""
        before_other = re.compile(rb"\n(?!%b|\n)" % self._pad)
        safety, sound, ended = Safety(), True, False
        held, size, lines = b"\n", -1, -1  # a line end before the first line, which is none of the text
        while not ended:
            data = self._file.read(min(PIECE, max(_FIRST, size)))
            held += data
            end = len(held)
            if found := before_other.search(held):
                # What follows this line end may be a pad that is not whole yet.
                ended = not data or end - found.end() >= len(self._pad)
                end = found.end() if ended else found.start()
            elif not data:
                return size, lines, False  # the last line has no end
            taken, held = held[:end], held[end:]
            size += end
            lines += taken.count(b"\n")
            sound = sound and safety.passes(taken)
        return size, lines, sound and safety.passes(b"", final=True)

    @property
    def blank(self) -> str:
        """What yaml says of as many blank lines."""
        return "\n" * self._lines if self._keeps_end else ""

    def __iter__(self) -> Iterator[bytes]:
        pad = b"\n" + self._pad
        held, before = b"\n", 1  # a line end before the first line, which is none of the text
        for data in _stretch(self._file, self._start, self.size):
            held += data
            # What follows the last line end may be a pad that is not whole yet.
            end = held.rfind(b"\n", max(0, len(held) - len(pad)))
            end = len(held) if end < 0 else end
            if not self._keeps_end:
                end = len(held[:end].rstrip(b"\n"))
            if end:
                yield b"\n".join(held[:end].split(pad))[before:]  # as `replace` would, in less time
                held, before = held[end:], 0
        held = held.replace(pad, b"\n")[before:]
        yield held if self._keeps_end else held.rstrip(b"\n")

    def __str__(self) -> str:
        return b"".join(self).decode()


class Encoded:
    """What a text of base64 in single quotes says, as `writing` writes one of several lines; otherwise as a `Literal`."""

    style = "'"

    def __init__(self, file: BinaryIO, first: bytes) -> None:
        self._file, self._start, self.size = file, file.tell() - len(first), len(first)
        self._lines, last = 0, None
        while last is None and (match := _BASE64_LINE.fullmatch(file.readline(PIECE))):
            self.size += len(match[0])
            last = match[1]
            self._lines += last is None
        self.sound = last is not None and _is_base64(last)
        self.outline = b"\n" * self._lines + (b"" if last is None else b"        '\n")
        file.seek(self._start + self.size)

    @property
    def blank(self) -> str:
        """What yaml says of as many blank lines between quotes."""
        return "\n" * self._lines or " "

    def __iter__(self) -> Iterator[bytes]:
        held = b""
        for data in _stretch(self._file, self._start, self.size):
            held += data.translate(None, b" \n'")
            end = len(held) - len(held) % 4
            try:
                yield binascii.a2b_base64(held[:end])
            except binascii.Error:  # it was sound when it was measured
                raise _changed() from None
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
        if not data:
            raise _changed()
        start += len(data)
        yield data


def _changed() -> OSError:
    return OSError(errno.EAGAIN, "the file changed while it was read")


def without_literals(file: BinaryIO) -> tuple[bytes, dict[int, Literal | Encoded]]:
    """A YAML text with blank lines in the place of its literals; and these, by the line (from 0) where each begins.

    They stay in the file, from where they are read when they are needed; so a long body is in memory only as what is made of it.
    """
    outline = bytearray()
    found: dict[int, Literal | Encoded] = {}
    number, fresh = 0, True  # of the line, and whether the next piece is the start of one
    for line in iter(partial(file.readline, PIECE), b""):
        literal: Literal | Encoded | None = None
        shown = line
        if fresh and (opening := _OPENING.fullmatch(line)):
            literal = Literal(file, b" " * (8 if opening[1] else 6), opening[2] == b"+")
        elif fresh and (opening := _OPENING_BASE64.fullmatch(line)):
            literal = Encoded(file, opening[2])
            shown = opening[1] + b"\n"
        if literal is not None:
            found[number] = literal
            shown += literal.outline
        outline += shown
        number, fresh = number + shown.count(b"\n"), line.endswith(b"\n")
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
    seen: set[Node] = set()  # a node equals itself alone
    todo = [root] if root is not None else []
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ScalarNode):
            if node.style in ("|", "'"):
                yield node
        elif isinstance(node, MappingNode):
            for pair in node.value:
                todo += pair
        else:
            todo += node.value

"""Long texts in a YAML file, read past yaml.

A response body is most of a cassette, and yaml would hold it four times over. So the literals that stand where a cassette has its bodies are cut
out line by line, and yaml is shown as many blank lines. What yaml then makes of the file says whether that was right.
"""

from __future__ import annotations

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
    """The text of one literal as UTF-8: `pieces`, none of them much longer than `PIECE`. `sound` is False where yaml would not take it so."""

    def __init__(self, pad: bytes, keeps_end: bool) -> None:
        self.pieces: list[bytes] = []
        self.sound = True
        self._pad, self._keeps_end = pad, keeps_end
        self._lines = 0
        self._waiting = bytearray()
        self._safety = Safety()

    def takes(self, line: bytes, fresh: bool) -> bool:
        """Whether the line, or a part of one that is not its start (`fresh`), belongs to the literal; if so, it is kept."""
        if fresh and line != b"\n":
            if not line.startswith(self._pad):
                return False
            line = line[len(self._pad) :]
        self._waiting += line
        self._lines += line.endswith(b"\n")
        if len(self._waiting) >= PIECE:
            self._keep()
        return True

    def _keep(self) -> None:
        self.sound = self.sound and self._safety.passes(piece := bytes(self._waiting))
        self.pieces.append(piece)
        self._waiting.clear()

    def close(self) -> None:
        self._keep()
        self.sound = self.sound and self._safety.passes(b"", final=True)
        while not self._keeps_end and self.pieces:
            if last := self.pieces.pop().rstrip(b"\n"):
                self.pieces.append(last)
                break

    @property
    def blank(self) -> str:
        """What yaml says of as many blank lines."""
        return "\n" * self._lines if self._keeps_end else ""

    def __str__(self) -> str:
        return b"".join(self.pieces).decode()


def without_literals(file: BinaryIO) -> tuple[bytes, dict[int, Literal]]:
    """A YAML text with blank lines in the place of its literals; and these, by the line (from 0) where each begins."""
    outline, found = bytearray(), {}
    literal: Literal | None = None
    number, fresh = 0, True  # of the line, and whether the next piece is the start of one
    for line in iter(partial(file.readline, PIECE), b""):
        ends = line.endswith(b"\n")
        if literal is not None and not literal.takes(line, fresh):
            literal.close()
            literal = None
        if literal is not None:
            outline += b"\n" * ends
        else:
            outline += line
            if fresh and (opening := _OPENING.fullmatch(line)):
                literal = found[number] = Literal(b" " * (8 if opening[1] else 6), opening[2] == b"+")
        number, fresh = number + ends, ends
    if literal is not None:
        literal.close()
        literal.sound = literal.sound and fresh
    return bytes(outline), found


def put_back(root: Node | None, literals: Mapping[int, Literal]) -> bool:
    """Gives the nodes of an outline their literals as values; False, and nothing is done, where one of them is not what yaml sees there."""
    places = {node.start_mark.line: node for node in _literal_nodes(root)}
    if not all(
        literal.sound and line in places and places[line].value == literal.blank for line, literal in literals.items()
    ):
        return False
    for line, literal in literals.items():
        places[line].value = literal
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
        elif isinstance(node, ScalarNode) and node.style == "|":
            yield node

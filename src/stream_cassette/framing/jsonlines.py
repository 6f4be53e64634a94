"""JSON bodies, sans-IO: one value a line (NDJSON), the elements of one array, or one value over many lines. Bytes to frames and back.

NDJSON (https://github.com/ndjson/ndjson-spec) ends a line at LF alone: U+2028, U+2029, U+0085, VT and FF may stand in a JSON string or are bad
JSON, and a CR before the LF is white space (https://www.rfc-editor.org/rfc/rfc8259#section-2). Gemini without `alt=sse` streams one array, its
elements parted by `\\n,\\r\\n`. Errors come as one object, often printed over many lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ..errors import CannotSay
from ..model import Frame

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_BETWEEN = _SPACE + b","  # what parts the elements of an array

# Outside strings: on to the next bracket or line end, over whole strings. It stops at a quote too if its string does not end in what has come,
# or not before the line does.
_PLAIN = re.compile(rb'(?:[^"{}\[\]\n]++|"(?:[^"\\\n]++|\\[^\n])*+")*+')
# Inside a string: on to its quote, to the line end that breaks it off, or to a last backslash whose character has not come yet.
_IN_STRING = re.compile(rb'(?:[^"\\\n]++|\\[^\n]|\\(?=\n))*+')
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+("|\Z)')  # also one that is not closed, so that each byte is looked at once
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r]*+[{\[]")
_LINE = re.compile(rb"[^\n]*+\n")
_QUOTE, _LF, _BACKSLASH, _BRACE, _BRACKET_END, _BRACE_END = b'"\n\\{]}'
_ENDS: Mapping[int, int] = dict(zip(b"{[", b"}]", strict=True))

# What a line must begin with to go on with the JSON text before it, by the last byte of that; after any other byte a value has ended.
_VALUE = b'"{[-0123456789tfn'
_GOES_ON: Mapping[bytes, bytes] = {b"{": b'"}', b"[": _VALUE + b"]", b":": _VALUE}
_AFTER_A_VALUE = b",:}]"

_LINE_ENDS = "the line ends inside this JSON value"
_BODY_ENDS = "the body ends inside this JSON value"


class Decoder:
    """Frames of a JSON body; `data` is the text of one value, or None for a blank line and for the end of an array.

    The unit is the line. A value that opens with a bracket and is not closed at the LF goes on over the next lines as long as these go on with it
    as JSON (a printed object). Where they do not, what was held has a `problem`, but for lines that are objects on their own, and the next line is
    read by itself. Only a body that begins with `[{` is read as an array: each element is out with its last byte, and its `raw` begins with what
    parts it from the one before. Whether a value is good JSON is left to who reads it. Time is linear in the bytes fed, memory in the longest
    value.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0  # where the frame being read starts
        self._line = 0  # where its line being read starts
        self._at = 0  # scanned up to here
        self._open = bytearray()  # the ends that the open brackets want, innermost last
        self._in_string = False
        self._ignore = False  # brackets say nothing more on this line: its value is whole, or they do not pair
        self._last = b""  # where a value goes on from the line before: the last byte of that
        self._innermost = 0  # and the end that its innermost bracket wants
        self._array: bool | None = None  # inside an array body? The first value tells
        self._inside = 0  # where the first value goes on behind its bracket
        self._bracket_due = False  # the opening bracket of the array belongs to the next frame
        self._mark_due = True  # the byte order mark may belong to the next frame

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that end within `data`."""
        self._buffer += data
        found = list(self._frames())
        start, self._start = self._start, 0
        del self._buffer[:start]
        self._line -= start
        self._at -= start
        self._inside -= start
        return found

    def close(self) -> list[Frame]:
        """What is left when the body ends. A last line needs no LF; a value that is not closed has a `problem`."""
        if not self._buffer:
            return []
        found = self.feed(b"\n")
        end = len(self._buffer)
        if end:
            found += self._give_up(end) if self._open else [self._cut(end)]
            self._buffer.clear()
        last = found.pop()
        last = last._replace(raw=last.raw[:-1], problem=last.problem and _BODY_ENDS)
        return [*found, last] if last.raw else found

    def _frames(self) -> Iterator[Frame]:
        while (byte := self._next()) is not None:
            self._at += 1
            if byte == _LF:
                yield from self._end_line()
            elif byte == _QUOTE:
                self._in_string = not self._in_string
            elif self._ignore:
                continue
            elif byte in _ENDS:
                self._open_bracket(byte)
            elif self._open and byte == self._open[-1]:
                self._open.pop()
                if self._array and not self._open:
                    yield self._cut(self._at)
                else:
                    self._ignore = not self._open
            elif self._array and not self._open and byte == _BRACKET_END:
                yield self._end_array()
            else:
                self._ignore = True

    def _next(self) -> int | None:
        """The next byte that may end something, at `_at`; None if more must come first."""
        match = (_IN_STRING if self._in_string else _PLAIN).match(self._buffer, self._at)
        assert match  # both patterns match nothing, too
        self._at = match.end()
        if self._at == len(self._buffer):
            return None
        byte = self._buffer[self._at]
        return None if self._in_string and byte == _BACKSLASH else byte

    def _open_bracket(self, byte: int) -> None:
        if self._array is None and self._open:
            # The second bracket tells whether the body is an array of objects; one of anything else is a value like others.
            before = self._buffer[self._start : self._inside - 1], self._buffer[self._inside : self._at - 1]
            self._array = (
                byte == _BRACE and self._open == b"]" and not any(part.strip(_SPACE + _BOM) for part in before)
            )
            if self._array:
                self._open.clear()
                self._last, self._bracket_due = b"", True
        if not self._open:
            self._inside = self._at
        self._open.append(_ENDS[byte])

    def _end_line(self) -> Iterator[Frame]:
        end = self._at
        broken, self._in_string = self._in_string, False
        line = bytes(self._buffer[self._line : end]).strip(_SPACE) if self._open or self._last or self._array else b""
        if self._last and line and line[0] not in self._may_follow():
            again = self._line
            yield from self._give_up(again)
            self._at = again  # this line is read anew, by itself
        elif broken:
            yield from self._give_up(end)
        elif (
            self._open and not self._ignore and (self._array or self._last or _OPENING.match(self._buffer, self._start))
        ):
            self._last, self._innermost, self._line = line[-1:] or self._last, self._open[-1], end
        elif self._array and not self._ignore and not line.strip(_BETWEEN):
            self._line = end  # it belongs to the next element
        else:
            yield self._cut(end)

    def _may_follow(self) -> bytes:
        if self._last == b",":
            return b'"' if self._innermost == _BRACE_END else _VALUE
        return _GOES_ON.get(self._last, _AFTER_A_VALUE)

    def _end_array(self) -> Frame:
        frame = self._cut(self._at)
        self._array = False
        text = str(frame.data)[:-1].rstrip(_BETWEEN.decode())
        return frame._replace(data=text or None)

    def _give_up(self, end: int) -> Iterator[Frame]:
        """The lines up to `end` are no JSON text together. Those that are objects on their own are saved, outside of an array."""
        lines = [] if self._array else _LINE.findall(bytes(self._buffer[self._start : end]))
        at = self._start
        for line in lines:
            if _is_object(
                line
            ):  # never the first line, which is not whole, nor one behind another, where nothing can go on
                yield self._cut(at, _LINE_ENDS)
                yield self._cut(at + len(line))
            at += len(line)
        if end > self._start:
            yield self._cut(end, _LINE_ENDS)

    def _cut(self, end: int, problem: str | None = None) -> Frame:
        """The frame that ends at `end`; the next one starts there."""
        raw = bytes(self._buffer[self._start : end])
        text = (raw.removeprefix(_BOM) if self._mark_due else raw).strip(_SPACE)
        if self._array:
            text = (text.partition(b"[")[2] if self._bracket_due else text).strip(_BETWEEN)
            self._bracket_due = False
        elif text:
            self._array = False
        self._mark_due = self._ignore = False
        self._last = b""
        self._open.clear()
        self._start = self._line = end
        return Frame(raw, text.decode("utf-8", "replace") if text else None, problem=problem)


def _is_object(line: bytes) -> bool:
    """Does the line hold one object, not indented as the inside of a printed one is?"""
    if not line.startswith(b"{") or not line.rstrip().endswith(b"}"):
        return False
    bare = _STRING.sub(lambda match: b"" if match[1] else b'"', line)
    return (
        bare.rstrip().endswith(b"}")
        and b'"' not in bare
        and bare.count(b"{") == bare.count(b"}")
        and bare.count(b"[") == bare.count(b"]")
    )


def encode(data: str, like: Frame | None = None) -> Frame:
    """The frame of the JSON text `data`: a line with the line end of `like`, or an element of an array if `like` is one.

    `CannotSay` for a line whose text goes over several. See `relink` for the brackets and commas of an array.
    """
    text = data.encode("utf-8", "replace")
    if like is not None and (lead := _lead(like)):
        return Frame(lead + text, data)
    if "\n" in data:
        raise CannotSay(
            f"a line end inside one JSON line: {data[:60]!r}", mend="write the payload with json.dumps and no indent"
        )
    return Frame(text + (b"\r\n" if like is not None and like.raw.endswith(b"\r\n") else b"\n"), data)


def relink(frames: Iterable[Frame]) -> list[Frame]:
    """The same frames, where elements of an array body were dropped, added or moved: the first opens with the bracket, the others with a comma."""
    found: list[Frame] = []
    begun = False
    for frame in frames:
        lead = _lead(frame)
        if lead and (b"," if begun else b"[") not in lead:
            mended = lead.removeprefix(_BOM).replace(b"[", b",") if begun else b"["
            frame = frame._replace(raw=mended + frame.raw[len(lead) :])
        begun = begun or bool(lead)
        found.append(frame)
    return found


def _lead(frame: Frame) -> bytes:
    """What opens or parts the array before this element; empty for what is no element of one."""
    if frame.data is None:
        return b""
    lead, found, _ = frame.raw.partition(frame.data.encode("utf-8", "replace"))
    return lead if found and lead.strip(_SPACE + _BOM) else b""

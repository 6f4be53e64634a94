"""The event-stream framing (https://html.spec.whatwg.org/multipage/server-sent-events.html), sans-IO: bytes to frames and back."""

from __future__ import annotations

import math
import re

from ..errors import CannotSay
from ..jsontext import is_unicode
from ..model import Frame

_BOM = b"\xef\xbb\xbf"
_LF = 10
_CR = 13
_COLON = 58

# A CR LF pair is one line end, never two: the groups are atomic, so that it is not torn apart to find a blank line.
_LINE_END = re.compile(rb"(?>\r\n|\r|\n)")
_BLOCK_END = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
_RETRY_DIGITS = 640  # as many as int() takes under any sys.set_int_max_str_digits()
_LINES = re.compile("\r\n|\r|\n")

# Anchored at a blank line, and possessive: else a line that says `data: ` ten thousand times would be begun as often.
_PLAIN = re.compile(rb"(?:\A|(?<=\n\n))((?:event: ?(.*+)\n)?data: ?(.*+)\n\n)")
_PLAIN_CRLF = re.compile(rb"(?:\A|(?<=\r\n\r\n))((?:event: ?([^\r\n]*+)\r\n)?data: ?([^\r\n]*+)\r\n\r\n)")

_new = tuple.__new__  # makes a frame in half the time of its constructor


class Decoder:
    """Frames of an event stream, each out as early as the standard allows, whatever pieces the bytes come in.

    A frame is a block with the blank line that ends it, or, between blocks, one comment or one blank line. Every byte stands in the `raw` of
    exactly one frame. Where a read ends between the CR and the LF of a blank line, the event is out at once and the LF opens the next frame's
    `raw`. Time is linear in the bytes fed, memory in the longest block.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0  # no block ends before this place
        self._only_lf = True  # no CR seen yet: the fast search will do
        self._blank, self._plain = b"\n\n", _PLAIN
        self._at_start = True  # the byte order mark may still come
        self._after_cr = False  # an LF that comes now belongs to a line end already counted
        self._last_id = ""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that end within `data`."""
        if self._only_lf and _CR in data:
            self._only_lf, self._blank, self._plain = False, b"\r\n\r\n", _PLAIN_CRLF
        out: list[Frame] = []
        if self._buffer or self._at_start:
            self._buffer += data
            self._cut(self._buffer, out, most=1)
            if not out:
                return out
            data = bytes(self._buffer)
            self._buffer.clear()
            self._scanned = 0
        elif not self._after_cr and (one := self._plain.fullmatch(data)):  # a live stream comes event by event
            return [_frame(one[0], one[2], one[3], self._last_id)]
        taken = 0 if self._after_cr else self._split(data, out)
        if taken < len(data):
            self._buffer += data[taken:]
            self._cut(self._buffer, out)
        return out

    def _split(self, data: bytes, out: list[Frame]) -> int:
        """Nearly all blocks of nearly all streams are a line of data, maybe after the name of the event: those are found all at once.

        `data` begins with a frame. How much of it was taken: all up to its last blank line, or nothing.
        """
        last = data.rfind(self._blank)
        end = last + len(self._blank)
        if last < 0:
            return 0
        before, size, last_id = len(out), 0, self._last_id
        for raw, event, value in self._plain.findall(data, 0, end):
            size += len(raw)
            out.append(_frame(raw, event, value, last_id))
        if size < end:  # other blocks stand between
            del out[before:]
            return 0
        return end

    def close(self) -> list[Frame]:
        """What is left when the body ends: nothing, or one frame. A block without its blank line has a `problem`; the standard drops it."""
        raw = bytes(self._buffer)
        lead = self._lead(raw, at_end=True)
        self._buffer.clear()
        if not raw:
            return []
        if lead == len(raw):
            return [Frame(raw, id=self._last_id)]
        before = self._last_id
        frame = self._read(raw, lead, problem="the body ends inside this event")
        self._last_id = before
        return [Frame(raw, frame.data, frame.event, before, frame.retry, frame.problem)]

    def _cut(self, buffer: bytearray, out: list[Frame], most: float = math.inf) -> None:
        """Takes whole frames off the front of `buffer`, `most` of them at most."""
        start, goal = 0, len(out) + most
        while start < len(buffer) and len(out) < goal:
            lead = self._lead(buffer, start)
            first = start + lead
            if lead < 0 or first >= len(buffer):
                break
            end = self._end(buffer, first)
            if end < 0:
                break
            raw = bytes(buffer[start:end])
            out.append(self._read(raw, lead))
            self._at_start, self._after_cr = False, raw[-1] != _LF
            self._scanned = start = end
        if start:
            del buffer[:start]
            self._scanned = max(self._scanned - start, 0)

    def _lead(self, buffer: bytes | bytearray, start: int = 0, *, at_end: bool = False) -> int:
        """How many bytes before the first line say nothing: a byte order mark, the LF of a CR LF already read. -1: more bytes will tell."""
        if self._at_start:
            if buffer.startswith(_BOM, start):
                return 3
            if not at_end and len(buffer) - start < 3 and _BOM.startswith(bytes(buffer[start:])):
                return -1
        return 1 if self._after_cr and buffer[start : start + 1] == b"\n" else 0

    def _end(self, buffer: bytearray, first: int) -> int:
        """Where the frame whose first line starts at `first` ends, or -1 if that is not known yet."""
        alone = buffer[first] in b":\r\n"  # a comment or a blank line between blocks
        scan = max(first, self._scanned)
        if self._only_lf:
            mark = b"\n" if alone else b"\n\n"
            found = buffer.find(mark, scan)
            end = found + len(mark) if found >= 0 else -1
        else:
            match = (_LINE_END if alone else _BLOCK_END).search(buffer, scan)
            end = match.end() if match else -1
        if end < 0:
            # A line end at the very end of the buffer may be the first half of what is sought (up to three of CR LF CR LF).
            self._scanned = max(first, len(buffer) - 3)
        return end

    def _read(self, raw: bytes, lead: int, problem: str | None = None) -> Frame:
        """The fields of one frame, after the standard's "processing model"."""
        if raw[lead] == _COLON:
            return Frame(raw, id=self._last_id)
        if not problem and (one := self._plain.fullmatch(raw)):
            return _frame(raw, one[2], one[3], self._last_id)
        text = raw[lead:].decode("utf-8", "replace")
        data: list[str] = []
        event, retry = "", None
        for line in _LINES.split(text):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match name:
                case "data":
                    data.append(value)
                case "event":
                    event = value
                case "id" if "\0" not in value:
                    self._last_id = value
                case "retry" if value.isascii() and value.isdigit() and len(value) <= _RETRY_DIGITS:
                    retry = int(value)
                case _:
                    pass  # the standard ignores unknown fields, and a comment is the field without a name
        return Frame(raw, "\n".join(data) if data else None, event or "message", self._last_id, retry, problem)


def _frame(raw: bytes, event: bytes | None, data: bytes, last_id: str) -> Frame:
    name = event.decode("utf-8", "replace") if event else "message"
    return _new(Frame, (raw, data.decode("utf-8", "replace"), name, last_id, None, None, ()))


def encode(data: str, event: str = "message", like: Frame | None = None) -> Frame:
    """The frame that says `event` and `data`, with the line ends of `like`. `CannotSay` if a value has a line end that the framing would lose."""
    if "\r" in data or "\r" in event or "\n" in event or not is_unicode(data + event):
        raise CannotSay(
            f"an event stream cannot carry a CR, a line end in an event name, or a lone surrogate: {event!r} {data[:60]!r}",
            mend="JSON escapes line ends; write the payload with json.dumps",
        )
    end = _line_end(like)
    lines = [f"event: {event}"] if event != "message" else []
    lines += [f"data: {line}" for line in data.split("\n")]
    raw = (end.join(lines) + end + end).encode()
    return Frame(raw, data, event, like.id if like else "")


def _line_end(like: Frame | None) -> str:
    match = _LINE_END.search(like.raw) if like else None
    return match.group().decode() if match else "\n"

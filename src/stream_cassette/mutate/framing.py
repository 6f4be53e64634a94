"""The same events in other bytes: what the event-stream standard lets a server write."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .. import jsontext
from ..dialects.base import payload_of
from ..errors import NotApplicable
from ..model import End, Frame
from ..stream import Stream
from .base import Mutator, slots, with_frames
from .laws import SAME

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_AFTER_COLON = re.compile(rb"(?m)^(data|event|id|retry): ")


class _Framing(Mutator):
    """Works on frames that carry an event; an event stream has them between comments and blank lines."""

    level = "framing"
    law = SAME

    @abstractmethod
    def frames(self, place: int, frame: Frame) -> list[Frame]:
        """What stands in the place of `frame`, the `place`th event of the stream."""
        ...

    def apply(self, stream: Stream) -> Stream:
        events = [frame for frame in stream.frames if frame.data is not None]
        if not _is_text(events):
            raise NotApplicable("the body is no text event stream")
        edit, place = [], 0
        for frame in stream.frames:
            edit.append(self.frames(place, frame) if frame.data is not None or self.all_frames else [frame])
            place += frame.data is not None
        changed = with_frames(stream, edit)
        if changed.body == stream.body:
            raise NotApplicable("the stream is written like that already")
        return changed

    all_frames = False
    """Comments and blank lines too?"""


def _is_text(events: Sequence[Frame]) -> bool:
    """Are these the events of a text event stream? No line of one that has data begins with a brace or bracket."""
    return bool(events) and not any(
        frame.headers or frame.raw.lstrip(_BOM + b" \t\r\n")[:1] in (b"{", b"[", b",") for frame in events
    )


def _raw(frame: Frame, raw: bytes) -> list[Frame]:
    return [frame._replace(raw=raw)]


@dataclass(frozen=True, slots=True)
class LineEndings(_Framing):
    """Lines that end in `end`."""

    end: Literal["\r\n", "\r", "\n"]

    all_frames = True

    def frames(self, place: int, frame: Frame) -> list[Frame]:
        return _raw(frame, _LINE_END.sub(self.end.encode(), frame.raw))

    @classmethod
    def instances(cls, stream: Stream) -> Sequence[LineEndings]:
        return (cls("\r\n"), cls("\r"))

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[LineEndings]:
        from hypothesis import strategies as st

        return st.sampled_from([cls("\r\n"), cls("\r")])


@dataclass(frozen=True, slots=True)
class Comments(_Framing):
    """A comment with `text` and a blank line before every `every`th event."""

    every: int = 1
    text: str = "keep-alive"

    def frames(self, place: int, frame: Frame) -> list[Frame]:
        comment = [Frame(f": {self.text}\n\n".encode())] if place % max(1, self.every) == 0 else []
        return [*comment, frame]

    @classmethod
    def strategy(cls, stream: Stream) -> SearchStrategy[Comments]:
        from hypothesis import strategies as st

        return st.builds(
            cls, st.integers(1, 5), st.sampled_from(["keep-alive", "", "data: {}", "OPENROUTER PROCESSING"])
        )


@dataclass(frozen=True, slots=True)
class ByteOrderMark(Mutator):
    """A byte order mark before the first byte."""

    level = "framing"
    law = SAME

    def apply(self, stream: Stream) -> Stream:
        events = [frame for frame in stream.frames if frame.data is not None]
        if not _is_text(events) or stream.body.startswith(_BOM):
            raise NotApplicable("the body is no text event stream, or begins so already")
        first, *others = stream.frames
        return with_frames(stream, [_raw(first, _BOM + first.raw), *([frame] for frame in others)])


@dataclass(frozen=True, slots=True)
class NoSpaceAfterColon(_Framing):
    """`data:{...}` instead of `data: {...}`."""

    def frames(self, place: int, frame: Frame) -> list[Frame]:
        return _raw(frame, _AFTER_COLON.sub(rb"\1:", frame.raw))


def _a_line_an_item(value: Any) -> str:
    """JSON with a line end after each comma; without `indent`, which Python's encoder in C does not know."""
    text = json.dumps(value, ensure_ascii=False, separators=(",\n", ": "))
    return text if jsontext.is_unicode(text) else json.dumps(value, separators=(",\n", ": "))


@dataclass(frozen=True, slots=True)
class MultiLineData(_Framing):
    """The JSON of an event over several `data:` lines."""

    def frames(self, place: int, frame: Frame) -> list[Frame]:
        value = payload_of(frame)
        if not isinstance(value, dict | list):
            return [frame]
        end = _LINE_END.search(frame.raw)
        line = end.group().decode() if end else "\n"
        event = f"event: {frame.event}{line}" if frame.event != "message" else ""
        text = _a_line_an_item(value)
        data = line.join([f"data: {each}" for each in (text[0], *text[1:-1].split("\n"), text[-1])])
        return _raw(frame, f"{event}{data}{line}{line}".encode())


@dataclass(frozen=True, slots=True)
class ExtraFields(_Framing):
    """`id:`, `retry:` and an unknown field beside the data, as gateways add them."""

    def frames(self, place: int, frame: Frame) -> list[Frame]:
        end = _LINE_END.search(frame.raw)
        line = end.group() if end else b"\n"
        extra = line.join([b"id: %d" % place, b"retry: 3000", b"x-trace: none", b""])
        return _raw(frame, extra + frame.raw.removeprefix(_BOM)) if not frame.raw.startswith(_BOM) else [frame]


@dataclass(frozen=True, slots=True)
class DropDone(Mutator):
    """No end mark: the frame that says nothing but the end is left out. The finish reason has come before."""

    level = "framing"
    law = SAME
    erases = frozenset(("end_mark",))
    needs = frozenset(("end_mark",))

    def apply(self, stream: Stream) -> Stream:
        found = slots(stream)
        if stream.reply.finish_reason is None:
            raise NotApplicable("the end mark is all that says that the reply is whole")
        edit = [[] if slot.deltas == (End(),) else [slot.frame] for slot in found]
        if all(edit):
            raise NotApplicable("no frame says the end and nothing else")
        return with_frames(stream, edit)

"""What the tables of quirks are written with, changes of payloads and of frames; and the quirks that every event stream may have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from .. import jsontext
from ..framing import jsonlines, sse
from ..model import Frame
from .base import Spelling, framing_of, payload_of, relinked, write_json

Payload = dict[str, Any]
Rewrite = Callable[[Sequence[Frame]], list[list[Frame]]]

_BOM = b"\xef\xbb\xbf"
_DONE = ("[DONE]", "DONE")


# -------------------------------------------------------------------------------------------------------------------- payloads


def on_payloads(change: Callable[[list[Payload]], list[list[Payload]]]) -> Rewrite:
    """A rewrite of frames from a change of all JSON objects in them: for each what stands in its place.

    The change gets objects of its own, which it may alter. A frame whose object comes back the same keeps its bytes.
    """

    def rewrite(frames: Sequence[Frame]) -> list[list[Frame]]:
        places = [(at, payload) for at, frame in enumerate(frames) if isinstance(payload := payload_of(frame), dict)]
        out = [[frame] for frame in frames]
        if len(places) == 1 and not is_event(frames[places[0][0]]):
            return out  # a body that is one JSON value, and no stream
        for (at, old), new in zip(places, change([deepcopy(payload) for _, payload in places]), strict=True):
            out[at] = [_written(payload, old, frames[at]) for payload in new]
        linked = iter(relinked([frame for new in out for frame in new]))
        return [[next(linked) for _ in new] for new in out]

    return rewrite


def _written(payload: Payload, old: Payload, frame: Frame) -> Frame:
    if jsontext.dump(payload) == jsontext.dump(old):  # by their text: to Python 1 is 1.0
        return frame
    named = (payload[name] for name in ("type", "event_type") if name in payload and old.get(name) == frame.event)
    return write_json(payload, "sse", next(named, frame.event), frame)


def each(change: Callable[[Payload], None]) -> Rewrite:
    """`on_payloads` where every object is altered on its own."""

    def all_of_them(payloads: list[Payload]) -> list[list[Payload]]:
        for payload in payloads:
            change(payload)
        return [[payload] for payload in payloads]

    return on_payloads(all_of_them)


def dropping(wanted: Callable[[Payload], bool]) -> Rewrite:
    """`on_payloads` that leaves out what is not wanted."""
    return on_payloads(lambda payloads: [[payload] if wanted(payload) else [] for payload in payloads])


def halves(text: str) -> tuple[str, str]:
    middle = (len(text) + 1) // 2
    return text[:middle], text[middle:]


def compact_object(text: str) -> Payload | None:
    """The JSON object that `text` is the compact spelling of, so that nothing is lost where it is sent as an object."""
    try:
        value = jsontext.parse(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and jsontext.dump(value) == text else None


# ---------------------------------------------------------------------------------------------------------------------- frames


def before(frames: Sequence[Frame], at: int, new: Frame) -> list[list[Frame]]:
    """The frames with `new` before the one at `at`; a byte order mark stays first."""
    out = [[frame] for frame in frames]
    old = frames[at]
    if old.raw.startswith(_BOM):
        new, old = new._replace(raw=_BOM + new.raw), old._replace(raw=old.raw.removeprefix(_BOM))
    out[at] = [new, old]
    return out


def events(frames: Sequence[Frame]) -> list[int]:
    """The places of the frames that are events of an event stream and carry data."""
    return [at for at, frame in enumerate(frames) if is_event(frame)]


def is_event(frame: Frame) -> bool:
    return frame.data is not None and not frame.headers and framing_of(frame, "jsonlines") == "sse"


def line_end(frame: Frame) -> str:
    return "\r\n" if b"\r\n" in frame.raw else "\r" if b"\r" in frame.raw else "\n"


def between(line: str) -> Rewrite:
    """A rewrite that puts an event of this one line before every event of an event stream but the first."""

    def rewrite(frames: Sequence[Frame]) -> list[list[Frame]]:
        later = set(events(frames)[1:])
        ends = [line_end(frame) * 2 for frame in frames]
        return [
            [Frame(f"{line}{ends[at]}".encode()), frame] if at in later else [frame] for at, frame in enumerate(frames)
        ]

    return rewrite


def appended(frames: Sequence[Frame], *new: Frame) -> list[list[Frame]]:
    """The frames with `new` behind the last event; unchanged where that is not terminated."""
    out = [[frame] for frame in frames]
    places = events(frames)
    if places and frames[-1].problem is None:
        out[places[-1]] += new
    return out


def done_sentinel(over: Callable[[Payload], bool]) -> Spelling:
    """A `[DONE]` behind a stream in which `over` is true of some payload, on a wire that does not know it."""

    def rewrite(frames: Sequence[Frame]) -> list[list[Frame]]:
        whole = any(isinstance(payload := payload_of(frame), dict) and over(payload) for frame in frames)
        if not whole or any(frame.data in _DONE for frame in frames):
            return [[frame] for frame in frames]
        return appended(frames, sse.encode("[DONE]", like=frames[0]))

    return Spelling(
        "gateways that speak several dialects end each with `data: [DONE]`; parsed as JSON it raises", rewrite
    )


def data_after_done(over: Callable[[Frame], bool], content: Callable[[Payload], bool]) -> Spelling:
    """After the end mark, the frame of which `over` is true, one of the contents comes once more, and an empty event."""

    def rewrite(frames: Sequence[Frame]) -> list[list[Frame]]:
        said = [frame for frame in frames if isinstance(payload := payload_of(frame), dict) and content(payload)]
        places = events(frames)
        if not said or not places or not over(frames[places[-1]]):
            return [[frame] for frame in frames]
        return appended(frames, said[-1], Frame(f"data:{line_end(frames[0]) * 2}".encode()))

    return Spelling(
        "some gateways flush late deltas behind the end mark; readers that go on append them",
        rewrite,
        frozenset(("end_mark",)),
    )


# ----------------------------------------------------------------------------------------- quirks of every JSON in text framing


def _escaped(frames: Sequence[Frame]) -> list[list[Frame]]:
    return [[_escape(frame)] for frame in frames]


def _escape(frame: Frame) -> Frame:
    if frame.data is None or frame.data.isascii() or not isinstance(payload := payload_of(frame), dict):
        return frame
    text = json.dumps(payload, separators=(",", ":"))
    return sse.encode(text, frame.event, frame) if is_event(frame) else jsonlines.encode(text, frame)


ESCAPES = Spelling(
    "Python servers escape every character outside ASCII; readers that match or count raw bytes go wrong", _escaped
)


def _commented(frames: Sequence[Frame]) -> list[list[Frame]]:
    """Ids on the events, and a comment before each but the first."""
    numbered = not any(frame.id for frame in frames)
    places = events(frames)
    out = [[frame] for frame in frames]
    for number, at in enumerate(places, 1):
        frame, end = frames[at], line_end(frames[at])
        if numbered:
            mark = _BOM if frame.raw.startswith(_BOM) else b""
            raw = mark + f"id: {number}{end}".encode() + frame.raw.removeprefix(mark)
            frame = frame._replace(raw=raw, id=str(number))
        comment = Frame(f": keepalive{end}{end}".encode())
        out[at] = [frame] if at == places[0] else [comment, frame]
    return out


EVENT_STREAM: Mapping[str, Spelling] = {
    "ascii-escapes": ESCAPES,
    "comment-as-data": Spelling(
        "gateways wrap a keep-alive comment into a data line, `data: : keepalive`; parsed as JSON it raises",
        between("data: : keepalive"),
    ),
    "comment-after-id": Spelling(
        "events with an id, then a keep-alive comment: some decoders dispatch an event without data, which parsed as JSON raises",
        _commented,
    ),
    "empty-data": Spelling("proxies send `data:` as a heartbeat; parsed as JSON it raises", between("data:")),
    "event-without-data": Spelling(
        "proxies send `event: keepalive` without data; some decoders dispatch it, which parsed as JSON raises",
        between("event: keepalive"),
    ),
}
"""What proxies and gateways do to any event stream."""

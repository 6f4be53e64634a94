"""A stream as it came: read by read, what each read made whole, what that says in words, and in which lane."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any, assert_never

from .errors import UnknownDialect
from .lanes import Lane, join_name, resolve
from .model import (
    USAGE_COUNTS,
    Arguments,
    ArgumentsAt,
    Delta,
    End,
    Finish,
    Frame,
    Keepalive,
    Key,
    Opaque,
    PartEnd,
    PartStart,
    Reasoning,
    Refusal,
    Signature,
    Start,
    StreamError,
    Text,
    ToolCallStart,
    Unknown,
    UsageUpdate,
    Whole,
    key_of,
)
from .stream import Stream

Line = tuple[tuple[str, str], ...]
"""Pieces of one line, each with its style as rich has them (`bold`, `red`, or nothing)."""


@dataclass(frozen=True, slots=True)
class Event:
    """One frame and what it says: `deltas`, and for each its lane. Without a known dialect it says nothing."""

    frame: Frame
    deltas: tuple[Delta, ...]
    lanes: tuple[Lane | None, ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One read and the events that it made whole. Reads that made none whole stand together with the one after them.

    `at_ms`: when the last of its `reads` came, in milliseconds after the response headers. `size`: their bytes. `inside`: what the last one ended
    in the middle of, an `event` or even a `character`, else empty; `split`: how many of its reads ended inside a character.
    """

    at_ms: int
    reads: int
    size: int
    events: tuple[Event, ...]
    inside: str = ""
    split: int = 0


def events(stream: Stream) -> tuple[Event, ...]:
    """Every frame of the stream with what it says."""
    try:
        said = stream.deltas_by_frame
    except UnknownDialect:
        said = tuple(() for _ in stream.frames)
    lanes = iter(resolve([delta for deltas in said for delta in deltas]))
    return tuple(
        Event(frame, deltas, tuple(next(lanes) for _ in deltas))
        for frame, deltas in zip(stream.frames, said, strict=True)
    )


def arrivals(stream: Stream) -> Iterator[Arrival]:
    """The reads of the stream with the events that each made whole; time is linear in the size."""
    found, body = events(stream), stream.body
    ends = list(accumulate(len(event.frame.raw) for event in found))
    came = done = first = reads = size = split = 0
    for number, read in enumerate(stream.exchange.reads, 1):
        came, reads, size = came + len(read.data), reads + 1, size + len(read.data)
        while done < len(ends) and ends[done] <= came:
            done += 1
        inside = ""
        if came < len(body) and came != (ends[done - 1] if done else 0):
            # The bytes of a binary frame are no characters.
            between = body[came] & 0xC0 == 0x80 and not found[done].frame.headers
            inside, split = ("character", split + 1) if between else ("event", split)
        if done > first or number == len(stream.exchange.reads):
            yield Arrival(read.at_ms, reads, size, found[first:done], inside, split)
            first, reads, size, split = done, 0, 0, 0


def names(found: Sequence[Event]) -> dict[Lane, str]:
    """What the lanes are called, by first sight: `text`, `call get_weather`; where there are several choices, with the number of theirs."""
    called: dict[Lane, str] = {}
    for event in found:
        for delta, lane in zip(event.deltas, event.lanes, strict=True):
            if lane is not None:
                name = called.get(lane, "")
                called[lane] = join_name(name, delta.name) if isinstance(delta, ToolCallStart) else name
    several = len({lane.choice for lane in called}) > 1
    return {
        lane: " ".join(filter(None, (lane.kind, name, f"of choice {lane.choice}" if several else "")))
        for lane, name in called.items()
    }


# ------------------------------------------------------------------------------------------------------------------- in words


def words(delta: Delta) -> str:
    """What a delta says, as a person would put it, on one line: `Text 'Hel'`, `ToolCallStart get_weather #0`, `Usage in=12 out=3`."""
    match delta:
        case Start(_, role, reply_id, model):
            return _joined("Start", role, model, reply_id)
        case Text(_, text) | Reasoning(_, text) | Signature(_, text) | Refusal(_, text) | Arguments(_, text):
            return f"{type(delta).__name__} {text!r}"
        case ToolCallStart(key, kind, name):
            number = f"#{key.index}" if key.index is not None else None
            return _joined("ToolCallStart", name, number, key.id, kind if kind != "function" else None)
        case ArgumentsAt(_, path, value, more):
            return f"Arguments {path} = {value!r}{' ...' if more else ''}"
        case Whole(_, kind, value):
            return f"Whole {kind} {value!r}"
        case PartStart(_, kind):
            return f"PartStart {kind}"
        case PartEnd(key):
            return _joined("PartEnd", f"#{key.index}" if key.index is not None else None)
        case Opaque(_, kind, payload):
            return f"Opaque {kind} {_json(payload)}"
        case Finish(_, reason, _, detail):
            return _joined("Finish", reason, f"({detail})" if detail else None)
        case UsageUpdate(counts):
            said = [f"{_COUNTS[name]}={counts[name]}" for name in USAGE_COUNTS if name in counts]
            return _joined("Usage", *said)
        case StreamError(kind, message):
            return f"Error {kind}: {message}"
        case Unknown(event, payload):
            return f"Unknown {event} {_json(payload)}"
        case End():
            return "End"
        case Keepalive():
            return "keep-alive"
        case _:
            assert_never(delta)


_COUNTS = dict(zip(USAGE_COUNTS, ("in", "out", "total", "cached", "reasoning"), strict=True))


def _joined(*said: str | None) -> str:
    return " ".join(piece for piece in said if piece)


def _json(payload: Any) -> str:
    return json.dumps(payload, ensure_ascii=False)


def plain(delta: Delta, lane: Lane | None) -> dict[str, Any]:
    """A delta as JSON has it: `type`, the number of its `lane` (or None), its `key` as far as the wire said it, and its other fields."""
    key = key_of(delta)
    said = {each.name: getattr(delta, each.name) for each in fields(delta) if each.name != "key"}
    where = {each.name: getattr(key, each.name) for each in fields(Key)} if key else {}
    return {
        "type": type(delta).__name__,
        "lane": lane.number if lane else None,
        "key": {
            name: value for name, value in where.items() if value is not None and value is not False and value != ""
        },
        **said,
    }


# ------------------------------------------------------------------------------------------------------------------ as columns

_FIXED = 20  # columns for time, bytes and marks
_TEXT = 28  # columns that the words of the last lane should have
_WIDEST = 12  # columns from one lane to the next
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue")
_MARKS = {"": " ", "event": "~", "character": "!"}

LEGEND = "     ms    bytes   ~ ends inside an event, ! a character"


def lines(stream: Stream, width: int) -> Iterator[Line]:
    """The timeline for a terminal of `width` columns: a line for each thing said, behind the time and bytes of its read, each lane in a column of its own.

    `LEGEND` says what the marks are. Lines may be longer than `width`: cut them.
    """
    columns = _Columns(events(stream), width)
    for arrival in arrivals(stream):
        head = f"{arrival.at_ms:7} {arrival.size:8}", _MARKS[arrival.inside]
        for mark, said in _said(arrival, columns):
            yield ((head[0], ""), (head[1], "bold yellow"), (f"  {mark} ", "dim"), *said)
            head = " " * len(head[0]), " "


def _said(arrival: Arrival, columns: _Columns) -> Iterator[tuple[str, Line]]:
    if arrival.reads > 1:
        split = f", {arrival.split} of them to inside a character" if arrival.split else ""
        yield " ", ((f"in {arrival.reads} reads{split}", "yellow"),)
    for event in arrival.events:
        told = columns.of(event) or [((_of_frame(event.frame), "dim"),)]
        if event.frame.problem:
            told.append(((f"damage: {event.frame.problem}", "bold red"),))
        for place, line in enumerate(told):
            yield " " if place else "-", line


class _Columns:
    """Where the words of each lane begin. From its first word to its last a lane shows as a bar in its column, as the branches of a log do.

    The first column is that of the whole reply. Where there are more lanes than columns, they share them.
    """

    def __init__(self, found: Sequence[Event], width: int) -> None:
        self._left = Counter(lane for event in found for lane in event.lanes if lane is not None)
        self._start: Start | None = None
        self._begun: set[Lane] = set()
        room = max(width - _FIXED - _TEXT, 6)
        self._step = max(2, min(_WIDEST, room // max(1, len(self._left))))
        self._bars = [0] * (room // self._step)  # how many lanes are open in each column

    def of(self, event: Event) -> list[Line]:
        """A line for each thing that the event says; that it is of the same reply, which some wires repeat on each, only if that is all."""
        told: list[Line] = []
        for delta, lane in zip(event.deltas, event.lanes, strict=True):
            again = isinstance(delta, Start) and delta == self._start
            self._start = delta if isinstance(delta, Start) else self._start
            if isinstance(delta, Keepalive):
                told.append(((_of_frame(event.frame), "dim"),))
            elif not again or len(event.deltas) == 1:
                told.append(self._line(delta, lane))
        return told

    def _line(self, delta: Delta, lane: Lane | None) -> Line:
        if lane is None:
            return ((words(delta), _style(delta)),)
        column = lane.number % len(self._bars)
        if lane not in self._begun:
            self._begun.add(lane)
            self._bars[column] += 1
        guides = "".join(("|" if bars else " ").ljust(self._step) for bars in self._bars[:column])
        self._left[lane] -= 1
        if not self._left[lane]:
            self._bars[column] -= 1
        return ((" " * self._step + guides, "dim"), (words(delta), _COLOURS[lane.number % len(_COLOURS)]))


def _style(delta: Delta) -> str:
    match delta:
        case StreamError():
            return "bold red"
        case Unknown():
            return "dim"
        case _:
            return "bold"


def _of_frame(frame: Frame) -> str:
    """A frame by its own words: a comment, or an event that says nothing to its dialect or is of none."""
    if frame.data is not None:
        return _joined("event", frame.event if frame.event != "message" else None, repr(frame.data))
    said = frame.raw.strip(b"\r\n \xef\xbb\xbf").decode("utf-8", "backslashreplace")
    return f"comment {said!r}" if said.startswith(":") else f"bytes {said!r}" if said else "a blank line"

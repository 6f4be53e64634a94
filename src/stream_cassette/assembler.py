"""The fold: what the wire says, delta by delta, into one `Reply`. Push (`Assembler`) and pull (`assemble`, `aassemble`)."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .arguments import parse_arguments, place
from .dialects import DIALECTS, detect
from .dialects import dialect as named
from .dialects.base import NO_FINISH, NOT_CLOSED, STREAM_BROKE, Dialect, Hint, is_open, payload_of
from .dialects.binary import broken_event, read_event
from .errors import UnknownDialect
from .framing import Sniffer
from .jsontext import join as _join
from .lanes import Lane, Lanes, join_name
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
    OpaquePart,
    Part,
    PartEnd,
    PartStart,
    Reasoning,
    ReasoningPart,
    Refusal,
    RefusalPart,
    Reply,
    ReplyError,
    Signature,
    Start,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    ToolCallStart,
    Unknown,
    Usage,
    UsageUpdate,
    Whole,
)

_UNRECOGNISED_AT_MOST = 64  # payloads to look at before a stream is declined


class Assembler:
    """Assembles one reply as it streams; usable in the middle of a live stream.

    Feed it the bytes as they are read (`feed_bytes`), or frames, payloads, SDK objects or deltas (`feed`). `result()` is the reply so far at any
    time; call `close()` when the source has ended, so that an unterminated last event is read and a stream of nothing is an error.

    `dialect` is a name of the table, or None to recognise it by the first payload; `url` and `content_type` help there.
    """

    def __init__(self, dialect: str | None = None, *, content_type: str | None = None, url: str = "") -> None:
        self._dialect: Dialect | None = named(dialect) if dialect is not None else None
        self._content_type, self._url = content_type or "", url
        self._framing = Sniffer()
        self._waiting: list[Frame | Any] = []
        self._payloads_seen = 0
        self._fold = Fold()

    @property
    def dialect(self) -> str | None:
        """The name of the dialect, once it is known."""
        return self._dialect.name if self._dialect else None

    def feed_bytes(self, data: bytes) -> None:
        """Take in one read, cut anywhere."""
        for frame in self._framing.feed(data):
            self.feed(frame)

    def feed(self, event: Any) -> None:
        """Take in one frame, payload (the JSON value of one event), SDK object or delta. `UnknownDialect` once many payloads made no sense."""
        if isinstance(event, Delta):
            self._fold.add(event)
        elif self._dialect is not None:
            self._read(self._dialect, event)
        else:
            self._waiting.append(event)
            self._recognise(event)

    def close(self) -> None:
        """The source has ended. `UnknownDialect` if it said something and no dialect knows it."""
        for frame in self._framing.close():
            self.feed(frame)
        if self._dialect is None and any(_says_something(event) for event in self._waiting):
            broken = [broken_event(event) if isinstance(event, Frame) else None for event in self._waiting]
            for error in broken:  # binary frames that tell no dialect: that they are broken is all there is to say
                if error is None:
                    raise self._unknown()
                self._fold.add(error)
        self._fold.close(end_mark=self._dialect is None or self._dialect.end_mark)

    def result(self) -> Reply:
        """The reply as far as it has come."""
        return self._fold.reply()

    def _recognise(self, event: Any) -> None:
        payload = payload_of(event) if isinstance(event, Frame) else _plain(event)
        if payload is None:
            return
        name = event.event if isinstance(event, Frame) else "message"
        self._dialect = detect(Hint(payload, self._url, self._content_type, name))
        self._payloads_seen += 1
        if self._dialect is not None:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                self._read(self._dialect, each)
        elif self._payloads_seen >= _UNRECOGNISED_AT_MOST:
            raise self._unknown()

    def _read(self, dialect: Dialect, event: Any) -> None:
        deltas = dialect.read(event) if isinstance(event, Frame) else dialect.deltas(_plain(event))
        for delta in deltas:
            self._fold.add(delta)
        if not deltas:
            self._fold.hear()

    def _unknown(self) -> UnknownDialect:
        first = next(event for event in self._waiting if _says_something(event))
        shown = first.raw if isinstance(first, Frame) else first
        return UnknownDialect(
            f"no known dialect of a streamed reply; the first of {len(self._waiting)} events is {repr(shown)[:200]}",
            where=f"content type {self._content_type or 'not given'}",
            mend=f"name the dialect: dialect={' or '.join(repr(each.name) for each in DIALECTS)}",
        )


def _says_something(event: Any) -> bool:
    return not isinstance(event, Frame) or read_event(event, lambda payload, event: []) != [Keepalive()]


def _plain(event: Any) -> Any:
    """The JSON value of an SDK object (a pydantic model); any other value as it is."""
    dump = getattr(event, "model_dump", None)
    return dump(mode="json", exclude_unset=True, by_alias=True) if dump else event


def assemble(source: Any, *, dialect: str | None = None, content_type: str | None = None) -> Reply:
    """The reply that `source` carries.

    `source`: the body as bytes, a `Stream`, or an iterable of reads (bytes), frames, payloads, SDK objects or deltas. `dialect`: a name of the table; by
    default it is recognised, and `UnknownDialect` says so where that fails. `content_type` helps to recognise.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        source = (bytes(source),)
    assembler = Assembler(dialect or getattr(source, "dialect", None), content_type=content_type)
    for event in getattr(source, "frames", source):
        _feed_any(assembler, event)
    assembler.close()
    return assembler.result()


async def aassemble(
    source: AsyncIterable[Any], *, dialect: str | None = None, content_type: str | None = None
) -> Reply:
    """`assemble` for an asynchronous iterable of reads, frames, payloads, SDK objects or deltas."""
    assembler = Assembler(dialect, content_type=content_type)
    async for event in source:
        _feed_any(assembler, event)
    assembler.close()
    return assembler.result()


def _feed_any(assembler: Assembler, event: Any) -> None:
    if isinstance(event, bytes | bytearray | memoryview):
        assembler.feed_bytes(bytes(event))
    else:
        assembler.feed(event)


# ------------------------------------------------------------------------------------------------------------------ the fold


@dataclass(slots=True)
class _Part:
    """A content part as it grows. Pieces are joined once, at the end, so that a long part costs linear time."""

    lane: Lane
    pieces: list[str] = field(default_factory=list)
    sections: dict[tuple[int, ...], list[str]] = field(default_factory=dict)  # of reasoning: pieces by their number within
    signature: list[str] = field(default_factory=list)
    payloads: list[Any] = field(default_factory=list)
    placed: list[ArgumentsAt] = field(default_factory=list)
    kind: Literal["function", "custom"] = "function"
    id: str | None = None
    name: str = ""
    ended: bool = False
    own_end: bool = False
    finished: bool = False  # no piece came after the finish reason
    damaged: bool = False  # bytes of the stream were lost while it was open

    def at(self, key: Key) -> list[str]:
        """The pieces that `key` continues."""
        return self.sections.setdefault(key.within, []) if key.within and self.lane.kind == "reasoning" else self.pieces

    def restate(self, whole: Whole) -> None:
        if whole.kind == "signature":
            self.signature[:] = [whole.value]
        elif whole.value:
            self.at(whole.key)[:] = [whole.value]
            if not whole.key.within:
                self.sections.clear()

    def said(self) -> list[str]:
        return [*self.pieces, *(piece for number in sorted(self.sections) for piece in self.sections[number])]


class Fold:
    """Deltas in, one at a time; `reply()` out at any time."""

    def __init__(self) -> None:
        self._lanes = Lanes()
        self._parts: dict[Lane, _Part] = {}
        self._finish: dict[int, Finish] = {}
        self._choices: set[int] = set()
        self._counts: dict[str, int] = {}
        self._raw_usage: dict[str, Any] = {}
        self._fallback_usage: UsageUpdate | None = None
        self._errors: list[ReplyError] = []
        self._warnings: dict[str, None] = {}
        self._start = Start()
        self._said = self._ended = False

    def add(self, delta: Delta) -> None:
        match delta:
            case Keepalive():
                return
            case _ if self._ended:
                if not isinstance(delta, End):
                    self._warn(f"after the end of the stream, ignored: {delta!r}"[:200])
                return
            case Text(key, text) | Reasoning(key, text) | Refusal(key, text) | Arguments(key, text):
                if part := self._part(delta):
                    part.at(key).append(text)
                    part.finished = False
            case ArgumentsAt():
                if part := self._part(delta):
                    part.placed.append(delta)
            case ToolCallStart(key, kind, name, own_end):
                if part := self._part(delta):
                    part.kind, part.id, part.own_end = kind, part.id or key.id, own_end
                    part.name = name if key.listed and name else join_name(part.name, name)
            case Signature(_, text):
                if part := self._part(delta):
                    part.signature.append(text)
            case Whole():
                if part := self._part(delta):
                    part.restate(delta)
            case Opaque(_, _, payload, whole):
                if part := self._part(delta):
                    if whole:
                        part.payloads.clear()
                    part.payloads.append(payload)
            case PartStart():
                self._part(delta)
            case PartEnd():
                if (lane := self._lanes.of(delta)) and lane in self._parts:
                    self._parts[lane].ended = True
            case Finish(key, _, revises):
                self._choices.add(key.choice)
                self._finish[key.choice] = delta if revises else self._finish.get(key.choice, delta)
                for part in self._parts.values():
                    part.finished = part.finished or part.lane.choice == key.choice
            case UsageUpdate(fallback=True):
                self._fallback_usage = delta
            case UsageUpdate(counts, raw):
                self._counts.update(counts)
                self._raw_usage.update((name, value) for name, value in raw.items() if value is not None)
            case Start():
                self._begin(delta)
            case StreamError(type_, message, payload):
                if all((known.type, known.message) != (type_, message) for known in self._errors):  # some say it twice
                    self._errors.append(ReplyError(type_, message, payload))
                if type_.startswith("wire:"):
                    for part in self._parts.values():
                        part.damaged = part.damaged or not part.ended
            case End():
                self._ended = True
            case Unknown(event, payload):
                self._warn(f"unknown event, carried on: {event!r} {payload!r}"[:200])
        self._said = True

    def hear(self) -> None:
        """A payload came that says nothing new."""
        self._said = True

    def close(self, *, end_mark: bool = True) -> None:
        """No more deltas come. `end_mark`: this wire should have said so itself."""
        if not self._said:
            self._errors.append(ReplyError("wire:empty", "the stream ended before it said anything"))
        elif self._finish and not self._ended and end_mark:
            self._warn("the end mark of the stream is missing")

    def _warn(self, text: str) -> None:
        self._warnings[text] = None

    def _begin(self, start: Start) -> None:
        self._choices.add(start.key.choice)
        known = self._start
        self._start = Start(start.key, known.role or start.role, known.id or start.id, known.model or start.model)

    def _part(self, delta: Delta) -> _Part | None:
        lane = self._lanes.of(delta)
        if lane is None:
            self._warn(f"out of place in a part of another kind, left out: {delta!r}"[:200])
            return None
        part = self._parts.get(lane)
        if part is None:
            part = self._parts[lane] = _Part(lane)
            self._choices.add(lane.choice)
        return part

    def reply(self) -> Reply:
        choices = [self._choice(number) for number in sorted(self._choices)] or [self._choice(0)]
        return replace(choices[0], choices=tuple(choices) if len(choices) > 1 else ())

    def _usage(self) -> Usage | None:
        said = UsageUpdate(self._counts, self._raw_usage) if self._raw_usage or self._counts else self._fallback_usage
        return Usage(**said.counts, raw=dict(said.raw)) if said else None

    def _choice(self, number: int) -> Reply:
        warnings = list(self._warnings)
        finish = self._finish.get(number)
        shell = Reply(
            finish_reason=finish.reason if finish else None,
            finish_detail=finish.detail if finish else None,
            usage=self._usage(),
            errors=tuple(self._errors),
            ended=self._ended,
            role=self._start.role,
            model=self._start.model,
            id=self._start.id,
        )
        parts: list[Part] = []
        seen = [part for part in self._parts.values() if part.lane.choice == number]
        calls = {part.lane: at for at, part in enumerate(each for each in seen if each.lane.kind == "call" and (each.name or each.id))}
        for part in sorted(seen, key=lambda each: each.lane.order):
            if part.lane.kind != "call":
                parts.append(_finished(part))
            elif part.name or part.id:
                parts.append(_finished_call(part, calls[part.lane], shell))
            else:
                warnings.append(
                    f"arguments without a tool call that has a name or an id, left out: {_join(part.pieces)!r}"[:200]
                )
        return replace(shell, parts=tuple(parts), warnings=tuple(warnings))


def _finished(part: _Part) -> Part:
    text = _join(part.said())
    match part.lane.kind:
        case "text":
            return TextPart(text)
        case "reasoning":
            return ReasoningPart(text, _join(part.signature))
        case "refusal":
            return RefusalPart(text)
        case kind:
            return OpaquePart(kind, tuple(part.payloads), text)


def _finished_call(part: _Part, index: int, reply: Reply) -> ToolCall:
    text = _join(part.pieces)
    value, problem = parse_arguments(text) if part.kind == "function" else (None, None)
    if part.placed:
        text, wrong = place(text, part.placed)
        value, problem = (None, wrong) if wrong else parse_arguments(text)
    return ToolCall(index, part.kind, part.id, part.name, text, *_released(part, text, value, problem, reply))


def _released(
    part: _Part, text: str, value: dict[str, Any] | None, problem: str | None, reply: Reply
) -> tuple[dict[str, Any] | None, str | None]:
    """The promise: arguments and no problem only for a call that is closed, by its own end event or by that of the reply, and whole."""
    closed = reply.complete and not part.own_end and (part.finished or reply.ended)
    if part.damaged or not (part.ended or closed):
        if reply.errors:
            return None, f"{STREAM_BROKE}: {reply.errors[0].type}"
        return None, NOT_CLOSED if part.own_end and reply.complete else NO_FINISH
    if (cut := cut_short(reply)) and (problem or not text or part.kind == "custom"):
        return None, cut
    return value, problem or (None if part.name else "no name")


def cut_short(reply: Reply) -> str | None:
    """In words why a reply with this finish reason may end inside a call: only an object that is closed, or its own end, shows then that it is whole."""
    match reply.stop:
        case None | "stop" | "tool_calls" | "pause":
            return None
        case "length":
            return "cut by the length limit"
        case _:
            return f"cut: the reply ended with {reply.finish_reason!r}"


# ---------------------------------------------------------------------------------------------------------------- the way back


def unfold(reply: Reply, numbers: Literal["parts", "calls", "nothing"]) -> list[Delta]:
    """Deltas that assemble to `reply`; `numbers` is what an index counts in the dialect that will say them."""
    choices = reply.choices or (reply,)
    out: list[Delta] = []
    for number, choice in enumerate(choices):
        out.append(Start(Key(number), reply.role or "assistant", reply.id, reply.model))
        for index, part in enumerate(choice.parts):
            key = Key(number, index if numbers == "parts" else None, serial=numbers == "nothing")
            out += _unfold_part(part, key)
    out += [
        Finish(Key(number), choice.finish_reason, detail=choice.finish_detail)
        for number, choice in enumerate(choices)
        if choice.finish_reason
    ]
    if reply.usage:
        counts = {name: count for name in USAGE_COUNTS if (count := getattr(reply.usage, name)) is not None}
        out.append(UsageUpdate(counts, {}))
    out += [StreamError(error.type, error.message, error.payload) for error in reply.errors]
    return [*out, End()] if reply.ended else out


def _unfold_part(part: Part, key: Key) -> list[Delta]:
    match part:
        case TextPart(text):
            return [PartStart(key, "text"), *_pieces(Text, key, text), PartEnd(key)]
        case ReasoningPart(text, signature):
            return [
                PartStart(key, "reasoning"),
                *_pieces(Reasoning, key, text),
                *_pieces(Signature, key, signature),
                PartEnd(key),
            ]
        case RefusalPart(text):
            return [PartStart(key, "refusal"), *_pieces(Refusal, key, text), PartEnd(key)]
        case ToolCall():
            at = replace(key, index=part.index if key.index is None and not key.serial else key.index)
            start = ToolCallStart(replace(at, id=part.id), part.kind, part.name)
            return [start, *_pieces(Arguments, at, part.arguments_text), *([] if is_open(part) else [PartEnd(at)])]
        case OpaquePart(kind, payloads, arguments_text):
            carried = [Opaque(key, kind, payload) for payload in payloads]
            return [PartStart(key, kind), *carried, *_pieces(Arguments, key, arguments_text), PartEnd(key)]


def _pieces(kind: type[Text | Reasoning | Signature | Refusal | Arguments], key: Key, text: str) -> list[Delta]:
    return [kind(key, text)] if text else []

"""The fold: what the wire says, delta by delta, into one `Reply`. Push (`Assembler`) and pull (`assemble`, `aassemble`)."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .arguments import parse_arguments
from .dialects import DIALECTS, detect
from .dialects import dialect as named
from .dialects.base import NO_FINISH, STREAM_BROKE, Dialect, Hint, is_open, payload_of, read_frame
from .errors import UnknownDialect
from .framing import Sniffer
from .lanes import Lane, Lanes, join_name
from .model import (
    USAGE_COUNTS,
    Arguments,
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
            raise self._unknown()
        self._fold.close()

    def result(self) -> Reply:
        """The reply as far as it has come."""
        return self._fold.reply()

    def _recognise(self, event: Any) -> None:
        payload = payload_of(event) if isinstance(event, Frame) else _plain(event)
        if payload is None:
            return
        self._dialect = detect(Hint(payload, self._url, self._content_type))
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
    return not isinstance(event, Frame) or read_frame(event, lambda payload, event: []) != [Keepalive()]


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
    if isinstance(event, bytes):
        assembler.feed_bytes(event)
    else:
        assembler.feed(event)


# ------------------------------------------------------------------------------------------------------------------ the fold


@dataclass(slots=True)
class _Part:
    """A content part as it grows. Pieces are joined once, at the end, so that a long part costs linear time."""

    lane: Lane
    pieces: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    payloads: list[Any] = field(default_factory=list)
    kind: Literal["function", "custom"] = "function"
    id: str | None = None
    name: str = ""
    ended: bool = False


class Fold:
    """Deltas in, one at a time; `reply()` out at any time."""

    def __init__(self) -> None:
        self._lanes = Lanes()
        self._parts: dict[Lane, _Part] = {}
        self._finish: dict[int, str] = {}
        self._choices: set[int] = set()
        self._counts: dict[str, int] = {}
        self._raw_usage: dict[str, Any] = {}
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
            case Text(_, text) | Reasoning(_, text) | Refusal(_, text) | Arguments(_, text):
                if part := self._part(delta):
                    part.pieces.append(text)
            case ToolCallStart(key, kind, name):
                if part := self._part(delta):
                    part.kind, part.id, part.name = kind, part.id or key.id, join_name(part.name, name)
            case Signature(_, text):
                if part := self._part(delta):
                    part.signature.append(text)
            case Whole(_, _, value):
                if part := self._part(delta):
                    part.pieces[:] = [value]
            case Opaque(_, _, payload):
                if part := self._part(delta):
                    part.payloads.append(payload)
            case PartStart():
                self._part(delta)
            case PartEnd():
                if (lane := self._lanes.of(delta)) and lane in self._parts:
                    self._parts[lane].ended = True
            case Finish(key, reason):
                self._choices.add(key.choice)
                self._finish.setdefault(key.choice, reason)
            case UsageUpdate(counts, raw):
                self._counts.update(counts)
                self._raw_usage.update((name, value) for name, value in raw.items() if value is not None)
            case Start():
                self._begin(delta)
            case StreamError(type_, message, payload):
                self._errors.append(ReplyError(type_, message, payload))
            case End():
                self._ended = True
            case Unknown(event, payload):
                self._warn(f"unknown event, carried on: {event!r} {payload!r}"[:200])
        self._said = True

    def hear(self) -> None:
        """A payload came that says nothing new."""
        self._said = True

    def close(self) -> None:
        """No more deltas come."""
        if not self._said:
            self._errors.append(ReplyError("wire:empty", "the stream ended before it said anything"))
        elif self._finish and not self._ended:
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

    def _choice(self, number: int) -> Reply:
        warnings = list(self._warnings)
        shell = Reply(
            finish_reason=self._finish.get(number),
            usage=Usage(**self._counts, raw=dict(self._raw_usage)) if self._raw_usage or self._counts else None,
            errors=tuple(self._errors),
            ended=self._ended,
            role=self._start.role,
            model=self._start.model,
            id=self._start.id,
        )
        parts: list[Part] = []
        calls = 0
        for part in self._parts.values():
            if part.lane.choice != number:
                continue
            if part.lane.kind != "call":
                parts.append(_finished(part))
            elif part.name:
                parts.append(_finished_call(part, calls, shell))
                calls += 1
            else:
                warnings.append(
                    f"arguments without a tool call that has a name, left out: {_join(part.pieces)!r}"[:200]
                )
        return replace(shell, parts=tuple(parts), warnings=tuple(warnings))


def _join(pieces: list[str]) -> str:
    """The pieces as one text. A character that the wire cut between its two surrogate escapes becomes one again."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def _finished(part: _Part) -> Part:
    text = _join(part.pieces)
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
    return ToolCall(index, part.kind, part.id, part.name, text, *_released(part, text, value, problem, reply))


def _released(
    part: _Part, text: str, value: dict[str, Any] | None, problem: str | None, reply: Reply
) -> tuple[dict[str, Any] | None, str | None]:
    """The promise: arguments and no problem only for a call that is closed, by its own end event or by that of the reply, and whole."""
    if not (part.ended or reply.complete):
        return None, f"{STREAM_BROKE}: {reply.errors[0].type}" if reply.errors else NO_FINISH
    if reply.stop == "length" and (problem or not text or part.kind == "custom"):
        return None, "cut by the length limit"
    return value, problem


# ---------------------------------------------------------------------------------------------------------------- the way back


def unfold(reply: Reply, numbers: Literal["parts", "calls"]) -> list[Delta]:
    """Deltas that assemble to `reply`; `numbers` is what an index counts in the dialect that will say them."""
    choices = reply.choices or (reply,)
    out: list[Delta] = []
    for number, choice in enumerate(choices):
        out.append(Start(Key(number), reply.role or "assistant", reply.id, reply.model))
        for index, part in enumerate(choice.parts):
            out += _unfold_part(part, Key(number, index if numbers == "parts" else None))
    out += [Finish(Key(number), choice.finish_reason) for number, choice in enumerate(choices) if choice.finish_reason]
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
            at = replace(key, index=part.index if key.index is None else key.index)
            start = ToolCallStart(replace(at, id=part.id), part.kind, part.name)
            return [start, *_pieces(Arguments, at, part.arguments_text), *([] if is_open(part) else [PartEnd(at)])]
        case OpaquePart(kind, payloads, arguments_text):
            carried = [Opaque(key, kind, payload) for payload in payloads]
            return [PartStart(key, kind), *carried, *_pieces(Arguments, key, arguments_text), PartEnd(key)]


def _pieces(kind: type[Text | Reasoning | Signature | Refusal | Arguments], key: Key, text: str) -> list[Delta]:
    return [kind(key, text)] if text else []

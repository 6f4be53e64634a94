"""The fold: what the wire says, delta by delta, into one `Reply`; and which of its tool calls may run, the moment that this is sure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, assert_never

from .arguments import parse_arguments, place
from .dialects.base import NO_FINISH, NOT_CLOSED, STREAM_BROKE
from .jsontext import join as _join
from .lanes import Lane, Lanes, join_name
from .model import (
    Arguments,
    ArgumentsAt,
    Delta,
    End,
    Finish,
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

_Content = Text | Reasoning | Refusal | Signature | Arguments | ArgumentsAt | ToolCallStart | Whole | Opaque | PartStart
_OfReply = Start | Finish | UsageUpdate | StreamError | End | Unknown

Checks = Mapping[str, Callable[[Any], str | None]]
"""Tool name → what of its arguments does not fit its schema, in words."""


@dataclass(slots=True)
class _Part:
    """A content part as it grows. Pieces are joined once, at the end, so that a long part costs linear time."""

    lane: Lane
    place: int = 0  # among the calls of its choice, in order of first sight
    pieces: list[str] = field(default_factory=list)
    sections: dict[tuple[int, ...], list[str]] = field(
        default_factory=dict
    )  # of reasoning: pieces by their number within
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
    released: bool = False

    @property
    def is_call(self) -> bool:
        """A call, and not stray arguments that nobody named."""
        return self.lane.kind == "call" and bool(self.name or self.id)

    @property
    def is_silent(self) -> bool:
        """Does nothing in the arguments show that they are whole, as the last brace of an object does?"""
        return self.kind == "custom" or not (any(self.pieces) or self.placed)

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
    """Deltas in, one at a time; `reply()` out at any time, `release()` after each event. `checks`: what else holds a call back."""

    def __init__(self, checks: Checks | None = None) -> None:
        self._checks: Checks = checks or {}
        self._lanes = Lanes()
        self._parts: dict[Lane, _Part] = {}
        self._calls: dict[int, list[_Part]] = {}  # of each choice
        self._closing: list[_Part] = []  # calls that something closed, since `release` was asked last
        self.size = 0  # characters of content so far
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
            case PartEnd():
                if (lane := self._lanes.of(delta)) and lane in self._parts:
                    self._parts[lane].ended = True
                    self._closing.append(self._parts[lane])
            case Start() | Finish() | UsageUpdate() | StreamError() | End() | Unknown():
                self._note(delta)
            case _:
                if part := self._part(delta):
                    self._put(part, delta)
        self._said = True

    def add_each(self, kind: type[Text | Reasoning | Refusal | Arguments], key: Key, texts: Sequence[str]) -> None:
        """As `add` of a `kind` at `key` with each of `texts` in turn, which are one or more."""
        lane = None if self._ended else self._lanes.of(kind(key, texts[0]))
        part = self._parts.get(lane) if lane is not None else None
        if part is None:
            for text in texts:
                self.add(kind(key, text))
            return
        part.at(key).extend(texts)
        part.finished = False
        self.size += sum(map(len, texts))
        self._said = True

    def _put(self, part: _Part, delta: _Content) -> None:
        """What belongs into one part."""
        match delta:
            case Text(key, text) | Reasoning(key, text) | Refusal(key, text) | Arguments(key, text):
                part.at(key).append(text)
                part.finished = False
                self.size += len(text)
            case ArgumentsAt():
                part.placed.append(delta)
                self.size += 1
            case ToolCallStart(key, kind, name, own_end):
                part.kind, part.id, part.own_end = kind, part.id or key.id, own_end
                part.name = name if key.listed and name else join_name(part.name, name)
                self._closing.append(part)
            case Signature(_, text):
                part.signature.append(text)
            case Whole():
                part.restate(delta)
                self.size += len(delta.value)
                self._closing.append(part)
            case Opaque(_, _, payload, whole):
                if whole:
                    part.payloads.clear()
                part.payloads.append(payload)
            case PartStart():
                pass  # it is there now
            case _:
                assert_never(delta)

    def _note(self, delta: _OfReply) -> None:
        """What is said of the reply as a whole, or of a choice."""
        match delta:
            case Finish(key, _, revises):
                self._choices.add(key.choice)
                self._finish[key.choice] = delta if revises else self._finish.get(key.choice, delta)
                for part in self._parts.values():
                    part.finished = part.finished or part.lane.choice == key.choice
                self._closing += self._calls.get(key.choice, ())
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
                self._closing += self._calls.get(0, ())
            case Unknown(event, payload):
                self._warn(f"unknown event, carried on: {event!r} {payload!r}"[:200])
            case _:
                assert_never(delta)

    def hear(self) -> None:
        """A payload came that says nothing new."""
        self._said = True

    def close(self, *, end_mark: Callable[[], bool] = lambda: True) -> None:
        """No more deltas come. `end_mark`: should this wire have said so itself?"""
        if not self._said:
            self._errors.append(ReplyError("wire:empty", "the stream ended before it said anything"))
        elif self._finish and not self._ended and end_mark():
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
            calls = self._calls.setdefault(lane.choice, []) if lane.kind == "call" else []
            part = self._parts[lane] = _Part(lane, len(calls))
            calls.append(part)
            self._choices.add(lane.choice)
        return part

    def reply(self) -> Reply:
        choices = [self._choice(number) for number in sorted(self._choices)] or [self._choice(0)]
        return replace(choices[0], choices=tuple(choices) if len(choices) > 1 else ())

    def _usage(self) -> Usage | None:
        said = UsageUpdate(self._counts, self._raw_usage) if self._raw_usage or self._counts else self._fallback_usage
        counts: Mapping[str, Any] = said.counts if said else {}
        return Usage(**counts, raw=dict(said.raw)) if said else None

    def _choice(self, number: int) -> Reply:
        warnings = list(self._warnings)
        shell = self._shell(number)
        parts: list[Part] = []
        numbers = {
            part.lane: at for at, part in enumerate(each for each in self._calls.get(number, ()) if each.is_call)
        }
        for part in self._in_order(number):
            if part.is_call:
                parts.append(self._call(part, numbers[part.lane], shell))
            elif part.lane.kind != "call":
                parts.append(_finished(part))
            else:
                warnings.append(
                    f"arguments without a tool call that has a name or an id, left out: {_join(part.pieces)!r}"[:200]
                )
        return replace(shell, parts=tuple(parts), warnings=tuple(warnings))

    def _in_order(self, number: int) -> list[_Part]:
        seen = (part for part in self._parts.values() if part.lane.choice == number)
        return sorted(seen, key=lambda each: each.lane.order)

    def fragments(self) -> list[list[list[str]]]:
        """For each choice of the reply and each of its parts the pieces in which the text or the arguments came."""
        numbers = sorted(self._choices)
        kept = [[part for part in self._in_order(each) if part.is_call or part.lane.kind != "call"] for each in numbers]
        return [[part.said() for part in parts] for parts in kept]

    def _shell(self, number: int) -> Reply:
        """The reply without its parts."""
        finish = self._finish.get(number)
        return Reply(
            finish_reason=finish.reason if finish else None,
            finish_detail=finish.detail if finish else None,
            usage=self._usage(),
            errors=tuple(self._errors),
            ended=self._ended,
            role=self._start.role,
            model=self._start.model,
            id=self._start.id,
        )

    def _call(self, part: _Part, index: int, shell: Reply) -> ToolCall:
        call = _finished_call(part, index, shell)
        check = self._checks.get(call.name)
        if call.arguments is None or check is None or (misfit := check(call.arguments)) is None:
            return call
        return replace(call, arguments=None, problem=f"schema: {misfit}")

    # ------------------------------------------------------------------------------------------------ release while it streams

    def release(self, *, over: bool = False) -> tuple[ToolCall, ...]:
        """The calls of the first choice that became runnable since it was asked last, in order of first sight; none once an error came.

        `over`: nothing more comes. Only then is it sure which choice is the first, and which finish reason counts where they are revised.
        """
        if not (self._closing or over):
            return ()
        closing, self._closing = self._closing, []
        if self._errors:
            return ()
        if over:
            closing = self._calls.get(min(self._choices, default=0), [])
        sure = {
            each.place: each for each in closing if each.is_call and not each.released and (over or self._is_sure(each))
        }
        out = []
        for _, part in sorted(sure.items()):
            call = self._call(part, self._number(part), self._shell(part.lane.choice))
            part.released = call.problem is None
            out += [call] if part.released else []
        return tuple(out)

    def _is_sure(self, part: _Part) -> bool:
        """Can no finish reason that is still to come hold this call back? What its own end closed shows by its text that it is whole."""
        finish = self._finish.get(0)
        known = self._ended or (finish is not None and not finish.revises)
        return part.lane.choice == 0 and (known or (part.ended and not part.is_silent))

    def _number(self, part: _Part) -> int:
        return sum(each.is_call for each in self._calls[part.lane.choice][: part.place])

    def pending(self) -> tuple[ToolCall, ...]:
        """The calls of the first choice that `release` did not give out, each with a problem: the one that it would have if nothing more came."""
        first = min(self._choices, default=0)
        shell = self._shell(first)
        held = [each for each in self._calls.get(first, ()) if each.is_call and not each.released]
        why = f"{STREAM_BROKE}: {shell.errors[0].type}" if shell.errors else NO_FINISH
        calls = [self._call(each, self._number(each), shell) for each in held]
        return tuple(replace(call, arguments=None, problem=call.problem or why) for call in calls)


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
    if part.damaged or not (part.ended or closed) or (part.is_silent and not reply.complete):
        if reply.errors:
            return None, f"{STREAM_BROKE}: {reply.errors[0].type}"
        return None, NOT_CLOSED if part.own_end and reply.complete else NO_FINISH
    if (cut := cut_short(reply)) and (problem or part.is_silent):
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

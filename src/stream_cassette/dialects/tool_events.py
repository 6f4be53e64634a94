"""Typed tool events: the small vocabulary that many agent loops and gateways stream to their own clients, after one provider or another.

`tool_use_start {id, name}`, `tool_args_delta {id, delta}` and `tool_use_stop {id}` say a call, beside `text_delta`, `thinking_delta`, `usage` and
`finish`. There is no published reference; the spellings in SPELLINGS are those found in public code. The type stands in the payload or on the event
line. Calls are keyed by their id and run side by side, so only its own stop event closes one: a call still pending at the end is never run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import jsontext
from ..framing import sse
from ..model import (
    Arguments,
    Delta,
    End,
    Finish,
    Frame,
    Keepalive,
    Key,
    OpaquePart,
    PartEnd,
    Reasoning,
    ReasoningPart,
    RefusalPart,
    Reply,
    Signature,
    Start,
    Stop,
    StreamError,
    Text,
    ToolCall,
    ToolCallStart,
    Unknown,
    UsageUpdate,
    Whole,
)
from .base import (
    Framing,
    Hint,
    Spelling,
    UsageNames,
    as_dict,
    as_text,
    common_losses,
    read_error,
    read_frame,
    read_usage,
    typed_payload_of,
    write_damage,
    write_usage,
)
from .tool_events_quirks import QUIRKS

USAGE: UsageNames = {
    "input_tokens": [("input_tokens",), ("prompt_tokens",), ("inputTokens",)],
    "output_tokens": [("output_tokens",), ("completion_tokens",), ("outputTokens",)],
    "total_tokens": [("total_tokens",), ("totalTokens",)],
    "cached_tokens": [("cached_tokens",)],
    "reasoning_tokens": [("reasoning_tokens",)],
}

# The types of events and names of fields, the first of each being the one that is written.
SPELLINGS: Mapping[str, Sequence[str]] = {
    "start": ("start", "message_start"),
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "reasoning_delta"),
    "signature": ("signature_delta",),
    "call": ("tool_use_start", "tool_call_start"),
    "arguments": ("tool_args_delta", "tool_use_delta", "tool_input_delta", "tool_call_delta"),
    "stop": ("tool_use_stop", "tool_use_end", "tool_call_end"),
    "usage": ("usage",),
    "finish": ("finish", "message_stop", "stop"),
    "end": ("done",),
    "error": ("error",),
    "ping": ("ping", "keepalive"),
}
_MEANING = {spelling: meaning for meaning, spellings in SPELLINGS.items() for spelling in spellings}
_OWN = ("call", "arguments", "stop")
_IDS = ("id", "call_id", "tool_use_id", "tool_call_id", "toolCallId")
_PIECES = ("delta", "text", "thinking", "content", "signature", "partial_json", "arguments", "input")
_WHOLES = ("input", "arguments", "toolInput")
_REASONS = ("reason", "finish_reason", "stop_reason", "stopReason")
_SAID = frozenset(
    (*_IDS, *_PIECES, *_WHOLES, *_REASONS, "type", "name", "role", "model", "usage", "error")
)  # what is written anew

_WORDS: Mapping[Stop, tuple[str, ...]] = {"stop": ("end_turn",), "length": ("max_tokens",), "tool_calls": ("tool_use",)}


@dataclass(frozen=True)
class ToolEvents:
    name: str = "tool-events"
    framing: Framing = "sse"
    end_mark: bool = False
    numbers: Literal["parts", "calls", "nothing"] = "calls"
    usage_rides: bool = True

    @property
    def words(self) -> Mapping[Stop, tuple[str, ...]]:
        return _WORDS

    @property
    def quirks(self) -> Mapping[str, Spelling]:
        return QUIRKS

    def recognise(self, hint: Hint) -> int:
        match _meaning(as_dict(hint.payload), hint.event):
            case meaning if meaning in _OWN:
                return 85
            case "text" | "reasoning":
                return 20  # plain words, that others use too
            case _:
                return 0

    def payload(self, frame: Frame) -> Any:
        return typed_payload_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_frame(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        if not isinstance(payload, dict):
            return [Unknown(event, payload)]
        match _meaning(payload, event):
            case "start":
                said = [as_text(payload.get(name)) or None for name in ("role", "id", "model")]
                return [Start(Key(), *said), *read_usage(payload.get("usage"), USAGE)]
            case "text":
                return _say(Text, Key(), payload)
            case "reasoning":
                return _say(Reasoning, Key(), payload)
            case "signature":
                return _say(Signature, Key(), payload)
            case "call":
                started = ToolCallStart(_key(payload), "function", as_text(payload.get("name")), own_end=True)
                return [started, *_say(Arguments, _key(payload), payload)]
            case "arguments":
                return _say(Arguments, _key(payload), payload)
            case "stop":
                return [*_read_whole(payload), PartEnd(_key(payload))]
            case "usage":
                return read_usage(payload.get("usage", payload), USAGE)
            case "finish":
                reason = next((reason for name in _REASONS if (reason := as_text(payload.get(name)))), "")
                return [*read_usage(payload.get("usage"), USAGE), Finish(Key(), reason) if reason else End()]
            case "end":
                return [End()]
            case "ping":
                return [Keepalive()]
            case meaning:
                error = payload.get("error")
                wrong = error or meaning == "error"
                return [read_error(error or _without_type(payload))] if wrong else [Unknown(event, payload)]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        writer = _Writer(like, as_dict(self.payload(like)) if like else {})
        for delta in deltas:
            writer.write(delta)
        return writer.frames

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        return list(frames)  # events carry no numbers, and restate nothing

    def losses(self, reply: Reply) -> tuple[str, ...]:
        out = [
            f"{count} separate {kind.__name__}s (all are joined)"
            for kind, count in Counter(map(type, reply.parts)).items()
            if count > 1 and kind is not ToolCall
        ]
        out += [loss for part in reply.parts if (loss := _loss(part))]
        out += ["the choices but the first"] if reply.choices else []
        return tuple(out + common_losses(reply, USAGE))


def _loss(part: Any) -> str | None:
    match part:
        case RefusalPart():
            return "a refusal in words"
        case ToolCall(kind="custom"):
            return "a tool call with free text"
        case ToolCall():
            return None if part.id and part.name else "a tool call without id or name"
        case OpaquePart(kind):
            return f"the part {kind!r}"
        case ReasoningPart():
            return None if part.text or part.signature else "an empty reasoning part"
        case _:
            return None if part.text else "an empty TextPart"


# ------------------------------------------------------------------------------------------------------------------- reading


def _meaning(payload: dict[str, Any], event: str) -> str:
    return _MEANING.get(as_text(payload.get("type")) or event, "")


def _key(payload: dict[str, Any]) -> Key:
    return Key(id=next((id_ for name in _IDS if (id_ := as_text(payload.get(name)))), None))


def _say(kind: type[Text | Reasoning | Signature | Arguments], key: Key, payload: dict[str, Any]) -> list[Delta]:
    value = next((payload[name] for name in _PIECES if payload.get(name) is not None), "")
    text = value if isinstance(value, str) else jsontext.dump(value) if kind is Arguments else ""
    return [kind(key, text)] if text else []


def _read_whole(payload: dict[str, Any]) -> list[Delta]:
    """The arguments, where the event that ends a call states them all."""
    value = next((payload[name] for name in _WHOLES if payload.get(name) is not None), None)
    if value is None:
        return []
    return [Whole(_key(payload), "arguments", value if isinstance(value, str) else jsontext.dump(value))]


def _without_type(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name != "type"}


# ------------------------------------------------------------------------------------------------------------------- writing


class _Writer:
    """One event a delta, in the spelling of the event that lends."""

    def __init__(self, like: Frame | None, lent: dict[str, Any]) -> None:
        self._like, self._lent = like, lent
        self._whole: dict[str, Any] = {}  # arguments that the end event of their call is about to say
        self._ids: dict[int | None, str | None] = {}  # where the deltas number the calls
        self.frames: list[Frame] = []

    def write(self, delta: Delta) -> None:
        match delta:
            case Start(_, role, id_, model):
                said = {"role": role, "id": id_, "model": model}
                self._event("start", {name: value for name, value in said.items() if value})
            case Text(_, text):
                self._event("text", {self._name(_PIECES): text})
            case Reasoning(_, text):
                self._event("reasoning", {self._name(_PIECES): text})
            case Signature(_, text):
                self._event("signature", {self._name(_PIECES): text})
            case ToolCallStart(key, _, name):
                self._ids[key.index] = key.id
                self._event("call", {self._name(_IDS): key.id, "name": name})
            case Arguments(key, text):
                self._event("arguments", {self._name(_IDS): self._id(key), self._name(_PIECES): text})
            case Whole(_, "arguments", value):
                self._whole = {self._name(_WHOLES): value}
            case PartEnd(key) if self._id(key):
                self._event("stop", {self._name(_IDS): self._id(key), **self._whole})
                self._whole = {}
            case UsageUpdate():
                self._event("usage", {"usage": write_usage(delta, USAGE)})
            case Finish(_, reason):
                self._event("finish", {self._name(_REASONS): reason})
            case StreamError(type_) if type_.startswith("wire:"):
                self.frames += write_damage(delta, "sse", self._like)
            case StreamError(type_, message, payload):
                self._event("error", {"error": {"type": type_, "message": message} if payload is None else payload})
            case End():
                self._event("end", {})
            case Keepalive():
                self._event("ping", {})
            case Unknown(event, payload):
                self.frames.append(sse.encode(jsontext.dump(payload), event, self._like))
            case _:
                pass  # this wire has no words for it

    def _id(self, key: Key) -> str | None:
        return key.id or self._ids.get(key.index)

    def _name(self, names: Sequence[str]) -> str:
        return next((name for name in names if name in self._lent), names[0])

    def _event(self, meaning: str, fields: dict[str, Any]) -> None:
        lent = self._lent if _MEANING.get(as_text(self._lent.get("type"))) == meaning else {}
        kept = {name: value for name, value in lent.items() if name not in _SAID}
        type_ = lent.get("type", SPELLINGS[meaning][0])
        named = self._like is not None and self._like.event != "message"
        payload = {"type": type_, **kept, **{name: value for name, value in fields.items() if value is not None}}
        self.frames.append(sse.encode(jsontext.dump(payload), type_ if named else "message", self._like))

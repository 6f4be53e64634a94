"""Amazon Bedrock's ConverseStream (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html), in binary frames.

A payload is what boto3 shows for an event: `{event type: {...}}`. Text and reasoning blocks have no start event; usage comes in `metadata`, behind
`messageStop`; there is no end mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..model import (
    Arguments,
    Delta,
    Finish,
    Frame,
    Key,
    Opaque,
    OpaquePart,
    PartEnd,
    PartStart,
    Reasoning,
    ReasoningPart,
    RefusalPart,
    Reply,
    Signature,
    Start,
    Stop,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    ToolCallStart,
    Unknown,
    UsageUpdate,
)
from .base import (
    Framing,
    Hint,
    Spelling,
    UsageNames,
    as_dict,
    as_int,
    as_text,
    common_losses,
    first_choice_losses,
    read_error,
    read_usage,
    write_damage,
    write_usage,
)
from .bedrock_quirks import CONVERSE_QUIRKS
from .binary import event_of, read_event, write_event, write_event_error

USAGE: UsageNames = {
    "input_tokens": [("inputTokens",)],
    "output_tokens": [("outputTokens",)],
    "total_tokens": [("totalTokens",)],
    "cached_tokens": [("cacheReadInputTokens",), ("cacheReadInputTokenCount",)],
}

_BLOCK = ("contentBlockStart", "contentBlockDelta", "contentBlockStop")
EVENTS = frozenset((*_BLOCK, "messageStart", "messageStop", "metadata"))
_INDEX = "contentBlockIndex"
_SERVER_TOOL = "server_tool_use"

_WORDS: Mapping[Stop, tuple[str, ...]] = {
    "stop": ("end_turn",),
    "length": ("max_tokens",),
    "tool_calls": ("tool_use",),
    "content_filter": ("content_filtered",),
}


@dataclass(frozen=True)
class BedrockConverse:
    name: str = "bedrock-converse"
    framing: Framing = "eventstream"
    numbers: Literal["parts", "calls", "nothing"] = "parts"
    end_mark: bool = False
    usage_rides: bool = False

    @property
    def words(self) -> Mapping[Stop, tuple[str, ...]]:
        return _WORDS

    @property
    def quirks(self) -> Mapping[str, Spelling]:
        return CONVERSE_QUIRKS

    def recognise(self, hint: Hint) -> int:
        match hint.payload:
            case dict(said) if hint.event in EVENTS:
                return 90 if hint.event != "metadata" or "usage" in said else 0  # a common name for an event
            case dict(events) if len(events) == 1 and EVENTS & events.keys():
                return 80
            case {"message": str()} if "amazon.eventstream" in hint.content_type:
                return 30  # an error, as JSON
            case _:
                return 0

    def payload(self, frame: Frame) -> Any:
        return event_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_event(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        if not isinstance(payload, dict):
            return [Unknown(event, payload)]
        out: list[Delta] = []
        for name, said in payload.items():
            if name in EVENTS and isinstance(said, dict):
                out += _read(name, said)
            elif name.endswith("Exception"):
                out.append(StreamError(name, as_text(as_dict(said).get("message")) or name, payload))
        if out or EVENTS & payload.keys():
            return out
        error = payload.get("error")
        is_error = error or event == "error" or isinstance(payload.get("message"), str)
        return [read_error(error or payload)] if is_error else [Unknown(event, payload)]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        out = []
        for before, delta in zip([None, *deltas], deltas, strict=False):
            if (
                isinstance(delta, Opaque)
                and before == PartStart(delta.key, delta.kind)
                and _opened_kind(delta.payload) == delta.kind
            ):
                out.append(_start(delta.key, like, delta.payload))
            else:
                out += _write(delta, like)
        return out

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        """Blocks are numbered from 0 by first sight; a start event with a number already seen begins another block."""
        numbers: dict[int | None, int] = {}
        out, count = [], 0
        for frame in frames:
            name, said = frame.event, as_dict(as_dict(event_of(frame)).get(frame.event))
            if name in _BLOCK:
                old = as_int(said.get(_INDEX))
                if old not in numbers or name == _BLOCK[0]:
                    numbers[old], count = count, count + 1
                if (new := numbers[old]) != old:
                    frame = write_event(name, {**said, _INDEX: new}, frame)
            out.append(frame)
        return out

    def losses(self, reply: Reply) -> tuple[str, ...]:
        out = first_choice_losses(reply, _loss)
        out += ["an end mark without a finish reason"] if reply.ended and reply.finish_reason is None else []
        return tuple(out + common_losses(reply, USAGE))


def _loss(part: Any) -> str | None:
    match part:
        case RefusalPart():
            return "a refusal in words"
        case TextPart("") | ReasoningPart("", ""):
            return f"an empty {type(part).__name__}"
        case ToolCall(kind="custom"):
            return "a tool call with free text"
        case ToolCall():
            return None if part.id or part.name else "a tool call without id and name"
        case OpaquePart(kind, payloads, arguments):
            opened = bool(payloads) and _opened_kind(payloads[0]) == kind
            deltas = {_delta_kind(payload) for payload in payloads[1 if opened else 0 :]}
            spoken = deltas <= {kind} if opened else deltas == {kind} and not arguments
            return None if spoken else f"the part {kind!r}"
        case _:
            return None


# ------------------------------------------------------------------------------------------------------------------- reading


def _read(event: str, said: dict[str, Any]) -> list[Delta]:
    key = Key(index=as_int(said.get(_INDEX)))
    match event:
        case "contentBlockDelta":
            return _read_delta(as_dict(said.get("delta")), key)
        case "contentBlockStart":
            return _read_start(as_dict(said.get("start")), key)
        case "contentBlockStop":
            return [PartEnd(key)]
        case "messageStart":
            return [Start(Key(), as_text(said.get("role")) or None)]
        case "messageStop":
            reason = as_text(said.get("stopReason"))
            return [Finish(Key(), reason)] if reason else []
        case _:
            return read_usage(said.get("usage"), USAGE)


def _read_start(start: dict[str, Any], key: Key) -> list[Delta]:
    kind = _opened_kind(start)
    if kind == "toolUse":
        use = as_dict(start["toolUse"])
        return [
            ToolCallStart(
                Key(0, key.index, as_text(use.get("toolUseId")) or None), "function", as_text(use.get("name"))
            )
        ]
    return [PartStart(key, kind), Opaque(key, kind, start)] if kind else []


def _opened_kind(payload: Any) -> str:
    """What a block is by its start event; a tool that the provider runs itself is no call."""
    start = as_dict(payload)
    kind = next(iter(start), "")
    return _SERVER_TOOL if kind == "toolUse" and as_dict(start[kind]).get("type") == _SERVER_TOOL else kind


def _read_delta(delta: dict[str, Any], key: Key) -> list[Delta]:
    match delta:
        case {"text": str(text)}:
            return [Text(key, text)] if text else []
        case {"toolUse": {"input": str(text)}}:
            return [Arguments(key, text)] if text else []
        case {"reasoningContent": {"text": str(text)}}:
            return [Reasoning(key, text)] if text else []
        case {"reasoningContent": {"signature": str(text)}}:
            return [Signature(key, text)] if text else []
        case _:
            kind = _delta_kind(delta)
            return [Opaque(key, kind, delta)] if kind else []


def _delta_kind(payload: Any) -> str:
    delta = as_dict(payload)
    inner = as_dict(delta.get("reasoningContent"))
    return next(iter(inner), "") or next(iter(delta), "")


# ------------------------------------------------------------------------------------------------------------------- writing


def _write(delta: Delta, like: Frame | None) -> list[Frame]:
    match delta:
        case Start(_, role):
            return [_event("messageStart", like, role=role)]
        case Text(key, text):
            return [_delta(key, like, {"text": text})]
        case Reasoning(key, text):
            return [_delta(key, like, {"reasoningContent": {"text": text}})]
        case Signature(key, text):
            return [_delta(key, like, {"reasoningContent": {"signature": text}})]
        case Arguments(key, text):
            return [_delta(key, like, {"toolUse": {"input": text}})]
        case ToolCallStart(key, _, name):
            use = {"toolUseId": key.id, "name": name}
            return [_start(key, like, {"toolUse": {field: said for field, said in use.items() if said is not None}})]
        case Opaque(key, _, payload):
            return [_delta(key, like, payload)]
        case PartEnd(key):
            return [_event("contentBlockStop", like, **{_INDEX: key.index})]
        case Finish(_, reason):
            return [_event("messageStop", like, stopReason=reason)]
        case UsageUpdate():
            return [_event("metadata", like, usage=write_usage(delta, USAGE))]
        case StreamError(type_) if type_.startswith("wire:"):
            return write_damage(delta, "eventstream", like)
        case StreamError():
            return [write_event_error(delta, like)]
        case Unknown(event, payload):
            return [write_event(event, as_dict(payload).get(event, payload), like)]
        case _:
            return []  # this wire has no words for Refusal, Whole, ArgumentsAt, Keepalive, End, and most starts


def _event(name: str, like: Frame | None, **fields: Any) -> Frame:
    lent = as_dict(as_dict(event_of(like)).get(name)) if like else {}
    return write_event(name, {**lent, **fields}, like)


def _start(key: Key, like: Frame | None, start: Any) -> Frame:
    return _event("contentBlockStart", like, **{_INDEX: key.index}, start=start)


def _delta(key: Key, like: Frame | None, delta: Any) -> Frame:
    return _event("contentBlockDelta", like, **{_INDEX: key.index}, delta=delta)

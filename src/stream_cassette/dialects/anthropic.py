"""Anthropic Messages events (https://docs.claude.com/en/docs/build-with-claude/streaming), also as Vertex and gateways send them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, assert_never

from .. import jsontext
from ..framing import sse
from ..model import (
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
    PartEnd,
    PartStart,
    Reasoning,
    Refusal,
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
from .anthropic_quirks import QUIRKS
from .base import (
    Framing,
    Hint,
    Spelling,
    UsageNames,
    as_dict,
    as_index,
    as_list,
    as_text,
    common_losses,
    first_choice_losses,
    opaque_kind,
    payload_of,
    read_error,
    read_frame,
    read_usage,
    typed_payload_of,
    wire_name,
    write_usage,
)

USAGE: UsageNames = {
    "input_tokens": [("input_tokens",)],
    "output_tokens": [("output_tokens",)],
    "cached_tokens": [("cache_read_input_tokens",)],
}

_NO_USAGE = {"input_tokens": None, "output_tokens": None}

_EVENTS = frozenset(
    (
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    )
)

_WORDS: Mapping[Stop, tuple[str, ...]] = {
    "stop": ("end_turn",),
    "length": ("max_tokens",),
    "tool_calls": ("tool_use",),
    "refusal": ("refusal",),
    "pause": ("pause_turn",),
}


@dataclass(frozen=True)
class Anthropic:
    name: str = "anthropic"
    framing: Framing = "sse"
    end_mark: bool = True
    numbers: Literal["parts", "calls", "nothing"] = "parts"
    usage_rides: bool = False

    @property
    def words(self) -> Mapping[Stop, tuple[str, ...]]:
        return _WORDS

    @property
    def quirks(self) -> Mapping[str, Spelling]:
        return QUIRKS

    def recognise(self, hint: Hint) -> int:
        match hint.payload:
            case {"type": str(type_)} if type_ in _EVENTS:
                return 90
            case {"type": "message", "content": list(), "role": _}:
                return 80
            case {"message": dict()} | {"index": int()} if hint.event in _EVENTS:
                return 80  # the type stands on the event line alone
            case {"type": "error", "error": dict()}:
                return 40
            case _:
                return 0  # a ping says nothing: Anthropic's legacy completions send it too

    def payload(self, frame: Frame) -> Any:
        return typed_payload_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_frame(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        if not isinstance(payload, dict):
            return [Unknown(event, payload)]
        key = Key(index=as_index(payload.get("index")))
        # Gateways drop the type from the payload now and then; an event line without a name is called "message" by the framing.
        match payload.get("type", event.removeprefix("message") and event):
            case "content_block_delta":
                return _read_block_delta(as_dict(payload.get("delta")), key)
            case "content_block_start":
                return _read_block(as_dict(payload.get("content_block")), key)
            case "content_block_stop":
                return [PartEnd(key)]
            case "message_start":
                message = as_dict(payload.get("message"))
                return [_start(message), *read_usage(message.get("usage"), USAGE)]
            case "message_delta":
                return [*_finish(as_dict(payload.get("delta"))), *read_usage(payload.get("usage"), USAGE)]
            case "message_stop":
                return [End()]
            case "ping":
                return [Keepalive()]
            case "message":
                return _read_message(payload)
            case type_:
                error = payload.get("error")
                return [read_error(error or payload)] if error or type_ == "error" else [Unknown(event, payload)]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        return _Writer(deltas, like).frames()

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        """Content blocks are numbered from 0 in the order of their starts; the official client indexes a list by that number."""
        numbers: dict[Any, int] = {}
        out = []
        for frame in frames:
            payload = payload_of(frame)
            type_ = payload.get("type") if isinstance(payload, dict) else None
            if type_ == "message_start":
                numbers.clear()
            if type_ == "content_block_start":
                numbers[as_index(payload.get("index"))] = len(numbers)
            if type_ in ("content_block_start", "content_block_delta", "content_block_stop"):
                old = as_index(payload.get("index"))
                if (new := numbers.get(old, old)) != old:
                    frame = sse.encode(jsontext.dump({**payload, "index": new}), frame.event, frame)
            out.append(frame)
        return out

    def losses(self, reply: Reply) -> tuple[str, ...]:
        out = first_choice_losses(reply, _loss)
        return tuple(out + common_losses(reply, USAGE))


def _loss(part: Any) -> str | None:
    match part:
        case RefusalPart():
            return "a refusal in words"
        case ToolCall(kind="custom"):
            return "a tool call with free text"
        case ToolCall():
            return None if part.id or part.name else "a tool call without id and name"
        case OpaquePart(kind, ({"type": str(type_)}, *_)) if type_ == wire_name(kind):
            return None
        case OpaquePart():
            return f"the part {part.kind!r}"
        case _:
            return None


# ------------------------------------------------------------------------------------------------------------------- reading


def _start(message: dict[str, Any]) -> Start:
    return Start(
        Key(),
        as_text(message.get("role")) or None,
        as_text(message.get("id")) or None,
        as_text(message.get("model")) or None,
    )


def _finish(said: dict[str, Any]) -> list[Delta]:
    reason = as_text(said.get("stop_reason"))
    return [Finish(Key(), reason)] if reason else []


def _read_block(block: dict[str, Any], key: Key) -> list[Delta]:
    """A block opens; text, thinking and tool input may already stand in it."""
    match block.get("type"):
        case "text":
            return [PartStart(key, "text"), *_say(Text, key, block.get("text"))]
        case "thinking":
            thought = _say(Reasoning, key, block.get("thinking"))
            return [PartStart(key, "reasoning"), *thought, *_say(Signature, key, block.get("signature"))]
        case "tool_use":
            its_key = replace(key, id=as_text(block.get("id")) or None)
            given = block.get("input")
            arguments = given if isinstance(given, str) else jsontext.dump(given) if given else ""
            return [ToolCallStart(its_key, "function", as_text(block.get("name"))), *_say(Arguments, key, arguments)]
        case type_:
            kind = opaque_kind(as_text(type_) or "unknown")
            return [PartStart(key, kind), Opaque(key, kind, block)]


def _read_block_delta(delta: dict[str, Any], key: Key) -> list[Delta]:
    match delta.get("type"):
        case "text_delta":
            return _say(Text, key, delta.get("text"))
        case "input_json_delta":
            return _say(Arguments, key, delta.get("partial_json"))
        case "thinking_delta":
            return _say(Reasoning, key, delta.get("thinking"))
        case "signature_delta":
            return _say(Signature, key, delta.get("signature"))
        case type_:
            return [Opaque(key, opaque_kind(as_text(type_) or "unknown"), delta)]


def _say(kind: type[Text | Reasoning | Signature | Arguments], key: Key, text: Any) -> list[Delta]:
    return [kind(key, text)] if isinstance(text, str) and text else []


def _read_message(message: dict[str, Any]) -> list[Delta]:
    """A message that was not streamed."""
    out: list[Delta] = [_start(message)]
    for index, block in enumerate(as_list(message.get("content"))):
        out += [*_read_block(as_dict(block), Key(index=index)), PartEnd(Key(index=index))]
    return [*out, *_finish(message), *read_usage(message.get("usage"), USAGE), End()]


# ------------------------------------------------------------------------------------------------------------------- writing


class _Writer:
    """One event a delta; but usage rides on the event before it, and with `like` a block's first content rides in its start."""

    def __init__(self, deltas: Sequence[Delta], like: Frame | None) -> None:
        self._deltas, self._like = deltas, like
        self._lent = as_dict(payload_of(like)) if like else {}
        self._frames: list[Frame] = []
        self._event: dict[str, Any] = {}
        self._joins: tuple[type, ...] = ()  # what the open event can still take in

    def frames(self) -> list[Frame]:
        for delta in self._deltas:
            if not (isinstance(delta, self._joins) and self._join(delta)):
                self._write(delta)
        self._flush()
        return self._frames

    def _flush(self) -> None:
        if self._event:
            if self._like is None and self._event["type"] == "message_delta":
                self._event.setdefault("usage", {"output_tokens": None})
            self._frames.append(sse.encode(jsontext.dump(self._event), self._event["type"], self._like))
        self._event, self._joins = {}, ()

    def _open(self, type_: str, *joins: type, **fields: Any) -> None:
        self._flush()
        lent = self._lent if self._lent.get("type") == type_ else {}
        kept = {name: value for name, value in lent.items() if name != "usage"}
        self._event, self._joins = {**kept, "type": type_, **fields}, joins

    def _alone(self, frame: Frame) -> None:
        self._flush()
        self._frames.append(frame)

    def _write(self, delta: Delta) -> None:
        match delta:
            case Start():
                self._open("message_start", UsageUpdate, message=self._message(delta))
            case PartStart(key, ("text" | "reasoning") as kind):
                empty = (
                    {"type": "text", "text": ""}
                    if kind == "text"
                    else {"type": "thinking", "thinking": "", "signature": ""}
                )
                self._open_block(
                    key, empty, Text if kind == "text" else Reasoning, *((Signature,) if kind == "reasoning" else ())
                )
            case PartStart(key, kind):
                self._open("content_block_start", Opaque, index=key.index, content_block={"type": wire_name(kind)})
            case ToolCallStart(key, _, name):
                block = {"type": "tool_use", **({"id": key.id} if key.id else {}), "name": name, "input": {}}
                self._open_block(key, block, Arguments)
            case Text(key, text):
                self._open_delta(key, type="text_delta", text=text)
            case Reasoning(key, text):
                self._open_delta(key, type="thinking_delta", thinking=text)
            case Signature(key, text):
                self._open_delta(key, type="signature_delta", signature=text)
            case Arguments(key, text):
                self._open_delta(key, type="input_json_delta", partial_json=text)
            case Opaque(key, _, payload):
                self._open("content_block_delta", index=key.index, delta=payload)
            case PartEnd(key):
                self._open("content_block_stop", index=key.index)
            case Finish(_, reason):
                self._open(
                    "message_delta",
                    UsageUpdate,
                    delta={"stop_sequence": None, **as_dict(self._lent.get("delta")), "stop_reason": reason},
                )
            case UsageUpdate():
                self._open("message_delta", delta={}, usage=write_usage(delta, USAGE))
            case End():
                self._open("message_stop")
            case Keepalive():
                self._open("ping")
            case Unknown(event, payload):
                self._alone(sse.encode(jsontext.dump(payload), event, self._like))
            case StreamError(type_, _, str(text)) if type_.startswith("wire:"):
                self._alone(sse.encode(text, like=self._like))
            case StreamError(type_, message, payload):
                self._open("error", error={"type": type_, "message": message} if payload is None else payload)
            case Refusal() | Whole() | ArgumentsAt():
                pass  # this wire has no words for them
            case _:
                assert_never(delta)

    def _open_block(self, key: Key, block: dict[str, Any], *joins: type) -> None:
        rides = self._lent.get("type") == "content_block_start"
        self._open("content_block_start", *(joins if rides else ()), index=key.index, content_block=block)

    def _open_delta(self, key: Key, **delta: Any) -> None:
        self._open("content_block_delta", index=key.index, delta=delta)

    def _join(self, delta: Delta) -> bool:
        """Put `delta` into the open event, if it reads to the same there."""
        block = self._event.get("content_block", {})
        match delta:
            case UsageUpdate():
                place = self._event.get("message", self._event)
                place["usage"] = write_usage(delta, USAGE)
            case Text(_, text):
                block["text"] = text
            case Reasoning(_, text):
                block["thinking"] = text
            case Signature(_, text):
                block["signature"] = text
            case Opaque(_, _, dict(payload)):
                self._event["content_block"] = payload
            case Arguments(_, text):
                value = payload_of(Frame(b"", text))
                if not isinstance(value, dict) or jsontext.dump(value) != text:
                    return False
                block["input"] = value
            case _:
                return False
        self._joins = (Signature,) if isinstance(delta, Reasoning) else ()
        return True

    def _message(self, start: Start) -> dict[str, Any]:
        lent = {name: value for name, value in as_dict(self._lent.get("message")).items() if name != "usage"}
        message = {
            "id": start.id or "msg_synthesized",
            "type": "message",
            "role": start.role or "assistant",
            "model": start.model or "synthesized",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            **lent,
        }
        if self._like is None:
            # The official client reads usage here first and insists on the object; counts of null say nothing.
            updates = [delta for delta in self._deltas if isinstance(delta, UsageUpdate)]
            message["usage"] = write_usage(updates[-1], USAGE) if updates else dict(_NO_USAGE)
        return message

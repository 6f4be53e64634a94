"""Cohere's v2 chat events (https://docs.cohere.com/v2/docs/streaming).

Contents and tool calls are counted apart, each from 0. So that one number tells them apart, a `Key` counts calls downwards from -1. The plan for the
tools (`tool-plan-delta`) belongs to no content; it is reasoning without an index. A stream ends with `message-end` and then `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..framing import sse
from ..model import (
    Arguments,
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
    ReasoningPart,
    RefusalPart,
    Reply,
    Start,
    Stop,
    StreamError,
    Text,
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
    payload_of,
    read_error,
    read_frame,
    read_usage,
    untyped_errors,
    write_damage,
    write_json,
    write_keepalive,
    write_usage,
)
from .cohere_quirks import QUIRKS

USAGE: UsageNames = {
    "input_tokens": [("tokens", "input_tokens"), ("billed_units", "input_tokens")],
    "output_tokens": [("tokens", "output_tokens"), ("billed_units", "output_tokens")],
    "cached_tokens": [("cached_tokens",)],
    "reasoning_tokens": [("tokens", "reasoning_tokens")],
}

_CONTENT = ("content-start", "content-delta", "content-end")
_CALL = ("tool-call-start", "tool-call-delta", "tool-call-end")
_EVENTS = frozenset((*_CONTENT, *_CALL, "message-start", "message-end", "tool-plan-delta", "citation-start"))
_CITATION = "citation-start"
_QUIET = ("citation-end", "debug")  # say nothing of the reply
_FIELDS = {"text": "text", "thinking": "reasoning"}

_WORDS: Mapping[Stop, tuple[str, ...]] = {
    "stop": ("COMPLETE",),
    "length": ("MAX_TOKENS",),
    "tool_calls": ("TOOL_CALL",),
}


@dataclass(frozen=True)
class Cohere:
    name: str = "cohere"
    framing: Framing = "sse"
    numbers: Literal["parts", "calls", "nothing"] = "parts"
    end_mark: bool = True
    usage_rides: bool = False

    @property
    def words(self) -> Mapping[Stop, tuple[str, ...]]:
        return _WORDS

    @property
    def quirks(self) -> Mapping[str, Spelling]:
        return QUIRKS

    def recognise(self, hint: Hint) -> int:
        return 90 if as_text(as_dict(hint.payload).get("type")) in _EVENTS else 0

    def payload(self, frame: Frame) -> Any:
        return payload_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_frame(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        if not isinstance(payload, dict):
            return [Unknown(event, payload)]
        said = as_dict(payload.get("delta"))
        message = as_dict(said.get("message"))
        type_ = as_text(payload.get("type"))
        key = _key(type_, payload.get("index"))
        match type_:
            case "content-delta":
                return _read_content(as_dict(message.get("content")), key)
            case "content-start":
                return _read_start(as_dict(message.get("content")), key)
            case "content-end" | "tool-call-end":
                return [PartEnd(key)]
            case "tool-plan-delta":
                plan = as_text(message.get("tool_plan"))
                return [Reasoning(Key(), plan)] if plan else []
            case "tool-call-start" | "tool-call-delta":
                return _read_call(as_dict(message.get("tool_calls")), key)
            case "citation-start":
                return [Opaque(Key(), _CITATION, payload)]
            case "message-start":
                return [Start(Key(), as_text(message.get("role")) or None, as_text(payload.get("id")) or None)]
            case "message-end":
                reason = as_text(said.get("finish_reason"))
                finish: list[Delta] = [Finish(Key(), reason)] if reason else []
                error = said.get("error")
                return [*finish, *read_usage(said.get("usage"), USAGE), *([read_error(error)] if error else [])]
            case _ if type_ in _QUIET:
                return []
            case _:
                error = payload.get("error")
                return [read_error(error or payload)] if error or event == "error" else [Unknown(event, payload)]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        return _Writer(deltas, like).frames()

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        """Contents are numbered from 0 in the order of their starts, and so are calls."""
        numbers: dict[tuple[str, ...], dict[int | None, int]] = {_CONTENT: {}, _CALL: {}}
        out = []
        for frame in frames:
            payload = as_dict(payload_of(frame))
            family = next((names for names in numbers if payload.get("type") in names), None)
            if family is not None:
                old, known = as_int(payload.get("index")), numbers[family]
                if payload["type"] == family[0]:
                    known[old] = len(known)
                if (new := known.get(old, old)) != old:
                    frame = write_json({**payload, "index": new}, "sse", frame.event, frame)
            out.append(frame)
        return out

    def losses(self, reply: Reply) -> tuple[str, ...]:
        out = first_choice_losses(reply, _loss)
        return tuple(out + untyped_errors(reply) + common_losses(reply, USAGE))


def _loss(part: Any) -> str | None:
    match part:
        case RefusalPart():
            return "a refusal in words"
        case ReasoningPart(_, signature) if signature:
            return "the signature of a reasoning part"
        case ToolCall(kind="custom"):
            return "a tool call with free text"
        case ToolCall():
            return None if part.id or part.name else "a tool call without id and name"
        case OpaquePart(kind, payloads, "") if payloads and all(as_dict(each).get("type") == kind for each in payloads):
            return None if kind == _CITATION or len(payloads) == 1 else f"the part {kind!r}"
        case OpaquePart(kind):
            return f"the part {kind!r}"
        case _:
            return None


# ------------------------------------------------------------------------------------------------------------------- reading


def _key(type_: str, index: Any) -> Key:
    number = as_int(index)
    if number is None or number < 0:
        return Key()
    return Key(index=-1 - number if type_ in _CALL else number)


def _read_start(content: dict[str, Any], key: Key) -> list[Delta]:
    type_ = as_text(content.get("type")) or "text"
    if type_ in _FIELDS:
        return [PartStart(key, _FIELDS[type_]), *_read_texts(content, key)]
    return [PartStart(key, type_), Opaque(key, type_, content)]


def _read_content(content: dict[str, Any], key: Key) -> list[Delta]:
    if not content or any(name in content for name in _FIELDS):
        return _read_texts(content, key)
    return [Opaque(key, "content", content)]


def _read_texts(content: dict[str, Any], key: Key) -> list[Delta]:
    out: list[Delta] = []
    if thought := as_text(content.get("thinking")):
        out.append(Reasoning(key, thought))
    if text := as_text(content.get("text")):
        out.append(Text(key, text))
    return out


def _read_call(call: dict[str, Any], key: Key) -> list[Delta]:
    function = as_dict(call.get("function"))
    id_, name, arguments = as_text(call.get("id")), as_text(function.get("name")), as_text(function.get("arguments"))
    start: list[Delta] = [ToolCallStart(Key(0, key.index, id_ or None), "function", name)] if id_ or name else []
    return [*start, Arguments(key, arguments)] if arguments else start


# ------------------------------------------------------------------------------------------------------------------- writing


class _Writer:
    """One event a delta; the finish reason, usage and an error share the last event."""

    def __init__(self, deltas: Sequence[Delta], like: Frame | None) -> None:
        self._deltas, self._like = deltas, like
        self._lent = as_dict(payload_of(like)) if like else {}
        self._frames: list[Frame] = []
        self._end: dict[str, Any] = {}  # what the open message-end says
        self._started: set[int | None] = set()
        self._calls: set[int | None] = set()

    def frames(self) -> list[Frame]:
        for delta in self._deltas:
            match delta:
                case Finish(_, reason):
                    self._say_end("finish_reason", reason)
                case UsageUpdate():
                    self._say_end("usage", write_usage(delta, USAGE))
                case StreamError(type_, message, None | str()) if not type_.startswith("wire:"):
                    self._say_end("error", message)
                case _:
                    self._flush()
                    self._write(delta)
        self._flush()
        return self._frames

    def _say_end(self, name: str, value: Any) -> None:
        order = ("finish_reason", "usage", "error")  # as it is read
        if any(order.index(name) <= order.index(said) for said in self._end):
            self._flush()
        self._end[name] = value

    def _flush(self) -> None:
        if self._end:
            self._event("message-end", delta=self._end)
        self._end = {}

    def _event(self, type_: str, index: int | None = None, **fields: Any) -> None:
        kept = {} if self._lent.get("type") != type_ else {**self._lent}
        kept.pop("delta", None)
        number = {} if index is None else {"index": -1 - index if index < 0 else index}
        self._frames.append(write_json({**kept, "type": type_, **number, **fields}, "sse", type_, self._like))

    def _say(self, type_: str, index: int | None = None, **message: Any) -> None:
        self._event(type_, index, delta={"message": message})

    def _write(self, delta: Delta) -> None:
        match delta:
            case Start(_, role, id_):
                lent = as_dict(as_dict(self._lent.get("delta")).get("message"))
                fields: dict[str, Any] = {"id": id_} if id_ else {}
                said = {"content": [], "tool_plan": "", "tool_calls": [], "citations": [], **lent, "role": role}
                self._event("message-start", **fields, delta={"message": said})
            case Text(key, text):
                self._say("content-delta", key.index, content={"text": text})
            case Reasoning(Key(index=None), text):
                self._say("tool-plan-delta", tool_plan=text)
            case Reasoning(key, text):
                self._say("content-delta", key.index, content={"thinking": text})
            case PartStart() | PartEnd():
                self._border(delta)
            case ToolCallStart(key, _, name):
                self._calls.add(key.index)
                call = {"id": key.id, "type": "function", "function": {"name": name, "arguments": ""}}
                self._say("tool-call-start", key.index, tool_calls=call)
            case Arguments(key, text):
                self._say("tool-call-delta", key.index, tool_calls={"function": {"arguments": text}})
            case Opaque():
                self._opaque(delta)
            case Keepalive():
                self._frames.append(write_keepalive("sse", self._like))
            case Unknown(event, payload):
                self._frames.append(write_json(payload, "sse", event, self._like))
            case StreamError(type_, _, payload) if not type_.startswith("wire:"):
                self._frames.append(write_json({"error": payload}, "sse", like=self._like))
            case StreamError():
                self._frames += write_damage(delta, "sse", self._like)
            case End():
                self._frames.append(sse.encode("[DONE]", like=self._like))
            case _:
                pass  # this wire has no words for Signature, Refusal, Whole and ArgumentsAt

    def _border(self, delta: PartStart | PartEnd) -> None:
        index = delta.key.index
        if isinstance(delta, PartEnd):
            call = index in self._calls or (index is not None and index < 0)
            if call or index in self._started or self._like is not None:
                self._event("tool-call-end" if call else "content-end", index)
            return
        field = next((field for field, kind in _FIELDS.items() if kind == delta.kind), None)
        if field:
            self._started.add(index)
            self._say("content-start", index, content={"type": field, field: ""})

    def _opaque(self, delta: Opaque) -> None:
        type_ = as_dict(delta.payload).get("type")
        if type_ == _CITATION:
            self._frames.append(write_json(delta.payload, "sse", _CITATION, self._like))
        elif delta.kind == "content":
            self._say("content-delta", delta.key.index, content=delta.payload)
        else:
            self._started.add(delta.key.index)
            self._say("content-start", delta.key.index, content=delta.payload)

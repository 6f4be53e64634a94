"""Ollama's own API (https://docs.ollama.com/api/chat and /api/generate): one JSON object a line, the last with `done`, its reason and the counts.

Calls come whole, with an object as arguments and mostly without an id. An error in mid-stream is a line of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import jsontext
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
    ReasoningPart,
    Refusal,
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
    Whole,
)
from .base import (
    Framing,
    Hint,
    Spelling,
    UsageNames,
    arguments_field,
    as_dict,
    as_list,
    as_text,
    common_losses,
    first_choice_losses,
    is_open,
    object_loss,
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
from .ollama_quirks import QUIRKS

USAGE: UsageNames = {"input_tokens": [("prompt_eval_count",)], "output_tokens": [("eval_count",)]}

_COUNTS = (
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
)
_READ = frozenset((*_COUNTS, "done", "done_reason", "message", "response", "thinking", "error"))
_MESSAGE_READ = frozenset(("role", "content", "thinking", "tool_calls"))

_WORDS: Mapping[Stop, tuple[str, ...]] = {"stop": ("stop",), "length": ("length",), "tool_calls": ("stop",)}


@dataclass(frozen=True)
class Ollama:
    name: str = "ollama"
    framing: Framing = "jsonlines"
    numbers: Literal["parts", "calls", "nothing"] = "calls"
    end_mark: bool = True
    usage_rides: bool = False

    @property
    def words(self) -> Mapping[Stop, tuple[str, ...]]:
        return _WORDS

    @property
    def quirks(self) -> Mapping[str, Spelling]:
        return QUIRKS

    def recognise(self, hint: Hint) -> int:
        match hint.payload:
            case {"done": bool(), "message": dict()} | {"done": bool(), "response": str()}:
                return 90
            case {"error": str()} if "ndjson" in hint.content_type:
                return 50
            case _:
                return 0

    def payload(self, frame: Frame) -> Any:
        return payload_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_frame(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        if not isinstance(payload, dict):
            return [Unknown(event, payload)]
        key = Key()
        message = as_dict(payload.get("message"))
        role, model = as_text(message.get("role")) or None, as_text(payload.get("model")) or None
        out: list[Delta] = [Start(key, role, None, model)] if role or model else []
        out += _read_texts(payload.get("thinking"), payload.get("response"))
        out += _read_texts(message.get("thinking"), message.get("content"))
        out += [Opaque(key, name, value) for name, value in message.items() if name not in _MESSAGE_READ and value]
        for call in as_list(message.get("tool_calls")):
            out += _read_call(as_dict(call))
        if reason := as_text(payload.get("done_reason")):
            out.append(Finish(key, reason))
        out += read_usage({name: payload[name] for name in _COUNTS if name in payload}, USAGE)
        if error := payload.get("error"):
            out.append(read_error(error))
        elif event == "error":
            out.append(read_error(payload))
        if payload.get("done") is True:
            out.append(End())
        return out if out or not _READ.isdisjoint(payload) else [Unknown(event, payload)]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        return _Writer(deltas, like).frames()

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        return list(frames)  # lines carry no numbers, and restate nothing

    def losses(self, reply: Reply) -> tuple[str, ...]:
        kinds = Counter(type(part).__name__ for part in reply.parts if isinstance(part, TextPart | ReasoningPart))
        out = [f"{count} separate {kind}s (all are joined)" for kind, count in kinds.items() if count > 1]
        out += first_choice_losses(reply, _loss)
        return tuple(out + untyped_errors(reply) + common_losses(reply, USAGE))


def _loss(part: Any) -> str | None:
    match part:
        case RefusalPart():
            return "a refusal in words"
        case ReasoningPart(_, signature) if signature:
            return "the signature of a reasoning part"
        case ReasoningPart("") | TextPart(""):
            return f"an empty {type(part).__name__}"
        case ToolCall() if is_open(part):
            return "an open tool call"
        case ToolCall(kind="function", arguments_text=""):
            return "the spelling of the arguments ''"  # there is always an object
        case ToolCall():
            return object_loss(part)
        case OpaquePart(kind, payloads, "") if kind not in _MESSAGE_READ and payloads and all(payloads):
            return None
        case OpaquePart(kind):
            return f"the part {kind!r}"
        case _:
            return None


# ------------------------------------------------------------------------------------------------------------------- reading


def _read_texts(thinking: Any, content: Any) -> list[Delta]:
    out: list[Delta] = []
    if thought := as_text(thinking):
        out.append(Reasoning(Key(), thought))
    if text := as_text(content):
        out.append(Text(Key(), text))
    return out


def _read_call(call: dict[str, Any]) -> list[Delta]:
    function = as_dict(call.get("function"))
    name, arguments = as_text(function.get("name")), function.get("arguments")
    start = ToolCallStart(Key(id=as_text(call.get("id")) or None), "function", name)
    text = arguments if isinstance(arguments, str) else "" if arguments is None else jsontext.dump(arguments)
    return [start, *([Arguments(Key(), text)] if text else []), PartEnd(Key())]


# ------------------------------------------------------------------------------------------------------------------- writing

_CALLS = 5
# The order in which a line is read; a delta that would be read before one already said opens the next line.
_RANK: dict[type, int] = {
    Start: 1, Reasoning: 2, Text: 3, Opaque: 4, ToolCallStart: _CALLS, Arguments: _CALLS, PartEnd: _CALLS, Finish: 6, UsageUpdate: 7,
    StreamError: 8, End: 9,
}  # fmt: skip


class _Writer:
    """One line a delta without `like`, but a call and the last line are never torn; with it, as many into one as the reading order allows."""

    def __init__(self, deltas: Sequence[Delta], like: Frame | None) -> None:
        self._deltas, self._like = deltas, like
        self._frames: list[Frame] = []
        self._lent = as_dict(payload_of(like)) if like else {}
        starts = [delta for delta in deltas if isinstance(delta, Start)]
        role = next((start.role for start in starts if start.role), None if like else "assistant")
        model = next((start.model for start in starts if start.model), None if like else "synthesized")
        kept = {name: value for name, value in self._lent.items() if name not in _READ}
        self._envelope = {**({"model": model} if model else {}), **kept}
        self._message = {"role": role} if role else {}
        self._plain = like is not None and "message" not in self._lent
        self._clear()

    def _clear(self) -> None:
        self._line: dict[str, Any] = {}
        self._rank = 0
        self._call: dict[str, Any] | None = None

    def _flush(self) -> None:
        if self._line:
            self._frames.append(write_json(self._line, "jsonlines", like=self._like))
        self._clear()

    def _alone(self, *frames: Frame) -> None:
        self._flush()
        self._frames += frames

    def frames(self) -> list[Frame]:
        for delta in self._deltas:
            match delta:
                case Keepalive():
                    self._alone(write_keepalive("jsonlines", self._like))
                case Unknown(event, payload):
                    self._alone(write_json(payload, "jsonlines", event, self._like))
                case StreamError(type_) if type_.startswith("wire:"):
                    self._alone(*write_damage(delta, "jsonlines", self._like))
                case PartEnd() if self._call is None:
                    pass  # parts that are no calls have no borders on this wire
                case PartStart() | Signature() | Refusal() | Whole() | ArgumentsAt():
                    pass  # this wire has no words for them
                case _:
                    self._write(delta)
        self._flush()
        return self._frames

    def _write(self, delta: Delta) -> None:
        rank = _RANK[type(delta)]
        if not self._has_room(delta, rank):
            self._flush()
        if not self._line:
            self._line = {**self._envelope, **({} if self._plain else {"message": self._empty()})}
            self._line |= {"done": False} if self._like is None or "done" in self._lent else {}
        self._rank = rank
        message = self._line if self._plain else self._line["message"]
        match delta:
            case Start(_, str(role)):
                self._its_message()["role"] = role
            case Reasoning(_, text):
                message["thinking"] = text
            case Text(_, text):
                message["response" if self._plain else "content"] = text
            case Opaque(_, kind, payload):
                self._its_message()[kind] = payload
            case ToolCallStart() | Arguments() | PartEnd():
                self._say_call(delta)
            case Finish(_, reason):
                self._line["done_reason"] = reason
            case UsageUpdate():
                self._line |= write_usage(delta, USAGE)
            case StreamError(_, text, payload):
                self._line = (
                    {"error": payload or text} if self._like is None else {**self._line, "error": payload or text}
                )
            case End():
                self._line["done"] = True

    def _empty(self) -> dict[str, Any]:
        lent = as_dict(self._lent.get("message"))
        return {**self._message, **({"content": ""} if self._like is None or "content" in lent else {})}

    def _its_message(self) -> dict[str, Any]:
        message: dict[str, Any] = self._line.setdefault("message", {})
        return message

    def _has_room(self, delta: Delta, rank: int) -> bool:
        if isinstance(delta, Arguments | PartEnd):
            return self._call is not None
        if isinstance(delta, Opaque):
            return (
                self._like is not None and rank >= self._rank and delta.kind not in as_dict(self._line.get("message"))
            )
        if isinstance(delta, ToolCallStart):
            return self._like is not None and rank >= self._rank
        last = isinstance(delta, UsageUpdate | End) and self._rank in (_RANK[Finish], _RANK[UsageUpdate])
        return rank > self._rank and (self._like is not None or last)

    def _say_call(self, delta: ToolCallStart | Arguments | PartEnd) -> None:
        match delta:
            case ToolCallStart(key, _, name):
                self._call = {"name": name, **({} if self._like else {"arguments": {}})}
                call = {**({"id": key.id} if key.id else {}), "function": self._call}
                self._its_message().setdefault("tool_calls", []).append(call)
            case Arguments(_, text) if self._call is not None:
                self._call |= arguments_field("arguments", text, self._like)
            case _:
                self._call = None

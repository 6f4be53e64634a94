"""Gemini's Interactions events (https://ai.google.dev/api/interactions-api): numbered steps, of which each is a thought, output, or a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    Opaque,
    OpaquePart,
    PartEnd,
    PartStart,
    Reasoning,
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
)
from .base import (
    Framing,
    Hint,
    Spelling,
    UsageNames,
    as_dict,
    as_int,
    as_list,
    as_text,
    common_losses,
    first_choice_losses,
    payload_of,
    read_error,
    read_frame,
    read_usage,
    write_damage,
    write_json,
    write_keepalive,
    write_usage,
)
from .gemini_interactions_quirks import QUIRKS

USAGE: UsageNames = {
    "input_tokens": [("total_input_tokens",)],
    "output_tokens": [("total_output_tokens",)],
    "total_tokens": [("total_tokens",)],
    "cached_tokens": [("total_cached_tokens",)],
    "reasoning_tokens": [("total_thought_tokens",)],
}

_STEPS = {"model_output": "text", "thought": "reasoning"}
_SIGNATURE = "signature"

_WORDS: Mapping[Stop, tuple[str, ...]] = {
    "stop": ("completed",),
    "length": ("incomplete",),
    "tool_calls": ("requires_action",),
}


@dataclass(frozen=True)
class GeminiInteractions:
    name: str = "gemini-interactions"
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
        return 90 if as_text(as_dict(hint.payload).get("event_type")).startswith(("interaction.", "step.")) else 0

    def payload(self, frame: Frame) -> Any:
        return payload_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_frame(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        if not isinstance(payload, dict):
            return [Unknown(event, payload)]
        key = Key(index=as_int(payload.get("index")))
        interaction = as_dict(payload.get("interaction"))
        match payload.get("event_type", event):
            case "step.delta":
                return _read_delta(as_dict(payload.get("delta")), key)
            case "step.start":
                return _read_step(as_dict(payload.get("step")), key)
            case "step.stop":
                return [PartEnd(key)]
            case "interaction.created":
                return [
                    Start(
                        Key(), None, as_text(interaction.get("id")) or None, as_text(interaction.get("model")) or None
                    )
                ]
            case "interaction.status_update":
                return []  # the last status comes with the end
            case "interaction.completed":
                status, error = as_text(interaction.get("status")), interaction.get("error")
                finish: list[Delta] = [Finish(Key(), status)] if status else []
                return [*finish, *read_usage(interaction.get("usage"), USAGE), *([read_error(error)] if error else [])]
            case type_:
                error = payload.get("error")
                return [read_error(error or payload)] if error or type_ == "error" else [Unknown(event, payload)]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        return _Writer(deltas, like).frames()

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        """Steps are numbered from 0 in the order of their starts."""
        numbers: dict[int | None, int] = {}
        out = []
        for frame in frames:
            payload = as_dict(payload_of(frame))
            if as_text(payload.get("event_type")).startswith("step."):
                old = as_int(payload.get("index"))
                if payload["event_type"] == "step.start":
                    numbers[old] = len(numbers)
                if (new := numbers.get(old, old)) != old:
                    frame = write_json({**payload, "index": new}, "sse", frame.event, frame)
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
        case OpaquePart(kind, ({"type": str(type_)},)) if type_ == kind and kind not in _STEPS:
            return None
        case OpaquePart(kind):
            return f"the part {kind!r}"
        case _:
            return None


# ------------------------------------------------------------------------------------------------------------------- reading


def _read_step(step: dict[str, Any], key: Key) -> list[Delta]:
    """A step opens; what it holds may already stand in it."""
    signature: list[Delta] = _say(Signature, key, step.get(_SIGNATURE))
    match step.get("type"):
        case "model_output":
            content = [delta for each in as_list(step.get("content")) for delta in _read_content(as_dict(each), key)]
            return [PartStart(key, "text"), *content]
        case "thought":
            texts = [as_dict(each).get("text") for each in as_list(step.get("summary"))]
            return [
                PartStart(key, "reasoning"),
                *[said for text in texts for said in _say(Reasoning, key, text)],
                *signature,
            ]
        case "function_call":
            given = step.get("arguments")
            arguments = given if isinstance(given, str) else jsontext.dump(given) if given else ""
            carried = [Opaque(key, _SIGNATURE, step[_SIGNATURE])] if signature else []
            its_key = replace(key, id=as_text(step.get("id")) or None)
            start = ToolCallStart(its_key, "function", as_text(step.get("name")))
            return [start, *carried, *_say(Arguments, key, arguments)]
        case type_:
            kind = as_text(type_) or "unknown"
            return [PartStart(key, kind), Opaque(key, kind, step)]


def _read_content(content: dict[str, Any], key: Key) -> list[Delta]:
    if content.get("type") == "text":
        return _say(Text, key, content.get("text"))
    return [Opaque(key, as_text(content.get("type")) or "unknown", content)]


def _read_delta(delta: dict[str, Any], key: Key) -> list[Delta]:
    match delta.get("type"):
        case "thought_signature":
            return _say(Signature, key, delta.get("signature"))
        case "thought_summary":
            return _say(Reasoning, key, as_dict(delta.get("content")).get("text"))
        case "arguments_delta":
            return _say(Arguments, key, delta.get("arguments"))
        case _:
            return _read_content(delta, key)


def _say(kind: type[Text | Reasoning | Signature | Arguments], key: Key, text: Any) -> list[Delta]:
    return [kind(key, text)] if isinstance(text, str) and text else []


# ------------------------------------------------------------------------------------------------------------------- writing


class _Writer:
    """One event a delta; but the status, usage and an error share the last event."""

    def __init__(self, deltas: Sequence[Delta], like: Frame | None) -> None:
        self._deltas, self._like = deltas, like
        self._lent = as_dict(payload_of(like)) if like else {}
        self._frames: list[Frame] = []
        self._end: dict[str, Any] = {}  # what the open interaction.completed says
        self._call: tuple[Key, dict[str, Any]] | None = (
            None  # the open step.start of a call, which its signature may join
        )
        self._steps: set[int | None] = set()
        starts = [delta for delta in deltas if isinstance(delta, Start)]
        self._start = starts[0] if starts else Start()

    def frames(self) -> list[Frame]:
        for delta in self._deltas:
            match delta:
                case Finish(_, reason):
                    self._say_end("status", reason)
                case UsageUpdate():
                    self._say_end("usage", write_usage(delta, USAGE))
                case Opaque(_, kind, payload) if kind == _SIGNATURE and self._call:
                    self._call[1][_SIGNATURE] = payload
                case _:
                    self._flush()
                    self._write(delta)
        self._flush()
        return self._frames

    def _say_end(self, name: str, value: Any) -> None:
        if name in self._end or "usage" in self._end:
            self._flush()
        self._end[name] = value

    def _flush(self) -> None:
        if self._end:
            self._event("interaction.completed", interaction=self._interaction(self._start, self._end))
        if self._call:
            self._step(*self._call)
        self._end, self._call = {}, None

    def _interaction(self, start: Start, said: dict[str, Any]) -> dict[str, Any]:
        lent = as_dict(self._lent.get("interaction"))
        kept = {name: value for name, value in lent.items() if name not in ("status", "usage", "error")}
        ids = {name: value for name, value in (("id", start.id), ("model", start.model)) if value}
        return {"object": "interaction", **kept, **ids, **said}

    def _event(self, type_: str, name: str = "", /, **fields: Any) -> None:
        kept = dict(self._lent) if self._lent.get("event_type") == type_ else {}
        kept = {field: value for field, value in kept.items() if field not in ("step", "delta", "error", "interaction")}
        self._frames.append(write_json({**kept, **fields, "event_type": type_}, "sse", name or type_, self._like))

    def _step(self, key: Key, step: dict[str, Any]) -> None:
        self._steps.add(key.index)
        self._event("step.start", index=key.index, step=step)

    def _delta(self, key: Key, **delta: Any) -> None:
        self._event("step.delta", index=key.index, delta=delta)

    def _write(self, delta: Delta) -> None:
        match delta:
            case Start():
                self._event("interaction.created", interaction=self._interaction(delta, {"status": "in_progress"}))
            case PartStart(key, "text"):
                self._step(key, {"type": "model_output"})
            case PartStart(key, "reasoning"):
                self._step(key, {"type": "thought"})
            case ToolCallStart(key, _, name):
                id_ = {"id": key.id} if key.id else {}
                self._call = key, {**id_, "type": "function_call", "name": name, "arguments": {}}
            case Text(key, text):
                self._delta(key, text=text, type="text")
            case Reasoning(key, text):
                self._delta(key, content={"text": text, "type": "text"}, type="thought_summary")
            case Signature(key, text):
                self._delta(key, signature=text, type="thought_signature")
            case Arguments(key, text):
                self._delta(key, arguments=text, type="arguments_delta")
            case Opaque(key, kind, payload):
                self._opaque(key, kind, payload)
            case PartEnd(key):
                self._event("step.stop", index=key.index)
            case Keepalive():
                self._frames.append(write_keepalive("sse", self._like))
            case Unknown(event, payload):
                self._frames.append(write_json(payload, "sse", event, self._like))
            case StreamError(type_) if type_.startswith("wire:"):
                self._frames += write_damage(delta, "sse", self._like)
            case StreamError(type_, message, payload):
                self._event("error", error={"code": type_, "message": message} if payload is None else payload)
            case End():
                self._frames.append(sse.encode("[DONE]", "done", self._like))
            case _:
                pass  # this wire has no words for Refusal, Whole and ArgumentsAt, and says other starts with what is in them

    def _opaque(self, key: Key, kind: str, payload: Any) -> None:
        """A step of its own, or something within a step of another kind."""
        opened = any(isinstance(delta, PartStart) and delta.key == key and delta.kind == kind for delta in self._deltas)
        if opened and key.index not in self._steps:
            self._step(key, payload)
        else:
            self._event("step.delta", index=key.index, delta=payload)

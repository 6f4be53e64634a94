"""OpenAI's legacy text completions (https://platform.openai.com/docs/api-reference/completions): one text for each choice, and nothing else.

Also vLLM, llama.cpp and others. Every chunk names id and model; usage comes on a chunk of its own without choices, or on the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import jsontext
from ..framing import sse
from ..model import (
    Delta,
    End,
    Finish,
    Frame,
    Keepalive,
    Key,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    Reply,
    Start,
    Stop,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    Unknown,
    UsageUpdate,
)
from .base import (
    Framing,
    Hint,
    Spelling,
    as_dict,
    as_int,
    as_list,
    as_text,
    common_losses,
    payload_of,
    read_error,
    read_frame,
    read_usage,
    write_damage,
    write_usage,
)
from .openai_chat import USAGE
from .openai_completions_quirks import QUIRKS

_WORDS: Mapping[Stop, tuple[str, ...]] = {
    "stop": ("stop",),
    "length": ("length",),
    "content_filter": ("content_filter",),
}


@dataclass(frozen=True)
class OpenAICompletions:
    name: str = "openai-completions"
    framing: Framing = "sse"
    end_mark: bool = True
    numbers: Literal["parts", "calls", "nothing"] = "calls"
    usage_rides: bool = True

    @property
    def words(self) -> Mapping[Stop, tuple[str, ...]]:
        return _WORDS

    @property
    def quirks(self) -> Mapping[str, Spelling]:
        return QUIRKS

    def recognise(self, hint: Hint) -> int:
        payload = as_dict(hint.payload)
        choices = [as_dict(choice) for choice in as_list(payload.get("choices"))]
        if any("delta" in choice or "message" in choice for choice in choices):
            return 0  # a chat, which TGI calls a text_completion too
        if payload.get("object") == "text_completion":
            return 95
        return 70 if any(isinstance(choice.get("text"), str) for choice in choices) else 0

    def payload(self, frame: Frame) -> Any:
        return payload_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_frame(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        if not isinstance(payload, dict):
            return [Unknown(event, payload)]
        out: list[Delta] = []
        for choice in as_list(payload.get("choices")):
            if isinstance(choice, dict):
                out += _read_choice(choice, payload)
        out += read_usage(payload.get("usage"), USAGE)
        if error := payload.get("error"):
            out.append(read_error(error))
        elif event == "error" or payload.get("object") == "error":
            out.append(read_error(payload))
        return out if out or "choices" in payload else [Unknown(event, payload)]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        return _Writer(deltas, like).frames()

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        return list(frames)  # chunks carry no numbers of their own, and restate nothing

    def losses(self, reply: Reply) -> tuple[str, ...]:
        out: list[str] = []
        for each in reply.choices or (reply,):
            count = Counter(type(part) for part in each.parts)[TextPart]
            out += [f"{count} separate TextParts (all are joined)"] if count > 1 else []
            out += [loss for part in each.parts if (loss := _loss(part))]
        return tuple(out + common_losses(reply, USAGE))


def _loss(part: Any) -> str | None:
    match part:
        case ReasoningPart():
            return "a reasoning part (this wire has text alone)"
        case RefusalPart():
            return "a refusal in words"
        case ToolCall():
            return "a tool call (this wire has text alone)"
        case OpaquePart(kind):
            return f"the part {kind!r}"
        case _:
            return None if part.text else "an empty TextPart"


def _read_choice(choice: dict[str, Any], payload: dict[str, Any]) -> list[Delta]:
    key = Key(as_int(choice.get("index")) or 0)
    # There is no first chunk with a role: all of them say the same of id and model.
    out: list[Delta] = [
        Start(key, "assistant", as_text(payload.get("id")) or None, as_text(payload.get("model")) or None)
    ]
    if text := as_text(choice.get("text")):
        out.append(Text(key, text))
    if reason := as_text(choice.get("finish_reason")):
        out.append(Finish(key, reason))
    return out


# What a chunk says, in the order in which it is read.
_RANK: dict[type, int] = {Start: 0, Text: 1, Finish: 2, UsageUpdate: 3, StreamError: 4}


class _Writer:
    """Packs deltas into chunks: one each without `like`; with it, as many into one as the reading order allows."""

    def __init__(self, deltas: Sequence[Delta], like: Frame | None) -> None:
        self._deltas, self._like = deltas, like
        self._frames: list[Frame] = []
        self._lent = as_dict(payload_of(like)) if like else {}
        starts = [delta for delta in deltas if isinstance(delta, Start)]
        kept = {name: value for name, value in self._lent.items() if name not in ("choices", "usage", "error")}
        self._envelope = {
            "id": next((start.id for start in starts if start.id), "cmpl-synthesized"),
            "object": "text_completion",
            "created": 0,
            "model": next((start.model for start in starts if start.model), "synthesized"),
            **kept,
        }
        self._chunk: dict[str, Any] = {}
        self._rank = -1

    def frames(self) -> list[Frame]:
        for delta in self._deltas:
            match delta:
                case Start() | Text() | Finish() | UsageUpdate():
                    self._write(delta)
                case StreamError(type_) if type_.startswith("wire:"):
                    self._alone(write_damage(delta, "sse", self._like))
                case StreamError():
                    self._write(delta)
                case End():
                    self._alone([sse.encode("[DONE]", like=self._like)])
                case Keepalive():
                    self._alone([Frame(b": keepalive\n\n")])
                case Unknown(event, payload):
                    self._alone([sse.encode(jsontext.dump(payload), event, self._like)])
                case _:
                    pass  # this wire has no words for it
        self._flush()
        return self._frames

    def _alone(self, frames: list[Frame]) -> None:
        self._flush()
        self._frames += frames

    def _flush(self) -> None:
        if self._chunk:
            self._frames.append(sse.encode(jsontext.dump(self._chunk), like=self._like))
        self._chunk, self._rank = {}, -1

    def _write(self, delta: Start | Text | Finish | UsageUpdate | StreamError) -> None:
        rank = _RANK[type(delta)]
        if self._like is None or (rank <= self._rank and rank > 0):
            self._flush()
        self._rank = rank
        self._chunk = self._chunk or {**self._envelope, "choices": []}
        match delta:
            case UsageUpdate():
                self._chunk["usage"] = write_usage(delta, USAGE)
            case StreamError(type_, message, payload):
                self._chunk["error"] = {"message": message, "type": type_} if payload is None else payload
            case Start(key):
                self._choice(key)
            case Text(key, text):
                self._choice(key)["text"] = text
            case _:
                self._choice(delta.key)["finish_reason"] = delta.reason

    def _choice(self, key: Key) -> dict[str, Any]:
        choices: list[dict[str, Any]] = self._chunk["choices"]
        if not choices or choices[-1]["index"] != key.choice:
            given = [as_dict(choice) for choice in as_list(self._lent.get("choices"))]
            lent = next((each for each in given if (as_int(each.get("index")) or 0) == key.choice), {})
            kept = {name: value for name, value in lent.items() if name not in ("text", "finish_reason")}
            choices.append({"text": "", "index": key.choice, "logprobs": None, "finish_reason": None, **kept})
        return choices[-1]

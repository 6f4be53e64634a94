"""OpenAI Chat Completions chunks (https://platform.openai.com/docs/api-reference/chat-streaming) and all who speak them.

Azure, Groq, DeepSeek, Mistral, xAI, OpenRouter, Together, Fireworks, vLLM, SGLang, llama.cpp, Ollama's /v1 and many gateways; so hardly a field
can be relied on: choices may be empty or lack `delta`, a tool call its index or id, usage may stand on any chunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

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
    ReasoningPart,
    Refusal,
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
    key_of,
)
from .base import (
    Framing,
    Hint,
    Spelling,
    UsageNames,
    as_dict,
    as_index,
    as_int,
    as_list,
    as_text,
    common_losses,
    is_open,
    opaque_kind,
    payload_of,
    read_error,
    read_frame,
    read_usage,
    wire_name,
    write_usage,
)
from .openai_chat_quirks import QUIRKS

USAGE: UsageNames = {
    "input_tokens": [("prompt_tokens",), ("input_tokens",)],
    "output_tokens": [("completion_tokens",), ("output_tokens",)],
    "total_tokens": [("total_tokens",)],
    "cached_tokens": [("prompt_tokens_details", "cached_tokens"), ("prompt_cache_hit_tokens",)],
    "reasoning_tokens": [("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",)],
}

# Fields of a delta that are read, or say nothing. Whatever else is sent there is content of some kind and is carried.
_READ = frozenset(
    (
        "role",
        "content",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "refusal",
        "tool_calls",
        "function_call",
        "obfuscation",
    )
)
_NO_REASON = ("", "None", "null")  # SGLang and others send the word instead of null

_WORDS: Mapping[Stop, tuple[str, ...]] = {
    "stop": ("stop",),
    "length": ("length",),
    "tool_calls": ("tool_calls",),
    "content_filter": ("content_filter",),
}


@dataclass(frozen=True)
class OpenAIChat:
    name: str = "openai-chat"
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
        if any("delta" in choice or "message" in choice or "messages" in choice for choice in choices):
            return 90
        if as_text(payload.get("object")).startswith("chat.completion"):
            return 90
        if "choices" in payload and not any("text" in choice for choice in choices):
            return 60
        return 10 if payload.get("error") or payload.get("object") == "error" else 0

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
                _read_choice(choice, payload, out)
        out += read_usage(payload.get("usage"), USAGE) or read_usage(as_dict(payload.get("x_groq")).get("usage"), USAGE)
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
            for kind, count in Counter(type(part).__name__ for part in each.parts).items():
                if count > 1 and kind in ("TextPart", "ReasoningPart", "RefusalPart"):
                    out.append(f"{count} separate {kind}s (all are joined)")
            out += [loss for part in each.parts if (loss := _loss(part))]
        if not reply.complete and any(isinstance(part, ToolCall) and not is_open(part) for part in reply.parts):
            out.append("a closed tool call in an incomplete reply")
        return tuple(out + common_losses(reply, USAGE))


def _loss(part: Any) -> str | None:
    match part:
        case ToolCall():
            return None if part.id or part.name else "a tool call without id and name"
        case OpaquePart():
            spoken = part.kind not in _READ and part.payloads and all(part.payloads) and not part.arguments_text
            return None if spoken else f"the part {part.kind!r}"
        case ReasoningPart():
            return None if part.text or part.signature else "an empty reasoning part"
        case _:
            return None if part.text else f"an empty {type(part).__name__}"


# ------------------------------------------------------------------------------------------------------------------- reading


def _read_choice(choice: dict[str, Any], payload: dict[str, Any], out: list[Delta]) -> None:
    at = as_index(choice.get("index")) or 0
    delta, message = choice.get("delta"), choice.get("message")
    if isinstance(delta, dict) and (delta or not isinstance(message, dict)):
        _read_delta(delta, Key(at), payload, out)
    elif isinstance(message, dict):
        # The whole message, unstreamed or restated at the end; beside a delta it repeats what was streamed so far.
        _read_message(message, Key(at), payload, out)
    reason = choice.get("finish_reason")
    if isinstance(reason, str) and reason not in _NO_REASON:
        out.append(Finish(Key(at), reason))
    if error := choice.get("error"):
        out.append(read_error(error))


def _read_delta(delta: dict[str, Any], key: Key, payload: dict[str, Any], out: list[Delta]) -> None:
    if delta.get("role"):
        out.append(_start(delta, key, payload))
    details = [as_dict(item) for item in as_list(delta.get("reasoning_details"))]
    # Several servers say the same thought in two or three fields.
    thought = (
        as_text(delta.get("reasoning_content"))
        or as_text(delta.get("reasoning"))
        or "".join(map(_detail_text, details))
    )
    if thought:
        out.append(Reasoning(key, thought))
    for item in details:
        if signature := as_text(item.get("signature")):
            out.append(Signature(key, signature))
        if item and not _detail_text(item) and not signature:
            out.append(Opaque(key, "reasoning_details", item))
    content = delta.get("content")
    if isinstance(content, str):
        if content:
            out.append(Text(key, content))
    else:
        for item in as_list(content):
            out += _read_content_item(item, key)
    if refusal := as_text(delta.get("refusal")):
        out.append(Refusal(key, refusal))
    for name, value in delta.items():
        if name not in _READ and value:
            out.append(Opaque(key, opaque_kind(name), value))
    _read_calls(delta, key, out)


def _start(delta: dict[str, Any], key: Key, payload: dict[str, Any]) -> Start:
    return Start(
        key, as_text(delta.get("role")), as_text(payload.get("id")) or None, as_text(payload.get("model")) or None
    )


def _detail_text(item: dict[str, Any]) -> str:
    return as_text(item.get("text")) or as_text(item.get("summary"))


def _read_content_item(item: Any, key: Key) -> list[Delta]:
    """One entry of a content list, as Mistral streams thinking and references."""
    match item:
        case {"type": "text", "text": str(text)}:
            return [Text(key, text)] if text else []
        case {"type": "thinking", "thinking": list(pieces)}:
            thought = "".join(as_text(as_dict(piece).get("text")) for piece in pieces)
            return [Reasoning(key, thought)] if thought else []
        case str(text):
            return [Text(key, text)] if text else []
        case _:
            return [Opaque(key, "content", item)]


def _read_calls(delta: dict[str, Any], key: Key, out: list[Delta], *, whole: bool = False) -> None:
    entries = as_list(delta.get("tool_calls"))
    # Entries of one list that have neither number nor id are told apart by their places in it.
    alike = [each for each in entries if not (isinstance(each, dict) and ("index" in each or each.get("id")))]
    for place, entry in enumerate(entries):
        if isinstance(entry, dict):
            custom = isinstance(entry.get("custom"), dict)
            said = as_dict(entry.get("custom" if custom else "function"))
            number = place if len(alike) > 1 else as_index(entry.get("index"))
            its_key = Key(key.choice, number, _id(entry.get("id")))
            _read_call(
                its_key,
                "custom" if custom else "function",
                said.get("name"),
                said.get("input" if custom else "arguments"),
                whole,
                out,
            )
    if isinstance(legacy := delta.get("function_call"), dict):
        _read_call(key, "function", legacy.get("name"), legacy.get("arguments"), whole, out)


def _id(value: Any) -> str | None:
    return str(value) if type(value) is int else as_text(value) or None


def _read_call(
    key: Key, kind: Literal["function", "custom"], name: Any, arguments: Any, whole: bool, out: list[Delta]
) -> None:
    name = as_text(name)
    if key.id or name:
        out.append(ToolCallStart(key, kind, name))
    if arguments is not None and arguments != "":
        text = arguments if isinstance(arguments, str) else jsontext.dump(arguments)
        out.append(Whole(key, "arguments", text) if whole else Arguments(key, text))


def _read_message(message: dict[str, Any], key: Key, payload: dict[str, Any], out: list[Delta]) -> None:
    if message.get("role"):
        out.append(_start(message, key, payload))
    if thought := as_text(message.get("reasoning_content")) or as_text(message.get("reasoning")):
        out.append(Whole(key, "reasoning", thought))
    if text := as_text(message.get("content")):
        out.append(Whole(key, "text", text))
    if refusal := as_text(message.get("refusal")):
        out.append(Whole(key, "refusal", refusal))
    _read_calls(message, key, out, whole=True)


# ------------------------------------------------------------------------------------------------------------------- writing

# A chunk says its parts in the order in which they are read; a delta that would be read before one already said opens the next chunk.
_CALLS = 7
_RANK: dict[type, int] = {
    Start: 0, Reasoning: 1, Signature: 2, Text: 4, Refusal: 5, Opaque: 6, ToolCallStart: _CALLS, Arguments: _CALLS, Finish: 8, UsageUpdate: 9,
    StreamError: 10,
}  # fmt: skip
_LISTED = {"reasoning_details": 3, "content": 4}  # opaque items that stand in a list, with the rank of that list


class _Writer:
    """Packs deltas into chunks: one each without `like`; with it, as many into one as the reading order allows."""

    def __init__(self, deltas: Sequence[Delta], like: Frame | None) -> None:
        self._deltas, self._like = deltas, like
        self._frames: list[Frame] = []
        self._custom = {
            (delta.key.choice, delta.key.index)
            for delta in deltas
            if isinstance(delta, ToolCallStart) and delta.kind == "custom"
        }
        self._open()

    @cached_property
    def _lent(self) -> dict[str, Any]:
        return as_dict(payload_of(self._like)) if self._like else {}

    @cached_property
    def _lent_choices(self) -> list[dict[str, Any]]:
        return [as_dict(choice) for choice in as_list(self._lent.get("choices"))]

    def _open(self) -> None:
        self._chunk: dict[str, Any] = {}
        self._entries: list[tuple[Key, dict[str, Any]]] = []
        self._rank, self._choice = -1, 0

    def _flush(self) -> None:
        if self._chunk:
            self._frames.append(sse.encode(jsontext.dump(self._chunk), like=self._like))
        self._open()

    def frames(self) -> list[Frame]:
        for delta in self._deltas:
            match delta:
                case PartStart() | PartEnd() | ArgumentsAt():
                    pass  # chunks have no such borders, and arguments only as text
                case End():
                    self._alone(sse.encode("[DONE]", like=self._like))
                case Keepalive():
                    self._alone(Frame(b": keepalive\n\n"))
                case Unknown(event, payload):
                    self._alone(sse.encode(jsontext.dump(payload), event, self._like))
                case StreamError(type_, _, str(text)) if type_.startswith("wire:"):
                    self._alone(sse.encode(text, like=self._like))
                case Whole():
                    self._alone(sse.encode(jsontext.dump(self._whole(delta)), like=self._like))
                case _:
                    self._write(delta)
        self._flush()
        return self._frames

    def _alone(self, frame: Frame) -> None:
        self._flush()
        self._frames.append(frame)

    @cached_property
    def _envelope(self) -> dict[str, Any]:
        starts = [delta for delta in self._deltas if isinstance(delta, Start)]
        kept = {
            name: value for name, value in self._lent.items() if name not in ("choices", "usage", "error", "x_groq")
        }
        return {
            "id": next((start.id for start in starts if start.id), "chatcmpl-synthesized"),
            "object": "chat.completion.chunk",
            "created": 0,
            "model": next((start.model for start in starts if start.model), "synthesized"),
            **kept,
        }

    def _write(self, delta: Delta) -> None:
        rank = _LISTED.get(delta.kind, _RANK[Opaque]) if isinstance(delta, Opaque) else _RANK[type(delta)]
        key = key_of(delta)
        choice = key.choice if key else self._choice
        if self._like is None or choice != self._choice or not self._has_room(delta, rank):
            self._flush()
        self._rank, self._choice = rank, choice
        self._chunk = self._chunk or {**self._envelope, "choices": []}
        match delta:
            case UsageUpdate():
                self._chunk["usage"] = write_usage(delta, USAGE)
            case StreamError(type_, message, payload):
                self._chunk["error"] = {"message": message, "type": type_} if payload is None else payload
            case Finish(_, reason):
                self._its_choice()["finish_reason"] = reason
            case ToolCallStart() | Arguments():
                self._say_call(delta, self._its_choice()["delta"].setdefault("tool_calls", []))
            case _:
                self._say(delta, self._its_choice()["delta"])

    def _has_room(self, delta: Delta, rank: int) -> bool:
        """Can the open chunk say `delta` too? Several calls share one, but no index stands in it twice."""
        if isinstance(delta, ToolCallStart | Arguments) and self._rank == _CALLS:
            return self._continues(delta) or all(key.index != delta.key.index for key, _ in self._entries)
        return rank > self._rank

    def _continues(self, delta: Delta) -> bool:
        """Are these the first arguments of the call whose entry was opened last?"""
        if not isinstance(delta, Arguments) or not self._entries:
            return False
        key, entry = self._entries[-1]
        said = entry.get("function") or entry["custom"]
        return key == delta.key and "name" in said and not (said.get("arguments") or said.get("input"))

    def _its_choice(self) -> dict[str, Any]:
        choices: list[dict[str, Any]] = self._chunk["choices"]
        if not choices:
            lent = next((each for each in self._lent_choices if (as_int(each.get("index")) or 0) == self._choice), {})
            kept = {name: value for name, value in lent.items() if name not in ("delta", "message", "finish_reason")}
            choices.append({"index": self._choice, **kept, "delta": {}, "finish_reason": None})
        return choices[0]

    def _say(self, delta: Delta, to: dict[str, Any]) -> None:
        match delta:
            case Start(_, role):
                to["role"] = role or "assistant"
            case Reasoning(_, text):
                to |= dict.fromkeys(self._reasoning_names(), text)
            case Signature(_, text):
                to["reasoning_details"] = [{"type": "reasoning.text", "signature": text}]
            case Opaque(_, kind, payload):
                to[wire_name(kind)] = [payload] if kind in _LISTED else payload
            case Text(_, text):
                to["content"] = text
            case Refusal(_, text):  # pragma: no branch - what has no rank does not come here
                to["refusal"] = text

    def _reasoning_names(self) -> list[str]:
        lent: list[str] = [
            name
            for each in self._lent_choices
            for name in ("reasoning", "reasoning_content")
            if name in as_dict(each.get("delta"))
        ]
        return lent or ["reasoning_content"]

    def _say_call(self, delta: ToolCallStart | Arguments, entries: list[dict[str, Any]]) -> None:
        custom = (delta.key.choice, delta.key.index) in self._custom
        kind, field = ("custom", "input") if custom else ("function", "arguments")
        if isinstance(delta, Arguments) and self._continues(delta):
            self._entries[-1][1][kind][field] = delta.text
            return
        entry: dict[str, Any] = {
            name: value for name, value in (("index", delta.key.index), ("id", delta.key.id)) if value is not None
        }
        if isinstance(delta, ToolCallStart):
            entry |= {"type": kind, kind: {"name": delta.name, field: ""}}
        else:
            entry[kind] = {field: delta.text}
        entries.append(entry)
        self._entries.append((delta.key, entry))

    def _whole(self, delta: Whole) -> dict[str, Any]:
        names = {"text": "content", "reasoning": "reasoning_content", "refusal": "refusal"}
        if delta.kind in names:
            message: dict[str, Any] = {names[delta.kind]: delta.value}
        else:
            entry = {
                name: value for name, value in (("index", delta.key.index), ("id", delta.key.id)) if value is not None
            }
            message = {"tool_calls": [{**entry, "function": {"arguments": delta.value}}]}
        return {**self._envelope, "choices": [{"index": delta.key.choice, "message": message, "finish_reason": None}]}

"""Gemini's generateContent stream (https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse), also as Vertex sends it.

Every event is a whole response with the next parts of each candidate, as an event stream (`alt=sse`, lines end in CR LF) or as the elements of one
JSON array. Nothing is numbered but candidates: parts follow one another, calls come whole or, from Vertex, in pieces placed by JSON path
(`partialArgs`, https://cloud.google.com/vertex-ai/generative-ai/docs/multimodal/function-calling#streaming-fc). There is no end mark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
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
    arguments_field,
    as_dict,
    as_int,
    as_list,
    as_text,
    common_losses,
    object_loss,
    payload_of,
    read_error,
    read_frame,
    read_usage,
    relinked,
    write_damage,
    write_json,
    write_keepalive,
    write_usage,
)
from .gemini_quirks import QUIRKS

USAGE: UsageNames = {
    "input_tokens": [("promptTokenCount",)],
    "output_tokens": [("candidatesTokenCount",)],
    "total_tokens": [("totalTokenCount",)],
    "cached_tokens": [("cachedContentTokenCount",)],
    "reasoning_tokens": [("thoughtsTokenCount",)],
}

# What a candidate says beside its parts that is content of a kind.
_BESIDE = ("citationMetadata", "groundingMetadata", "urlContextMetadata")
_SIGNATURE = "thoughtSignature"
_FLAGS = frozenset(("thought", _SIGNATURE, "partMetadata", "videoMetadata", "mediaResolution"))
_PARTIAL = "partialArgs"
_READ = ("candidates", "promptFeedback", "usageMetadata", "error")

_NO_REASON = ("", "0", "FINISH_REASON_UNSPECIFIED")
# Vertex may send the numbers of its FinishReason enum.
_REASONS: dict[Any, str] = dict(
    enumerate(
        (
            "STOP",
            "MAX_TOKENS",
            "SAFETY",
            "RECITATION",
            "OTHER",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MALFORMED_FUNCTION_CALL",
        ),
        start=1,
    )
)

_WORDS: Mapping[Stop, tuple[str, ...]] = {
    "stop": ("STOP",),
    "length": ("MAX_TOKENS",),
    "tool_calls": ("STOP",),
    "content_filter": ("SAFETY",),
}


@dataclass(frozen=True)
class Gemini:
    name: str = "gemini"
    framing: Framing = "sse"
    numbers: Literal["parts", "calls", "nothing"] = "nothing"
    end_mark: bool = False
    usage_rides: bool = True

    @property
    def words(self) -> Mapping[Stop, tuple[str, ...]]:
        return _WORDS

    @property
    def quirks(self) -> Mapping[str, Spelling]:
        return QUIRKS

    def recognise(self, hint: Hint) -> int:
        match hint.payload:
            case {"candidates": [dict(), *_]} | {"promptFeedback": dict()} | {"usageMetadata": dict()}:
                return 90
            case {"error": {"code": int(), "status": str()}}:
                return 60  # the error of every Google API
            case _:
                return 5 if "GenerateContent" in hint.url and isinstance(hint.payload, dict) else 0

    def payload(self, frame: Frame) -> Any:
        return payload_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_frame(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        if not isinstance(payload, dict):
            return [Unknown(event, payload)]
        out: list[Delta] = []
        candidates = [each for each in as_list(payload.get("candidates")) if isinstance(each, dict)]
        for candidate in candidates:
            out += _read_candidate(candidate, payload)
        if not candidates:
            out += _start(Key(), {}, payload)
        feedback = as_dict(payload.get("promptFeedback"))
        if reason := as_text(feedback.get("blockReason")):
            message = as_text(feedback.get("blockReasonMessage"))
            out.append(StreamError(reason, message or f"the prompt was blocked: {reason}", feedback))
        out += read_usage(payload.get("usageMetadata"), USAGE)
        if error := payload.get("error"):
            said = read_error(error)
            out.append(replace(said, type=as_text(as_dict(error).get("status")) or said.type))
        elif event == "error":
            out.append(read_error(payload))
        return out if out or any(name in payload for name in _READ) else [Unknown(event, payload)]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        return _Writer(deltas, like).frames()

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        return relinked(frames)

    def losses(self, reply: Reply) -> tuple[str, ...]:
        out: list[str] = []
        for each in reply.choices or (reply,):
            out += [loss for part in each.parts if (loss := _loss(part))]
            out += _joined(each)
        out += ["an end mark without a finish reason"] if reply.ended and reply.finish_reason is None else []
        return tuple(out + common_losses(reply, USAGE))


def _loss(part: Any) -> str | None:
    match part:
        case ToolCall():
            return object_loss(part)
        case RefusalPart():
            return "a refusal in words"
        case ReasoningPart("", ""):
            return "an empty reasoning part"
        case TextPart(""):
            return "an empty text part"
        case OpaquePart(kind, (payload,), "") if kind in _BESIDE or _kind(payload) == kind or _signature(payload):
            return None
        case OpaquePart(kind):
            return f"the part {kind!r}"
        case _:
            return None


def _joined(reply: Reply) -> list[str]:
    """Parts that cannot be told apart on a wire without numbers."""
    beside = Counter(part.kind for part in reply.parts if isinstance(part, OpaquePart) and part.kind in _BESIDE)
    rest = [part for part in reply.parts if not (isinstance(part, OpaquePart) and part.kind in _BESIDE)]
    adjacent = {type(one).__name__ for one, two in pairwise(rest) if type(one) is type(two) and _grows(one)}
    return [f"adjacent {kind}s (they are joined)" for kind in sorted(adjacent)] + [
        f"{count} parts {kind!r} (they are joined)" for kind, count in beside.items() if count > 1
    ]


def _grows(part: Any) -> bool:
    return isinstance(part, TextPart | ReasoningPart) or (isinstance(part, OpaquePart) and part.kind == _SIGNATURE)


# ------------------------------------------------------------------------------------------------------------------- reading


def _read_candidate(candidate: dict[str, Any], payload: dict[str, Any]) -> list[Delta]:
    key = Key(as_int(candidate.get("index")) or 0, serial=True)
    content = as_dict(candidate.get("content"))
    out = _start(replace(key, serial=False), content, payload)
    for part in as_list(content.get("parts")):
        if isinstance(part, dict):
            out += _read_part(part, key)
    # Not serial: it may stand between two pieces of one text.
    out += [Opaque(Key(key.choice), name, value) for name in _BESIDE if (value := candidate.get(name))]
    reason = candidate.get("finishReason")
    reason = _REASONS.get(reason, str(reason)) if type(reason) is int else as_text(reason)
    if reason not in _NO_REASON:
        out.append(Finish(Key(key.choice), reason, revises=True))
    return out


def _start(key: Key, content: dict[str, Any], payload: dict[str, Any]) -> list[Delta]:
    said = (content.get("role"), payload.get("responseId"), payload.get("modelVersion"))
    role, id_, model = (as_text(each) or None for each in said)
    return [Start(key, role, id_, model)] if role or id_ or model else []


def _read_part(part: dict[str, Any], key: Key) -> list[Delta]:
    text, signature = as_text(part.get("text")), as_text(part.get(_SIGNATURE))
    if isinstance(call := part.get("functionCall"), dict):
        return _read_call(call, key, signature)
    if part.get("thought") and isinstance(part.get("text"), str):
        thought: list[Delta] = [Reasoning(key, text)] if text else []
        return [*thought, Signature(key, signature)] if signature else thought
    if kind := _kind(part):
        return [PartStart(key, kind), Opaque(key, kind, part), PartEnd(key)]
    said: list[Delta] = [Text(key, text)] if text else []
    return [*said, *_read_signature(key, signature)]


def _read_signature(key: Key, signature: str) -> list[Delta]:
    # Signed text is no thought, and a signed part that is empty is none either: the signature is carried where it stood.
    return [Opaque(key, _SIGNATURE, {_SIGNATURE: signature})] if signature else []


def _kind(part: Any) -> str:
    """What a part is that is carried, not interpreted: the name of its field, empty for text."""
    names = [name for name in as_dict(part) if name != "text" and name not in _FLAGS]
    return "" if not names or isinstance(part.get("text"), str) else names[0]


def _signature(payload: Any) -> str:
    return as_text(as_dict(payload).get(_SIGNATURE)) if len(as_dict(payload)) == 1 else ""


def _read_call(call: dict[str, Any], key: Key, signature: str) -> list[Delta]:
    id_, name, arguments = as_text(call.get("id")) or None, as_text(call.get("name")), call.get("args")
    out: list[Delta] = [ToolCallStart(replace(key, id=id_), "function", name)] if id_ or name else []
    if arguments is not None:
        text = arguments if isinstance(arguments, str) else jsontext.dump(arguments)
        out += [Arguments(key, text)] if text else []
    for each in as_list(call.get(_PARTIAL)):
        if isinstance(each, dict) and (path := as_text(each.get("jsonPath"))):
            out.append(ArgumentsAt(key, path, _value(each), bool(each.get("willContinue"))))
    out += _read_signature(key, signature)
    return out if call.get("willContinue") else [*out, PartEnd(key)]


def _value(partial: dict[str, Any]) -> Any:
    """The value that a partial argument says; the last piece of a string may have none."""
    if "nullValue" in partial:
        return None
    return next((value for name, value in partial.items() if name.endswith("Value")), "")


# ------------------------------------------------------------------------------------------------------------------- writing

_PARTS, _ASIDE, _REASON, _BLOCKED, _USAGE, _ERROR = range(1, 7)  # the order in which a chunk is read


class _Writer:
    """With `like` as many deltas into one chunk as the reading order allows; without it a chunk for each, but a call is never torn."""

    def __init__(self, deltas: Sequence[Delta], like: Frame | None) -> None:
        self._deltas, self._like = deltas, like
        self._frames: list[Frame] = []
        self._lent = as_dict(payload_of(like)) if like else {}
        lent_candidates = [as_dict(each) for each in as_list(self._lent.get("candidates"))]
        self._lent_candidates = {as_int(each.get("index")) or 0: each for each in reversed(lent_candidates)}
        self._envelope = self._make_envelope()
        self._open_part = False  # between PartStart and PartEnd: parts have no such borders on this wire
        self._clear()

    def _clear(self) -> None:
        self._chunk: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._seen: list[int] = []
        self._stage = 0
        self._part: dict[str, Any] = {}  # the part said last, which may take in more

    def _make_envelope(self) -> dict[str, Any]:
        kept = {name: value for name, value in self._lent.items() if name not in _READ}
        if self._like is not None:
            feedback = as_dict(self._lent.get("promptFeedback"))
            return {**kept, **({"promptFeedback": feedback} if feedback and "blockReason" not in feedback else {})}
        starts = [delta for delta in self._deltas if isinstance(delta, Start)]
        said = {
            "modelVersion": next((start.model for start in starts if start.model), None),
            "responseId": next((start.id for start in starts if start.id), None),
        }
        return {name: value for name, value in said.items() if value}

    def frames(self) -> list[Frame]:
        for delta in self._deltas:
            self._write(delta)
        self._flush()
        return self._frames

    def _flush(self) -> None:
        if self._chunk:
            self._frames.append(write_json(self._chunk, "sse", like=self._like))
        self._clear()

    def _alone(self, *frames: Frame) -> None:
        self._flush()
        self._frames += frames

    def _write(self, delta: Delta) -> None:
        match delta:
            case PartStart():
                self._open_part, self._part = True, {}
            case PartEnd() if self._open_part:
                self._open_part, self._part = False, {}
            case ToolCallStart() | Arguments() | ArgumentsAt() | PartEnd():
                self._open_part = False
                self._say_call(delta)
            case Start() | Text() | Reasoning() | Signature() | Opaque():
                self._say(delta)
            case Finish(key, reason):
                self._to(key.choice, _REASON)["finishReason"] = reason
            case UsageUpdate():
                self._beside(_USAGE, "usageMetadata", write_usage(delta, USAGE))
            case StreamError(type_) if type_.startswith("wire:"):
                self._alone(*write_damage(delta, "sse", self._like))
            case StreamError(type_, message, payload):
                blocked = "blockReason" in as_dict(payload)
                error = {"code": 500, "message": message, "status": type_} if payload is None else payload
                self._beside(*(_BLOCKED, "promptFeedback") if blocked else (_ERROR, "error"), error)
            case Keepalive():
                self._alone(write_keepalive("sse", self._like))
            case Unknown(event, payload):
                self._alone(write_json(payload, "sse", event, self._like))
            case End():
                self._alone(*([sse.encode("[DONE]", like=self._like)] if self._like else []))
            case _:
                pass  # this wire has no words for Refusal and Whole

    def _beside(self, stage: int, name: str, value: Any) -> None:
        """What a chunk says beside its candidates. Usage rides with the finish reason, as the service sends it."""
        rides = self._like is not None or (stage == _USAGE and self._stage == _REASON)
        if not rides or stage <= self._stage:
            self._flush()
        self._chunk = self._chunk or ({} if self._like is None and name == "error" else dict(self._envelope))
        self._chunk[name], self._stage, self._candidate, self._part = value, stage, {}, {}

    def _to(self, choice: int, stage: int, name: str = "") -> dict[str, Any]:
        """The candidate to say something in, in a chunk that can still say it."""
        same = (
            self._seen[-1:] == [choice]
            and self._stage <= stage
            and self._stage < _REASON
            and name not in self._candidate
        )
        fresh = choice not in self._seen and self._stage < _BLOCKED
        if self._like is None or not (same or fresh):
            self._flush()
        if not self._seen or not same:
            self._begin(choice)
        if stage != _PARTS:
            self._part = {}
        self._stage = stage
        return self._candidate

    def _begin(self, choice: int) -> None:
        self._chunk = self._chunk or {**self._envelope, "candidates": []}
        lent = self._lent_candidates.get(choice, {})
        kept = {name: value for name, value in lent.items() if name not in ("content", "finishReason", *_BESIDE)}
        self._candidate = {**({} if lent and not choice else {"index": choice}), **kept}
        if self._like is None:
            self._candidate["content"] = {"role": "model"}
        self._chunk.setdefault("candidates", []).append(self._candidate)
        self._seen.append(choice)

    def _add(self, choice: int, part: dict[str, Any]) -> None:
        content = self._to(choice, _PARTS).setdefault("content", {})
        content.setdefault("parts", []).append(part)
        self._part = part

    def _say(self, delta: Start | Text | Reasoning | Signature | Opaque) -> None:
        choice = delta.key.choice
        match delta:
            case Start(_, role):
                self._say_start(choice, role)
            case Text(_, text):
                self._add(choice, {"text": text})
            case Reasoning(_, text):
                self._add(choice, {"text": text, "thought": True})
            case Signature(_, text) if self._part.get("thought") and _SIGNATURE not in self._part:
                self._part[_SIGNATURE] = text
            case Signature(_, text):
                self._add(choice, {"text": "", "thought": True, _SIGNATURE: text})
            case Opaque(_, kind, payload) if kind in _BESIDE:
                self._to(choice, _ASIDE, kind)[kind] = payload
            case Opaque(_, _, payload) if signature := _signature(payload):
                if not self._part or "thought" in self._part or _SIGNATURE in self._part:
                    self._add(choice, {"text": ""})
                self._part[_SIGNATURE] = signature
            case _:
                self._add(choice, delta.payload if _kind(delta.payload) == delta.kind else {delta.kind: delta.payload})
                self._part = {}

    def _say_start(self, choice: int, role: str | None) -> None:
        if self._like is None:
            self._add(choice, {"text": ""})
            self._part = {}
            self._candidate["content"]["role"] = role if role and role != "assistant" else "model"
        else:
            if choice in self._seen:
                self._flush()
            candidate = self._to(choice, _PARTS)
            candidate |= {"content": {"role": role}} if role else {}

    def _say_call(self, delta: ToolCallStart | Arguments | ArgumentsAt | PartEnd) -> None:
        call = self._part.get("functionCall")
        if call is None or isinstance(delta, ToolCallStart) or not _has_room(call, self._part, delta):
            call = {"willContinue": True}
            self._add(delta.key.choice, {"functionCall": call})
        match delta:
            case ToolCallStart(key, _, name):
                call |= {field: said for field, said in (("id", key.id), ("name", name)) if said}
            case Arguments(_, text):
                call |= arguments_field("args", text, self._like)
            case ArgumentsAt(_, path, value, more):
                piece = {"jsonPath": path, _spelling(value): "NULL_VALUE" if value is None else value}
                call.setdefault(_PARTIAL, []).append({**piece, **({"willContinue": True} if more else {})})
            case _:
                del call["willContinue"]
                self._part = {}


def _has_room(call: dict[str, Any], part: dict[str, Any], delta: Delta) -> bool:
    """Can the call that was opened last still say `delta`, in the order in which it is read?"""
    if isinstance(delta, Arguments):
        return "args" not in call and _PARTIAL not in call and _SIGNATURE not in part
    return isinstance(delta, PartEnd) or _SIGNATURE not in part


def _spelling(value: Any) -> str:
    match value:
        case str():
            return "stringValue"
        case bool():
            return "boolValue"
        case int() | float():
            return "numberValue"
        case None:
            return "nullValue"
        case _:
            return "structValue"

"""Amazon Bedrock's InvokeModelWithResponseStream, in binary frames: each `chunk` carries an event of the model's own dialect in base64.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModelWithResponseStream.html. Claude speaks Anthropic's dialect, Nova that of
Converse, Jamba and others OpenAI's; Llama, Titan, Mistral, Cohere and Claude 2 send pieces of text, each with field names of its own
(https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html). The service adds its own counts to the last one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .. import jsontext
from ..framing import sse
from ..model import Delta, End, Finish, Frame, Key, Reply, Stop, StreamError, Text, Unknown, UsageUpdate
from .anthropic import Anthropic
from .base import (
    Framing,
    Hint,
    Spelling,
    UsageNames,
    as_dict,
    as_list,
    as_text,
    payload_of,
    read_usage,
    write_damage,
    write_usage,
)
from .bedrock_converse import EVENTS, BedrockConverse
from .bedrock_quirks import INVOKE_QUIRKS
from .binary import event_of, read_event, write_event, write_event_error
from .openai_chat import OpenAIChat

METRICS = "amazon-bedrock-invocationMetrics"
_GUARDRAIL = "amazon-bedrock-guardrailAction"
METRICS_USAGE: UsageNames = {
    "input_tokens": [("inputTokenCount",)],
    "output_tokens": [("outputTokenCount",)],
    "cached_tokens": [("cacheReadInputTokenCount",)],
}


@dataclass(frozen=True)
class BedrockInvoke:
    name: str = "bedrock-invoke"
    framing: Framing = "eventstream"
    numbers: Literal["parts", "calls", "nothing"] = "parts"
    end_mark: bool = False  # Claude's stream has one, others have none
    usage_rides: bool = False

    @property
    def words(self) -> Mapping[Stop, tuple[str, ...]]:
        return Anthropic().words  # what is written speaks as Claude does

    @property
    def quirks(self) -> Mapping[str, Spelling]:
        return INVOKE_QUIRKS

    def recognise(self, hint: Hint) -> int:
        chunk = as_dict(hint.payload)
        return 90 if isinstance(inside(chunk.get("chunk", chunk)), dict) else 0

    def payload(self, frame: Frame) -> Any:
        return event_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_event(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        chunk = as_dict(payload).get("chunk")
        if chunk is None:
            return BedrockConverse().deltas(payload, event)  # the errors are the same
        inner = inside(chunk)
        if inner is None:
            return [StreamError("wire:bad_json", "the bytes of a chunk are not JSON", payload)]
        deltas = _speaker(inner).deltas(inner)
        metrics = read_usage(as_dict(inner).get(METRICS), METRICS_USAGE, fallback=True)
        return [*deltas[:-1], *metrics, End()] if deltas and deltas[-1] == End() else [*deltas, *metrics]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        return _Writer(deltas, like).frames()

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        """As the dialect inside renumbers its events."""
        inner = {at: inside(as_dict(event_of(frame)).get("chunk")) for at, frame in enumerate(frames)}
        spoken = {at: payload for at, payload in inner.items() if isinstance(payload, dict)}
        if not spoken:
            return list(frames)
        speaker = _speaker(next(iter(spoken.values())))
        before = [_as_frame(payload, speaker) for payload in spoken.values()]
        out = list(frames)
        for at, old, new in zip(spoken, before, speaker.finish(before), strict=True):
            if new != old:
                out[at] = _chunk({**spoken[at], **speaker.payload(new)}, frames[at])
        return out

    def losses(self, reply: Reply) -> tuple[str, ...]:
        return Anthropic().losses(reply)


# ------------------------------------------------------------------------------------------------------------------- reading


def inside(chunk: Any) -> Any:
    """The JSON value in a chunk's bytes: base64 on the wire, bytes from boto3. None where it is none."""
    data = as_dict(chunk).get("bytes")
    if not data:
        return None
    try:
        return jsontext.parse(data if isinstance(data, bytes) else base64.b64decode(as_text(data), validate=True))
    except (ValueError, binascii.Error):
        return None


class _Inner(Protocol):
    """The part of a dialect that is needed inside a chunk."""

    def recognise(self, hint: Hint) -> int: ...

    def payload(self, frame: Frame) -> Any: ...

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]: ...

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]: ...

    def finish(self, frames: Sequence[Frame]) -> list[Frame]: ...


def _speaker(inner: Any) -> _Inner:
    hint = Hint({name: value for name, value in as_dict(inner).items() if not name.startswith("amazon-bedrock-")})
    inside: tuple[_Inner, ...] = (Anthropic(), BedrockConverse(), OpenAIChat(), _TextModel())
    return max(inside, key=lambda each: each.recognise(hint))


# How text models call a piece of text, the reason and their counts; each in the chunk itself or in the first entry of a list there.
_TEXT = ("generation", "outputText", "completion", "text")
_REASON = ("stop_reason", "completionReason", "finish_reason")
_LISTS = ("outputs", "generations")
_FIELDS = (*_TEXT, *_REASON, *_LISTS)
_USAGE: UsageNames = {
    "input_tokens": [("prompt_token_count",), ("inputTextTokenCount",)],
    "output_tokens": [("generation_token_count",), ("totalOutputTextTokenCount",)],
}
_COUNTS = tuple(path[0] for paths in _USAGE.values() for path in paths)


class _TextModel:
    """Chunks with a piece of text each."""

    def recognise(self, hint: Hint) -> int:
        payload = as_dict(hint.payload)
        if "type" in payload:
            return 0  # whatever it is, Anthropic's dialect names it
        return 70 if any(name in payload for name in _FIELDS) else 1

    def payload(self, frame: Frame) -> Any:
        return payload_of(frame)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        if not isinstance(payload, dict):
            return [Unknown(event, payload)]
        said = _said(payload)
        text = next((text for name in _TEXT if (text := as_text(said.get(name)))), "")
        reason = next((reason for name in _REASON if (reason := as_text(said.get(name)))), "")
        if not reason and payload.get(_GUARDRAIL) == "INTERVENED":
            reason = "INTERVENED"
        out: list[Delta] = [Text(Key(), text)] if text else []
        out += [Finish(Key(), reason)] if reason else []
        out += read_usage({name: payload[name] for name in _COUNTS if name in payload}, _USAGE)
        return out if out or any(name in payload for name in (*_FIELDS, METRICS)) else [Unknown(event, payload)]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        lent = as_dict(payload_of(like)) if like else {}
        out: list[dict[str, Any]] = []
        order = 0
        for delta in deltas:
            fields, rank = _write_text(delta, lent)
            if fields and rank <= order:
                out.append({})
            order = rank if fields else order
            out = out or [{}]
            out[-1] |= fields
        return [sse.encode(jsontext.dump(_listed(said, lent))) for said in out if said]

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        return list(frames)


def _said(payload: dict[str, Any]) -> dict[str, Any]:
    """What says text and reason: the payload, or the first entry of its list."""
    lists = [as_list(payload.get(name)) for name in _LISTS]
    return next((as_dict(entries[0]) for entries in lists if entries), payload)


def _write_text(delta: Delta, lent: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The fields that say `delta`, as `lent` calls them, and their place in the reading order."""
    said = _said(lent)
    name = next((name for name in _TEXT if name in said), "text")
    match delta:
        case Text(_, text):
            return {name: text}, 1
        case Finish(_, reason):
            usual = {"outputText": "completionReason", "text": "finish_reason"}.get(name, "stop_reason")
            return {next((each for each in _REASON if each in said), usual): reason}, 2
        case UsageUpdate():
            return write_usage(delta, _USAGE), 3
        case _:
            return {}, 0  # these models say nothing else


def _listed(said: dict[str, Any], lent: dict[str, Any]) -> dict[str, Any]:
    """`said` in the envelope of `lent`, in its list where it has one."""
    kept = {name: value for name, value in lent.items() if name not in (*_FIELDS, *_COUNTS, _GUARDRAIL)}
    inside = next((name for name in _LISTS if name in lent), None)
    if inside is None:
        return {**kept, **said}
    counts = {name: value for name, value in said.items() if name in _COUNTS}
    return {**kept, **counts, inside: [{name: value for name, value in said.items() if name not in _COUNTS}]}


# ------------------------------------------------------------------------------------------------------------------- writing


class _Writer:
    """As the dialect inside `like` says it, else as Claude does; exceptions stand outside of chunks."""

    def __init__(self, deltas: Sequence[Delta], like: Frame | None) -> None:
        self._deltas, self._like = deltas, like
        inner = as_dict(inside(as_dict(event_of(like)).get("chunk"))) if like else {}
        self._inner = {name: value for name, value in inner.items() if name != METRICS}
        self._speaker: _Inner = _speaker(self._inner) if self._inner else Anthropic()
        self._frames: list[Frame] = []
        self._pending: list[Delta] = []
        self._metrics: dict[str, Any] | None = None

    def frames(self) -> list[Frame]:
        for delta in self._deltas:
            match delta:
                case UsageUpdate(fallback=True):
                    self._metrics = write_usage(delta, METRICS_USAGE)
                case StreamError(type_, _, payload) if type_.startswith("wire:"):
                    same = self._like is not None and payload == event_of(self._like)
                    self._alone(
                        *([self._like] if same and self._like else write_damage(delta, "eventstream", self._like))
                    )
                case StreamError(type_, _, payload) if payload is None or _is_event_error(type_, payload):
                    self._alone(write_event_error(delta, self._like))
                case Unknown(event, payload):
                    outside = event != "message" and event in as_dict(payload)
                    self._alone(
                        write_event(event, payload[event], self._like) if outside else _chunk(payload, self._like)
                    )
                case _:
                    self._pending.append(delta)
        self._flush()
        return self._frames

    def _alone(self, *frames: Frame) -> None:
        self._flush()
        self._frames += frames

    def _flush(self) -> None:
        like = _as_frame(self._inner, self._speaker) if self._inner else None
        written = [self._speaker.payload(frame) for frame in self._speaker.write(self._pending, like)]
        payloads = [payload for payload in written if payload is not None]
        if self._metrics is not None:
            last = payloads.pop() if payloads else {}
            payloads.append({**as_dict(last), METRICS: self._metrics})
        self._frames += [_chunk(payload, self._like) for payload in payloads]
        self._pending, self._metrics = [], None


def _is_event_error(type_: str, payload: Any) -> bool:
    return type_ in as_dict(payload) or any(name.startswith(":") for name in as_dict(payload))


def _as_frame(payload: dict[str, Any], speaker: _Inner) -> Frame:
    """The event inside a chunk as its dialect would frame it."""
    name = next((name for name in payload if name in EVENTS), None)
    if isinstance(speaker, BedrockConverse) and name is not None:
        return write_event(name, payload[name])
    return sse.encode(jsontext.dump(payload), as_text(payload.get("type")) or "message")


def _chunk(payload: Any, like: Frame | None) -> Frame:
    lent = as_dict(as_dict(event_of(like)).get("chunk")) if like else {}
    data = base64.b64encode(jsontext.dump(payload).encode()).decode()
    return write_event("chunk", {**lent, "bytes": data}, like)

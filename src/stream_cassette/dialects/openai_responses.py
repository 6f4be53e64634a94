"""OpenAI Responses events (https://platform.openai.com/docs/api-reference/responses-streaming), also as Azure, xAI, Bedrock and others send them.

Everything is said three times: in deltas, in the `done` event of a part and of its item, and in the response that ends the stream; and any of the
three may be missing. `output_index` says where an item stands; item ids may change from event to event, and a tool call is known by its `call_id`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from .. import jsontext
from ..framing import sse
from ..lanes import Lane, Lanes
from ..model import (
    Arguments,
    Delta,
    Frame,
    Key,
    Opaque,
    OpaquePart,
    Reasoning,
    Refusal,
    Reply,
    Stop,
    Text,
    ToolCall,
    ToolCallStart,
    Whole,
    key_of,
)
from .base import (
    Framing,
    Hint,
    Spelling,
    as_dict,
    as_int,
    as_text,
    common_losses,
    first_choice_losses,
    payload_of,
    read_frame,
    typed_payload_of,
)
from .openai_responses_composing import Composer
from .openai_responses_quirks import QUIRKS
from .openai_responses_reading import CALLS, INPUTS, USAGE, read_event
from .openai_responses_writing import Packer

_WORDS: Mapping[Stop, tuple[str, ...]] = {
    "stop": ("completed",),
    "length": ("incomplete", "max_output_tokens"),
    "tool_calls": ("completed",),
    "content_filter": ("incomplete", "content_filter"),
}


@dataclass(frozen=True)
class OpenAIResponses:
    name: str = "openai-responses"
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
            case {"type": str(type_)} if type_.startswith("response."):
                return 90
            case {"object": "response"} | {"response": {"object": "response"}}:
                return 85
            case {"type": str(), "sequence_number": int()}:
                return 50  # an error or a keep-alive before anything else
            case dict() if hint.event.startswith("response."):
                return 80
            case _:
                return 0

    def payload(self, frame: Frame) -> Any:
        return typed_payload_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_frame(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        return read_event(payload, event)

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        said = [delta for delta in deltas if not ((key := key_of(delta)) and key.choice)]
        return Composer().frames(said) if like is None else Packer(like).frames(said)

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        """Restatements agree with the deltas before them, events are numbered one after the other, and one response has one id."""
        streamed = _Streamed()
        restated: list[Frame] = []
        for frame in frames:
            deltas = self.read(frame)
            opens = as_text(as_dict(self.payload(frame)).get("type")).endswith(".added")
            agreed = streamed.agreed(deltas, opens)
            written = self.write(agreed, frame) if agreed != deltas else []
            restated.append(written[0] if len(written) == 1 else frame)
        return _numbered(restated)

    def losses(self, reply: Reply) -> tuple[str, ...]:
        out = first_choice_losses(reply, _loss)
        return tuple(out + common_losses(reply, USAGE, details=True))


def _loss(part: Any) -> str | None:
    match part:
        case ToolCall():
            return None if part.name else "a tool call without a name"
        case OpaquePart(kind, ({"type": str(type_)},), arguments) if type_ == kind and (
            not arguments or kind in INPUTS
        ):
            interpreted = kind in CALLS or kind in ("message", "reasoning") or kind.startswith("response.")
            return f"the part {kind!r}" if interpreted else None
        case OpaquePart(kind):
            return f"the part {kind!r}"
        case _:
            return None


# ----------------------------------------------------------------------------------------------------------------- finishing


class _Streamed:
    """What the deltas said so far, part by part."""

    def __init__(self) -> None:
        self._lanes = Lanes()
        self._pieces: dict[Lane, dict[tuple[int, ...], list[str]]] = {}
        self._calls: dict[Lane, ToolCallStart] = {}

    def agreed(self, deltas: Sequence[Delta], opens: bool) -> list[Delta]:
        """The deltas of one event; but a restatement of what was streamed says that. `opens`: the event opens a part, and what it says counts as streamed."""
        lanes = [self._lanes.of(delta) for delta in deltas]
        whole = {lane for delta, lane in zip(deltas, lanes, strict=True) if isinstance(delta, Whole)}
        named: set[Lane] = set()
        out: list[Delta] = []
        for delta, lane in zip(deltas, lanes, strict=True):
            key = key_of(delta)
            if lane is None or key is None:
                out.append(delta)
                continue
            if lane in self._calls and lane not in named and key.listed:
                named.add(lane)
                out += self._restated_call(delta, lane, whole)
                if isinstance(delta, ToolCallStart):
                    continue
            if isinstance(delta, Opaque) and delta.kind == "annotation" and delta.whole:
                out += self._restated_text(delta.key, whole)
            out.append(self._restated(delta, lane) if isinstance(delta, Whole) and not opens else delta)
            self._take(delta, lane, opens)
        return out

    def _take(self, delta: Delta, lane: Lane, opens: bool) -> None:
        match delta:
            case Text(key, text) | Reasoning(key, text) | Refusal(key, text) | Arguments(key, text):
                self._pieces.setdefault(lane, {}).setdefault(key.within or (), []).append(text)
            case Whole(key, kind, text) if opens and kind != "signature":
                self._pieces.setdefault(lane, {}).setdefault(key.within or (), []).append(text)
            case ToolCallStart():
                self._calls.setdefault(lane, delta)

    def _said(self, lane: Lane, sections: Sequence[tuple[int, ...]] | None = None) -> str:
        pieces = self._pieces.get(lane, {})
        return jsontext.join(piece for at in sections or sorted(pieces) for piece in pieces.get(at, ()))

    def _restated(self, delta: Whole, lane: Lane) -> Delta:
        said = self._said(lane, [delta.key.within] if delta.kind == "reasoning" and delta.key.within else None)
        return replace(delta, value=said) if said and delta.kind != "signature" else delta

    def _restated_text(self, key: Key, whole: set[Lane | None]) -> list[Delta]:
        """The text that a restated note belongs to, where the restatement does not say it."""
        text: Delta = Whole(key, "text", "")
        if (lane := self._lanes.of(text)) in whole or lane is None:
            return []
        whole.add(lane)
        said = self._said(lane)
        return [Whole(key, "text", said)] if said else []

    def _restated_call(self, delta: Any, lane: Lane, whole: set[Lane | None]) -> list[Delta]:
        """Who the call is and what its arguments were, where the restatement of `delta` does not say it."""
        known = self._calls[lane]
        out: list[Delta] = (
            [delta] if isinstance(delta, ToolCallStart) else [replace(known, key=replace(delta.key, id=known.key.id))]
        )
        said = "" if lane in whole else self._said(lane)
        return [*out, Whole(replace(delta.key, id=None), "arguments", said)] if said else out


def _numbered(frames: Sequence[Frame]) -> list[Frame]:
    out: list[Frame] = []
    number = response_id = None
    for frame in frames:
        payload = payload_of(frame)
        if isinstance(payload, dict):
            changed = dict(payload)
            if as_int(payload.get("sequence_number")) is not None:
                number = payload["sequence_number"] if number is None else number + 1
                changed["sequence_number"] = number
            if isinstance(response := payload.get("response"), dict):
                response_id = response_id or response.get("id")
                if response_id and "id" not in response:
                    changed["response"] = {"id": response_id, **response}
            if changed != payload:
                frame = sse.encode(jsontext.dump(changed), frame.event, frame)
        out.append(frame)
    return out

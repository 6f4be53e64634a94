"""How Amazon Bedrock's models and its look-alikes spell their event streams otherwise."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .. import jsontext
from ..framing import sse
from ..model import Frame
from .anthropic_quirks import QUIRKS as ANTHROPIC
from .base import Spelling, as_dict, as_text, payload_of
from .binary import event_of, write_event
from .spelling import Payload, Rewrite, halves

Event = tuple[str, Payload]
"""The name of an event and what it says."""

_START, _DELTA, _STOP = "contentBlockStart", "contentBlockDelta", "contentBlockStop"
_INDEX = "contentBlockIndex"


def _on_events(change: Callable[[list[Event]], list[list[Event]]]) -> Rewrite:
    """A rewrite of frames from a change of all events in them; a frame whose event comes back the same keeps its bytes."""

    def rewrite(frames: Sequence[Frame]) -> list[list[Frame]]:
        said = {at: event for at, frame in enumerate(frames) if (event := _event(frame))}
        out = [[frame] for frame in frames]
        for (at, old), new in zip(said.items(), change(list(said.values())), strict=True):
            shown = jsontext.dump(old)
            out[at] = [
                frames[at] if jsontext.dump(each) == shown else write_event(*each, like=frames[at]) for each in new
            ]
        return out

    return rewrite


def _event(frame: Frame) -> Event | None:
    plain = frame.header(":message-type") == "event" and frame.problem is None
    said = as_dict(event_of(frame)).get(frame.event) if plain else None
    return (frame.event, said) if isinstance(said, dict) else None


def _each(change: Callable[[str, Payload], Payload]) -> Rewrite:
    return _on_events(lambda events: [[(name, change(name, said))] for name, said in events])


def _without_padding(name: str, said: Payload) -> Payload:
    return {field: value for field, value in said.items() if field != "p"}


def _padded(name: str, said: Payload) -> Payload:
    return {**said, "p": "abcdefghijklmnop"}


def _usage_first(events: list[Event]) -> list[list[Event]]:
    """`metadata` before `messageStop`."""
    out = [[event] for event in events]
    names = [name for name, _ in events]
    if names.count("metadata") == names.count("messageStop") == 1:
        stop, usage = names.index("messageStop"), names.index("metadata")
        if usage > stop:
            out[usage] = []
            out[stop] = [events[usage], events[stop]]
    return out


def _opened_texts(events: list[Event]) -> list[list[Event]]:
    """An empty start before the first delta of a block that has none."""
    out = []
    opened: set[object] = set()
    for name, said in events:
        number = said.get(_INDEX)
        lacks = name == _DELTA and number not in opened
        out.append([*([(_START, {_INDEX: number, "start": {}})] if lacks else []), (name, said)])
        if name in (_START, _DELTA):
            opened.add(number)
    return out


def _unopened(events: list[Event]) -> list[list[Event]]:
    return [[] if name == _START and said.get("start") == {} else [(name, said)] for name, said in events]


def _empty_deltas(events: list[Event]) -> list[list[Event]]:
    """An empty piece of the same kind before every piece of text or input."""
    out = []
    for name, said in events:
        empty = _emptied(as_dict(said.get("delta"))) if name == _DELTA else None
        out.append([*([(name, {**said, "delta": empty})] if empty else []), (name, said)])
    return out


def _emptied(delta: Payload) -> Payload | None:
    match delta:
        case {"text": str(text)} if text:
            return {"text": ""}
        case {"toolUse": {"input": str(text)}} if text:
            return {"toolUse": {"input": ""}}
        case _:
            return None


def _whole_inputs(events: list[Event]) -> list[list[Event]]:
    """All pieces of an input in the first of them."""
    out = [[event] for event in events]
    pieces: dict[object, list[int]] = {}
    for at, (name, said) in enumerate(events):
        number = said.get(_INDEX)
        if name == _START:
            pieces.pop(number, None)  # a number that starts again is another block
        elif name == _DELTA and isinstance(_input(said), str):
            pieces.setdefault(number, []).append(at)
            if len(pieces[number]) > 1:
                first = pieces[number][0]
                whole = as_text(_input(out[first][0][1])) + as_text(_input(said))
                out[first] = [(name, {**events[first][1], "delta": {"toolUse": {"input": whole}}})]
                out[at] = []
    return out


def _input(said: Payload) -> object:
    return as_dict(as_dict(said.get("delta")).get("toolUse")).get("input")


def _signature_in_pieces(events: list[Event]) -> list[list[Event]]:
    out = []
    for name, said in events:
        content = as_dict(as_dict(said.get("delta")).get("reasoningContent"))
        first, second = halves(as_text(content.get("signature")))
        texts = (first, second) if second else ()
        new = [(name, {**said, "delta": {"reasoningContent": {"signature": text}}}) for text in texts]
        out.append(new or [(name, said)])
    return out


def _end_turn(name: str, said: Payload) -> Payload:
    return {**said, "stopReason": "end_turn"} if said.get("stopReason") == "tool_use" else said


_PADDING: Mapping[str, Spelling] = {
    "padding-missing": Spelling("stand-ins for Bedrock send no padding `p`; KeyError", _each(_without_padding)),
    "padding": Spelling("Bedrock pads events in a field `p`; strict models refuse it", _each(_padded)),
}

CONVERSE_QUIRKS: Mapping[str, Spelling] = {
    **_PADDING,
    "usage-before-stop": Spelling(
        "stand-ins send `metadata` before `messageStop`; readers that stop at the first or wait for the last lose one",
        _on_events(_usage_first),
    ),
    "text-start": Spelling(
        "some models open text blocks with an empty start; readers take every start for a tool",
        _on_events(_opened_texts),
    ),
    "text-start-missing": Spelling(
        "most models send no start for text blocks; IndexError on the first delta", _on_events(_unopened)
    ),
    "empty-deltas": Spelling(
        "models send empty pieces; readers open a block for each, or parse the empty input", _on_events(_empty_deltas)
    ),
    "arguments-whole": Spelling(
        "Nova and others send an input in one piece; readers that wait for fragments lose it", _on_events(_whole_inputs)
    ),
    "signature-in-pieces": Spelling(
        "a signature may come in several deltas; the last write wins and the provider refuses the next turn",
        _on_events(_signature_in_pieces),
    ),
    "end-turn-beside-calls": Spelling(
        "models finish with `end_turn` although there are calls; agents that ask the reason never run them",
        _each(_end_turn),
        other_finish=True,
    ),
}

# ----------------------------------------------------------------------------------------------------- events inside of chunks

_METRICS = "amazon-bedrock-invocationMetrics"
_CLAUDES = ("usage-double", "empty-input-first", "signature-in-pieces", "unknown-block", "unknown-delta")


def _inside(spelling: Spelling) -> Spelling:
    """A quirk of Claude's own events, which chunks carry in base64."""

    def change(events: list[Event]) -> list[list[Event]]:
        inner = [_inner(said) for _, said in events]
        frames = [sse.encode(jsontext.dump(payload), as_text(payload.get("type")) or "message") for payload in inner]
        return [
            [event]
            if new == [frame]
            else [(event[0], {**event[1], **_chunk(as_dict(payload_of(each)))}) for each in new]
            for event, frame, new in zip(events, frames, spelling.rewrite(frames), strict=True)
        ]

    return replace(spelling, rewrite=_on_events(change))


def _inner(said: Payload) -> Payload:
    try:
        return as_dict(jsontext.parse(base64.b64decode(as_text(said.get("bytes")), validate=True)))
    except ValueError:
        return {}


def _chunk(payload: Payload) -> Payload:
    return {"bytes": base64.b64encode(jsontext.dump(payload).encode()).decode()}


def _without_metrics(events: list[Event]) -> list[list[Event]]:
    """Without the counts of the service, where the model says its own."""
    inner = [_inner(said) for _, said in events]
    if not any(as_dict(payload.get("usage")) for payload in inner):
        return [[event] for event in events]
    rest = [{name: value for name, value in payload.items() if name != _METRICS} for payload in inner]
    return [
        [event if payload == less else (event[0], {**event[1], **_chunk(less)})]
        for event, payload, less in zip(events, inner, rest, strict=True)
    ]


INVOKE_QUIRKS: Mapping[str, Spelling] = {
    **_PADDING,
    "metrics-missing": Spelling(
        "stand-ins for Bedrock send no metrics of their own beside the model's usage; KeyError",
        _on_events(_without_metrics),
    ),
    **{name: _inside(ANTHROPIC[name]) for name in _CLAUDES},
}

"""How real servers spell Cohere streams otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from .. import jsontext
from .anthropic_quirks import event_line_missing
from .base import Spelling, as_dict, as_text
from .spelling import EVENT_STREAM, Payload, data_after_done, each, on_payloads


def _message(payload: Payload) -> Payload:
    return as_dict(as_dict(payload.get("delta")).get("message"))


def _function(payload: Payload) -> Payload:
    return as_dict(as_dict(_message(payload).get("tool_calls")).get("function"))


def _content(payload: Payload) -> Payload:
    return as_dict(_message(payload).get("content"))


def _following(payloads: list[Payload], start: int, type_: str) -> list[int]:
    """The places of the events of this type with the number of the event at `start`."""
    number = payloads[start].get("index")
    return [
        at
        for at, payload in enumerate(payloads)
        if at > start and payload.get("type") == type_ and payload.get("index") == number
    ]


def _starts(payloads: list[Payload], type_: str) -> list[int]:
    """The places of the starts of this type, if no number starts twice."""
    places = [at for at, payload in enumerate(payloads) if payload.get("type") == type_]
    return places if len({payloads[at].get("index") for at in places}) == len(places) else []


def _whole(payloads: list[Payload]) -> list[list[Payload]]:
    """All arguments in the start of their call."""
    out = [[payload] for payload in payloads]
    for start in _starts(payloads, "tool-call-start"):
        places = _following(payloads, start, "tool-call-delta")
        pieces = [as_text(_function(payloads[at]).get("arguments")) for at in (start, *places)]
        if any(pieces[1:]) and _function(payloads[start]):
            _function(payloads[start])["arguments"] = jsontext.join(pieces)
            for at in places:
                out[at] = []
    return out


def _initial(payloads: list[Payload]) -> list[list[Payload]]:
    """The first text in the start of its content."""
    out = [[payload] for payload in payloads]
    for start in _starts(payloads, "content-start"):
        content, places = _content(payloads[start]), _following(payloads, start, "content-delta")
        name = as_text(content.get("type")) or "text"
        if content and places and not content.get(name) and set(_content(payloads[places[0]])) == {name}:
            content[name] = _content(payloads[places[0]])[name]
            out[places[0]] = []
    return out


def _no_lists(payload: Payload) -> None:
    """A start of the message with nothing but the role."""
    if payload.get("type") == "message-start":
        for name in [name for name, value in _message(payload).items() if not value]:
            del _message(payload)[name]


def _debugged(payloads: list[Payload]) -> list[list[Payload]]:
    return [
        [payload, *([{"type": "debug", "prompt": "..."}] if payload.get("type") == "message-start" else [])]
        for payload in payloads
    ]


QUIRKS: Mapping[str, Spelling] = {
    "arguments-whole": Spelling(
        "stand-ins send all arguments in `tool-call-start`; readers of deltas run the tool without", on_payloads(_whole)
    ),
    "text-initial": Spelling(
        "the first text may stand in `content-start`; readers of deltas lose the beginning", on_payloads(_initial)
    ),
    "message-start-bare": Spelling("stand-ins leave out the empty lists of `message-start`; KeyError", each(_no_lists)),
    "debug-events": Spelling(
        "Cohere sends `debug` events when asked to; readers fail on the type", on_payloads(_debugged)
    ),
    "event-line-missing": Spelling(
        "gateways send data lines alone; readers that dispatch on the event line see nothing", event_line_missing()
    ),
    "data-after-done": data_after_done(
        lambda frame: frame.data == "[DONE]", lambda payload: payload.get("type") == "content-delta"
    ),
    **EVENT_STREAM,
}

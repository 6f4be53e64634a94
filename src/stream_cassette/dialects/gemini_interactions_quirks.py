"""How real servers spell Gemini's Interactions streams otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from .anthropic_quirks import event_line_missing
from .base import Spelling, as_dict
from .spelling import EVENT_STREAM, Payload, compact_object, data_after_done, dropping, each, on_payloads


def _of(payload: Payload, type_: str) -> bool:
    return payload.get("event_type") == type_


def _whole_arguments(payloads: list[Payload]) -> list[list[Payload]]:
    """The arguments of a call in the start of its step, as an object."""
    out = [[payload] for payload in payloads]
    for start in payloads:
        step = as_dict(start.get("step"))
        places = [
            at
            for at, payload in enumerate(payloads)
            if _of(payload, "step.delta") and payload.get("index") == start.get("index")
        ]
        deltas = [as_dict(payloads[at].get("delta")) for at in places]
        value = compact_object("".join(str(delta.get("arguments", "")) for delta in deltas))
        plain = step.get("type") == "function_call" and not step.get("arguments")
        if plain and value and all(delta.get("type") == "arguments_delta" for delta in deltas):
            step["arguments"] = value
            for at in places:
                out[at] = []
    return out


def _without_ids(payload: Payload) -> None:
    payload.pop("event_id", None)


QUIRKS: Mapping[str, Spelling] = {
    "arguments-whole": Spelling(
        "the arguments of a call may stand in the start of its step; readers of deltas run it without",
        on_payloads(_whole_arguments),
    ),
    "no-status-updates": Spelling(
        "status updates may stay away; readers that wait for one hang",
        dropping(lambda payload: not _of(payload, "interaction.status_update")),
    ),
    "event-ids-missing": Spelling("events may come without id; KeyError", each(_without_ids)),
    "event-line-missing": Spelling(
        "proxies send data lines alone; readers that dispatch on the event line see nothing",
        event_line_missing("event_type"),
    ),
    "data-after-done": data_after_done(
        lambda frame: frame.data == "[DONE]", lambda payload: as_dict(payload.get("delta")).get("type") == "text"
    ),
    **EVENT_STREAM,
}

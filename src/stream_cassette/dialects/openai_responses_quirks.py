"""How real servers spell OpenAI Responses streams otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .anthropic_quirks import EVENT_LINES
from .base import Spelling, as_dict, as_int, as_list, as_text, payload_of
from .openai_responses_reading import LIFECYCLE, SAID, TERMINAL
from .spelling import EVENT_STREAM, Payload, Rewrite, data_after_done, done_sentinel, dropping, each, on_payloads

_ADDED, _DONE = "response.output_item.added", "response.output_item.done"
_PLAIN = ("message", "function_call", "custom_tool_call", "reasoning")  # items that are said in full by their `done`
_STREAMED = tuple(f"response.{name}." for name in SAID)
_PARTS = ("response.content_part.", "response.reasoning_part.", "response.reasoning_summary_part.")


def _type(payload: Payload) -> str:
    return as_text(payload.get("type"))


def _index(payload: Payload) -> int:
    number = as_int(payload.get("output_index"))
    return -1 if number is None else number


def _restated(payloads: list[Payload]) -> set[int]:
    """The numbers of the plain items whose end restates them in full, each once."""
    numbers = [
        _index(payload) for payload in payloads if _type(payload) == _DONE and _says(as_dict(payload.get("item")))
    ]
    return {number for number in numbers if numbers.count(number) == 1 and number >= 0}


def _says(item: Payload) -> bool:
    """Is it a plain item, and no empty thought, which shows by its announcement alone?"""
    thought = any(item.get(name) for name in ("summary", "content", "encrypted_content"))
    return item.get("type") in _PLAIN and (item.get("type") != "reasoning" or thought)


def _leave_out(goes: Callable[[Payload], bool]) -> Rewrite:
    """Leaves out events of items that are restated in full later."""

    def change(payloads: list[Payload]) -> list[list[Payload]]:
        restated = _restated(payloads)
        return [[] if _index(payload) in restated and goes(payload) else [payload] for payload in payloads]

    return on_payloads(change)


def _is_delta(payload: Payload) -> bool:
    return _type(payload).startswith(_STREAMED) and _type(payload).endswith(".delta")


def _is_text_done(payload: Payload) -> bool:
    return _type(payload).startswith((*_STREAMED, *_PARTS)) and _type(payload).endswith(".done")


def _is_added(payload: Payload) -> bool:
    return _type(payload) == _ADDED or (_is_part(payload) and _type(payload).endswith(".added"))


def _is_part(payload: Payload) -> bool:
    return _type(payload).startswith(_PARTS)


def _output(value: list[Payload] | None) -> Rewrite:
    """Ends with this in place of the output, where every item of it ended with an event of its own."""

    def change(payloads: list[Payload]) -> list[list[Payload]]:
        ended = [as_dict(payload.get("item")) for payload in payloads if _type(payload) == _DONE]
        for payload in payloads:
            response = as_dict(payload.get("response"))
            if _type(payload) in TERMINAL and as_list(response.get("output")) == ended:
                response["output"] = value
        return [[payload] for payload in payloads]

    return on_payloads(change)


def _ids_change(payloads: list[Payload]) -> list[list[Payload]]:
    """Another id of the same item in every event; calls and what the provider ran are known by theirs."""
    for number, payload in enumerate(payloads):
        item = as_dict(payload.get("item"))
        plain = _type(payload).startswith((*_STREAMED, *_PARTS)) or item.get("type") in _PLAIN
        for place, name in ((payload, "item_id"), (item, "id")):
            if plain and as_text(place.get(name)):
                place[name] = f"{place[name]}_{number}"
    return [[payload] for payload in payloads]


def _ids_absent(payloads: list[Payload]) -> list[list[Payload]]:
    for payload in payloads:
        items = [payload.get("item"), *as_list(as_dict(payload.get("response")).get("output"))]
        for item in map(as_dict, items):
            if item.get("type") in _PLAIN:
                item.pop("id", None)
        if _type(payload).startswith((*_STREAMED, *_PARTS)):
            payload.pop("item_id", None)
    return [[payload] for payload in payloads]


def _obfuscated(payload: Payload) -> None:
    if _is_delta(payload):
        payload.setdefault("obfuscation", "x7Qm2")


def _without_numbers(payload: Payload) -> None:
    payload.pop("sequence_number", None)


QUIRKS: Mapping[str, Spelling] = {
    "completed-with-empty-output": Spelling(
        "gateways end with `output: []`; readers of the final response lose the answer", _output([])
    ),
    "completed-with-null-output": Spelling("gateways end with `output: null`; iterating over it raises", _output(None)),
    "done-without-deltas": Spelling(
        "vLLM and gateways send some texts as a whole, in `done` alone; readers of deltas see nothing",
        _leave_out(_is_delta),
    ),
    "deltas-without-done": Spelling(
        "gateways send no `done` of texts and parts; readers that wait for it hang", _leave_out(_is_text_done)
    ),
    "no-item-added": Spelling(
        "gateways send deltas of items that nothing announced; IndexError, or the deltas are dropped",
        _leave_out(_is_added),
    ),
    "no-content-part-events": Spelling(
        "gateways announce items but not their parts; IndexError on the first delta", _leave_out(_is_part)
    ),
    "no-lifecycle-events": Spelling(
        "gateways begin with the first item; readers that wait for `response.created` fail",
        dropping(lambda payload: _type(payload) not in LIFECYCLE),
    ),
    "item-ids-change": Spelling(
        "Copilot and gateways give an item another id in every event; readers by id see many items",
        on_payloads(_ids_change),
    ),
    "item-id-absent": Spelling(
        "gateways send items without id; KeyError, or calls are ignored", on_payloads(_ids_absent)
    ),
    "sequence-numbers-missing": Spelling(
        "Azure and gateways do not number events; KeyError, or every event is taken for a repeat",
        each(_without_numbers),
    ),
    "obfuscation": Spelling(
        "OpenAI pads deltas with random characters against eavesdroppers; strict models refuse the field",
        each(_obfuscated),
    ),
    **EVENT_LINES,
    "done-sentinel": done_sentinel(lambda payload: _type(payload) in TERMINAL),
    "data-after-done": data_after_done(
        lambda frame: frame.event in TERMINAL or _type(as_dict(payload_of(frame))) in TERMINAL,
        lambda payload: _type(payload) == "response.output_text.delta",
    ),
    **EVENT_STREAM,
}

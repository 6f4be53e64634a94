"""How agent loops and gateways spell typed tool events otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .. import jsontext
from .anthropic_quirks import EVENT_LINES
from .base import Spelling, as_text
from .spelling import EVENT_STREAM, Payload, done_sentinel, each, on_payloads

_WORDS = {
    "tool_use_start": "tool_call_start",
    "tool_args_delta": "tool_call_delta",
    "tool_use_stop": "tool_call_end",
    "text_delta": "text",
    "thinking_delta": "reasoning_delta",
}
_OPENS, _PIECE, _ENDS = "tool_use_start", "tool_args_delta", "tool_use_stop"


def _other_words(payload: Payload) -> None:
    type_ = as_text(payload.get("type"))
    payload["type"] = _WORDS.get(type_, payload.get("type"))


def _renamed(old: str, new: str) -> Callable[[Payload], None]:
    def change(payload: Payload) -> None:
        if old in payload and new not in payload and payload.get("type") in (_OPENS, _PIECE, _ENDS):
            payload[new] = payload.pop(old)

    return change


def _input_at_end(keeps_pieces: bool) -> Callable[[list[Payload]], list[list[Payload]]]:
    """The whole input in the event that ends its call; with or without the pieces before it."""

    def change(payloads: list[Payload]) -> list[list[Payload]]:
        out = [[payload] for payload in payloads]
        pieces: dict[object, list[int]] = {}
        for at, payload in enumerate(payloads):
            mine = pieces.setdefault(payload.get("id"), [])
            if payload.get("type") == _PIECE and isinstance(payload.get("delta"), str):
                mine.append(at)
            elif payload.get("type") == _ENDS and payload.get("id") and mine and "input" not in payload:
                payload["input"] = jsontext.join(payloads[place]["delta"] for place in mine)
                for place in () if keeps_pieces else mine:
                    out[place] = []
        return out

    return change


QUIRKS: Mapping[str, Spelling] = {
    "other-words": Spelling(
        "every loop has its own: `tool_call_start`, `reasoning_delta`; readers of one know no other", each(_other_words)
    ),
    "call-id-field": Spelling("some name the id of a call `call_id`; KeyError", each(_renamed("id", "call_id"))),
    "partial-json-field": Spelling(
        "some name the piece of arguments `partial_json`; KeyError", each(_renamed("delta", "partial_json"))
    ),
    "input-at-end": Spelling(
        "some restate the input when a call ends; readers append it again",
        on_payloads(_input_at_end(keeps_pieces=True)),
    ),
    "input-at-end-alone": Spelling(
        "some send the input when a call ends, and no pieces; readers of pieces run it without",
        on_payloads(_input_at_end(keeps_pieces=False)),
    ),
    **EVENT_LINES,
    "done-sentinel": done_sentinel(lambda payload: payload.get("type") in ("finish", "done")),
    **EVENT_STREAM,
}

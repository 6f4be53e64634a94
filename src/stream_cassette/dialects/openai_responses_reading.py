"""What OpenAI Responses events say: the tables of this wire, and its readers, each one event → deltas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .. import jsontext
from ..model import (
    Arguments,
    Delta,
    End,
    Finish,
    Keepalive,
    Key,
    Opaque,
    PartEnd,
    PartStart,
    Reasoning,
    Refusal,
    Start,
    StreamError,
    Text,
    ToolCallStart,
    Unknown,
    Whole,
)
from .base import (
    UsageNames,
    as_dict,
    as_int,
    as_list,
    as_text,
    read_error,
    read_usage,
)

USAGE: UsageNames = {
    "input_tokens": [("input_tokens",)],
    "output_tokens": [("output_tokens",)],
    "total_tokens": [("total_tokens",)],
    "cached_tokens": [("input_tokens_details", "cached_tokens")],
    "reasoning_tokens": [("output_tokens_details", "reasoning_tokens")],
}

RUNNING = ("", "queued", "in_progress")
LIFECYCLE = ("response.created", "response.queued", "response.in_progress")
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
CALLS: Mapping[str, tuple[Literal["function", "custom"], str]] = {
    "function_call": ("function", "arguments"),
    "custom_tool_call": ("custom", "input"),
}


@dataclass(frozen=True, slots=True)
class Said:
    """A text that is streamed by `response.<name>.delta` and restated by `response.<name>.done`: as what, where, and in which field of the latter."""

    delta: type[Text | Reasoning | Refusal | Arguments]
    kind: Literal["text", "reasoning", "refusal", "arguments"]
    level: Literal["item", "content", "summary", "thought"]
    field: str


SAID: Mapping[str, Said] = {
    "output_text": Said(Text, "text", "content", "text"),
    "refusal": Said(Refusal, "refusal", "content", "refusal"),
    "reasoning_summary_text": Said(Reasoning, "reasoning", "summary", "text"),
    "reasoning_text": Said(Reasoning, "reasoning", "thought", "text"),
    "function_call_arguments": Said(Arguments, "arguments", "item", "arguments"),
    "custom_tool_call_input": Said(Arguments, "arguments", "item", "input"),
    "mcp_call_arguments": Said(Arguments, "arguments", "item", "arguments"),
    "code_interpreter_call_code": Said(Arguments, "arguments", "item", "code"),
    "apply_patch_call_operation_diff": Said(Arguments, "arguments", "item", "diff"),
}
# The items that a tool of the provider's makes, whose input is streamed: the name of its events.
INPUTS = {"mcp_call": "mcp_call_arguments", "code_interpreter_call": "code_interpreter_call_code"}


# ------------------------------------------------------------------------------------------------------------------- reading


def read_event(payload: Any, event: str) -> list[Delta]:
    """What one event says; `event` is the name on its event line, `message` where there is none."""
    if not isinstance(payload, dict):
        return [Unknown(event, payload)]
    type_ = as_text(payload.get("type")) or (event if event != "message" else "")
    if type_ in LIFECYCLE or type_ in TERMINAL:
        return read_response(as_dict(payload.get("response")), type_)
    if payload.get("object") == "response":  # one that was not streamed
        return read_response(payload, "response.in_progress" if payload.get("status") in RUNNING else "")
    if reader := _READERS.get(type_):
        return reader(payload)
    if payload.get("error"):
        return [read_error(payload["error"])]
    what, _, step = type_.removeprefix("response.").rpartition(".")
    if what in SAID and step in ("delta", "done"):
        return _read_said(payload, SAID[what], step)
    if what and "output_index" in payload:  # the progress of an item, most likely of a tool of the provider's
        return [Opaque(place_of(payload), what.partition(".")[0], payload)]
    return [Unknown(event, payload)]


def place_of(payload: dict[str, Any], level: str = "item") -> Key:
    """Where an event belongs. Of reasoning the summaries come before the thought itself."""
    number = as_int(payload.get("content_index")) or 0
    within = {"content": (number,), "thought": (1, number), "summary": (0, as_int(payload.get("summary_index")) or 0)}
    return Key(
        0, as_int(payload.get("output_index")), as_text(payload.get("item_id")) or None, within=within.get(level, ())
    )


def _read_said(payload: dict[str, Any], said: Said, step: str) -> list[Delta]:
    key = place_of(payload, said.level)
    if said.level == "item":
        key = replace(key, id=None)  # the id of the item, where only that of the call would say something
    value = payload.get("delta" if step == "delta" else said.field)
    if value is None:
        return []
    text = value if isinstance(value, str) else jsontext.dump(value) if said.kind == "arguments" else ""
    if step == "done":
        return [Whole(key, said.kind, text)]
    return [said.delta(key, text)] if text else []


def _read_part(payload: dict[str, Any]) -> list[Delta]:
    """A part of an item opens, or is restated."""
    part, opens = as_dict(payload.get("part")), as_text(payload.get("type")).endswith(".added")
    match part.get("type"):
        case "summary_text":
            return _read_thought(part, place_of(payload, "summary"), opens)
        case "reasoning_text":
            return _read_thought(part, place_of(payload, "thought"), opens)
        case _:
            return _read_content(part, place_of(payload, "content"), opens)


def _read_thought(part: dict[str, Any], key: Key, opens: bool) -> list[Delta]:
    text = as_text(part.get("text"))
    return [Whole(key, "reasoning", text)] if text or not opens else []


def _read_content(part: dict[str, Any], key: Key, opens: bool) -> list[Delta]:
    kind: Literal["text", "refusal"]
    match part.get("type"):
        case "output_text":
            kind, said = "text", part.get("text")
        case "refusal":
            kind, said = "refusal", part.get("refusal")
        case type_:
            return [Opaque(key, as_text(type_) or "unknown", part, whole=True)]
    notes = as_list(part.get("annotations"))
    out: list[Delta] = [PartStart(key, kind)] if opens else []
    out += [Whole(key, kind, said)] if isinstance(said, str) and (said or not opens) else []
    return [*out, *(Opaque(key, "annotation", note, whole=not at) for at, note in enumerate(notes))]


def _read_added(payload: dict[str, Any]) -> list[Delta]:
    return read_item(payload.get("item"), replace(place_of(payload), id=None), opens=True)


def _read_done(payload: dict[str, Any]) -> list[Delta]:
    return read_item(payload.get("item"), replace(place_of(payload), id=None, listed="content"), ends=True)


def read_item(item: Any, key: Key, *, opens: bool = False, ends: bool = False) -> list[Delta]:
    """What an output item says that opens, is restated, or is restated as its end."""
    if not isinstance(item, dict):
        return []
    type_ = as_text(item.get("type"))
    if type_ in CALLS:
        return _read_call(item, replace(key, id=as_text(item.get("call_id")) or None), ends)
    key = replace(key, id=as_text(item.get("id")) or None)
    match type_:
        case "message":
            parts = enumerate(as_list(item.get("content")))
            its = replace(key, listed=key.listed or "content")
            return [
                delta for at, part in parts for delta in _read_content(as_dict(part), replace(its, within=(at,)), False)
            ]
        case "reasoning":
            return _read_reasoning(item, key, opens)
        case _:
            kind = type_ or "unknown"
            return [*([PartStart(key, kind)] if opens else []), Opaque(key, kind, item, whole=True)]


def _read_call(item: dict[str, Any], key: Key, ends: bool) -> list[Delta]:
    kind, field = CALLS[item["type"]]
    name = as_text(item.get("name"))
    numbered = key if key.index is None else replace(key, id=None)  # the number says enough
    value = item.get(field)
    text = value if isinstance(value, str) else "" if value is None else jsontext.dump(value)
    out: list[Delta] = [ToolCallStart(key, kind, name)] if key.id or name else []
    out += [Whole(numbered, "arguments", text)] if text else []
    # An item that opens may call itself completed before its arguments come.
    closed = (
        item.get("status") != "incomplete" if ends else key.listed == "output" and item.get("status") == "completed"
    )
    return [*out, PartEnd(numbered)] if closed else out


def thought_of(item: dict[str, Any]) -> str:
    """All summaries, then all thoughts, of a reasoning item."""
    parts = [*as_list(item.get("summary")), *as_list(item.get("content"))]
    return "".join(as_text(as_dict(part).get("text")) for part in parts)


def _read_reasoning(item: dict[str, Any], key: Key, opens: bool) -> list[Delta]:
    thought, sealed = thought_of(item), as_text(item.get("encrypted_content"))
    out: list[Delta] = [PartStart(key, "reasoning")] if opens else []
    out += [Whole(key, "reasoning", thought)] if thought else []
    return [*out, Whole(key, "signature", sealed)] if sealed else out


def read_response(response: dict[str, Any], type_: str) -> list[Delta]:
    """A snapshot of the response. It ends the stream unless `type_` is one of LIFECYCLE."""
    ends = type_ not in LIFECYCLE
    out: list[Delta] = [
        Start(Key(), "assistant", as_text(response.get("id")) or None, as_text(response.get("model")) or None)
    ]
    for position, item in enumerate(as_list(response.get("output"))):
        out += read_item(item, Key(index=position, within=(), listed="output"), ends=ends)
    if response.get("error"):
        out.append(read_error(response["error"]))
    elif type_ == "response.failed":
        out.append(StreamError("failed", "the response failed"))
    out += read_usage(response.get("usage"), USAGE)
    if not ends:
        return out
    status = as_text(response.get("status"))
    reason = status if status not in RUNNING else type_.removeprefix("response.") or "completed"
    detail = as_text(as_dict(response.get("incomplete_details")).get("reason")) or None
    return [*out, Finish(Key(), reason, detail=detail), End()]


def _read_error(payload: dict[str, Any]) -> list[Delta]:
    if payload.get("error"):
        return [read_error(payload["error"])]
    flat = (
        payload if payload.get("type") != "error" else {**payload, "type": None}
    )  # `error` is the event, not what went wrong
    return [replace(read_error(flat), payload=payload)]


_READERS: Mapping[str, Callable[[dict[str, Any]], list[Delta]]] = {
    "response.output_item.added": _read_added,
    "response.output_item.done": _read_done,
    "response.content_part.added": _read_part,
    "response.content_part.done": _read_part,
    "response.reasoning_part.added": _read_part,
    "response.reasoning_part.done": _read_part,
    "response.reasoning_summary_part.added": _read_part,
    "response.reasoning_summary_part.done": _read_part,
    "response.output_text.annotation.added": lambda payload: [
        Opaque(place_of(payload, "content"), "annotation", payload.get("annotation"))
    ],
    "error": _read_error,
    "keepalive": lambda payload: [Keepalive()],
    "ping": lambda payload: [Keepalive()],
}

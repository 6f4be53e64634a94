"""How OpenAI Responses say what deltas mean, as a whole stream from nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import jsontext
from ..framing import sse
from ..model import (
    Arguments,
    Delta,
    End,
    Finish,
    Frame,
    Keepalive,
    Key,
    Opaque,
    PartEnd,
    PartStart,
    Reasoning,
    Refusal,
    Signature,
    Start,
    StreamError,
    Text,
    ToolCallStart,
    Unknown,
    UsageUpdate,
)
from .base import as_text, write_damage, write_usage
from .openai_responses_reading import INPUTS, USAGE
from .openai_responses_writing import ITEM_OF, error_event, error_value, terminal

_PREFIX = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


@dataclass(slots=True)
class _Growing:
    """An output item on its way. `holder[field]` is the text that the events called `name` stream, `inner` its number, `border` its part's events."""

    number: int
    item: dict[str, Any]
    name: str
    holder: dict[str, Any]
    field: str = "text"
    inner: Mapping[str, int] = dataclasses.field(default_factory=dict)
    border: str = ""
    closed: bool = False

    @property
    def at(self) -> dict[str, Any]:
        return {"item_id": self.item.get("id"), "output_index": self.number, **self.inner}

    @property
    def more(self) -> dict[str, Any]:
        """What the official client expects beside the text."""
        return {"logprobs": []} if self.name == "output_text" else {}

    def shown(self, status: str) -> dict[str, Any]:
        interpreted = self.item.get("type") in _PREFIX
        return {**self.item, "status": status} if interpreted else self.item


class Composer:
    """Writes a stream from nothing, in full: every part is an item of its own, and everything is restated as the provider does."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._items: dict[object, _Growing] = {}
        self._response: dict[str, Any] = {
            "id": "resp_synthesized", "object": "response", "created_at": 0, "status": "in_progress", "error": None, "incomplete_details": None,
            "model": "synthesized", "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": None,
        }  # fmt: skip

    def frames(self, deltas: Sequence[Delta]) -> list[Frame]:
        for delta in deltas:
            self._write(delta)
        self._end(deltas)
        return self._frames

    def _emit(self, type_: str, **fields: Any) -> None:
        self._frames.append(sse.encode(jsontext.dump({"type": type_, "sequence_number": 0, **fields}), type_))

    def _write(self, delta: Delta) -> None:
        match delta:
            case Start(_, _, id_, model):
                self._response |= {"id": id_ or self._response["id"], "model": model or self._response["model"]}
                self._emit("response.created", response=self._response)
            case PartStart(key, "text" | "refusal" | "reasoning" as kind):
                self._opened(key, kind)
            case Text(key, text):
                self._more(self._opened(key, "text"), text)
            case Refusal(key, text):
                self._more(self._opened(key, "refusal"), text)
            case Reasoning(key, text):
                self._more(self._opened(key, "reasoning"), text)
            case Signature(key, text):
                item = self._opened(key, "reasoning").item
                item["encrypted_content"] = item.get("encrypted_content", "") + text
            case ToolCallStart(key, kind, name):
                self._open_call(key, kind, name)
            case Arguments(key, text):
                if (key.index, key.within) not in self._items:
                    self._open_call(key, "function", "")
                self._more(self._items[key.index, key.within], text)
            case Opaque(key, _, dict(payload)):
                self._open(key, payload, INPUTS.get(as_text(payload.get("type")), ""), {})
            case PartEnd(key):
                self._close(self._items.get((key.index, key.within)))
            case Keepalive():
                self._frames.append(Frame(b": keepalive\n\n"))
            case Unknown(event, payload):
                self._frames.append(sse.encode(jsontext.dump(payload), event))
            case _:
                pass  # restatements follow from what they restate; the rest belongs to the end

    # Items, under the number that the deltas give the part.

    def _open(self, key: Key, item: dict[str, Any], name: str, holder: dict[str, Any], **more: Any) -> _Growing:
        grown = self._items[key.index, key.within] = _Growing(len(self._items), item, name, holder, **more)
        if prefix := _PREFIX.get(as_text(item.get("type"))):
            item["id"] = f"{prefix}_{grown.number}"
        self._emit("response.output_item.added", output_index=grown.number, item=grown.shown("in_progress"))
        if grown.border:
            self._emit(f"response.{grown.border}.added", **grown.at, part=holder)
        return grown

    def _opened(self, key: Key, kind: str) -> _Growing:
        if grown := self._items.get((key.index, key.within)):
            return grown
        if kind == "reasoning":
            part: dict[str, Any] = {"type": "summary_text", "text": ""}
            item: dict[str, Any] = {"type": "reasoning", "summary": [part]}
            inner, border = {"summary_index": 0}, "reasoning_summary_part"
            return self._open(key, item, "reasoning_summary_text", part, inner=inner, border=border)
        part = {"type": "output_text", "text": "", "annotations": []}
        if kind == "refusal":
            part = {"type": "refusal", "refusal": ""}
        item = {"type": "message", "role": "assistant", "content": [part]}
        name, field = ("refusal", "refusal") if kind == "refusal" else ("output_text", "text")
        return self._open(key, item, name, part, field=field, inner={"content_index": 0}, border="content_part")

    def _open_call(self, key: Key, kind: Literal["function", "custom"], name: str) -> None:
        type_, field = ITEM_OF[kind]
        item = {"type": type_, "call_id": key.id, "name": name, field: ""}
        self._open(key, item, f"{type_}_arguments" if kind == "function" else f"{type_}_input", item, field=field)

    def _more(self, grown: _Growing, text: str) -> None:
        if grown.field in grown.holder:
            grown.holder[grown.field] += text
        if grown.name:
            self._emit(f"response.{grown.name}.delta", **grown.at, delta=text, **grown.more)

    def _close(self, grown: _Growing | None) -> None:
        if grown is None:
            return
        if grown.holder:
            self._emit(
                f"response.{grown.name}.done", **grown.at, **{grown.field: grown.holder[grown.field]}, **grown.more
            )
        if grown.border:
            self._emit(f"response.{grown.border}.done", **grown.at, part=grown.holder)
        grown.closed = True
        self._emit("response.output_item.done", output_index=grown.number, item=grown.shown("completed"))

    # The end: errors, then the response that restates everything.

    def _end(self, deltas: Sequence[Delta]) -> None:
        finish = next((delta for delta in deltas if isinstance(delta, Finish)), None)
        type_ = terminal(finish) if finish else "response.in_progress"
        errors = [delta for delta in deltas if isinstance(delta, StreamError)]
        if type_ == "response.failed" and errors and not errors[-1].type.startswith("wire:"):
            self._response["error"] = error_value(errors.pop())
        for error in errors:
            self._write_error(error)
        usage = [delta for delta in deltas if isinstance(delta, UsageUpdate)]
        if usage:
            self._response["usage"] = write_usage(usage[-1], USAGE)
        if finish:
            self._response["status"] = finish.reason
            self._response["incomplete_details"] = {"reason": finish.detail} if finish.detail else None
            self._response["output"] = [
                grown.shown("completed" if grown.closed else "incomplete") for grown in self._items.values()
            ]
        if finish or usage:
            self._emit(type_, response=self._response)
        if not finish and any(isinstance(delta, End) for delta in deltas):
            self._frames.append(sse.encode("[DONE]"))

    def _write_error(self, error: StreamError) -> None:
        if error.type.startswith("wire:"):
            self._frames += write_damage(error, "sse")
        else:
            self._frames.append(sse.encode(jsontext.dump({"sequence_number": 0, **error_event(error)}), "error"))

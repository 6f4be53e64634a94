"""How OpenAI Responses say what deltas mean, in the manner of an event that was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    Reply,
    Start,
    StreamError,
    Text,
    ToolCallStart,
    Unknown,
    UsageUpdate,
    Whole,
    key_of,
)
from .base import as_dict, as_list, as_text, payload_of, write_damage, write_usage
from .openai_responses_reading import CALLS, LIFECYCLE, SAID, TERMINAL, USAGE, read_item, thought_of

ITEM_OF: Mapping[str, tuple[str, str]] = {kind: (type_, field) for type_, (kind, field) in CALLS.items()}
_ITEM_EVENTS = ("response.output_item.added", "response.output_item.done")
_PARTS = ("content_part", "reasoning_part", "reasoning_summary_part")
_PART_EVENTS = tuple(f"response.{name}.{step}" for name in _PARTS for step in ("added", "done"))
# What of an item or a response is written anew; everything else is lent.
_ITEM_FIELDS = ("call_id", "name", "arguments", "input", "content", "summary", "encrypted_content")
_RESPONSE_FIELDS = ("status", "output", "usage", "error", "incomplete_details")


def _without(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


def _ordered(new: dict[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    return {name: new[name] for name in like if name in new} | new


def _place(key: Key) -> dict[str, Any]:
    """The numbers of an event within an item; one that the wire did not send stays away."""
    outer = {"item_id": key.id, "output_index": key.index}
    said = {name: value for name, value in outer.items() if value is not None}
    match key.within:
        case (0, number):
            return {**said, "summary_index": number}
        case (number,) | (_, number):
            return {**said, "content_index": number}
        case _:
            return said


def terminal(finish: Finish) -> str:
    """The event that ends a stream so."""
    match Reply(finish_reason=finish.reason, finish_detail=finish.detail).stop:
        case "length" | "content_filter":
            return "response.incomplete"
        case "error":
            return "response.failed"
        case _:
            return "response.cancelled" if finish.reason == "cancelled" else "response.completed"


def error_value(error: StreamError) -> Any:
    if error.payload is not None:
        return error.payload
    return (
        None if error.type == "failed" else {"code": error.type, "message": error.message}
    )  # the event itself says that much


def error_event(error: StreamError) -> dict[str, Any]:
    if as_dict(error.payload).get("type") == "error":
        return dict(error.payload)  # one whose fields stand in the event itself
    nested = {"type": error.type, "message": error.message} if error.payload is None else error.payload
    return {"type": "error", "error": nested}


def _key(delta: Delta) -> Key:
    """The key of a delta that stands in an item or a part, where each has one."""
    key = key_of(delta)
    assert key is not None
    return key


class Packer:
    """Writes deltas in the manner of one event: those that it can say in their order share one, any other has an event of its own."""

    def __init__(self, like: Frame) -> None:
        self._like = like
        self._lent = as_dict(payload_of(like))
        self._type = as_text(self._lent.get("type")) or (like.event if like.event != "message" else "")
        self._frames: list[Frame] = []
        self._group: list[Delta] = []
        self._makes = ""  # the kind of event that the group makes

    def frames(self, deltas: Sequence[Delta]) -> list[Frame]:
        for delta in deltas:
            makes = self._kind(delta)
            if not (self._group and makes == self._makes and self._joins(delta)):
                self._flush()
            self._group.append(delta)
            self._makes = makes
            if not makes:
                self._flush()
        self._flush()
        return self._frames

    def _kind(self, delta: Delta) -> str:
        """What event says `delta` together with others; empty where it has one of its own."""
        match delta:
            case Start() | UsageUpdate() | Finish() | End():
                return "response"
            case StreamError():
                return "response" if self._type == "response.failed" else ""
        key = key_of(delta)
        if key is not None and key.listed == "output":
            return "response"
        match delta:
            case ToolCallStart() | PartEnd():
                return "item"
            case Opaque(_, _, {"type": str(type_)}) if type_.startswith("response."):
                return ""
            case PartStart(_, kind):
                return "part" if kind in ("text", "refusal") else "item"
            case Whole() | Opaque() if key and key.listed:
                return "item"
            case Whole() | Opaque(whole=True) if self._type in _ITEM_EVENTS:
                return "item"
            case Whole() | Opaque() if self._type in _PART_EVENTS:
                return "part"
            case _:
                return ""

    def _joins(self, delta: Delta) -> bool:
        """Is there room for `delta` in the event that the group makes?"""
        if isinstance(delta, Start | UsageUpdate | Finish | End | StreamError):
            order = (Start, StreamError, UsageUpdate, Finish, End)
            last = self._group[-1]
            return not isinstance(last, order) or order.index(type(delta)) > order.index(type(last))
        if self._makes == "response":
            return not isinstance(self._group[-1], StreamError | UsageUpdate | Finish | End)
        return _key(self._group[0]).index == _key(delta).index and not isinstance(delta, ToolCallStart | PartStart)

    def _flush(self) -> None:
        group, self._group = self._group, []
        if not group:
            return
        match self._makes:
            case "response":
                self._write_response(group)
            case "item":
                self._write_item(group)
            case "part":
                self._write_part(group)
            case _:
                self._write(group[0])

    def _emit(self, type_: str, **fields: Any) -> None:
        lent = self._lent if self._type == type_ else {}
        number = {"sequence_number": 0} if "sequence_number" in self._lent else {}
        event = type_ if self._like.event != "message" and type_.isprintable() else "message"
        payload = _ordered({"type": type_, **number, **lent, **fields}, lent)
        self._frames.append(sse.encode(jsontext.dump(payload), event, self._like))

    def _write(self, delta: Delta) -> None:
        match delta:
            case Text(key, text) | Refusal(key, text) | Reasoning(key, text) | Arguments(key, text):
                self._emit(f"response.{self._name(delta, 'delta')}.delta", **_place(key), delta=text)
            case Whole(key, _, value):
                name = self._name(delta, "done")
                self._emit(f"response.{name}.done", **_place(key), **{SAID[name].field: value})
            case Opaque(_, _, {"type": str(type_)} as event) if type_.startswith("response."):
                self._emit(**{"type_": type_, **_without(event, ("type",))})
            case Opaque(key, _, note):
                self._emit("response.output_text.annotation.added", **_place(key), annotation=note)
            case StreamError(type_) if type_.startswith("wire:"):
                self._frames += write_damage(delta, "sse", self._like)
            case StreamError():
                self._frames.append(self._error(delta))
            case Keepalive() if self._type in ("keepalive", "ping"):
                self._frames.append(self._like)
            case Keepalive():
                self._frames.append(Frame(b": keepalive\n\n"))
            case Unknown(event, payload):
                self._frames.append(sse.encode(jsontext.dump(payload), event, self._like))
            case _:
                pass  # a piece of a signature: here it is said as a whole

    def _name(self, delta: Delta, step: str) -> str:
        """The name of the events that say `delta`: that of the one that lends, if it says the like."""
        lent = self._type.removeprefix("response.").removesuffix(f".{step}")
        kind = delta.kind if isinstance(delta, Whole) else type(delta)
        names = [name for name, said in SAID.items() if kind in (said.delta, said.kind)]
        if isinstance(delta, Reasoning | Whole) and kind in (Reasoning, "reasoning"):
            names = ["reasoning_text" if (delta.key.within or (0,))[0] else "reasoning_summary_text"]
        return lent if lent in names else names[0]

    def _error(self, error: StreamError) -> Frame:
        event = self._lent if self._lent == error.payload else error_event(error)
        return sse.encode(jsontext.dump(event), "error" if self._like.event != "message" else "message", self._like)

    def _write_part(self, group: list[Delta]) -> None:
        type_ = self._type if self._type in _PART_EVENTS else "response.content_part.added"
        key = _key(group[0])
        lent = as_dict(self._lent.get("part"))
        if type_.startswith("response.content_part") and not (key.within and len(key.within) > 1):
            part = _content(group, [lent])[0]
        else:
            text = next((delta.value for delta in group if isinstance(delta, Whole)), "")
            part = {"type": "summary_text" if "summary" in type_ else "reasoning_text", **lent, "text": text}
        self._emit(type_, **_place(key), part=part)

    def _write_item(self, group: list[Delta]) -> None:
        key = _key(group[0])
        opens = isinstance(group[0], ToolCallStart | PartStart) and not key.listed
        type_ = self._type if self._type in _ITEM_EVENTS else _ITEM_EVENTS[0 if opens else 1]
        index = {"output_index": key.index} if key.index is not None else {}
        self._emit(type_, **index, item=_item(group, as_dict(self._lent.get("item")), ends=type_ == _ITEM_EVENTS[1]))

    def _write_response(self, group: list[Delta]) -> None:
        by_type = {type(delta): delta for delta in group}
        start, finish = by_type.get(Start), by_type.get(Finish)
        usage, error = by_type.get(UsageUpdate), by_type.get(StreamError)
        if set(by_type) == {End}:
            self._frames.append(sse.encode("[DONE]", like=self._like))
            return
        lent = as_dict(self._lent.get("response")) or (self._lent if self._lent.get("object") == "response" else {})
        type_ = self._type if self._type in LIFECYCLE else "response.in_progress"
        if isinstance(finish, Finish):
            same = self._type in TERMINAL and lent.get("status", finish.reason) == finish.reason
            type_ = self._type if same else terminal(finish)
        response = _without(lent, _RESPONSE_FIELDS)
        if isinstance(start, Start):
            response |= {name: value for name, value in (("id", start.id), ("model", start.model)) if value}
        response["status"] = finish.reason if isinstance(finish, Finish) else "in_progress"
        response["output"] = _output(group, as_list(lent.get("output")), ends=finish is not None)
        response["error"] = error_value(error) if isinstance(error, StreamError) else None
        detail = finish.detail if isinstance(finish, Finish) else None
        response["incomplete_details"] = {"reason": detail} if detail else None
        response["usage"] = write_usage(usage, USAGE) if isinstance(usage, UsageUpdate) else None
        self._emit(type_, response=_ordered(response, lent))
        if End in by_type and finish is None:
            self._frames.append(sse.encode("[DONE]", like=self._like))


def _output(group: Sequence[Delta], lent: Sequence[Any], ends: bool) -> list[Any]:
    """The items that `group` restates. What of the lent list says nothing stays where it is."""
    said: dict[int, list[Delta]] = {}
    for delta in group:
        if (key := key_of(delta)) and key.listed:
            said.setdefault(key.index or 0, []).append(delta)
    out = []
    last = max(said, default=-1)
    for at in range(max(last + 1, len(lent))):
        given = lent[at] if at < len(lent) else {}
        if at in said:
            out.append(_item(said[at], as_dict(given), ends=ends))
        elif not read_item(given, Key(index=at, within=()), ends=ends):
            out.append(given)
        elif at < last:
            out.append(_emptied(as_dict(given)))
    return out


def _emptied(item: dict[str, Any]) -> dict[str, Any]:
    """The item without what it says, so that those after it keep their positions."""
    empty: dict[str, dict[str, Any]] = {"message": {"content": []}, "reasoning": {"summary": []}}
    return {**_without(item, _ITEM_FIELDS), **empty.get(as_text(item.get("type")), {"status": "incomplete"})}


def _item(group: Sequence[Delta], lent: dict[str, Any], *, ends: bool) -> dict[str, Any]:
    """The item that `group` says, with everything that was lent and is not interpreted."""
    item = _without(lent, _ITEM_FIELDS)
    content: list[Delta] = []
    for delta in group:
        match delta:
            case ToolCallStart(key, kind, name):
                type_, field = ITEM_OF[kind]
                item |= {"type": type_, "call_id": key.id, "name": name, field: ""}
            case Whole(_, "arguments", value):
                item["input" if item.get("type") == "custom_tool_call" else "arguments"] = value
            case Whole(_, "signature", value):
                item["encrypted_content"] = value
            case PartStart(_, "reasoning"):
                item |= {"type": "reasoning", "summary": []}
            case Whole(_, "reasoning", value):
                item |= {"type": "reasoning", "summary": [{"type": "summary_text", "text": value}]}
                if thought_of(lent) == value:
                    item |= {"summary": [], **{name: lent[name] for name in ("summary", "content") if name in lent}}
            case Opaque(Key(within=()), _, dict(payload)):
                return payload
            case Whole() | Opaque():
                content.append(delta)
            case _:
                pass
    if content:
        item |= {} if lent else {"type": "message", "role": "assistant"}
        item["content"] = _content(content, as_list(lent.get("content")))
    if item.get("type") in CALLS:
        closed, status = any(isinstance(delta, PartEnd) for delta in group), item.get("status", "")
        if closed != (status != "incomplete" if ends else status == "completed"):
            item["status"] = "completed" if closed else "incomplete" if ends else "in_progress"
    return _ordered(item, lent)


def _content(group: Sequence[Delta], lent: Sequence[Any]) -> list[dict[str, Any]]:
    """The content parts that `group` says, each with what was lent by the part at its position."""
    parts: dict[int, dict[str, Any]] = {}
    for delta in group:
        at = (_key(delta).within or (0,))[0]
        given = as_dict(lent[at]) if 0 <= at < len(lent) else as_dict(lent[0]) if len(lent) == 1 else {}
        match delta:
            case PartStart(_, kind) | Whole(_, kind):
                value = delta.value if isinstance(delta, Whole) else ""
                type_, field = ("refusal", "refusal") if kind == "refusal" else ("output_text", "text")
                parts[at] = {**_without(given, ("annotations",)), "type": type_, field: value}
                if "annotations" in given:
                    parts[at] = _ordered({**parts[at], "annotations": []}, given)
            case Opaque(_, "annotation", note):
                parts.setdefault(at, {"type": "output_text"}).setdefault("annotations", []).append(note)
            case Opaque(_, _, dict(payload)):
                parts[at] = payload
            case _:
                pass
    return [parts[at] for at in sorted(parts)]

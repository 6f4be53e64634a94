"""How Ollama, its versions and its look-alikes spell their lines otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import jsontext
from ..model import Frame
from .base import Spelling, as_dict, as_list, framing_of
from .spelling import ESCAPES, Payload, Rewrite, each, on_payloads


def _message(payload: Payload) -> Payload:
    return as_dict(payload.get("message"))


def _each_message(change: Callable[[Payload], Any]) -> Rewrite:
    return each(lambda payload: change(_message(payload)) if _message(payload) else None)


def _each_call(change: Callable[[int, Payload], None]) -> Rewrite:
    """Alters the function of every call; the number counts the calls of its line."""

    def all_of_them(payload: Payload) -> None:
        for number, call in enumerate(as_list(_message(payload).get("tool_calls"))):
            change(number, as_dict(as_dict(call).get("function")))

    return each(all_of_them)


def _as_text(_: int, function: Payload) -> None:
    if isinstance(function.get("arguments"), dict):
        function["arguments"] = jsontext.dump(function["arguments"])


def _numbered(number: int, function: Payload) -> None:
    if function:
        function.setdefault("index", number)


def _one_call_a_line(payloads: list[Payload]) -> list[list[Payload]]:
    out: list[list[Payload]] = []
    for payload in payloads:
        *first, _ = as_list(_message(payload).get("tool_calls")) or [None]
        alone = set(_message(payload)) <= {"role", "content", "tool_calls"} and not _message(payload).get("content")
        torn = first if alone and not payload.get("done") else []
        out.append([{**payload, "message": {**_message(payload), "tool_calls": [call]}} for call in torn])
        if torn:
            _message(payload)["tool_calls"] = _message(payload)["tool_calls"][-1:]
        out[-1].append(payload)
    return out


def _done_with_last(payloads: list[Payload]) -> list[list[Payload]]:
    """The last piece of text in the line that ends the reply."""
    if len(payloads) < 2 or not payloads[-1].get("done"):
        return [[payload] for payload in payloads]
    before, last = payloads[-2], payloads[-1]
    name = "message" if _message(before) else "response"
    empty = last.get("response") in (None, "") and not any(
        _message(last).get(each) for each in ("content", "thinking", "tool_calls")
    )
    if not before.get(name) or before.get("done") or not empty or set(before) - set(last):
        return [[payload] for payload in payloads]
    last[name] = before[name]
    return [*([payload] for payload in payloads[:-2]), [], [last]]


def _done_apart(payloads: list[Payload]) -> list[list[Payload]]:
    """The line that ends the reply says nothing else."""
    out = [[payload] for payload in payloads]
    last: Payload = payloads[-1] if payloads else {}
    name = "message" if _message(last) else "response"
    if not last.get("done") or not last.get(name) or not _says_something(last[name]):
        return out
    kept: Payload = {field: last[field] for field in ("model", "created_at") if field in last}
    first = {**kept, name: last[name], "done": False}
    last[name] = {"role": "assistant", "content": ""} if name == "message" else ""
    out[-1].insert(0, first)
    return out


def _says_something(said: Any) -> bool:
    return any(value for name, value in said.items() if name != "role") if isinstance(said, dict) else bool(said)


def _blank_lines(frames: Sequence[Frame]) -> list[list[Frame]]:
    lines = [
        frame.data is not None and frame.raw.endswith(b"\n") and framing_of(frame, "jsonlines") == "jsonlines"
        for frame in frames
    ]
    return [
        [frame, Frame(b"\n")] if line and at + 1 < len(frames) else [frame]
        for at, (frame, line) in enumerate(zip(frames, lines, strict=True))
    ]


def _no_last_line_end(frames: Sequence[Frame]) -> list[list[Frame]]:
    last = [frame._replace(raw=frame.raw.rstrip(b"\r\n")) if frame.data else frame for frame in frames[-1:]]
    return [[frame] for frame in (*frames[:-1], *last)]


QUIRKS: Mapping[str, Spelling] = {
    "ascii-escapes": ESCAPES,
    "arguments-text": Spelling(
        "look-alikes send arguments as JSON text, as OpenAI does; readers take the text for the object",
        _each_call(_as_text),
    ),
    "index-in-function": Spelling(
        "newer versions number calls within `function`; strict models refuse it", _each_call(_numbered)
    ),
    "one-call-a-line": Spelling(
        "newer versions stream parallel calls in lines of their own; the last write wins", on_payloads(_one_call_a_line)
    ),
    "done-with-last-text": Spelling(
        "look-alikes end with the last text in the line that is done; readers stop before they read it",
        on_payloads(_done_with_last),
    ),
    "done-line-apart": Spelling(
        "Ollama ends with a line that says nothing; readers take it for an empty answer", on_payloads(_done_apart)
    ),
    "content-missing": Spelling(
        "look-alikes leave out `content` beside calls and thoughts; KeyError",
        _each_message(lambda message: message.pop("content", None) if message.get("content") == "" else None),
    ),
    "empty-fields": Spelling(
        "look-alikes send empty thoughts and calls on every line; readers open a part for each",
        _each_message(lambda message: (message.setdefault("thinking", ""), message.setdefault("tool_calls", []))),
    ),
    "done-reason-missing": Spelling(
        "older versions end with `done` and no reason; KeyError",
        each(lambda payload: payload.pop("done_reason", None) if payload.get("done") else None),
        other_finish=True,
    ),
    "blank-lines": Spelling("proxies send blank lines as a heartbeat; parsed as JSON they raise", _blank_lines),
    "last-line-open": Spelling(
        "look-alikes end without a line end; readers that wait for one lose the last line", _no_last_line_end
    ),
}

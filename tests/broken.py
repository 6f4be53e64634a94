"""Assemblers with one fault each, as they are found in the wild, and a correct one; all take reads of OpenAI chat chunks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stream_cassette import assemble


class Loop:
    """A careful reader of OpenAI chat streams; each subclass gets one thing wrong."""

    def __call__(self, reads: Iterable[bytes]) -> dict[str, Any]:
        self.text = ""
        self.calls: dict[Any, dict[str, Any]] = {}
        self.usage: dict[str, Any] | None = None
        self.finish: str | None = None
        self.released: list[dict[str, Any]] = []
        self.ended = self.failed = False
        for event in self.events(reads):
            self.event(event)
        return self.result()

    def result(self) -> dict[str, Any]:
        complete = self.complete()
        calls = [{"name": call["name"], "arguments": call["arguments"]} for call in self.order()]
        whole = [call for call in calls if complete and self.is_object(call["arguments"])]
        return {
            "text": self.text,
            "tool_calls": whole,
            "finish_reason": self.finish,
            "usage": self.usage,
            "complete": complete,
        }

    def order(self) -> list[dict[str, Any]]:
        return list(self.calls.values())

    def complete(self) -> bool:
        return (self.finish is not None or self.ended) and not self.failed

    @staticmethod
    def is_object(text: str) -> bool:
        try:
            return isinstance(json.loads(text or "{}"), dict)
        except ValueError:
            return False

    def events(self, reads: Iterable[bytes]) -> Iterator[str]:
        from stream_cassette.framing import sse

        decoder = sse.Decoder()
        frames = [frame for data in reads for frame in decoder.feed(data)]
        yield from (frame.data for frame in [*frames, *decoder.close()] if frame.data)

    def event(self, data: str) -> None:
        if data.startswith(":"):
            return
        if data in ("[DONE]", "DONE"):
            self.ended = True
            return
        if self.ended:
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            self.failed = True
            return
        if not isinstance(chunk, dict):
            return
        self.failed = self.failed or bool(chunk.get("error"))
        self.count(chunk)
        for choice in self.choices(chunk):
            self.choice(choice)

    def choices(self, chunk: dict[str, Any]) -> list[dict[str, Any]]:
        return [choice for choice in chunk.get("choices") or [] if choice.get("index", 0) == 0]

    def choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or {}
        if delta.get("content"):
            self.append_text(delta["content"])
        for entry in delta.get("tool_calls") or []:
            self.entry(entry)
        self.finish = self.finish or choice.get("finish_reason") or None

    def append_text(self, text: str) -> None:
        self.text += text

    def entry(self, entry: dict[str, Any]) -> None:
        function = entry.get("function") or {}
        call = self.calls.setdefault(self.key(entry), {"name": "", "arguments": ""})
        if function.get("name") and not call["name"]:
            call["name"] = function["name"]
        if function.get("arguments"):
            self.append_arguments(call, function["arguments"])

    def key(self, entry: dict[str, Any]) -> Any:
        return entry.get("index")

    def append_arguments(self, call: dict[str, Any], text: str) -> None:
        call["arguments"] += text

    def count(self, chunk: dict[str, Any]) -> None:
        self.usage = chunk.get("usage") or self.usage


class ReplacesText(Loop):
    """Each fragment replaces what was there."""

    def append_text(self, text: str) -> None:
        self.text = text


class ParsesFragmentsAlone(Loop):
    """Every argument fragment is parsed as if it were all."""

    def append_arguments(self, call: dict[str, Any], text: str) -> None:
        call["arguments"] = json.dumps({**json.loads(call["arguments"] or "{}"), **json.loads(text)})


class OneBuffer(Loop):
    """All arguments go to the call that was opened last."""

    def entry(self, entry: dict[str, Any]) -> None:
        if not (entry.get("function") or {}).get("name"):
            entry = {**entry, "index": next(reversed(self.calls))}
        super().entry(entry)


class FirstChoiceAlways(Loop):
    """`choices[0]` on every chunk."""

    def choices(self, chunk: dict[str, Any]) -> list[dict[str, Any]]:
        return [chunk["choices"][0]]


class DoneWhenBytesEnd(Loop):
    """A stream that merely stops is taken for whole."""

    def complete(self) -> bool:
        return True


class SumsUsage(Loop):
    """Usage is added up over chunks."""

    def count(self, chunk: dict[str, Any]) -> None:
        for name, count in (chunk.get("usage") or {}).items():
            if isinstance(count, int):
                self.usage = {**(self.usage or {}), name: (self.usage or {}).get(name, 0) + count}


class SplitsLines(Loop):
    """Lines by `splitlines`, one read at a time."""

    def events(self, reads: Iterable[bytes]) -> Iterator[str]:
        text = b"".join(reads).decode("utf-8", "replace")
        yield from (
            line.removeprefix("data:").strip()
            for line in text.splitlines()
            if line.startswith("data:") and line[5:].strip()
        )


class DecodesPerRead(Loop):
    """UTF-8 is decoded read by read."""

    def events(self, reads: Iterable[bytes]) -> Iterator[str]:
        return super().events(data.decode("utf-8", "replace").encode() for data in reads)


class ReleasesAtBrace(Loop):
    """A call is released as soon as its text ends in a closing brace."""

    def append_arguments(self, call: dict[str, Any], text: str) -> None:
        call["arguments"] += text
        if call["arguments"].endswith("}") and call not in self.released:
            self.released.append(call)

    def result(self) -> dict[str, Any]:
        return super().result() | {"tool_calls": [dict(call) for call in self.released]}


class OrdersByLastFragment(Loop):
    """Calls are ordered by the arrival of their last fragment."""

    def append_arguments(self, call: dict[str, Any], text: str) -> None:
        super().append_arguments(call, text)
        key = next(key for key, each in self.calls.items() if each is call)
        self.calls[key] = self.calls.pop(key)


BROKEN: dict[str, Callable[[Iterable[bytes]], Any]] = {
    kind.__name__: kind()
    for kind in (
        ReplacesText,
        ParsesFragmentsAlone,
        OneBuffer,
        FirstChoiceAlways,
        DoneWhenBytesEnd,
        SumsUsage,
        SplitsLines,
        DecodesPerRead,
        ReleasesAtBrace,
        OrdersByLastFragment,
    )
}

CORRECT = assemble

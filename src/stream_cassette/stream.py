"""A recorded stream and everything that derives from it; and the stream that says a given reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .assembler import Assembler
from .dialects import dialect as named
from .dialects.base import Dialect
from .errors import CannotSay
from .framing import frames
from .model import USAGE_COUNTS, Delta, Exchange, Frame, Read, Reply, Request, ToolCall
from .unfold import unfold


@dataclass(frozen=True)
class Stream:
    """An exchange whose body is a streamed reply. `dialect` is a name of the table, or None to recognise it.

    Everything else derives from the exchange, once: `body` (bytes), `frames`, `payloads` (the JSON values an SDK user would see), `deltas` and
    `reply`. The last three raise `UnknownDialect` where the body is no stream that is known.
    """

    exchange: Exchange
    dialect: str | None = None

    @cached_property
    def body(self) -> bytes:
        return self.exchange.body

    @cached_property
    def frames(self) -> tuple[Frame, ...]:
        return tuple(frames(self.body))

    @cached_property
    def payloads(self) -> tuple[Any, ...]:
        dialect = self._dialect
        found = [dialect.payload(frame) for frame in self.frames] if dialect else []
        return tuple(payload for payload in found if payload is not None)

    @cached_property
    def deltas(self) -> tuple[Delta, ...]:
        dialect = self._dialect
        return tuple(delta for said in self.deltas_by_frame for delta in said)

    @cached_property
    def deltas_by_frame(self) -> tuple[tuple[Delta, ...], ...]:
        """What each of `frames` says."""
        dialect = self._dialect
        return tuple(tuple(dialect.read(frame)) if dialect else () for frame in self.frames)

    @property
    def reply(self) -> Reply:
        return self._assembled[1]

    @property
    def spoken(self) -> str | None:
        """The name of the dialect: the one given, else the one recognised; None for a body that says nothing."""
        return self._assembled[0]

    @property
    def _dialect(self) -> Dialect | None:
        return named(self.spoken) if self.spoken else None

    @cached_property
    def _assembled(self) -> tuple[str | None, Reply]:
        assembler = Assembler(
            self.dialect, content_type=self.exchange.header("content-type"), url=self.exchange.request.url
        )
        for read in self.exchange.reads:  # not `frames`, which would keep a long body a second and third time
            assembler.feed_bytes(read.data)
        assembler.close()
        return assembler.dialect, assembler.result()


_NOWHERE = Request("POST", "https://synthesized.invalid/")
_CONTENT_TYPES = {
    "sse": "text/event-stream",
    "eventstream": "application/vnd.amazon.eventstream",
    "jsonlines": "application/x-ndjson",
}


def synthesize(reply: Reply, dialect: str, *, request: Request = _NOWHERE, lossy: bool = False) -> Stream:
    """A valid stream in `dialect` that assembles to `reply`, one frame a read, all at 0 ms, as the answer to `request`.

    `CannotSay` lists what the dialect has no words for, unless `lossy` leaves it out.
    """
    speaker = named(dialect)
    if (losses := speaker.losses(reply)) and not lossy:
        raise CannotSay(
            f"{dialect} cannot say {', '.join(losses)}",
            mend="synthesize(..., lossy=True) leaves them out, or choose another dialect",
        )
    written = speaker.finish(speaker.write(unfold(reply, speaker.numbers)))
    reads = tuple(Read(0, frame.raw) for frame in written)
    return Stream(Exchange(request, 200, (("content-type", _CONTENT_TYPES[speaker.framing]),), reads), dialect)


def assembled(reply: Reply) -> dict[str, Any]:
    """What a cassette keeps of a reply, as plain values: only what was said."""
    said: Mapping[str, Any] = {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "refusal": reply.refusal,
        "tool_calls": [_call(call) for call in reply.tool_calls],
        "incomplete_tool_calls": [_call(call) for call in reply.incomplete_tool_calls],
        "finish_reason": reply.finish_reason,
        "finish_detail": reply.finish_detail,
        "usage": {
            name: getattr(reply.usage, name) for name in USAGE_COUNTS if getattr(reply.usage, name, None) is not None
        },
        "errors": [{"type": error.type, "message": error.message} for error in reply.errors],
        "complete": None if reply.complete else False,
    }
    return {name: value for name, value in said.items() if value not in (None, "", [], {})}


def _call(call: ToolCall) -> dict[str, Any]:
    said = {
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "arguments_text": call.arguments_text,
        "problem": call.problem,
    }
    if call.arguments is not None:
        del said["arguments_text"]
    return {name: value for name, value in said.items() if value is not None}

"""A recorded stream and everything that derives from it; and the stream that says a given reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from .assembler import Assembler
from .dialects import dialect as named
from .dialects.base import Dialect
from .errors import CannotSay
from .fold import Fold
from .framing import frames
from .lanes import Lane, Lanes, resolve
from .model import (
    USAGE_COUNTS,
    Arguments,
    ArgumentsAt,
    Delta,
    Exchange,
    Frame,
    Read,
    Reasoning,
    Refusal,
    Reply,
    Request,
    Stop,
    Text,
    ToolCall,
    Whole,
)
from .unfold import Cut, unfold

_AT_ONCE = 65536  # bytes

# What of a stream is the same in whatever reads its bytes come, and cannot be changed by who has it.
_OF_THE_BYTES = frozenset({"body", "frames", "deltas", "deltas_by_frame", "lanes_by_frame"})


@dataclass(frozen=True)
class Stream:
    """An exchange whose body is a streamed reply. `dialect` is a name of the table, or None to recognise it.

    Everything else derives from the exchange, once: `body` (bytes), `frames`, `payloads` (the JSON values an SDK user would see), `deltas` and
    `reply`; and when it came: `times`, `first_token_ms` and `gaps_ms`. All but `body`, `frames` and `times` raise `UnknownDialect` where the body is
    no stream that is known.
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
        return tuple(delta for said in self.deltas_by_frame for delta in said)

    @cached_property
    def deltas_by_frame(self) -> tuple[tuple[Delta, ...], ...]:
        """What each of `frames` says."""
        dialect = self._dialect
        return tuple(tuple(dialect.read(frame)) if dialect else () for frame in self.frames)

    @cached_property
    def lanes_by_frame(self) -> tuple[tuple[Lane | None, ...], ...]:
        """The lane of each of `deltas_by_frame`."""
        lanes = Lanes()
        return tuple(tuple(map(lanes.of, said)) for said in self.deltas_by_frame)

    @cached_property
    def times(self) -> tuple[int, ...]:
        """When each of `frames` was complete: that of the read that brought its last byte, in whole milliseconds after the response headers."""
        found: list[int] = []
        reads = iter(self.exchange.reads)
        came = at_ms = 0
        for end in accumulate(len(frame.raw) for frame in self.frames):
            while came < end:
                read = next(reads)
                came, at_ms = came + len(read.data), read.at_ms
            found.append(at_ms)
        return tuple(found)

    @property
    def first_token_ms(self) -> int | None:
        """When the first text, reasoning, refusal or arguments had come, in milliseconds after the response headers; None if none came."""
        return self._tokens_ms[0] if self._tokens_ms else None

    @property
    def gaps_ms(self) -> tuple[int, ...]:
        """The milliseconds between one piece of content and the next, one fewer than there are pieces; 0 where they came in one read.

        A restatement of what was streamed is no piece.
        """
        return tuple(later - earlier for earlier, later in pairwise(self._tokens_ms))

    @cached_property
    def _tokens_ms(self) -> tuple[int, ...]:
        came = [at_ms for at_ms, said in zip(self.times, self.deltas_by_frame, strict=True) for _ in said]
        begun: set[Lane | None] = set()
        found: list[int] = []
        for at_ms, delta, lane in zip(came, self.deltas, resolve(self.deltas), strict=True):
            if _is_content(delta) and not (isinstance(delta, Whole) and lane in begun):
                begun.add(lane)
                found.append(at_ms)
        return tuple(found)

    @property
    def reply(self) -> Reply:
        return self._assembled[1]

    @property
    def spoken(self) -> str | None:
        """The name of the dialect: the one given, else the one recognised; None for a body that says nothing."""
        return named(self.dialect).name if self.dialect is not None else self._assembled[0]

    @property
    def _dialect(self) -> Dialect | None:
        return named(self.spoken) if self.spoken else None

    def in_reads(self, reads: tuple[Read, ...]) -> Stream:
        """The same bytes in other reads. What is known of the bytes by now is not found out again."""
        other = Stream(replace(self.exchange, reads=reads), self.spoken)
        vars(other).update((name, known) for name, known in vars(self).items() if name in _OF_THE_BYTES)
        return other

    @cached_property
    def _assembled(self) -> tuple[str | None, Reply]:
        assembler = Assembler(
            self.dialect, content_type=self.exchange.header("content-type"), url=self.exchange.request.url
        )
        for data in _joined(self.exchange.reads):  # not `frames`, which would keep a long body a second and third time
            assembler.feed_bytes(data)
        assembler.close()
        return assembler.dialect, assembler.result()


def _joined(reads: Iterable[Read]) -> Iterator[bytes]:
    """The same bytes in larger pieces, which are quicker to assemble."""
    waiting: list[bytes] = []
    size = 0
    for read in reads:
        waiting.append(read.data)
        size += len(read.data)
        if size >= _AT_ONCE:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


def _is_content(delta: Delta) -> bool:
    match delta:
        case Text(_, text) | Reasoning(_, text) | Refusal(_, text) | Arguments(_, text):
            return bool(text)
        case Whole(_, kind, value):
            return bool(value) and kind != "signature"
        case ArgumentsAt():
            return True
        case _:
            return False


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
    if not lossy:
        _refuse("synthesize", dialect, speaker.losses(reply))
    return _streamed(speaker, unfold(reply, speaker.numbers), request)


def _refuse(call: str, dialect: str, losses: Sequence[str]) -> None:
    if losses:
        raise CannotSay(
            f"{dialect} cannot say {', '.join(losses)}",
            mend=f"{call}(..., lossy=True) leaves them out, or choose another dialect",
        )


def _streamed(speaker: Dialect, deltas: Sequence[Delta], request: Request) -> Stream:
    reads = tuple(Read(0, frame.raw) for frame in speaker.finish(speaker.write(deltas)))
    return Stream(Exchange(request, 200, (("content-type", _CONTENT_TYPES[speaker.framing]),), reads), speaker.name)


def transcode(
    source: Stream | bytes | Iterable[bytes], dialect: str, *, request: Request = _NOWHERE, lossy: bool = False
) -> Stream:
    """What `source` (a stream, a body, or its reads) says, written in `dialect`, as the answer to `request`: one event a read, all at 0 ms.

    Texts and arguments come in the pieces in which they came, where the dialect sends pieces; parts one after the other. The finish reason is the
    dialect's own word for the same (`tool_calls`, `tool_use`, `STOP` ...). `CannotSay` lists what it has no words for, unless `lossy` leaves that out;
    then a finish reason without a word becomes the nearest one, or stays as it is.
    """
    if not isinstance(source, Stream):
        reads = (source,) if isinstance(source, bytes) else source
        source = Stream(Exchange(_NOWHERE, 200, (), tuple(Read(0, bytes(data)) for data in reads if data)))
    speaker = named(dialect)
    reply, unsaid = source.reply, []
    if source.spoken != speaker.name:
        strange = [each for each in (reply, *reply.choices) if each.stop not in (None, *speaker.words)]
        unsaid = [f"the finish reason {each.finish_reason!r}" for each in strange]
        choices = tuple(_in_words_of(speaker, choice) for choice in reply.choices)
        reply = replace(_in_words_of(speaker, reply), choices=choices)
    if not lossy:
        _refuse("transcode", dialect, (*dict.fromkeys(unsaid), *speaker.losses(reply)))
    return _streamed(speaker, unfold(reply, speaker.numbers, _cut_as(source, speaker)), request)


# What comes nearest where a wire has no word for why a reply ended.
_NEAREST: Mapping[str, Stop] = {"tool_calls": "stop", "refusal": "content_filter", "content_filter": "refusal"}


def _in_words_of(speaker: Dialect, reply: Reply) -> Reply:
    """Without what only the wire it came over understands: its finish reason, and the errors as it sent them."""
    reply = replace(reply, errors=tuple(replace(error, payload=None) for error in reply.errors))
    if reply.stop is None:
        return reply
    words = speaker.words.get(reply.stop) or speaker.words.get(_NEAREST.get(reply.stop, "other"))
    word, *closer = words or (reply.finish_reason,)
    return replace(reply, finish_reason=word, finish_detail=next(iter(closer), None))


def _cut_as(stream: Stream, speaker: Dialect) -> Cut:
    """The pieces of `stream`; calls whole where the dialect sends their arguments as a value, which cannot be cut."""
    fold = Fold()
    for delta in stream.deltas:
        fold.add(delta)
    fragments = fold.fragments()
    probe = unfold(Reply((ToolCall(0, id="a", name="f", arguments_text="{}"),)), speaker.numbers, lambda *_: ("{", "}"))
    said = [delta for frame in speaker.write(probe) for delta in speaker.read(frame) if isinstance(delta, Arguments)]
    parts = [choice.parts for choice in stream.reply.choices or (stream.reply,)]

    def cut(choice: int, part: int) -> Sequence[str]:
        whole = isinstance(parts[choice][part], ToolCall) and len(said) < 2
        return () if whole else fragments[choice][part]

    return cut


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

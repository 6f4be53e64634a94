"""The fold: what the wire says, delta by delta, into one `Reply`. Push (`Assembler`) and pull (`assemble`, `aassemble`)."""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence
from typing import Any

from .dialects import DIALECTS, detect, dialects
from .dialects import dialect as named
from .dialects.base import Dialect, Hint, payload_of
from .dialects.binary import broken_event, read_event
from .errors import UnknownDialect
from .fold import Fold, cut_short
from .framing import Sniffer
from .model import Delta, End, Frame, Keepalive, Reply, ToolCall
from .runs import Runs
from .schemas import checker, declared
from .unfold import unfold

__all__ = ["Assembler", "Fold", "aassemble", "assemble", "cut_short", "unfold"]

_AT_ONCE = 65536  # bytes; a whole body's frames all at once would cost memory, and the garbage collector time
_UNRECOGNISED_AT_MOST = 64  # payloads to look at before a stream is declined


class Assembler:
    """Assembles one reply as it streams; usable in the middle of a live stream.

    Feed it the bytes as they are read (`feed_bytes`), or frames, payloads, SDK objects or deltas (`feed`). `result()` is the reply so far at any
    time; call `close()` when the source has ended, so that an unterminated last event is read and a stream of nothing is an error.

    `feed`, `feed_bytes` and `close` return the tool calls that became runnable with what was taken in: each exactly once, in the moment when it is
    closed (by its own end event, else by the finish reason) and known to be whole. A call without arguments waits for the finish reason, for the
    length limit may have struck before they came; where a wire revises its reason (Gemini), for `close`. After an error nothing is released;
    what was released before it was whole when it was, and stays so: `result()` too lists it, but for calls that only the finish reason had closed.
    With several choices only the calls of the first are released, as `result().tool_calls` shows them.

    `dialect` is a name of the table, or None to recognise it by the first payload; `url` and `content_type` help there. `tools` as in `assemble`.
    """

    def __init__(
        self, dialect: str | None = None, *, content_type: str | None = None, url: str = "", tools: Any = None
    ) -> None:
        self._dialect: Dialect | None = named(dialect) if dialect is not None else None
        self._content_type, self._url = content_type or "", url
        self._framing = Sniffer()
        self._waiting: list[Frame | Any] = []
        self._payloads_seen = 0
        self._framed = False  # did frames come?
        self._restated = ""  # the last event that only restated others
        self._runs = Runs()
        self._fold = Fold({name: checker(schema) for name, schema in declared(tools).items()})

    @property
    def dialect(self) -> str | None:
        """The name of the dialect, once it is known."""
        return self._dialect.name if self._dialect else None

    @property
    def size(self) -> int:
        """Characters of content taken in so far: cheap to ask, and it never shrinks."""
        return self._fold.size

    def feed_bytes(self, data: bytes) -> tuple[ToolCall, ...]:
        """Take in one read, cut anywhere."""
        pieces = (data[at : at + _AT_ONCE] for at in range(0, len(data), _AT_ONCE))
        return tuple(call for piece in pieces for call in self._feed_frames(self._framing.feed(piece)))

    def feed(self, event: Any) -> tuple[ToolCall, ...]:
        """Take in one frame, payload (the JSON value of one event), SDK object or delta. `UnknownDialect` once many payloads made no sense."""
        if isinstance(event, Frame):
            self._framed = True
        elif isinstance(event, Delta):
            self._fold.add(event)
            return self._fold.release()
        else:
            event, restated = _plain(event)
            if restated:
                self._restated = restated
                return ()
        if self._dialect is not None:
            return self._read(self._dialect, event)
        self._waiting.append(event)
        return self._recognise(event)

    def _feed_frames(self, frames: Sequence[Frame]) -> list[ToolCall]:
        """As `feed` of each; but of a run only the texts are taken, all at once. They close no call, so that nothing is released late."""
        released: list[ToolCall] = []
        texts: list[str] = []
        for frame in frames:
            shape = self._runs.shape
            if shape is not None and (text := shape.text(frame)):
                texts.append(text)
                continue
            self._add(texts)
            texts = []
            released += self.feed(frame)
        self._add(texts)
        return released

    def _add(self, texts: Sequence[str]) -> None:
        """What events of the known shape say."""
        if texts and (shape := self._runs.shape):
            for start in shape.starts:
                self._fold.add(start)
            self._fold.add_each(shape.kind, shape.key, texts)

    def close(self) -> tuple[ToolCall, ...]:
        """The source has ended. `UnknownDialect` if it said something and no dialect knows it."""
        released = [call for frame in self._framing.close() for call in self.feed(frame)]
        if self._dialect is None and any(_says_something(event) for event in self._waiting):
            broken = [broken_event(event) if isinstance(event, Frame) else None for event in self._waiting]
            for error in broken:  # binary frames that tell no dialect: that they are broken is all there is to say
                if error is None:
                    raise self._unknown()
                self._fold.add(error)
        elif self._dialect is None and self._restated:
            raise UnknownDialect(
                f"all events only restate others, which did not come; the last is of type {self._restated!r}",
                mend="feed every event of the SDK's helper, not a selection",
            )
        self._fold.close(end_mark=lambda: self._dialect is None or self._shows_end(self._dialect))
        return (*released, *self._fold.release(over=True))

    def _shows_end(self, dialect: Dialect) -> bool:
        """Would its end mark have been seen? Who reads payloads (or an SDK's objects) never sees `[DONE]`, which is none."""
        marks = dialect.write([End()]) if dialect.end_mark else []
        return any(self._framed or dialect.payload(mark) is not None for mark in marks)

    def result(self) -> Reply:
        """The reply as far as it has come."""
        return self._fold.reply()

    def incomplete(self) -> tuple[ToolCall, ...]:
        """The calls seen and not released so far, each with the problem that it would have if nothing more came."""
        return self._fold.pending()

    def _recognise(self, event: Any) -> tuple[ToolCall, ...]:
        payload = payload_of(event) if isinstance(event, Frame) else event
        if payload is None:
            return ()
        name = event.event if isinstance(event, Frame) else "message"
        dialect = self._dialect = detect(Hint(payload, self._url, self._content_type, name))
        self._payloads_seen += 1
        if dialect is not None:
            waiting, self._waiting = self._waiting, []
            return tuple(call for each in waiting for call in self._read(dialect, each))
        if self._payloads_seen >= _UNRECOGNISED_AT_MOST:
            raise self._unknown()
        return ()

    def _read(self, dialect: Dialect, event: Any) -> tuple[ToolCall, ...]:
        deltas = dialect.read(event) if isinstance(event, Frame) else dialect.deltas(event)
        for delta in deltas:
            self._fold.add(delta)
        if not deltas:
            self._fold.hear()
        if isinstance(event, Frame) and dialect in DIALECTS:  # what others make of a text may hang on what it says
            self._runs.saw(event, deltas, dialect.read)
        return self._fold.release()

    def _unknown(self) -> UnknownDialect:
        first = next(event for event in self._waiting if _says_something(event))
        shown = first.raw if isinstance(first, Frame) else first
        return UnknownDialect(
            f"no known dialect of a streamed reply; the first of {len(self._waiting)} events is {repr(shown)[:200]}",
            where=f"content type {self._content_type or 'not given'}",
            mend=f"name the dialect: dialect={' or '.join(repr(each.name) for each in dialects())}",
        )


def _says_something(event: Any) -> bool:
    return not isinstance(event, Frame) or read_event(event, lambda payload, event: []) != [Keepalive()]


# Events that an SDK's streaming helper (OpenAI's `chat.completions.stream`, Anthropic's `messages.stream`) makes up beside those of the wire.
_HELPED = ("content", "refusal", "logprobs.content", "logprobs.refusal", "tool_calls.function.arguments")
_RESTATES = frozenset(
    ["text", "thinking", "signature", "input_json", "citation", "compaction"]
    + [f"{of}.{what}" for of in _HELPED for what in ("delta", "done")]
)


def _plain(event: Any) -> tuple[Any, str]:
    """The JSON value of an SDK object (a pydantic model), any other value as it is; and the type of an event that a helper made up."""
    if getattr(event, "model_dump", None) is None:
        return event, ""
    kind = getattr(event, "type", None)
    if kind in _RESTATES:
        return None, kind
    if kind == "chunk":  # the helper's wrapper of what came over the wire
        event = getattr(event, "chunk", event)
    elif getattr(type(event), "model_fields", {}).keys() == {"data"} and hasattr(event.data, "model_dump"):
        event = event.data  # Mistral's client wraps every chunk
    # An SDK builds its objects without validation, so that pydantic would warn of every value that is newer than the SDK.
    return event.model_dump(mode="json", exclude_unset=True, by_alias=True, warnings=False), ""


def assemble(source: Any, *, dialect: str | None = None, content_type: str | None = None, tools: Any = None) -> Reply:
    """The reply that `source` carries.

    `source`: the body as bytes, a `Stream`, or an iterable of reads (bytes), frames, payloads, SDK objects or deltas. `dialect`: a name of the table; by
    default it is recognised, and `UnknownDialect` says so where that fails. `content_type` helps to recognise. Of SDK objects all that the SDK yields is
    taken, also the events of OpenAI's and Anthropic's streaming helpers; what an SDK keeps for itself (OpenAI's `[DONE]`) cannot be seen.

    `tools`: the declared tools in any provider's shape, or the whole request body as its JSON value (see `schemas.declared`). A call whose arguments do not
    fit its tool's JSON Schema then stands in `incomplete_tool_calls`, with the problem `schema: ...`. A call of a tool that was not declared,
    or without a schema, is left as it is: which names there are is what a tool loop knows anyway. Needs jsonschema, else `MissingExtra`.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        source = (bytes(source),)
    assembler = Assembler(dialect or getattr(source, "dialect", None), content_type=content_type, tools=tools)
    for event in getattr(source, "frames", source):
        feed_any(assembler, event)
    assembler.close()
    return assembler.result()


async def aassemble(
    source: AsyncIterable[Any], *, dialect: str | None = None, content_type: str | None = None, tools: Any = None
) -> Reply:
    """`assemble` for an asynchronous iterable of reads, frames, payloads, SDK objects or deltas."""
    assembler = Assembler(dialect, content_type=content_type, tools=tools)
    async for event in source:
        feed_any(assembler, event)
    assembler.close()
    return assembler.result()


def feed_any(assembler: Assembler, event: Any) -> None:
    """Take in whatever an iterable source holds: a read, or what `feed` takes."""
    if isinstance(event, bytes | bytearray | memoryview):
        assembler.feed_bytes(bytes(event))
    else:
        assembler.feed(event)

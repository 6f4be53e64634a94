"""A structured reply: the one JSON value that a stream carries, checked against what it was asked to be."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from . import jsontext
from .assembler import Assembler, feed_any
from .dialects.base import is_open
from .errors import IncompleteReply, InvalidReply
from .lenient import partial
from .model import Reply
from .shapes import Misfit, validator

T = TypeVar("T")
OnPartial = Callable[["Partial"], object]

_EVERY_EVENT = 16_384  # characters up to which a view is made of every event
_GROWN = 64  # beyond that one each time that the text has grown by this part of itself


@dataclass(frozen=True, slots=True)
class Partial:
    """What can be shown of a value that is still coming: best effort, not validated, never to be stored or acted on.

    `value` is plain JSON. Strings and lists in it may be cut, and a number too: `1` of `100`.
    """

    value: Any


@overload
def extract(source: Any, schema: type[T], *, on_partial: OnPartial | None = None, dialect: str | None = None) -> T: ...
@overload
def extract(
    source: Any, schema: Mapping[str, Any], *, on_partial: OnPartial | None = None, dialect: str | None = None
) -> Any: ...
def extract(source: Any, schema: Any, *, on_partial: OnPartial | None = None, dialect: str | None = None) -> Any:
    """The value that `source` carries, as `schema` has it.

    `source` and `dialect` as in `assemble`. Looked at is the text of the reply, or where there is none the arguments of its one tool call.

    `schema`: a pydantic model (validated as its own configuration says; an instance comes back); a dataclass (checked field by field, nothing is
    converted but JSON's arrays, objects and numbers into the types of the fields; see `shapes`); or a JSON Schema as a mapping (needs
    jsonschema; the plain value comes back).

    `on_partial` is called with a `Partial` while deltas arrive, whenever what can be shown has changed. It costs a parse of the text so far at every event
    up to 16 KiB, beyond that at every 64th part of growth, so that a long reply costs linear time.

    `IncompleteReply`: the stream broke, or was cut, or the model refused. `InvalidReply`: what came is whole, but is not strict JSON or does not
    fit. Both carry the `reply` and its `text`.
    """
    extraction = _Extraction(schema, on_partial, dialect or getattr(source, "dialect", None))
    if isinstance(source, bytes | bytearray | memoryview):
        source = (bytes(source),)
    for event in getattr(source, "frames", source):
        extraction.feed(event)
    return extraction.value()


@overload
async def aextract(
    source: AsyncIterable[Any], schema: type[T], *, on_partial: OnPartial | None = None, dialect: str | None = None
) -> T: ...
@overload
async def aextract(
    source: AsyncIterable[Any],
    schema: Mapping[str, Any],
    *,
    on_partial: OnPartial | None = None,
    dialect: str | None = None,
) -> Any: ...
async def aextract(
    source: AsyncIterable[Any], schema: Any, *, on_partial: OnPartial | None = None, dialect: str | None = None
) -> Any:
    """`extract` for an asynchronous source."""
    extraction = _Extraction(schema, on_partial, dialect)
    async for event in source:
        extraction.feed(event)
    return extraction.value()


class _Extraction:
    def __init__(self, schema: Any, on_partial: OnPartial | None, dialect: str | None) -> None:
        self._validate = validator(schema)
        self._assembler = Assembler(dialect)
        self._on_partial = on_partial
        self._looked_at = 0  # size of the reply that was looked at last
        self._shown: Any = None

    def feed(self, event: Any) -> None:
        feed_any(self._assembler, event)
        grown = self._assembler.size - self._looked_at
        if self._on_partial and grown and (self._looked_at < _EVERY_EVENT or grown * _GROWN > self._looked_at):
            self._looked_at += grown
            view = partial(_json_of(self._assembler.result()))
            if view is not None and jsontext.dump(view) != self._shown:
                self._shown = jsontext.dump(view)
                self._on_partial(Partial(view))

    def value(self) -> Any:
        self._assembler.close()
        reply = self._assembler.result()
        text = _json_of(reply)
        if why := _incomplete(reply):
            raise IncompleteReply(
                f"no whole value came: {why}",
                where=f"after {len(text)} characters: {text[-60:]!r}",
                mend="ask again, or with a higher limit; .text has what came, .reply all of it",
                text=text,
                reply=reply,
            )
        try:
            return self._validate(text, jsontext.parse(text))
        except Misfit as misfit:
            what, where = f"the value does not fit: {misfit}", misfit.where
        except ValueError as error:
            what, where = f"the reply is not JSON: {error}", repr(text[:80])
        raise InvalidReply(what, where=where, mend=_mend(reply), text=text, reply=reply)


def _json_of(reply: Reply) -> str:
    """The text, or without any the arguments of the one tool call."""
    calls = (*reply.tool_calls, *reply.incomplete_tool_calls)
    if reply.text.strip() or len(calls) != 1:
        return reply.text
    return calls[0].arguments_text or ("" if calls[0].problem else "{}")


def _incomplete(reply: Reply) -> str | None:
    if reply.errors:
        return f"the stream broke with {reply.errors[0].type}: {reply.errors[0].message}"
    if not reply.complete:
        return "the stream ended without a finish reason"
    if reply.refusal is not None:
        return f"the model refused: {reply.refusal[:200]}"
    if reply.stop not in (None, "stop", "tool_calls", "other"):
        return f"the reply ended with {reply.finish_detail or reply.finish_reason!r}"
    open_ = [] if reply.text.strip() else [call for call in reply.incomplete_tool_calls if is_open(call)]
    return f"a tool call has {open_[0].problem}" if open_ else None


def _mend(reply: Reply) -> str:
    calls = len(reply.tool_calls) + len(reply.incomplete_tool_calls)
    if not reply.text.strip() and calls != 1:
        return f"the reply has no text and {calls} tool calls: assemble(...) it, and choose"
    return "ask for structured output with this schema (response_format, a forced tool), or ask again with this error"

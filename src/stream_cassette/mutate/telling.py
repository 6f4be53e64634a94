"""A broken law in words: what a person needs to see it, repeat it and keep it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import LawBroken
from ..stream import Stream
from .base import Mutator
from .laws import Outcome, View, broken, comparable, law_of

_MOST_SHOWN = 1500  # characters of the mutated stream in a failure


def told(stream: Stream, mutated: Stream, mutators: Sequence[Mutator], faults: Sequence[str], feed: str) -> str:
    """A failure as a person needs it: the mutators as code, what broke, the mutated stream, and the lines that repeat and keep it."""
    resolved = _resolved(stream, mutators)
    names = ", ".join(sorted({type(each).__name__ for each in resolved}))
    code = f"[{', '.join(map(repr, resolved))}]"
    reads = mutated.exchange.reads
    body = mutated.body.decode("utf-8", "backslashreplace")
    shown = body if len(body) <= _MOST_SHOWN else f"{body[:_MOST_SHOWN]}... ({len(body)} characters)"
    lines = [
        f"the law of {' then '.join(map(repr, resolved)) or 'the stream as it was recorded'} is broken",
        f"  law:     {law_of(mutators)}",
        *(f"  broken:  {fault}" for fault in faults),
        f"  fed:     {feed}; {len(mutated.body)} bytes in {len(reads)} reads, {mutated.spoken}",
        *(f"    | {line}" for line in shown.splitlines()),
        *(
            [f"  with:    from stream_cassette import fuzz; from stream_cassette.mutate import {names}"]
            if names
            else []
        ),
        f"  again:   fuzz.check(assembler, stream, {code}, feed={feed!r})   # stream: a Stream, or the name of its cassette",
        *([f"  keep it: fuzz.save('cassettes/regressions/name.yaml', stream, {code})"] if names else []),
    ]
    return "\n".join(lines)


def _resolved(stream: Stream, mutators: Sequence[Mutator]) -> list[Mutator]:
    out = []
    for each in mutators:
        out.append(each.resolve(stream))
        stream = each.apply(stream)
    return out


def verdict(
    original: Stream,
    mutated: Stream,
    mutators: Sequence[Mutator],
    result: Any,
    view: View | None = None,
    feed: str = "bytes",
) -> None:
    """`Case.check`, for a stream and a result at hand: an exception is what code under test raised."""
    __tracebackhide__ = True
    raised = isinstance(result, BaseException)
    if not raised and not comparable(result, view):
        raise LawBroken(
            f"{type(result).__name__} has none of the fields of a Reply, so nothing could be checked; give view=, or use fuzz.check"
        )
    after = Outcome(error=result) if raised else Outcome(view(result) if view else result)
    faults = broken(law_of(mutators), Outcome(original.reply), after, mutated.reply, lambda value: value)
    if faults:
        raise LawBroken(told(original, mutated, mutators, faults, feed)) from after.error

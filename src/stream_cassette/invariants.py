"""What holds of every assembler and gateway, with no mutator to choose: one call each. All raise `LawBroken`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from . import jsontext
from .assembler import Assembler as Reference
from .assembler import assemble
from .errors import LawBroken, NotApplicable, UnknownDialect
from .fuzz import check, fed, stream_of
from .gateways import PROMPT, Gateway, Upstream, through, upstream
from .model import Exchange, Request
from .mutate import CutAfterFrame, CutInsideFrame, Mutator, answers, instances, mutate
from .mutate.base import finish_slot, slots
from .mutate.laws import CUT, Law, Outcome, View, broken
from .mutate.telling import told
from .stream import Stream

Source = Stream | str | Path


def split(assembler: Callable[[Any], Any], source: Source) -> None:
    """Any split of the bytes into reads gives the same value, and empty reads change nothing."""
    stream = stream_of(source)
    check(assembler, stream, levels=["wire"])
    reads = fed(stream, "bytes")
    expected, got = assembler(reads), assembler([data for read in reads for data in (b"", read)])
    if got != expected:
        raise LawBroken(told(stream, stream, [], [f"with empty reads: expected {expected!r}, got {got!r}"], "bytes"))


def prefix(assembler: Callable[[Any], Any], source: Source, *, view: View | None = None) -> None:
    """No prefix that ends before the finish reason is a clean success: cut after every frame, and inside each."""
    stream = stream_of(source)
    for n in range(finish_slot(slots(stream))):
        half = max(1, len(stream.frames[n].raw) // 2)
        check(assembler, stream, [CutAfterFrame(n)], view=view)
        check(assembler, stream, [CutInsideFrame(n, half)], view=view)


def arguments(assembler: Callable[[Any], Any], source: Source, *, view: View | None = None) -> None:
    """Every call in `tool_calls` has arguments that are a JSON object, on the healthy stream and on every one that breaks; others are flagged."""
    stream = stream_of(source)
    look = view or (lambda value: value)
    cases: list[list[Mutator]] = [[], *([each] for each in instances(stream, "cut", "limit", "fault", "damage"))]
    for mutators in cases:
        mutated = mutate(stream, mutators)
        try:
            seen = look(assembler(fed(mutated, "bytes")))
        except Exception:
            if not mutators:
                raise
            continue
        faults = [
            f"tool_calls: the arguments of {call!r} are no JSON object"
            for call in _field(seen, "tool_calls") or ()
            if not _is_whole(call)
        ]
        if faults:
            raise LawBroken(told(stream, mutated, mutators, faults, "bytes"))


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _is_whole(call: Any) -> bool:
    if _field(call, "kind") == "custom":
        return True
    function = _field(call, "function")
    said = (
        call[1]
        if isinstance(call, tuple)
        else _field(function or call, "arguments_text") or _field(function or call, "arguments")
    )
    if not isinstance(said, str):
        return said is None or isinstance(said, dict)
    try:
        return isinstance(jsontext.parse(said), dict) if said else True
    except ValueError:
        return False


class Incremental(Protocol):
    """An assembler that shows what it has after each read: `result()` has `text` and `tool_calls`, as a mapping or an object."""

    def feed(self, data: bytes) -> Any: ...

    def result(self) -> Any: ...


def progress(make: Callable[[], Incremental], source: Source, *, view: View | None = None) -> None:
    """Fed read by read, the text shown only grows and is not held back, and calls once shown stay. `make` gives a fresh assembler."""
    stream = stream_of(source)
    look = view or (lambda value: value)
    for mutators in ([], *([each] for each in instances(stream, "wire"))):
        mutated = mutate(stream, mutators)
        if faults := list(_stalls(make(), Reference(mutated.spoken), mutated, look)):
            raise LawBroken(told(stream, mutated, mutators, faults, "bytes"))


def _stalls(mine: Incremental, reference: Reference, stream: Stream, look: View) -> Iterable[str]:
    text, calls = "", 0
    for number, read in enumerate(stream.exchange.reads, 1):
        mine.feed(read.data)
        reference.feed_bytes(read.data)
        seen = look(mine.result())
        now, shown = _field(seen, "text") or "", len(_field(seen, "tool_calls") or ())
        came = reference.result().text
        if not now.startswith(text):
            yield f"text: after read {number} it shrank or changed: {text!r} became {now!r}"
        if not now.startswith(came):
            yield f"text: after read {number} {came!r} had come, {now!r} was shown"
        if shown < calls:
            yield f"tool_calls: after read {number} {calls} became {shown}"
        text, calls = now, shown


def relay(
    gateway: Gateway,
    source: Source,
    mutators: Sequence[Mutator] | str = "all",
    *,
    request: Request = PROMPT,
    upstream: Upstream | None = None,
) -> None:
    """What a gateway passes on says the same as what it got, under every mutator; of a stream that broke it passes on no more, and no clean success.

    `gateway`: a function from the reads of the upstream reply to the bytes or reads of its own; an ASGI application, whose own requests over httpx or
    httpx2 get the mutated stream; or the base URL of a server that was started with the `url` of an `upstream()`. The last two are asked with `request`,
    whose `url` is a path. `mutators`: a level name or `"all"`, or a list, each on its own.
    """
    stream = stream_of(source)
    chosen = instances(stream, mutators) if isinstance(mutators, str) else list(mutators)
    if not chosen:
        raise NotApplicable(f"no mutator of {mutators!r} acts on this stream")
    passed_on = through(gateway, request, upstream)
    for each in [[], *([one] for one in chosen)]:
        mutated = mutate(stream, each)
        sent = mutated.reply
        law = CUT if sent.errors or not sent.complete else Law()
        got = _relayed(passed_on, stream, each)
        if faults := broken(law, Outcome(sent), got, sent):
            raise LawBroken(
                told(stream, mutated, each, [f"relay: {fault}" for fault in faults], "bytes")
            ) from got.error


def _relayed(
    passed_on: Callable[[Sequence[Exchange]], list[bytes]], stream: Stream, mutators: Sequence[Mutator]
) -> Outcome:
    try:
        reads = passed_on(answers(stream, mutators))
        try:
            return Outcome(assemble(reads))
        except UnknownDialect:  # a gateway may translate, but what broke early says too little to be recognised
            return Outcome(assemble(reads, dialect=stream.spoken))
    except Exception as error:  # noqa: BLE001 - of the gateway, or of reading what it broke off
        return Outcome(error=error)


__all__ = ["Incremental", "arguments", "prefix", "progress", "relay", "split", "upstream"]

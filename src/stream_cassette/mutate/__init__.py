"""Mutators: changes of a recorded stream, each with the law that must hold of the assembled reply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from ..errors import NotApplicable
from ..model import Exchange
from ..stream import Stream
from .base import Level, Mutator
from .cuts import CutAfterFrame, CutBeforeFinish, CutInsideArguments, CutInsideFrame, Truncate
from .damage import DropFragment, DuplicateFragment, ReverseFragments
from .deltas import (
    CumulativeUsage,
    DropUsage,
    EmptyDeltas,
    FinishWithLastContent,
    InterleaveToolCalls,
    MergeDeltas,
    MoveUsage,
    Ping,
    Refragment,
    UnknownEvents,
)
from .faults import CorruptFrame, Disconnect, ErrorEvent, HttpError, Stall
from .framing import ByteOrderMark, Comments, DropDone, ExtraFields, LineEndings, MultiLineData, NoSpaceAfterColon
from .laws import law_of
from .quirks import Quirk
from .wire import CutInsideCharacter, OneByteReads, OneRead, ReadPerFrame, Rechunk

MUTATORS: tuple[type[Mutator], ...] = (
    Rechunk,
    OneByteReads,
    OneRead,
    ReadPerFrame,
    CutInsideCharacter,
    LineEndings,
    Comments,
    ByteOrderMark,
    NoSpaceAfterColon,
    MultiLineData,
    ExtraFields,
    DropDone,
    Refragment,
    MergeDeltas,
    InterleaveToolCalls,
    MoveUsage,
    CumulativeUsage,
    EmptyDeltas,
    Ping,
    UnknownEvents,
    FinishWithLastContent,
    DropUsage,
    CutBeforeFinish,
    CutAfterFrame,
    CutInsideArguments,
    CutInsideFrame,
    Truncate,
    ErrorEvent,
    Disconnect,
    Stall,
    HttpError,
    CorruptFrame,
    ReverseFragments,
    DropFragment,
    DuplicateFragment,
    Quirk,
)
"""Every mutator, from the wire up; what rare servers do comes last, so that it hides no plainer fault."""

LEVELS: tuple[Level, ...] = ("wire", "framing", "deltas", "loss", "cut", "limit", "fault", "damage", "quirk")


def instances(stream: Stream, *levels: str) -> list[Mutator]:
    """The mutators that stand for the given levels (`"all"`, or none: every level) on this stream, those that act on it alone."""
    wanted = set(LEVELS if not levels or "all" in levels else levels)
    found: list[Mutator] = []
    for kind in MUTATORS:
        if kind.level in wanted:
            found += _applicable(kind, stream)
    return found


def _applicable(kind: type[Mutator], stream: Stream) -> list[Mutator]:
    found = []
    try:
        candidates: Sequence[Mutator] = kind.instances(stream)
    except NotApplicable:
        return []
    for each in candidates:
        try:
            each.apply(stream)
        except (NotApplicable, RecursionError):  # a payload may be nested as deeply as Python bears, and not more
            continue
        found.append(each)
    return found


def mutate(stream: Stream, mutators: Iterable[Mutator]) -> Stream:
    """The stream after all mutators, in order. Raises `NotApplicable` where one has nothing to act on or needs what one before it erased."""
    done: list[Mutator] = []
    for each in mutators:
        stream = one_more(stream, done, each)
        done.append(each)
    return stream


def one_more(stream: Stream, before: Sequence[Mutator], mutator: Mutator) -> Stream:
    """`stream`, which the mutators `before` have changed, after one more; as `mutate`."""
    if lost := mutator.needs.intersection(chain.from_iterable(each.erases for each in before)):
        raise NotApplicable(f"{mutator!r} needs {', '.join(sorted(lost))}, which a mutator before it erased")
    return mutator.apply(stream)


def answers(stream: Stream, mutators: Sequence[Mutator]) -> tuple[Exchange, ...]:
    """Every exchange that answers the request, one a try: errors first, then the mutated stream."""
    return tries(mutate(stream, mutators), mutators)


def tries(mutated: Stream, mutators: Sequence[Mutator]) -> tuple[Exchange, ...]:
    """`answers`, where the stream has been mutated already."""
    first = [exchange for each in mutators for exchange in each.before(mutated.exchange)]
    return (*first, mutated.exchange)


__all__ = [
    "LEVELS",
    "MUTATORS",
    "ByteOrderMark",
    "Comments",
    "CorruptFrame",
    "CumulativeUsage",
    "CutAfterFrame",
    "CutBeforeFinish",
    "CutInsideArguments",
    "CutInsideCharacter",
    "CutInsideFrame",
    "Disconnect",
    "DropDone",
    "DropFragment",
    "DropUsage",
    "DuplicateFragment",
    "EmptyDeltas",
    "ErrorEvent",
    "ExtraFields",
    "FinishWithLastContent",
    "HttpError",
    "InterleaveToolCalls",
    "Level",
    "LineEndings",
    "MergeDeltas",
    "MoveUsage",
    "MultiLineData",
    "Mutator",
    "NoSpaceAfterColon",
    "OneByteReads",
    "OneRead",
    "Ping",
    "Quirk",
    "ReadPerFrame",
    "Rechunk",
    "Refragment",
    "ReverseFragments",
    "Stall",
    "Truncate",
    "UnknownEvents",
    "answers",
    "instances",
    "law_of",
    "mutate",
    "tries",
]

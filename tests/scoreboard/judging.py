"""Peers held against the laws: every instance of every mutator on every stream, the outcomes grouped into distinct faults, and each fault shrunk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from hypothesis import HealthCheck, Phase, given, settings

from quirk_streams import RICH, STREAMS, TEXT, body_stream
from scoreboard.assemblers import PEERS, Peer
from stream_cassette import Stream, synthesize
from stream_cassette.errors import LawBroken, NotApplicable
from stream_cassette.fuzz import check, mutations, stream_of, visible
from stream_cassette.mutate import (
    LEVELS,
    MUTATORS,
    Disconnect,
    HttpError,
    Mutator,
    Quirk,
    Stall,
    instances,
    law_of,
    mutate,
)
from stream_cassette.mutate.laws import Outcome, broken
from stream_cassette.mutate.telling import told
from streams import CALLS

UNSEEN = (Disconnect, Stall, HttpError)
"""How a connection ends, and what came before it, is no part of the reads: tests with real clients on a tape see to these."""

FIELDS = ("tool_calls", "text", "reasoning", "signature", "finish_reason", "usage", "complete")
"""What may break, the gravest first; a fault is named by the gravest."""

CASSETTES = Path(__file__).parents[2] / "cassettes"

# ----------------------------------------------------------------------------------------------------------------- the streams


LINE_SEPARATOR = body_stream(
    "ollama",
    b'{"model":"m","message":{"role":"assistant","content":"Low\xe2\x80\xa8tide."},"done":false}\n'
    b'{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}\n',
)


@cache
def streams(dialect: str) -> Mapping[str, Stream]:
    """The streams of a dialect by the code that names them: its cassettes, and what providers send, written by hand."""
    found = {
        f"cassettes/{dialect}/{path.name}": stream_of(path) for path in sorted((CASSETTES / dialect).glob("*.yaml"))
    }
    found |= {f"STREAMS[{dialect!r}][{at}]": stream for at, stream in enumerate(STREAMS[dialect])}
    if dialect == "openai-responses":
        for name, reply in (("RICH", RICH), ("TEXT", TEXT)):
            said = replace(reply, finish_reason="completed")
            code = f"synthesize(replace({name}, finish_reason='completed'), {dialect!r}, lossy=True)"
            found[code] = synthesize(said, dialect, lossy=True)
    if dialect == "openai-chat":
        found["CALLS"] = CALLS
    if dialect == "ollama":
        found["LINE_SEPARATOR"] = LINE_SEPARATOR
    return found


def as_recorded(peer: Peer, stream: Stream) -> tuple[Outcome, str | None]:
    """What a peer makes of a stream that nobody changed, and why it cannot be judged by it.

    It must read the stream, and read what the reference assembler reads: a law that compares with a wrong reading says nothing.
    """
    outcome = _run(peer, stream)
    if outcome.error is not None:
        return outcome, f"raises {_short(outcome.error)}"
    reply = stream.reply
    calls = [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls if call.kind == "function"]
    for name, right in (("text", reply.text), ("tool_calls", calls)):
        if outcome.value[name] != right:
            return outcome, f"{name}: reads {outcome.value[name]!r}, where {right!r} was sent"
    return outcome, None


def _run(peer: Peer, stream: Stream) -> Outcome:
    try:
        return Outcome(peer.assemble([read.data for read in stream.exchange.reads]))
    except Exception as error:  # noqa: BLE001 - whatever a peer raises is its outcome
        return Outcome(error=error)


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}".rstrip(": ")


# ----------------------------------------------------------------------------------------------------------------- the judging


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one mutator on one stream. `kind`: the gravest field that broke, or `raises`; `said`: the difference in words."""

    peer: str
    stream: str
    mutator: Mutator
    outcome: Literal["obeyed", "broken", "crashed"]
    kind: str = ""
    said: str = ""
    size: int = 0

    @property
    def name(self) -> str:
        """The class of the mutator, or the quirk."""
        return f"quirk {self.mutator.name}" if isinstance(self.mutator, Quirk) else type(self.mutator).__name__


@dataclass(frozen=True, slots=True)
class Judged:
    """Everything about one peer. `idle`: mutators that had nothing to act on, by level; `skipped`: streams that it is not judged by, with the reason."""

    peer: str
    version: str
    verdicts: tuple[Verdict, ...]
    idle: Mapping[str, int]
    skipped: Mapping[str, str]


def judge(peer: Peer, *, search: bool = True) -> Judged:
    """One peer on all streams of its dialect. `search`: what obeys as it stands is also drawn by Hypothesis, on the stream on which most acts."""
    verdicts: list[Verdict] = []
    richest: tuple[int, str] = (0, "")
    idle: dict[str, int] = {}
    skipped: dict[str, str] = {}
    for name, stream in streams(peer.dialect).items():
        before, reason = as_recorded(peer, stream)
        if reason:
            skipped[name] = reason
            continue
        acting = [each for each in instances(stream) if not isinstance(each, UNSEEN) and visible(stream, each, "bytes")]
        verdicts += [_verdict(peer, name, stream, before, each) for each in acting]
        richest = max(richest, (len(acting), name))
        for each in _candidates(stream):
            if each not in acting:
                idle[each.level] = idle.get(each.level, 0) + 1
    if search and richest[0]:
        verdicts += _searched(peer, richest[1], verdicts)
    return Judged(peer.name, peer.version or "not installed", tuple(verdicts), idle, skipped)


def _searched(peer: Peer, name: str, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """What the search finds of the classes that broke nothing so far."""
    stream = streams(peer.dialect)[name]
    before = _run(peer, stream)
    guilty = {type(each.mutator) for each in verdicts if each.outcome != "obeyed"}
    quiet = {type(each.mutator) for each in verdicts if each.stream == name} - guilty - {Quirk}
    found = [smallest(peer, stream, kind, (*FIELDS, "raises")) for kind in MUTATORS if kind in quiet]
    return [_verdict(peer, name, stream, before, each) for each in found if each is not None]


def _candidates(stream: Stream) -> Iterator[Mutator]:
    """The instances of every class that has parameters to offer here, acting or not."""
    for kind in MUTATORS:
        if kind not in UNSEEN:
            try:
                yield from kind.instances(stream)
            except NotApplicable:
                continue


def _verdict(peer: Peer, name: str, stream: Stream, before: Outcome, mutator: Mutator) -> Verdict:
    mutated = mutate(stream, [mutator])
    after = _run(peer, mutated)
    kind, said = difference(before, after, mutated, [mutator])
    outcome = "obeyed" if not kind else "crashed" if after.error is not None else "broken"
    return Verdict(peer.name, name, mutator, outcome, kind, said, len(mutated.body))


def difference(before: Outcome, after: Outcome, mutated: Stream, mutators: Sequence[Mutator]) -> tuple[str, str]:
    """The gravest field whose law is broken and how, or `raises`; two empty texts where all laws are kept."""
    law = law_of(mutators)
    if not (faults := broken(law, before, after, mutated.reply)):
        return "", ""
    if after.error is not None:
        return "raises", _short(after.error)
    if law.all_the_same:
        old, new = before.value, after.value
        field = next(field for field in FIELDS if old.get(field) != new.get(field))
        return field, f"{field}: expected {old.get(field)!r}, got {new.get(field)!r}"
    found = {_field(fault): fault for fault in reversed(faults)}
    field = next(field for field in FIELDS if field in found)
    return field, found[field]


def _field(fault: str) -> str:
    named = re.match(r"(\w+): ", fault)
    return named[1] if named else "complete"


# ----------------------------------------------------------------------------------------------------------------- the faults


@dataclass(frozen=True, slots=True)
class Fault:
    """A distinct fault: one peer, one mutator class or quirk, one kind; told by its smallest example. `times`: instances that show it."""

    peer: str
    name: str
    kind: str
    level: str
    times: int
    stream: str
    mutator: Mutator
    said: str
    told: str = ""

    @property
    def again(self) -> str:
        """The line that reproduces it, with the names of this package."""
        stream = f"stream_of({self.stream!r})" if self.stream.startswith("cassettes/") else self.stream
        return f"check(PEERS[{self.peer!r}].assemble, {stream}, [{self.mutator!r}])"


_ESTIMATE = "no usage was sent; the library documents that it estimates one, and the estimate follows the text"
UNFAIR: Mapping[tuple[str, str, str], str] = {
    ("litellm builder", "DropUsage", "usage"): _ESTIMATE,
    ("litellm builder", "DropFragment", "usage"): _ESTIMATE,
    ("litellm builder", "DuplicateFragment", "usage"): _ESTIMATE,
    ("litellm builder", "ReverseFragments", "usage"): _ESTIMATE,
    ("litellm builder", "quirk arguments-object", "usage"): _ESTIMATE,
    ("openai helper", "quirk reasoning-details", "raises"): (
        "the piece without `index` that it refuses is a signature as our own writer spells it; OpenRouter numbers every piece"
    ),
    ("google-genai", "Refragment", "raises"): (
        "our writer tears the arguments of a call into pieces of text; Gemini itself says pieces by `partialArgs`"
    ),
    ("boto3 converse", "quirk text-start", "raises"): (
        "botocore's model of the service has one member in every start, so what reaches its users cannot be empty"
    ),
    ("ollama client", "EmptyDeltas", "raises"): "our empty line lacks the `role` that Ollama says on every line",
    (
        "ollama client",
        "UnknownEvents",
        "raises",
    ): "a line of Ollama has no type by which a reader could tell that it is new",
}
"""Broken laws that are no faults, by peer, mutator or quirk, and kind, each with the reason."""


def unfair(found: Verdict | Fault) -> str | None:
    """Why a broken law is no fault of the peer; None where it is one."""
    return UNFAIR.get((found.peer, found.name, found.kind))


def distinct(verdicts: Iterable[Verdict]) -> list[Fault]:
    """The verdicts that broke a law, grouped, from the wire up; each group stands for its example of the fewest bytes."""
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.outcome != "obeyed":
            groups.setdefault((verdict.peer, verdict.name, verdict.kind), []).append(verdict)
    faults = []
    for (peer, name, kind), group in groups.items():
        first = min(group, key=lambda each: each.size)
        level = first.mutator.level
        faults.append(Fault(peer, name, kind, level, len(group), first.stream, first.mutator, first.said))
    return sorted(faults, key=lambda each: (LEVELS.index(each.level), each.name, each.kind))


def smallest(peer: Peer, stream: Stream, kind: type[Mutator], wanted: Sequence[str]) -> Mutator | None:
    """The smallest mutator of this class that breaks something of `wanted`; the same every time."""
    before = _run(peer, stream)
    found: Mutator | None = None

    @settings(_SEARCH)
    @given(drawn=mutations(stream, kinds=[kind], levels=[kind.level], most=1))
    def holds(drawn: tuple[Mutator, ...]) -> None:
        nonlocal found
        try:
            mutated = mutate(stream, drawn)
        except NotApplicable:
            return
        if difference(before, _run(peer, mutated), mutated, drawn)[0] in wanted:
            (found,) = drawn
            check(peer.assemble, stream, drawn)

    with suppress(LawBroken):  # raised for the smallest, which is run last
        holds()
    return found


def shrunk(fault: Fault, peers: Mapping[str, Peer] = PEERS) -> Fault:
    """The fault with the smallest parameters that show it on its stream, and everything that `check` tells of it."""
    peer = peers[fault.peer]
    stream = streams(peer.dialect)[fault.stream]
    mutator = fault.mutator
    if not isinstance(mutator, Quirk):
        mutator = smallest(peer, stream, type(mutator), [fault.kind]) or mutator
    mutator = mutator.resolve(stream)
    mutated = mutate(stream, [mutator])
    _, said = difference(_run(peer, stream), _run(peer, mutated), mutated, [mutator])
    return replace(fault, mutator=mutator, said=said, told=told(stream, mutated, [mutator], [said], "bytes"))


_SEARCH = settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


def cells(judged: Judged) -> dict[str, dict[str, int]]:
    """By level: how many instances obeyed, broke a law, crashed, and had nothing to act on (`idle`); without the unfair ones."""
    out: dict[str, dict[str, int]] = {}
    for verdict in judged.verdicts:
        if verdict.outcome != "obeyed" and unfair(verdict):
            continue
        cell = out.setdefault(verdict.mutator.level, {})
        cell[verdict.outcome] = cell.get(verdict.outcome, 0) + 1
    for level, count in judged.idle.items():
        out.setdefault(level, {})["idle"] = count
    return out

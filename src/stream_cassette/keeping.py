"""Which of the exchanges that were recorded go into a cassette, and what a person should know of the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stream_cassette.matching import fingerprint
from stream_cassette.model import COMPLETE, Interaction, Request
from stream_cassette.paths import Steps
from stream_cassette.recording import Recorder
from stream_cassette.redact import Redaction, scrub_request, summary


class CutShort(NamedTuple):
    """Something went wrong while there was recorded; `ended`: the code under test may still have asked all it wanted."""

    why: str
    ended: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """`interactions` are for the file and `redactions` what was replaced in them; `remarks` are lines for a person. `not_kept` is that of them which
    tells what was left out because of a `CutShort`. `failure` is the first error of an exchange that could not be made fit for a file."""

    interactions: Sequence[Interaction]
    redactions: tuple[Redaction, ...]
    remarks: Sequence[str]
    not_kept: str
    failure: Exception | None


def kept(
    takes: Sequence[Recorder],
    test: str | None,
    left_out: tuple[set[Recorder], set[Recorder]],
    cut_short: CutShort | None,
    *,
    adds: bool,
    failures: bool,
    named: Callable[[Recorder], str],
) -> Kept:
    """Of `takes`, all of which have ended, without what `left_out` (as `failures_of` gives it) holds.

    In part a recording is worse than none, because `once` does not add to it. So one that was cut short is kept only if the code had `ended`, with
    nothing but successes (and, with `failures`, failures) that were read to their ends. One that `adds` to what there is keeps whatever is whole.
    """
    mended, refused = left_out
    recorded: dict[Recorder, Interaction] = {}
    failure = None
    for take in takes:
        if take.finished and take not in mended | refused:
            try:
                recorded[take] = take.interaction(test)
            except Exception as error:  # noqa: BLE001 - told when the others are safe
                failure = failure or error
    remarks = [f"{named(each)}: {each.problem}" for each in takes if each.problem]
    remarks += [
        f"{named(each)}: not recorded: {each.status}; is the key right? (keep_failures=True records it)"
        for each in takes
        if each in refused
    ]
    remarks += [_left_out([each.status for each in takes if each in mended])] if mended else []
    not_kept = ""
    if cut_short is not None:
        whole = _whole(recorded, failures)
        keep = whole if adds or (cut_short.ended and len(whole) == len(takes) - len(mended)) else {}
        not_kept = _lost(len(recorded), len(keep), cut_short.why, adds)
        recorded = keep
    redactions = tuple(each for take in recorded for each in take.redactions)
    remarks += filter(None, [summary(redactions), not_kept])
    return Kept(tuple(recorded.values()), redactions, remarks, not_kept, failure)


def _whole(recorded: Mapping[Recorder, Interaction], failures: bool) -> dict[Recorder, Interaction]:
    return {
        take: each
        for take, each in recorded.items()
        if each.exchange.ending == COMPLETE and (take.status < 400 or failures)
    }


def _lost(recorded: int, keep: int, why: str, adds: bool) -> str:
    if recorded == keep:
        return ""
    part = f"{recorded - keep} of {_exchanges(recorded)}" if keep else _exchanges(recorded)
    return f"{part} not kept: {why}{'' if adds else '; a recording in part would miss the rest'}"


def _left_out(statuses: Sequence[int]) -> str:
    tries = "1 try" if len(statuses) == 1 else f"{len(statuses)} tries"
    why = ", ".join(str(status) if status else "no response" for status in statuses)
    return f"{tries} left out ({why}), after which the client tried again with success; keep_failures=True records them"


def _exchanges(count: int) -> str:
    return f"{count} exchange{'s' * (count != 1)}"


def retryable(status: int) -> bool:
    """Whether the SDKs ask again after this status."""
    return status in (408, 409, 429) or status >= 500


def refused(status: int) -> bool:
    """Whether the provider did not take the key."""
    return status in (401, 403)


def failures_of(takes: Sequence[Recorder], ignore: Sequence[Steps] = ()) -> tuple[set[Recorder], set[Recorder]]:
    """The failures after which the client asked again and succeeded, and the refusals after which it did not.

    A refusal before a success belongs to how one logs in (a challenge, a token that is renewed), and is neither.
    """
    failed: dict[Hashable, list[Recorder]] = {}
    turned_away: dict[Hashable, list[Recorder]] = {}
    mended: set[Recorder] = set()
    for take in takes:
        key = fingerprint(scrub_request(take.request), ignore)
        if not take.status or retryable(take.status):
            failed.setdefault(key, []).append(take)
        elif refused(take.status):
            turned_away.setdefault(key, []).append(take)
        elif take.status < 400:
            mine, others = _mended(failed.pop(key, []), take.request)
            mended.update(mine)
            failed[key] = others
            turned_away.pop(key, None)
    return mended, {take for takes in turned_away.values() for take in takes}


def _mended(failed: list[Recorder], request: Request) -> tuple[list[Recorder], list[Recorder]]:
    """The failures that `request` was made to mend, and the rest. The SDKs say how often they have tried; of others all are taken to be of one try."""
    tried = next((value for name, value in request.headers if name.lower() == "x-stainless-retry-count"), "")
    count = int(tried) if tried.isdecimal() else len(failed)
    return failed[:count], failed[count:]

"""What a row of the benchmark table is, and how contestants are timed against each other."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

OURS = "ours"


def nothing() -> None:
    return None


def drop(prepared: Any) -> None:
    """Nothing is to be put away."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one contestant does. Only `call` is timed; it gets what `before` gives, and so does `after`."""

    call: Callable[[Any], object]
    before: Callable[[], Any] = nothing
    after: Callable[[Any], None] = drop


def run(call: Callable[[], object]) -> Run:
    """A contestant that needs nothing before and leaves nothing behind."""
    return Run(lambda _: call())


Runs = Mapping[str, Run]


def once(contestant: Run) -> float:
    """Seconds of processor time of this process. What others do on the machine does not count, nor does waiting for a disk."""
    prepared = contestant.before()
    gc.collect()
    began = process_time()
    contestant.call(prepared)
    seconds = process_time() - began
    contestant.after(prepared)
    return seconds


def race(runs: Runs, rounds: int) -> dict[str, float]:
    """The best of `rounds` for each, in seconds. All take part in every round, each round in the other order, so that a busy minute hits all."""
    best = dict.fromkeys(runs, math.inf)
    for number in range(rounds):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            best[name] = min(best[name], once(runs[name]))
    return best


@dataclass(frozen=True, slots=True)
class Target:
    """Ours is to be at most `times` the figure `of`; where `times` is below 1, that is so many times better."""

    of: str
    times: float

    def ratio(self, figures: Mapping[str, float]) -> float:
        return figures[OURS] / figures[self.of]

    def met(self, figures: Mapping[str, float]) -> bool:
        return self.ratio(figures) <= self.times

    def told(self, figures: Mapping[str, float]) -> tuple[str, str]:
        """The ratio and the target, in words."""
        ratio = self.ratio(figures)
        if self.times < 1:
            return f"{1 / ratio:.1f} x as fast", f"at least {1 / self.times:.1f} x"
        return f"{ratio:.2f} x", f"at most {self.times:g} x"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: `measure` gives figures in `unit` by name, `ours` among them, each multiplied by `scale` to be shown."""

    name: str
    measure: Callable[[], Mapping[str, float]]
    targets: Sequence[Target] = ()
    unit: str = "ms"
    scale: float = 1000.0
    note: str = ""
    runs: Callable[[], Runs] | None = None
    """The contestants of a race, for those who want to time or profile them otherwise."""


def contest(
    name: str, runs: Callable[[], Runs], targets: Sequence[Target] = (), *, rounds: int = 7, note: str = ""
) -> Row:
    """A row of a race, in milliseconds. `runs` prepares what is common to all and is not timed."""
    return Row(name, lambda: race(runs(), rounds), targets, note=note, runs=runs)

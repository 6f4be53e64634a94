"""How many mutated streams a second the fuzzer tries, and whose time that takes."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import process_time
from types import FrameType
from typing import Any, Self

import bodies
import hypothesis
from measuring import OURS, Row, Target

import stream_cassette
from stream_cassette import fuzz

EXAMPLES = 300
_TICK = 0.001  # seconds of processor time between two samples
_OWNERS = {str(Path(hypothesis.__file__).parent): "hypothesis", str(Path(stream_cassette.__file__).parent): OURS}


class Sampler:
    """Counts, while it is open, whose code the processor's time is spent for: that of the innermost frame which belongs to somebody."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _TICK, _TICK)
        return self

    def __exit__(self, *failed: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)

    def _sample(self, number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is mine.__code__:
                self.seen["the assembler"] += 1
                return
            for folder, owner in _OWNERS.items():
                if frame.f_code.co_filename.startswith(folder):
                    self.seen[owner] += 1
                    return
            frame = frame.f_back


def mine(reads: Iterable[bytes]) -> Mapping[str, str]:
    """The smallest assembler that can be right: none of the protocol is its own."""
    import json

    body = b"".join(reads).replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode("utf-8-sig", "replace")
    text = []
    for event in body.split("\n\n"):
        data = "\n".join(line[5:].removeprefix(" ") for line in event.split("\n") if line.startswith("data:"))
        if data.startswith("{"):
            text += [each.get("delta", {}).get("content") or "" for each in json.loads(data).get("choices") or ()]
    return {"text": "".join(text)}


def measure() -> Mapping[str, float]:
    """Seconds an example, in all and by whose code."""
    stream = bodies.recorded("openai-chat", 20_000)
    tried = 0

    def assembler(reads: Iterable[bytes]) -> Mapping[str, str]:
        nonlocal tried
        tried += 1
        return mine(reads)

    settings = hypothesis.settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True)
    before = hypothesis.settings.default
    hypothesis.settings.register_profile("bench", settings)
    hypothesis.settings.load_profile("bench")
    try:
        with Sampler() as sampler:
            began = process_time()
            fuzz.check(assembler, stream, levels=("wire", "framing", "deltas"))
            seconds = process_time() - began
    finally:
        hypothesis.settings.register_profile("before", before)
        hypothesis.settings.load_profile("before")
    whole = sum(sampler.seen.values())
    shares = {name: seconds / tried * count / whole for name, count in sampler.seen.items()}
    return {"in all": seconds / tried, OURS: shares.pop(OURS), **shares}


ROWS: Sequence[Row] = (
    Row(
        "fuzz.check, one example of a 20 kB stream",
        measure,
        (Target("hypothesis", 1.0),),
        note="where ours is less than Hypothesis's, Hypothesis's is at least half of what is not the assembler's",
    ),
)

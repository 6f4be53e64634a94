"""`pytest cassettes/ --stream-assembler package:function`: cassette × mutator as test items, without any test code."""

from __future__ import annotations

import importlib
import sys
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .cassette import load
from .errors import LawBroken, NotApplicable, TapeError
from .fuzz import Feed, check, search
from .mutate.items import Spec, items, settled
from .stream import Stream

AS_RECORDED = "as recorded"
"""The item that holds the assembler against the reference on the stream as it is, so that a regression that was kept is replayed."""

OUTCOME = "stream_mutator"
"""The user property under which an item reports its mutator; properties travel from xdist's workers."""


def assembler_of(spec: str, folder: Path) -> Any:
    """The function that `package.module:function` names, also of a module in `folder`. Raises `UsageError` for pytest to show."""
    module, colon, name = spec.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # where `python -m pytest` would look too
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"--stream-assembler={spec}: {error}; write package.module:function") from error
    if not colon or not callable(found):
        raise pytest.UsageError(f"--stream-assembler={spec} is not callable; write package.module:function")
    return found


class CassetteFile(pytest.File):
    """A cassette, with an item for each mutator; the file itself is read when an item runs."""

    def collect(self) -> Iterator[pytest.Item]:
        yield CassetteItem.from_parent(self, name=AS_RECORDED, spec=None)
        for name, spec in items(self.config.getoption("--stream-levels").split(","), str(self.path)):
            yield CassetteItem.from_parent(self, name=name, spec=spec)
        for shard in range(self.config.getoption("--stream-fuzz")):
            yield FuzzItem.from_parent(self, name=f"fuzz[{shard}]", shard=shard)


class _Item(pytest.Item):
    """Holds the assembler to something on every stream of the cassette."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self.user_properties.append((OUTCOME, self.name))

    @abstractmethod
    def hold(self, assembler: Any, stream: Stream, feed: Feed) -> None:
        """Raises what the assembler breaks, or `NotApplicable`."""

    def runtest(self) -> None:
        feed = self.config.getoption("--stream-feed")
        assembler = assembler_of(self.config.getoption("--stream-assembler"), self.config.rootpath)
        acted, reason = 0, "the cassette has no stream"
        for stream in _streams(self.path):
            try:
                self.hold(assembler, stream, feed)
                acted += 1
            except NotApplicable as error:
                reason = str(error)
        if not acted:
            pytest.skip(f"not applicable: {reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, LawBroken | TapeError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.name}: {self.name}"


class CassetteItem(_Item):
    """One mutator."""

    def __init__(self, *, spec: Spec | None, **rest: Any) -> None:
        super().__init__(**rest)
        self._spec = spec

    def hold(self, assembler: Any, stream: Stream, feed: Feed) -> None:
        check(assembler, stream, [settled(self._spec, stream)] if self._spec is not None else [], feed=feed)


class FuzzItem(_Item):
    """Mutators as Hypothesis draws them, others in each shard."""

    def __init__(self, *, shard: int, **rest: Any) -> None:
        super().__init__(**rest)
        self._shard = shard

    def hold(self, assembler: Any, stream: Stream, feed: Feed) -> None:
        levels = [each for each in self.config.getoption("--stream-levels").split(",") if each != "all"]
        search(assembler, stream, levels=levels, feed=feed, shard=self._shard)


def _streams(path: Path) -> list[Stream]:
    return [Stream(each.exchange, each.dialect) for each in load(path).interactions if each.dialect is not None]


def summary(stats: dict[str, list[Any]]) -> list[str]:
    """The table mutator × passed, failed, not applicable, from pytest's reports; empty where no such item ran."""
    counts: dict[str, list[int]] = {}
    for column, outcome in enumerate(("passed", "failed", "skipped")):
        for report in stats.get(outcome, []):
            for key, mutator in getattr(report, "user_properties", ()):
                if key == OUTCOME:
                    counts.setdefault(mutator, [0, 0, 0])[column] += 1
    idle = [name for name, row in counts.items() if not any(row[:2])]
    for name in idle:
        del counts[name]
    if not counts:
        return [f"mutators that had nothing to act on: {len(idle)}"] if idle else []
    width = max(map(len, [*counts, "mutator"]))
    head = f"{'mutator':{width}}  passed  failed  not applicable"
    rows = [f"{name:{width}}  {row[0]:6}  {row[1]:6}  {row[2]:14}" for name, row in counts.items()]
    return [head, *rows, *([f"mutators that had nothing to act on: {len(idle)}"] if idle else [])]

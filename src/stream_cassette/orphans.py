"""`--stream-orphans`: which files in the cassette folder no collected test owns. Registered as a plugin only where that is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .cassette import load
from .errors import StreamCassetteError
from .files import leftovers
from .settings import Settings

_FIXTURES = {"stream_cassette", "stream_snapshot"}


class Orphans:
    """Notes what the collected tests own, in every process, and lists the rest at the end of the run, in the one that has a terminal."""

    def __init__(self, config: pytest.Config, settings_of: Callable[[pytest.Item], Settings]) -> None:
        self._config, self._settings_of = config, settings_of
        # Plain values, because a worker of pytest-xdist sends them to its controller.
        self._files: list[str] = []
        self._tests: list[str] = []

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        fixtures = _FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if not fixtures and item.get_closest_marker("stream_cassette") is None:
            return
        try:
            settings = self._settings_of(item)
        except StreamCassetteError:  # the test itself says so when it runs
            return
        self._files += [str(settings.path), str(settings.snapshots)]
        self._tests.append(settings.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["stream_cassette_owned"] = [self._files, self._tests]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        files, tests = getattr(node, "workeroutput", {}).get("stream_cassette_owned", ([], []))
        self._files += files
        self._tests += tests

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        config = self._config
        folder = config.rootpath / config.getini("stream_cassette_dir")
        lines = list(orphans(folder, map(Path, self._files), self._tests))
        terminalreporter.section("cassettes and snapshots without a test")
        for path, why in lines:
            terminalreporter.line(f"{path.relative_to(config.rootpath).as_posix()}: {why}")
        if not lines:
            terminalreporter.line("none")
        if config.args_source is pytest.Config.ArgsSource.ARGS:
            terminalreporter.line(
                f"only the tests in {' '.join(config.args)} were collected; others may own what is listed"
            )


def orphans(folder: Path, owned: Iterable[Path], tests: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """The files in `folder`, and why each (or what in it) is nobody's, given the files and the names of the tests that were collected."""
    owned, tests = set(owned), set(tests)
    for path in sorted(folder.rglob("*.yaml")):
        if path.name.endswith(".snap.yaml"):
            if path not in owned:
                yield path, "a snapshot of no test"
            continue
        try:
            owners = [each.test for each in load(path).interactions]
        except StreamCassetteError as error:
            yield path, error.what
            continue
        gone = sorted({owner for owner in owners if owner is not None} - tests)
        if path not in owned and None in owners:
            yield path, "no test names it; code that calls use(...) may"
        elif path not in owned:
            yield path, "a cassette of no test"
        for owner in gone if path in owned else ():
            yield path, f"{owners.count(owner)} recorded for {owner}, which is gone"
    for inner in sorted({folder, *(path.parent for path in folder.rglob("*"))}):
        for path in leftovers(inner) if inner.is_dir() else ():
            yield path, "left by a process that was killed while it saved"

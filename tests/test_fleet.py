"""Fuzzing in several processes at once: each draws others, and what one finds all replay."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.database import InMemoryExampleDatabase

from stream_cassette import assemble, fuzz
from stream_cassette.errors import LawBroken
from streams import CALLS, EVERY

FRAGILE = """
import os
from pathlib import Path
from stream_cassette import assemble

def fragile(reads):
    reads = list(reads)
    with open("fed.txt", "a") as log:
        print(os.environ.get("PYTEST_XDIST_WORKER", "main"), len(reads), file=log)
    if len(reads) > 40:
        raise ValueError("so many reads")
    return assemble(reads)

def sound(reads):
    return assemble(reads)
"""
INI = "[pytest]\naddopts = -p no:randomly -p no:asyncio\n"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("CI", raising=False)  # where Hypothesis keeps no examples
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    pytester.makeini(INI)
    pytester.makepyfile(mine=FRAGILE)
    fuzz.save(pytester.path / "cassettes" / "calls.yaml", CALLS)
    return pytester


def run(project: pytest.Pytester, *options: str, assembler: str = "mine:fragile") -> pytest.RunResult:
    return project.runpytest_subprocess(
        "cassettes", f"--stream-assembler={assembler}", "--stream-levels=wire", *options, timeout=60
    )


def phases(project: pytest.Pytester, *names: str, database: str = "") -> None:
    found = ", ".join(f"Phase.{name}" for name in names)
    project.makeconftest(
        f"from hypothesis import Phase, settings\n{database}\n"
        f"settings.register_profile('fleet', phases=[{found}], deadline=None, report_multiple_bugs=False, max_examples=60{', database=DATABASE' * bool(database)})\n"
        "settings.load_profile('fleet')\n"
    )


def test_an_item_for_each_share(project: pytest.Pytester) -> None:
    listed = run(project, "--stream-fuzz=3", "--collect-only", "-q")
    assert [line for line in listed.outlines if "fuzz[" in line] == [
        f"cassettes/calls.yaml::fuzz[{shard}]" for shard in range(3)
    ]
    passed = run(project, "--stream-fuzz=2", "-k", "fuzz", assembler="mine:sound")
    passed.assert_outcomes(passed=2, deselected=6)
    passed.stdout.fnmatch_lines(["fuzz[[]0] * 1 *0 *0", "fuzz[[]1] * 1 *0 *0"])


def test_what_one_finds_the_others_replay(project: pytest.Pytester) -> None:
    phases(project, "generate")
    found = run(project, "--stream-fuzz=2", "-k", "fuzz[0]")
    found.assert_outcomes(failed=1, deselected=7)
    found.stdout.fnmatch_lines(["*the law of*is broken*"])
    # From here on nothing is drawn: only what was found is fed.
    phases(project, "reuse")
    (project.path / "fed.txt").unlink()
    again = run(project, "--stream-fuzz=4", "-k", "fuzz", "-n", "2")
    again.assert_outcomes(failed=4)
    fed = (project.path / "fed.txt").read_text().splitlines()
    assert {line.split()[0] for line in fed} == {"gw0", "gw1"}
    # Another assembler, and another stream, have nothing to replay, and then Hypothesis skips.
    run(project, "--stream-fuzz=1", "-k", "fuzz", assembler="mine:sound").assert_outcomes(skipped=1, deselected=6)
    (project.path / "cassettes" / "calls.yaml").unlink()
    fuzz.save(project.path / "cassettes" / "calls.yaml", EVERY["anthropic"])
    run(project, "--stream-fuzz=1", "-k", "fuzz").assert_outcomes(skipped=1, deselected=6)


def test_without_a_database_each_share_draws_its_own() -> None:
    """As on CI, where Hypothesis is derandomized."""
    drawn: dict[int, list[int]] = {}
    with profile(derandomize=True, max_examples=20):
        for shard in (0, 1, 0):
            seen = drawn[shard] = []
            fuzz.search(lambda reads, seen=seen: seen.append(len(reads)) or assemble(reads), CALLS, shard=shard)
    assert drawn[0] != drawn[1]


def test_a_stream_on_which_the_assembler_fails_as_it_is() -> None:
    with pytest.raises(LawBroken, match="as it was recorded"):
        fuzz.search(lambda reads: 1 / 0, CALLS)


def test_an_example_that_no_longer_fails_is_forgotten() -> None:
    database = InMemoryExampleDatabase()
    recorded = [read.data for read in CALLS.exchange.reads]
    broken = True

    def mine(reads: list[bytes]) -> object:
        if broken and reads != recorded:  # so that the first one drawn fails
            raise ValueError
        return assemble(reads)

    with profile(database=database):
        with pytest.raises(LawBroken):
            fuzz.search(mine, CALLS, levels=("wire",))
    assert any(database.data.values())
    broken = False
    # Beside drawing, Hypothesis replays no more than a sample of what it keeps; without, all of it.
    with profile(database=database, phases=[Phase.reuse], max_examples=1000):
        fuzz.search(mine, CALLS, levels=("wire",))
    assert not any(database.data.values())


class profile:
    """A profile of Hypothesis for a block."""

    def __init__(self, **options: object) -> None:
        settings.register_profile("for a block", deadline=None, **options)

    def __enter__(self) -> None:
        self.before = settings.get_current_profile_name()
        settings.load_profile("for a block")

    def __exit__(self, *_: object) -> None:
        settings.load_profile(self.before)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[int]:
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("no redis-server on this machine")
    pytest.importorskip("redis", reason="the package redis is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        [server, "--port", str(port), "--save", "", "--dir", str(tmp_path)], stdout=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def test_machines_share_what_they_find_over_redis(project: pytest.Pytester, redis: int, tmp_path: Path) -> None:
    database = (
        "from hypothesis.extra.redis import RedisExampleDatabase\nfrom redis import Redis\n"
        f"DATABASE = RedisExampleDatabase(Redis(port={redis}))"
    )
    phases(project, "generate", database=database)
    run(project, "--stream-fuzz=1", "-k", "fuzz").assert_outcomes(failed=1, deselected=6)
    # Another machine: nothing but the server in common.
    other = tmp_path / "other"
    shutil.copytree(project.path, other, ignore=shutil.ignore_patterns(".hypothesis", "fed.txt"))
    (other / "conftest.py").write_text(
        (project.path / "conftest.py").read_text().replace("Phase.generate", "Phase.reuse")
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "cassettes", "--stream-assembler=mine:fragile", "--stream-levels=wire", "--stream-fuzz=1", "-k", "fuzz", "-rs"],
        check=False, cwd=other, env={**os.environ, "PYTHONPATH": str(other)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "1 failed" in done.stdout, done.stdout
    assert not (other / ".hypothesis" / "examples").exists()

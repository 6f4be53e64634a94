"""The plugin among others: each run is a pytest of its own, with the plugins named and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_cassette import Reply, serve, synthesize
from stream_cassette.cassette import load
from stream_cassette.model import Exchange, Request, TextPart
from stream_cassette.server import Server

AGENT = """
import os
import httpx2

URL = os.environ["PROVIDER"] + "/v1/chat/completions"
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Weather?"}]}

def ask():
    return httpx2.post(URL, json=BODY).content

async def aask():
    async with httpx2.AsyncClient() as client:
        return (await client.post(URL, json=BODY)).content
"""

OTHERS = ("asyncio", "randomly", "recording", "rerunfailures", "timeout", "xdist", "hypothesispytest", "anyio")


@pytest.fixture
def provider() -> Iterator[Server]:
    reply = Reply((TextPart("Sunny."),), "stop", ended=True)

    def answer(request: Request) -> Exchange:
        return synthesize(reply, "openai-chat", request=request).exchange

    with serve(answer, paced=False) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\naddopts = --strict-markers --strict-config -p no:cacheprovider\nfilterwarnings = error\n"
    )
    return tmp_path


def run(project: Path, provider: Server, *arguments: str, company: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit status and all that was said by a pytest with the plugins `company` and no others."""
    alone = [part for other in OTHERS if other not in company for part in ("-p", f"no:{other}")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *alone, *arguments],
        cwd=project,
        env={**os.environ, "PROVIDER": provider.url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


MANY = '''
"""
>>> 1 + 1
2
"""
import unittest
import pytest
from agent import ask, aask

@pytest.mark.stream_cassette
class TestCase(unittest.TestCase):
    def test_asks(self):
        self.assertIn(b"Sunny.", ask())

    def test_asks_again(self):
        self.assertIn(b"Sunny.", ask())

    def test_skips(self):
        self.skipTest("not today")

    @pytest.mark.xfail(strict=True)
    def test_asks_nothing(self):
        pass

@pytest.fixture(scope="class")
def wide():
    return []

@pytest.mark.stream_cassette
class TestClass:
    @pytest.mark.parametrize("x", [1, "ü/\\\\:", "long" * 80, "CON", "a b", "..", "a\\nb", "\\ud800", ""])
    def test_with(self, wide, stream_cassette, x):
        wide.append(x)
        assert b"Sunny." in ask()

def test_parts(stream_cassette, subtests):
    for number in range(2):
        with subtests.test(number=number):
            assert b"Sunny." in ask()

@pytest.mark.anyio
@pytest.mark.stream_cassette
async def test_async(anyio_backend):
    assert b"Sunny." in await aask()

@pytest.mark.stream_cassette
def test_skipped():
    pytest.skip("not today")

@pytest.mark.xfail(reason="as it should", strict=True)
@pytest.mark.stream_cassette
def test_fails():
    ask()
    assert False
'''


def test_every_kind_of_test_in_one_module(project: Path, provider: Server) -> None:
    (project / "test_many.py").write_text(MANY)
    doctests = "--doctest-modules"
    status, said = run(project, provider, doctests, "--stream-record=once", company=("anyio",))
    assert "15 passed, 2 skipped, 2 xfailed" in said, said
    assert status == 0
    requests = len(provider.requests)
    for more in ((), ("--setup-show",), ("-x", "-vv"), ("-n", "2")):
        company = ("anyio", "xdist") if "-n" in more else ("anyio",)
        status, said = run(project, provider, doctests, *more, company=company)
        assert status == 0, said
    assert len(provider.requests) == requests
    names = [path.name for path in project.glob("cassettes/**/*.yaml")]
    assert len(names) == len({name.lower() for name in names}) == 15
    assert max(len(name.encode()) for name in names) < 120


def test_collecting_alone_writes_and_asks_nothing(project: Path, provider: Server) -> None:
    (project / "test_many.py").write_text(MANY)
    status, said = run(
        project, provider, "--collect-only", "-q", "--stream-record=all", "--stream-snapshot-update", company=("anyio",)
    )
    assert status == 0, said
    assert provider.requests == ()
    assert not (project / "cassettes").exists()


def test_without_the_plugin_its_marker_and_fixture_are_unknown(project: Path, provider: Server) -> None:
    path = project / "test_it.py"
    path.write_text("import pytest\n@pytest.mark.stream_cassette\ndef test_it(): pass\n")
    assert "'stream_cassette' not found in `markers`" in run(project, provider, "-p", "no:stream_cassette")[1]
    path.write_text("def test_it(): pass\n")
    assert run(project, provider, "-p", "no:stream_cassette")[0] == 0


ASYNCIO = """
import asyncio
import pytest
from agent import aask

@pytest.fixture
async def warm(stream_cassette):
    yield await aask()

@pytest.mark.asyncio
@pytest.mark.stream_cassette
async def test_tasks(warm):
    assert all(b"Sunny." in each for each in [warm, *await asyncio.gather(aask(), aask())])

@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.stream_cassette
async def test_background():
    task = asyncio.create_task(aask())
    assert b"Sunny." in await task

@pytest.mark.asyncio
@pytest.mark.stream_cassette
async def test_misses():
    asyncio.get_running_loop().create_task(aask())
    await asyncio.sleep(0.5)
"""


def test_with_asyncio(project: Path, provider: Server) -> None:
    (project / "test_async.py").write_text(ASYNCIO)
    asyncio = ["-o", "asyncio_default_fixture_loop_scope=function", "-o", "asyncio_mode=auto", "-W", "default"]
    _, said = run(project, provider, *asyncio, "--stream-record=once", "-k", "not misses", company=("asyncio",))
    assert "2 passed" in said, said
    assert len(provider.requests) == 4
    _, said = run(project, provider, *asyncio, company=("asyncio",))
    assert "1 failed, 2 passed" in said, said
    assert "CassetteMissing" in said or "CassetteMiss" in said
    assert len(provider.requests) == 4


RERUN = """
import pathlib
import pytest
from agent import ask

attempts = []

@pytest.mark.stream_cassette
def test_flaky(stream_cassette, stream_snapshot):
    attempts.append(stream_cassette)
    assert b"Sunny." in ask()
    assert stream_cassette.reply.text == stream_snapshot
    assert len(stream_cassette.replies) == 1
    assert len(attempts) == 2
    assert attempts[0] is not attempts[1]

@pytest.mark.stream_cassette
def test_first_misses():
    attempts.append("missed")
    if attempts.count("missed") == 1:
        ask()
        ask()
    ask()
"""


def test_a_rerun_starts_with_a_fresh_tape(project: Path, provider: Server) -> None:
    (project / "test_rerun.py").write_text(RERUN)
    rerun = ("rerunfailures",)
    _, said = run(
        project, provider, "--reruns=1", "--stream-record=all", "--stream-snapshot-update", "-k", "flaky", company=rerun
    )
    assert "1 passed, 1 deselected, 1 rerun" in said, said
    (interaction,) = load(project / "cassettes" / "test_rerun" / "test_flaky.yaml").interactions
    assert interaction.assembled is not None
    cassette = project / "cassettes" / "test_rerun" / "test_first_misses.yaml"
    text = (
        (project / "cassettes" / "test_rerun" / "test_flaky.yaml")
        .read_text()
        .replace("test_flaky", "test_first_misses")
    )
    cassette.write_text(text)
    _, said = run(project, provider, "--reruns=1", company=rerun)
    assert "2 passed, 2 rerun" in said, said


def test_in_any_order(project: Path, provider: Server) -> None:
    (project / "test_many.py").write_text(MANY)
    run(project, provider, "-p", "no:doctest", "--stream-record=once", company=("anyio", "randomly"))
    for seed in ("1", "2"):
        status, said = run(
            project, provider, "-p", "no:doctest", f"--randomly-seed={seed}", company=("anyio", "randomly")
        )
        assert status == 0, said


SLOW = """
import time
import pytest
from agent import ask

@pytest.mark.timeout(1, func_only=True)
@pytest.mark.stream_cassette
def test_slow():
    ask()
    time.sleep(30)

@pytest.mark.stream_cassette
def test_next():
    ask()
"""


def test_a_test_that_runs_out_of_time_leaves_the_next_alone(project: Path, provider: Server) -> None:
    (project / "test_slow.py").write_text(SLOW)
    _, said = run(project, provider, "--stream-record=once", company=("timeout",))
    assert "1 failed, 1 passed" in said, said
    assert "Timeout" in said
    assert len(load(project / "cassettes" / "test_slow" / "test_next.yaml").interactions) == 1


LAST = """
import pytest
from agent import ask

@pytest.mark.stream_cassette
def test_one():
    ask()

@pytest.mark.stream_cassette
def test_two():
    ask()
"""


def test_stopping_at_the_first_failure_and_starting_with_the_last(project: Path, provider: Server) -> None:
    (project / "test_last.py").write_text(LAST)
    (project / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    run(project, provider, "--stream-record=once", "test_last.py::test_one")
    _, said = run(project, provider)
    assert "1 failed, 1 passed" in said
    _, said = run(project, provider, "--lf", "-x", "--stream-record=once")
    assert "1 passed in" in said, said
    assert "2 passed" in run(project, provider)[1]


@pytest.mark.parametrize("scope", ["session", "module", "class"])
def test_a_fixture_of_a_wider_scope_is_told_what_to_do(project: Path, provider: Server, scope: str) -> None:
    (project / "test_wide.py").write_text(
        f"import pytest\n\n@pytest.fixture(scope={scope!r})\ndef wide(stream_cassette):\n    return stream_cassette\n\n"
        "class TestIt:\n    def test_it(self, wide):\n        pass\n"
    )
    _, said = run(project, provider)
    assert "ScopeMismatch" in said
    assert "with stream_cassette.use('cassettes/NAME.yaml', mode='once') as tape" in said


ORDER = """
import pytest
from agent import ask

@pytest.fixture
def around(stream_cassette):
    yield
    print("asked in teardown:", b"Sunny." in ask())

@pytest.mark.stream_cassette
def test_teardown(around):
    ask()
"""


def test_a_fixture_that_uses_the_tape_may_ask_in_its_teardown(project: Path, provider: Server) -> None:
    (project / "test_order.py").write_text(ORDER)
    _, said = run(project, provider, "-s", "--stream-record=once")
    assert "asked in teardown: True" in said, said
    assert "asked in teardown: True" in run(project, provider, "-s")[1]
    assert len(provider.requests) == 2

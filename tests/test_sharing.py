"""One cassette, many tests and workers: nobody loses or takes what is another's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_cassette import Reply, serve, synthesize
from stream_cassette.cassette import load
from stream_cassette.model import Exchange, Interaction, Request, TextPart
from stream_cassette.server import Server

AGENT = """
import os
import httpx2

def ask(question):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}]}
    return httpx2.post(os.environ["PROVIDER"] + "/v1/chat/completions", json=body).content
"""

TESTS = """
import pytest
from agent import ask

@pytest.mark.parametrize("number", range({count}))
@pytest.mark.stream_cassette("shared/all")
def test_each(stream_cassette, number):
    assert b"{says}" in ask(f"own {{number}}")
    ask("the same for all")
    assert len(stream_cassette.replies) == 2
"""

COMPANY = [
    "-p",
    "no:hypothesispytest",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:asyncio",
    "-p",
    "no:randomly",
    "-p",
    "no:rerunfailures",
    "-p",
    "no:timeout",
]


@pytest.fixture
def says() -> list[str]:
    """The provider's words; the last counts."""
    return ["Sunny."]


@pytest.fixture
def provider(says: list[str]) -> Iterator[Server]:
    def answer(request: Request) -> Exchange:
        return synthesize(Reply((TextPart(says[-1]),), "stop", ended=True), "openai-chat", request=request).exchange

    with serve(answer, paced=False) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = --strict-markers\n")
    return tmp_path


def write(project: Path, count: int = 8, says: str = "Sunny.") -> None:
    (project / "test_shared.py").write_text(TESTS.format(count=count, says=says))


def run(project: Path, provider: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *COMPANY, *arguments],
        cwd=project,
        env={**os.environ, "PROVIDER": provider},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def recorded(project: Path) -> dict[str, list[Interaction]]:
    found: dict[str, list[Interaction]] = {}
    for each in load(project / "cassettes" / "shared" / "all.yaml").interactions:
        found.setdefault(each.test or "", []).append(each)
    return found


def test_eight_tests_in_four_workers_record_into_one_cassette_and_lose_nothing(
    project: Path, provider: Server, says: list[str]
) -> None:
    write(project)
    assert "8 passed" in run(project, provider.url, "-n", "4", "--stream-record=once")
    first = recorded(project)
    assert sorted(first) == [f"test_shared.py::test_each[{number}]" for number in range(8)]
    assert [len(each) for each in first.values()] == [2] * 8
    assert os.listdir(project / "cassettes" / "shared") == ["all.yaml"]
    assert len(provider.requests) == 16
    # Nothing is asked of the provider again, by any number of workers.
    assert "8 passed" in run(project, provider.url, "-n", "2")
    assert len(provider.requests) == 16
    # `all` for one test, and `once` for a new one in the old file, leave the others byte for byte alone.
    says.append("Rainy.")
    write(project, 9, "Rainy.")
    assert "1 passed" in run(project, provider.url, "-n", "0", "test_shared.py::test_each[3]", "--stream-record=all")
    assert "1 passed" in run(project, provider.url, "-n", "0", "test_shared.py::test_each[8]", "--stream-record=once")
    second = recorded(project)
    changed = {test for test, interactions in second.items() if interactions != first.get(test)}
    assert changed == {"test_shared.py::test_each[3]", "test_shared.py::test_each[8]"}
    assert all(b"Rainy." in each.exchange.body for test in changed for each in second[test])
    # A test finds its place in the file again, so that a diff shows what changed and nothing else.
    order = [test for test in second if test != "test_shared.py::test_each[8]"]
    assert order == list(first)


def test_a_group_of_xdist_does_not_rename_what_belongs_to_a_test(project: Path, provider: Server) -> None:
    write(project, 2)
    path = project / "test_shared.py"
    path.write_text(
        path.read_text().replace(
            "@pytest.mark.stream_cassette", '@pytest.mark.xdist_group("one@two")\n@pytest.mark.stream_cassette'
        )
    )
    assert "2 passed" in run(project, provider.url, "-n", "2", "--dist", "loadgroup", "--stream-record=once")
    assert sorted(recorded(project)) == ["test_shared.py::test_each[0]", "test_shared.py::test_each[1]"]
    assert "2 passed" in run(project, provider.url, "-n", "0")


SNAPSHOTS = """
import pytest

@pytest.mark.parametrize("x", ["a", "b", "c", "d"])
def test_each(stream_snapshot, x):
    assert {"x": x} == stream_snapshot
    assert [x] == stream_snapshot(name="named")
    MORE
"""


def test_snapshots_of_one_test_in_several_workers(project: Path) -> None:
    path = project / "test_s.py"
    path.write_text(SNAPSHOTS.replace("MORE", "assert 3 == stream_snapshot"))
    assert "4 passed" in run(project, "", "-n", "2", "--stream-snapshot-update")
    assert "4 passed" in run(project, "", "-n", "2")
    assert sorted(os.listdir(project / "cassettes" / "test_s")) == [f"test_each[{x}].snap.yaml" for x in "abcd"]
    path.write_text(SNAPSHOTS.replace("MORE", ""))
    said = run(project, "", "-n", "2")
    assert "4 passed" in said
    for x in "abcd":
        assert f"test_each[{x}].snap.yaml: nothing was compared with 1 of its snapshots" in said


def test_orphans_are_listed_by_the_process_that_has_the_terminal(project: Path, provider: Server) -> None:
    write(project, 2)
    (project / "test_s.py").write_text(SNAPSHOTS.replace("MORE", ""))
    run(project, provider.url, "-n", "2", "--stream-record=once", "--stream-snapshot-update")
    said = run(project, "", "-n", "2", "--stream-orphans")
    assert "cassettes and snapshots without a test" in said
    assert "\nnone\n" in said
    write(project, 1)
    (project / "test_s.py").unlink()
    said = run(project, "", "-n", "2", "--stream-orphans")
    assert "cassettes/test_s/test_each[a].snap.yaml: a snapshot of no test" in said
    assert "cassettes/shared/all.yaml: 2 recorded for test_shared.py::test_each[1], which is gone" in said

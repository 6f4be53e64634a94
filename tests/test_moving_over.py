"""A suite that records with pytest-recording moves over: its cassettes are imported, its marker is changed, and it says the same, offline.

Each run is a pytest of its own, so that neither plugin is there while the other is tried.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stream_cassette import Reply, ToolCall, Usage, serve, synthesize
from stream_cassette.cassette import load
from stream_cassette.cli import main
from stream_cassette.model import Exchange, Read, Request, TextPart

OTHERS = (
    "asyncio",
    "benchmark",
    "cacheprovider",
    "randomly",
    "rerunfailures",
    "timeout",
    "xdist",
    "hypothesispytest",
    "anyio",
)

INI = "[pytest]\ntestpaths = tests\naddopts = --strict-config --import-mode=importlib\n"

SUITE = '''
import asyncio
import json
import os
import httpx
import openai
import pytest

URL = os.environ["PROVIDER"] + "/v1"
KEY = "sk-proj-" + "mN3vQ8xK2pL7wR5tY9zB4cD6fG1hJ0aS" * 2


@pytest.fixture
def vcr_config():
    return {"filter_headers": ["authorization"], "match_on": ["method", "uri", "body"]}


@pytest.fixture
def said(request):
    """Keeps what the code under test made of the reply."""
    told = []
    yield told
    assert told
    with open(os.environ["SAID"], "a") as file:
        file.write(json.dumps([request.node.nodeid, told]) + "\\n")


def chunks(stream):
    return [chunk.model_dump(mode="json") for chunk in stream]


def ask(question):
    with openai.OpenAI(api_key=KEY, base_url=URL, max_retries=0) as client:
        return chunks(client.chat.completions.create(model="m", stream=True, messages=[{"role": "user", "content": question}]))


@pytest.mark.vcr
def test_sync(said):
    said += ask("Weather in Pune and Delhi?")


@pytest.mark.vcr
@pytest.mark.parametrize("city", ["Pune", "New-Delhi", "São Paulo (SP)", pytest.param("long", id="long" * 40)])
def test_with(said, city):
    said += ask(city)


class TestClass:
    @pytest.mark.vcr
    def test_twice(self, said):
        said += ask("one")
        said += ask("two")


@pytest.mark.vcr
def test_async(said):
    async def run():
        async with openai.AsyncOpenAI(api_key=KEY, base_url=URL, max_retries=0) as client:
            stream = await client.chat.completions.create(model="m", stream=True, messages=[{"role": "user", "content": "async"}])
            return [chunk.model_dump(mode="json") async for chunk in stream]

    said += asyncio.run(run())


@pytest.mark.vcr
def test_no_stream(said):
    said.append(httpx.post(URL + "/plain", json={"a": [1, "ü"]}, headers={"accept-encoding": "gzip"}).json())
'''

TESTS = 8


def weather(request: Request) -> Exchange:
    """Text and two calls that repeat the question; for what is no stream, compressed JSON."""
    if request.url.endswith("/plain"):
        headers = (("content-type", "application/json"), ("content-encoding", "gzip"))
        return Exchange(request, 200, headers, (Read(0, gzip.compress(request.body)),))
    question = json.loads(request.body)["messages"][0]["content"]
    arguments = json.dumps({"city": question}, ensure_ascii=False)
    calls = tuple(
        ToolCall(at, id=f"call_{at}", name="weather", arguments_text=arguments, arguments={}) for at in (0, 1)
    )
    reply = Reply((TextPart(f"Looking up {question}."), *calls), "tool_calls", Usage(12, 3, 15), ended=True)
    return synthesize(reply, "openai-chat", request=request).exchange


@dataclass(frozen=True)
class Project:
    folder: Path
    provider: str

    def pytest(self, without: str, *arguments: str) -> tuple[str, dict[str, Any]]:
        """The last line of a run that must be green, and what each test said."""
        said = self.folder / "said.jsonl"
        said.unlink(missing_ok=True)
        others = [part for name in OTHERS for part in ("-p", f"no:{name}")]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *others, "-p", f"no:{without}", *arguments],
            cwd=self.folder,
            env={**os.environ, "PROVIDER": self.provider, "SAID": str(said)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, dict(map(json.loads, said.read_text().splitlines())) if said.exists() else {}

    @property
    def suite(self) -> Path:
        return self.folder / "tests" / "unit" / "test_agent.py"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, Any]]:
    """The suite with the cassettes that pytest-recording recorded, and what its tests said then. The provider is gone."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "pytest.ini").write_text(INI)
    with serve(weather, paced=False) as server:
        project = Project(folder, server.url)
        project.suite.parent.mkdir(parents=True)
        project.suite.write_text(SUITE)
        _, said = project.pytest("stream_cassette", "--record-mode=once")
        assert len(server.requests) == TESTS + 1
    assert len(said) == TESTS
    return project, said


def test_a_suite_moves_over(recorded: tuple[Project, dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    project, said = recorded
    old = project.folder / "tests" / "unit" / "cassettes"
    assert len(list(old.rglob("*.yaml"))) == TESTS

    before, again = project.pytest("stream_cassette", "--record-mode=none")
    assert f"{TESTS} passed" in before
    assert again == said

    ids = project.folder / "ids"
    ids.write_text(project.pytest("stream_cassette", "--collect-only")[0])
    new = project.folder / "cassettes"
    assert main(["import", str(project.folder / "tests"), "--to", str(new), "--tests", str(ids)]) == 0
    assert f"cassettes written: {TESTS}, exchanges: {TESTS + 1}, left out: 0\n" in capsys.readouterr().out
    assert not list(old.rglob("*.tmp"))

    shutil.rmtree(old)
    project.suite.write_text(SUITE.replace("pytest.mark.vcr", "pytest.mark.stream_cassette"))
    after, now = project.pytest("recording", "--stream-record=none", "-W", "error")
    assert f"{TESTS} passed" in after
    assert now == said

    for path in new.rglob("*.yaml"):
        assert "sk-proj-" not in path.read_text()
        for each in load(path).interactions:
            assert each.test is None
            if each.dialect is None:
                assert json.loads(each.exchange.body) == {"a": [1, "ü"]}
                assert each.exchange.was == "gzip"
            else:
                question = json.loads(each.exchange.request.body)["messages"][0]["content"]
                assert each.assembled is not None
                assert each.assembled["text"] == f"Looking up {question}."
                assert [call["arguments"] for call in each.assembled["tool_calls"]] == [{"city": question}] * 2

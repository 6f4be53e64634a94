"""Every Python block of the README runs: tests are recorded from a provider on loopback and replayed without it, the rest is executed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx  # noqa: F401 - loaded here, so that not every run in this process loads it anew
import httpx2  # noqa: F401
import openai  # noqa: F401
import pytest

import stream_cassette.clients
import stream_cassette.settings
import stream_cassette.snapshot  # noqa: F401
from stream_cassette import Reply, serve, synthesize
from stream_cassette.model import Exchange, Request, TextPart, ToolCall, Usage

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
TESTS = [block for block in BLOCKS if "def test_" in block]
SCRIPTS = [block for block in BLOCKS if "def test_" not in block]

REPLY = Reply(
    (
        TextPart("Let me look."),
        ToolCall(0, id="call_a", name="get_weather", arguments_text='{"city":"Pune"}', arguments={"city": "Pune"}),
        ToolCall(1, id="call_b", name="get_weather", arguments_text='{"city":"Delhi"}', arguments={"city": "Delhi"}),
    ),
    "tool_calls",
    Usage(21, 34),
    ended=True,
)


def answer(request: Request) -> Exchange:
    return synthesize(
        REPLY, "anthropic" if request.url.endswith("/messages") else "openai-chat", request=request
    ).exchange


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serve(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-none")
        yield


def test_there_are_blocks() -> None:
    assert TESTS
    assert SCRIPTS


@pytest.mark.parametrize("block", TESTS, ids=lambda block: block.split("def test_")[1].split("(")[0])
def test_a_test_of_the_readme(block: str, pytester: pytest.Pytester, provider: None) -> None:
    pytester.makeini(
        "[pytest]\naddopts = --strict-markers -p no:cacheprovider -p no:xdist -p no:hypothesispytest -p no:asyncio -p no:randomly -p no:rerunfailures -p no:timeout\n"
    )
    pytester.makepyfile(test_readme_block=block)
    recorded = pytester.runpytest_inprocess("--stream-record=once", "--stream-snapshot-update")
    count = block.count("def test_")
    for outcomes in (recorded.parseoutcomes(), pytester.runpytest_inprocess().parseoutcomes()):
        assert not outcomes.keys() & {"failed", "errors"}
        assert outcomes["passed"] >= count


@pytest.mark.parametrize("block", SCRIPTS, ids=lambda block: block.strip().splitlines()[-1][:50])
def test_a_script_of_the_readme(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: None) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec", dont_inherit=True), {"__name__": "readme"})

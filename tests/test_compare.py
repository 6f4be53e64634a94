"""The mode `compare`: the provider is asked, nothing is written, and another wire shape than the recorded one fails the test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from stream_cassette import Reply, serve, synthesize, use
from stream_cassette.errors import CassetteMissing, Drifted
from stream_cassette.model import Exchange, Headers, Read, Request, TextPart, Usage


class Provider:
    """Answers as it did when it was recorded, unless told to stream otherwise."""

    def __init__(self) -> None:
        self.text = "Low tide."
        self.old, self.new = b"", b""
        self.busy = 0
        self.url = ""

    def __call__(self, request: Request) -> Exchange:
        if self.busy:
            self.busy -= 1
            return Exchange(request, 503, (), ())
        reply = Reply((TextPart(self.text),), "stop", Usage(3, 4, 7), ended=True)
        exchange = synthesize(reply, "openai-chat", request=request).exchange
        reads = tuple(Read(0, read.data.replace(self.old, self.new)) if self.old else read for read in exchange.reads)
        return replace(exchange, reads=reads)

    def ask(self, question: str = "When?", headers: Headers = ()) -> bytes:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}]}
        content: bytes = httpx2.post(f"{self.url}/v1/chat/completions", json=body, headers=dict(headers)).content
        return content


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    with serve(provider, paced=False) as server:
        provider.url = server.url
        yield provider


@pytest.fixture
def path(tmp_path: Path, provider: Provider) -> Path:
    path = tmp_path / "x.yaml"
    with use(path, mode="once"):
        provider.ask()
    return path


def test_the_same_shape_passes_and_says_what_the_model_said_otherwise(provider: Provider, path: Path) -> None:
    before = path.read_bytes()
    provider.text = "High tide at noon, and again at midnight."
    with use(path, mode="compare") as tape:
        assert b"midnight" in provider.ask()
    assert path.read_bytes() == before
    assert any(line.endswith("the wire shape is the recorded one") for line in tape.remarks)
    assert any("recorded 'Low tide.', now 'High tide" in line for line in tape.remarks)
    assert (tape.saved, tape.changed) == (0, False)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"index":0', b'"index":0,"logprobs":null', "logprobs"),
        (b'"prompt_tokens"', b'"input_tokens"', "input_tokens"),
        (b'"object":"chat.completion.chunk",', b"", "object"),
    ],
    ids=["a field came", "a usage key has another name", "a field went"],
)
def test_another_shape_fails(provider: Provider, path: Path, old: bytes, new: bytes, said: str) -> None:
    before = path.read_bytes()
    provider.old, provider.new = old, new
    with pytest.raises(Drifted, match=said) as caught, use(path, mode="compare"):
        provider.ask()
    assert f"POST {provider.url}/v1/chat/completions: " in str(caught.value)
    assert str(path) in str(caught.value)
    assert "mode='all'" in caught.value.mend
    assert path.read_bytes() == before


def test_a_request_that_is_not_recorded_cannot_be_compared(provider: Provider, path: Path) -> None:
    with pytest.raises(Drifted, match="nothing is recorded to compare it with"), use(path, mode="compare"):
        provider.ask("Where?")


def test_without_a_cassette_there_is_nothing_to_compare(provider: Provider, tmp_path: Path) -> None:
    with pytest.raises(Drifted, match="nothing is recorded"), use(tmp_path / "none.yaml", mode="compare"):
        provider.ask()
    with pytest.raises(CassetteMissing, match="no such cassette"), use(tmp_path / "none.yaml", mode="compare"):
        pass
    assert not (tmp_path / "none.yaml").exists()


def test_failures_that_were_retried_are_not_compared(provider: Provider, path: Path) -> None:
    provider.busy = 1
    with use(path, mode="compare") as tape:
        assert provider.ask() == b""
        provider.ask()
    assert [each.status for each in tape.responses] == [503, 200]


def test_secrets_are_in_no_line(provider: Provider, path: Path) -> None:
    provider.text = "The key is sk-abcdefghijklmnopqrstuvwxyz0123456789."
    with use(path, mode="compare") as tape:
        provider.ask()
    assert "now 'The key is " in str(tape.remarks)
    assert "sk-abc" not in str(tape.remarks)


TEST = """
import os
import httpx2
import pytest

@pytest.mark.stream_cassette
def test_it():
    text = httpx2.post(os.environ["PROVIDER"], json={"stream": True}).text
    assert "FAILS" not in text
"""


def test_with_pytest(pytester: pytest.Pytester, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER", f"{provider.url}/v1/chat/completions")
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider -p no:xdist -p no:asyncio -p no:randomly -p no:rerunfailures\n")
    pytester.makepyfile(TEST)
    pytester.runpytest_inprocess("--stream-record=once").assert_outcomes(passed=1)
    same = pytester.runpytest_inprocess("--stream-record=compare")
    same.assert_outcomes(passed=1)
    same.stdout.fnmatch_lines(["*: the wire shape is the recorded one"])
    provider.old, provider.new = b'"index":0', b'"index":0,"logprobs":null'
    drifted = pytester.runpytest_inprocess("--stream-record=compare")
    drifted.assert_outcomes(failed=1)
    drifted.stdout.fnmatch_lines(["*Drifted*", "*logprobs*", "*--stream-record=all*"])
    # The model may say what the test does not expect; what the wire has become is told all the same.
    provider.text = "FAILS"
    failed = pytester.runpytest_inprocess("--stream-record=compare")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*AssertionError*", "*logprobs*"])


@pytest.mark.parametrize(
    ("options", "marker"),
    [
        (["--stream-timing=warp"], ""),
        (["-o", "stream_cassette_timing=warp"], ""),
        ([], "timing='warp'"),
        (["--stream-timing=x0", "-o", "stream_cassette_timing=warp"], ""),
        (["--stream-timing=recorded"], "timing='warp'"),
    ],
)
def test_the_pace_is_a_setting_like_others(
    pytester: pytest.Pytester, provider: Provider, monkeypatch: pytest.MonkeyPatch, options: list[str], marker: str
) -> None:
    monkeypatch.setenv("PROVIDER", f"{provider.url}/v1/chat/completions")
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider -p no:xdist -p no:asyncio -p no:randomly -p no:rerunfailures\n")
    pytester.makepyfile(TEST.replace("stream_cassette\n", f"stream_cassette({marker})\n"))
    result = pytester.runpytest_inprocess("--stream-record=once", *options)
    wins = any(option in ("--stream-timing=x0", "--stream-timing=recorded") for option in options)
    result.assert_outcomes(**({"passed": 1} if wins else {"errors": 1}))
    if not wins:
        result.stdout.fnmatch_lines(["*TapeError: timing cannot be 'warp'"])

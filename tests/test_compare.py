"""The mode `compare`: the provider is asked, nothing is written, and another wire shape than the recorded one fails the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

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
        self.busy, self.status = 0, 200
        self.url = ""

    def __call__(self, request: Request) -> Exchange:
        if self.busy:
            self.busy -= 1
            return Exchange(request, 503, (), ())
        if self.status != 200:
            error = Read(0, b'{"error":{"message":"no"}}')
            return Exchange(request, self.status, (("content-type", "application/json"),), (error,))
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


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (401, "status: recorded 200, now 401; is the key right?"),
        (403, "status: recorded 200, now 403; is the key right?"),
        (404, "status: recorded 200, now 404"),
        (429, "status: recorded 200, now 429"),
        (500, "status: recorded 200, now 500"),
    ],
)
def test_code_that_takes_an_error_for_an_answer_hides_nothing(
    provider: Provider, path: Path, status: int, line: str
) -> None:
    provider.status = status
    with pytest.raises(Drifted) as caught, use(path, mode="compare"):
        provider.ask()
    assert f"  POST {provider.url}/v1/chat/completions: {line}" in caught.value.what.splitlines()


def test_a_refusal_of_what_is_not_recorded_is_told(provider: Provider, path: Path) -> None:
    provider.status = 401
    with pytest.raises(Drifted) as caught, use(path, mode="compare"):
        provider.ask("Where?")
    assert "nothing is recorded to compare it with (status 401; is the key right?)" in caught.value.what


def test_a_challenge_that_was_recorded_is_compared_as_such(provider: Provider, tmp_path: Path) -> None:
    provider.status = 401
    with use(tmp_path / "x.yaml", mode="once", keep_failures=True):
        provider.ask()
    with use(tmp_path / "x.yaml", mode="compare") as tape:
        provider.ask()
    assert [line.partition("completions: ")[2] for line in tape.remarks] == ["the wire shape is the recorded one"]


def insist(provider: Provider) -> None:
    for _ in range(2):
        with suppress(httpx2.ConnectError):
            provider.ask()


def test_a_provider_that_was_not_reached_fails_unless_the_client_came_through(tmp_path: Path) -> None:
    path, provider = tmp_path / "x.yaml", Provider()
    with serve(provider, paced=False) as server, use(path, mode="once"):
        provider.url = server.url
        provider.ask()
    with pytest.raises(Drifted) as caught, use(path, mode="compare") as tape:
        insist(provider)
    line = f"POST {provider.url}/v1/chat/completions: no response came (ConnectError)"
    assert caught.value.what.splitlines()[1:] == [f"  {line}"]
    assert caught.value.mend == "see that the provider can be reached"
    assert tape.remarks == (f"{path}: {line}",)

    with use(path, mode="compare") as tape:
        with pytest.raises(httpx2.ConnectError):
            provider.ask()
        with serve(provider, port=urlsplit(provider.url).port, paced=False):
            provider.ask()
    assert [line.partition("completions: ")[2] for line in tape.remarks] == ["the wire shape is the recorded one"]


def test_recordings_that_nothing_asked_for_are_told(provider: Provider, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for test, questions in (("one", ["Who?", "When?", "When?"]), ("other", ["Where?"])):
        with use(path, mode="once", test=test):
            for question in questions:
                provider.ask(question)
    with use(path, mode="compare", test="one", unplayed="error") as tape:
        provider.ask()
    named = f"(POST {provider.url}/v1/chat/completions)"
    assert [line for line in tape.remarks if "not asked" in line] == [
        f"{path}: interaction 1 {named}: not asked for, so not compared",
        f"{path}: interaction 3 {named}: not asked for, so not compared",
    ]


def test_a_test_that_asks_nothing_has_compared_nothing(path: Path) -> None:
    with pytest.raises(Drifted, match="asked nothing") as caught, use(path, mode="compare"):
        pass
    assert str(path) in str(caught.value)


def test_a_test_that_only_reads_its_recording_asks_nobody_in_any_mode(path: Path) -> None:
    with use(path, mode="compare") as tape:
        assert tape.reply.text == "Low tide."


@pytest.mark.parametrize("reads", [0, 1])
def test_a_client_that_leaves_early_compares_what_it_has_read(provider: Provider, path: Path, reads: int) -> None:
    def ask() -> None:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "When?"}]}
        with httpx2.stream("POST", f"{provider.url}/v1/chat/completions", json=body) as response:
            for _, _ in zip(range(reads), response.iter_raw(40), strict=False):
                pass

    with use(path, mode="compare") as tape:
        ask()
    told = "the wire shape is the recorded one, as far as it was read"
    assert sum(told in line for line in tape.remarks) == 1
    provider.old, provider.new = b"data: {", b'data: {"new":1,'
    if reads:
        with pytest.raises(Drifted, match=r"field new came \(number\)"), use(path, mode="compare"):
            ask()


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
    pytester.makeini(
        "[pytest]\naddopts = -p no:cacheprovider -p no:xdist -p no:asyncio -p no:randomly -p no:rerunfailures\n"
    )
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


LEFT_OPEN = """
import os
import httpx2
import pytest

@pytest.fixture(scope="module")
def client():
    with httpx2.Client() as client:
        yield client

@pytest.mark.stream_cassette
def test_it(client):
    response = client.send(client.build_request("POST", os.environ["PROVIDER"], json={"stream": True}), stream=True)
    text = response.iter_text()
    while "[DONE]" not in next(text):
        pass
    client.kept = response, text
"""


def test_a_response_that_is_still_open_at_the_end_of_the_test_is_compared(
    pytester: pytest.Pytester, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER", f"{provider.url}/v1/chat/completions")
    pytester.makeini(
        "[pytest]\naddopts = -p no:cacheprovider -p no:xdist -p no:asyncio -p no:randomly -p no:rerunfailures\n"
    )
    pytester.makepyfile(LEFT_OPEN)
    pytester.runpytest_inprocess("--stream-record=once").assert_outcomes(passed=1)
    same = pytester.runpytest_inprocess("--stream-record=compare")
    same.assert_outcomes(passed=1)
    same.stdout.fnmatch_lines(["*: the response was neither read to its end nor closed*"])
    provider.old, provider.new = b'"index":0', b'"index":0,"logprobs":null'
    drifted = pytester.runpytest_inprocess("--stream-record=compare")
    drifted.assert_outcomes(failed=1)
    drifted.stdout.fnmatch_lines(["*Drifted*", "*logprobs*"])


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
    pytester.makeini(
        "[pytest]\naddopts = -p no:cacheprovider -p no:xdist -p no:asyncio -p no:randomly -p no:rerunfailures\n"
    )
    pytester.makepyfile(TEST.replace("stream_cassette\n", f"stream_cassette({marker})\n"))
    result = pytester.runpytest_inprocess("--stream-record=once", *options)
    wins = any(option in ("--stream-timing=x0", "--stream-timing=recorded") for option in options)
    result.assert_outcomes(**({"passed": 1} if wins else {"errors": 1}))
    if not wins:
        result.stdout.fnmatch_lines(["*TapeError: timing cannot be 'warp'"])

"""The tape's settings and remarks as a user of pytest meets them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import httpcore2  # noqa: F401 - loaded here, because httpx2 loads it late, and what a run in this process loads is unloaded after it
import pytest

from stream_cassette import Reply, serve, synthesize
from stream_cassette.cassette import load, update
from stream_cassette.model import Exchange, Headers, Read, Request, TextPart
from stream_cassette.server import Server

AGENT = """
import os
import httpx2

URL = os.environ["PROVIDER"]

def ask(question="hi", session="s1"):
    body = {"messages": [{"role": "user", "content": question}], "metadata": {"session": session}}
    return httpx2.post(URL, json=body, verify=False).content
"""
TEST = """
import pytest
from agent import *

@pytest.mark.stream_cassette(MARKER)
def test_it(stream_cassette):
    CODE
"""
REPLY = Reply((TextPart("Low tide."),), "stop", ended=True)


class Provider:
    """Answers under an id of its own each time, and before that fails as often as it is told to."""

    def __init__(self) -> None:
        self.failures, self.failure = 0, 503
        self.headers: Headers = ()
        self.numbers = itertools.count(100)

    def __call__(self, request: Request) -> Exchange:
        if self.failures:
            self.failures -= 1
            return Exchange(request, self.failure, (), ())
        exchange = synthesize(REPLY, "openai-chat", request=request).exchange
        head = f'data: {{"id":"chatcmpl-{next(self.numbers)}","choices":[]}}\n\n'.encode()
        return Exchange(request, 200, (*exchange.headers, *self.headers), (Read(0, head), *exchange.reads))


@pytest.fixture
def answer() -> Provider:
    return Provider()


@pytest.fixture
def server(answer: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serve(answer, paced=False) as server:
        monkeypatch.setenv("PROVIDER", f"{server.url}/v1/chat/completions")
        yield server


@pytest.fixture
def project(pytester: pytest.Pytester, server: Server) -> pytest.Pytester:
    pytester.makepyfile(agent=AGENT)
    pytester.makeini(
        "[pytest]\nfilterwarnings = error\n"
        "addopts = --strict-markers -p no:cacheprovider -p no:xdist -p no:hypothesispytest -p no:asyncio -p no:randomly -p no:rerunfailures -p no:timeout\n"
    )
    return pytester


def run(project: pytest.Pytester, code: str = "ask()", *options: str, marker: str = "") -> pytest.RunResult:
    text = TEST.replace("CODE", code.replace("; ", "\n    ")).replace("MARKER", marker)
    if not (project.path / "test_agent.py").exists() or (project.path / "test_agent.py").read_text() != text:
        project.makepyfile(test_agent=text)
    return project.runpytest_inprocess(*options)


def cassette(project: pytest.Pytester) -> Path:
    return project.path / "cassettes" / "test_agent" / "test_it.yaml"


def summary(result: pytest.RunResult) -> list[str]:
    lines = result.outlines
    start = next((place for place, line in enumerate(lines) if " stream cassettes " in line), None)
    if start is None:
        return []
    return [line for line in itertools.takewhile(lambda line: line[:1] not in ("=", "!"), lines[start + 1 :]) if line]


# ------------------------------------------------------------------------------------------------------------------- ignoring


@pytest.mark.parametrize(
    ("marker", "options", "fixture"),
    [
        ("ignore=['metadata.session']", [], ""),
        ("ignore='metadata.session'", [], ""),
        ("", ["-o", "stream_cassette_ignore=messages[*].id\nmetadata.session"], ""),
        ("", [], "@pytest.fixture\ndef stream_cassette_config(): return {'ignore': ['metadata.session']}"),
    ],
    ids=["marker", "text", "ini", "fixture"],
)
def test_ignoring(project: pytest.Pytester, marker: str, options: list[str], fixture: str) -> None:
    project.makeconftest(f"import pytest\n{fixture}\n")
    run(project, "ask()", "--stream-record=once", *options, marker=marker).assert_outcomes(passed=1)
    run(project, "ask(session='s2')", *options, marker=marker).assert_outcomes(passed=1)
    result = run(project, "ask('Weather?', session='s2')", *options, marker=marker)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*CassetteMiss*", "*body.messages[[]0[]].content: recorded 'hi', now 'Weather?'"])
    assert "session" not in str(result.stdout).partition("CassetteMiss")[2].partition("mend:")[0]


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("ignore=['']", "is no path into a JSON body"),
        ("unplayed='maybe'", "unplayed cannot be 'maybe'"),
        ("allow_hosts=['a:b']", "'a:b' is no host"),
    ],
)
def test_what_a_setting_cannot_be(project: pytest.Pytester, marker: str, words: str) -> None:
    result = run(project, marker=marker)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{words}*", "*mend:*"])


# ------------------------------------------------------------------------------------------------------------- what is left over


def test_what_was_not_played_stands_at_the_end_of_the_run(project: pytest.Pytester) -> None:
    run(project, "ask(); ask('two')", "--stream-record=once").assert_outcomes(passed=1)
    result = run(project, "ask('two')")
    result.assert_outcomes(passed=1)
    (line,) = summary(result)
    assert line.startswith(f"{cassette(project)}, interaction 1 (POST ")
    assert line.endswith(": not played by test_agent.py::test_it")
    assert summary(run(project, "ask('two')", "-o", "stream_cassette_unplayed=ignore")) == []
    assert summary(run(project, "ask('two'); assert False")) == []
    assert summary(run(project, "ask(); ask('two')")) == []


def test_what_was_not_played_may_be_an_error(project: pytest.Pytester) -> None:
    run(project, "ask(); ask('two')", "--stream-record=once").assert_outcomes(passed=1)
    result = run(project, "ask('two')", marker="unplayed='error'")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*Unplayed: nothing asked for what is recorded for this test", "*interaction 1 (POST*"]
    )
    assert summary(result) == []


# --------------------------------------------------------------------------------------------------------------------- hosts


def test_a_live_socket_fails_the_test(project: pytest.Pytester, server: Server) -> None:
    live = "import urllib.request; urllib.request.urlopen(URL, timeout=5)"
    run(project, "ask()", "--stream-record=once").assert_outcomes(passed=1)
    result = run(project, f"ask(); {live}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*LiveConnection: urllib.request goes to the network while the recording is replayed: 127.0.0.1*"]
    )
    result.stdout.fnmatch_lines(["*where: *test_agent.py:*"])
    port = server.url.rpartition(":")[2]
    for option in ("stream_cassette_allow_loopback=true", f"stream_cassette_allow_hosts=db.internal\n127.0.0.1:{port}"):
        result = run(project, f"{live}; stream_cassette.reply", "-o", option)
        result.assert_outcomes(passed=1)


# ------------------------------------------------------------------------------------------------------------------- recording


@pytest.mark.parametrize(
    ("marker", "options", "statuses"),
    [
        ("", [], [200]),
        ("keep_failures=True", [], [503, 200]),
        ("", ["-o", "stream_cassette_keep_failures=true"], [503, 200]),
        ("keep_failures=False", ["-o", "stream_cassette_keep_failures=true"], [200]),
    ],
)
def test_retries(
    project: pytest.Pytester, answer: Provider, marker: str, options: list[str], statuses: list[int]
) -> None:
    answer.failures = 1
    run(project, "ask() or ask()", "--stream-record=once", *options, marker=marker).assert_outcomes(passed=1)
    assert [each.exchange.status for each in load(cassette(project)).interactions] == statuses


def test_recording_again_changes_nothing(project: pytest.Pytester) -> None:
    run(project, "ask()", "--stream-record=all").assert_outcomes(passed=1)
    before = cassette(project).read_text()
    assert "chatcmpl-100" in before
    run(project, "ask()", "--stream-record=all").assert_outcomes(passed=1)
    assert cassette(project).read_text() == before
    # A snapshot that is stored now has the ids of now, so the recording must have them too.
    run(project, "ask()", "--stream-record=all", "--stream-snapshot-update").assert_outcomes(passed=1)
    assert "chatcmpl-102" in cassette(project).read_text()


def test_what_a_person_should_know_of_a_recording(project: pytest.Pytester, answer: Provider) -> None:
    answer.headers = (("content-encoding", "aes128gcm"),)
    result = run(project, "ask()", "--stream-record=once")
    result.assert_outcomes(passed=1)
    line, written = summary(result)
    assert written == "cassettes/test_agent/test_it.yaml: 1 exchange recorded"
    assert line.startswith(f"{cassette(project)}: POST http://127.0.0.1:")
    assert "nothing here decodes aes128gcm; the body is stored as it came" in line


def test_a_recording_that_cannot_be_saved_fails_its_test_alone(project: pytest.Pytester, answer: Provider) -> None:
    (project.path / "cassettes").mkdir()
    (project.path / "cassettes" / "bad").write_text("no folder")
    project.makepyfile(
        test_agent="""
import pytest
from agent import *

@pytest.mark.stream_cassette("bad/one")
def test_one():
    ask()

@pytest.mark.stream_cassette
def test_it():
    ask()
"""
    )
    result = project.runpytest_inprocess("--stream-record=all")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*CassetteError*", "*where: *cassettes/bad/one.yaml*", "*mend: *"])
    assert load(cassette(project)).interactions
    # Nothing was asked for a recording that nothing could take.
    assert next(answer.numbers) == 101


def test_a_broken_cassette_costs_no_request(project: pytest.Pytester, answer: Provider) -> None:
    cassette(project).parent.mkdir(parents=True)
    for text in ("", "format: ["):
        cassette(project).write_text(text)
        for mode in ("once", "new", "all"):
            result = run(project, "ask()", f"--stream-record={mode}")
            result.assert_outcomes(errors=1)
            result.stdout.fnmatch_lines(
                [
                    "*mend:  restore the file from version control, or delete it and record it anew:",
                    "             pytest test_agent.py::test_it --stream-record=once",
                ]
            )
    assert next(answer.numbers) == 100


def test_what_was_written_stands_at_the_end_of_the_run(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
import pytest
from agent import *

@pytest.mark.parametrize("word", ["a", "b"])
@pytest.mark.stream_cassette("shared")
def test_it(word, stream_snapshot):
    ask(word)
    assert word == stream_snapshot
    assert len(word) == stream_snapshot
"""
    )
    snapshots = [f"cassettes/test_agent/test_it[{word}].snap.yaml: 2 snapshots stored" for word in "ab"]
    recorded = "cassettes/shared.yaml: 2 exchanges recorded"
    options = ("--stream-record=all", "--stream-snapshot-update")
    assert summary(project.runpytest_inprocess(*options)) == [recorded, *snapshots]
    assert summary(project.runpytest_inprocess("--stream-record=all")) == [f"{recorded}, the same as before"]
    assert summary(project.runpytest_inprocess("-o", "stream_cassette_dir=cassettes")) == []
    elsewhere = project.path.parent / "elsewhere"
    options = (*options, "-o", f"stream_cassette_dir={elsewhere}", "test_agent.py::test_it[a]")
    assert summary(project.runpytest_inprocess(*options))[0] == f"{elsewhere}/shared.yaml: 1 exchange recorded"
    project.makeini("[pytest]\naddopts = -p no:cacheprovider -p no:hypothesispytest\n")
    result = project.runpytest_subprocess("-n2", "-p", "xdist", "--stream-record=all", "--stream-snapshot-update")
    assert summary(result) == [recorded]


def test_what_was_refused_stands_at_the_end_of_the_run(project: pytest.Pytester, answer: Provider) -> None:
    answer.failures, answer.failure = 9, 401
    result = run(project, "ask()", "--stream-record=once")
    result.assert_outcomes(passed=1)
    (line,) = summary(result)
    assert line.endswith(": not recorded: 401; is the key right? (keep_failures=True records it)")
    assert not cassette(project).exists()
    run(project, "ask()", "--stream-record=once", marker="keep_failures=True").assert_outcomes(passed=1)
    assert [each.exchange.status for each in load(cassette(project)).interactions] == [401]


LEAVE = "httpx2.stream('POST', URL, json={'messages': []}).__enter__(); "
UNITTEST = """
import unittest
import pytest
from agent import *

@pytest.mark.stream_cassette
class TestIt(unittest.TestCase):
    def test_it(self):
        CODE
"""


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("ask(); assert False", None),
        ("ask(); pytest.skip('enough')", None),
        ("ask(); raise SystemExit(3)", None),
        (LEAVE + "assert False", "the test failed"),
        ("ask(); raise KeyboardInterrupt", "interrupted"),
        ("ask(); pytest.exit('enough')", "interrupted"),
    ],
)
def test_a_recording_of_a_test_that_does_not_pass(project: pytest.Pytester, code: str, why: str | None) -> None:
    for text in (TEST, UNITTEST):
        if text is UNITTEST and "skip" in code:
            continue
        indent = "\n        " if text is UNITTEST else "\n    "
        project.makepyfile(test_agent=text.replace("CODE", code.replace("; ", indent)).replace("MARKER", ""))
        result = project.runpytest_inprocess("--stream-record=once", no_reraise_ctrlc=True)
        paths = sorted(project.path.glob("cassettes/*/*.yaml"))
        assert bool(paths) == (why is None)
        lines = summary(result)
        if why is not None:
            assert [line.partition(": ")[2] for line in lines] == [
                f"1 exchange not kept: {why}; a recording in part would miss the rest"
            ]
        for path in paths:
            path.unlink()


def test_a_recording_of_a_test_that_does_not_come_to_run(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agent="""
import pytest
from agent import *

@pytest.fixture
def broken(stream_cassette):
    ask()
    raise LookupError

@pytest.mark.stream_cassette
def test_it(broken):
    pass
"""
    )
    result = project.runpytest_inprocess("--stream-record=once")
    result.assert_outcomes(errors=1)
    (line,) = summary(result)
    assert "not kept: the test did not come to run" in line
    assert not cassette(project).exists()


# ------------------------------------------------------------------------------------------------------------------------ age


def test_an_old_cassette_is_named(project: pytest.Pytester) -> None:
    run(project, "ask()", "--stream-record=once").assert_outcomes(passed=1)
    from dataclasses import replace

    assert summary(run(project, "ask()", "-o", "stream_cassette_max_age=1")) == []
    update(cassette(project), lambda old: replace(old, at="2020-01-01T00:00:00Z"))
    assert summary(run(project, "ask()")) == []
    result = run(project, "ask()", "-o", "stream_cassette_max_age=90")
    result.assert_outcomes(passed=1)
    (line,) = summary(result)
    assert line.startswith(f"{cassette(project)}: recorded ")
    assert line.endswith(" days ago (2020-01-01T00:00:00Z), longer than stream_cassette_max_age = 90; record it again")
    result = run(project, "ask()", "-o", "stream_cassette_max_age=soon")
    result.stdout.fnmatch_lines(["*stream_cassette_max_age cannot be 'soon'*", "*a number of days*"])


def test_the_remarks_of_workers_are_gathered(project: pytest.Pytester) -> None:
    run(project, "ask(); ask('two')", "--stream-record=once").assert_outcomes(passed=1)
    project.makepyfile(test_agent=TEST.replace("CODE", "ask('two')").replace("MARKER", ""))
    project.makeini("[pytest]\naddopts = -p no:cacheprovider -p no:hypothesispytest\n")
    result = project.runpytest_subprocess("-n1", "-p", "xdist")
    result.assert_outcomes(passed=1)
    assert [line.endswith("not played by test_agent.py::test_it") for line in summary(result)] == [True]


# --------------------------------------------------------------------------------------------------------------- kept headers


@pytest.mark.parametrize(
    ("marker", "options"),
    [
        ("keep_headers=['X-Request-Id', 'set-cookie']", []),
        ("", ["-o", "stream_cassette_keep_headers=x-request-id\nset-cookie"]),
    ],
    ids=["marker", "ini"],
)
def test_headers_that_are_kept(project: pytest.Pytester, answer: Provider, marker: str, options: list[str]) -> None:
    answer.headers = (("x-request-id", "req_7"), ("set-cookie", "sid=0123456789abcdef"), ("server", "x"))
    run(project, "ask()", "--stream-record=once", *options, marker=marker).assert_outcomes(passed=1)
    headers = dict(load(cassette(project)).interactions[0].exchange.headers)
    assert headers == {"content-type": "text/event-stream", "x-request-id": "req_7", "set-cookie": "REDACTED"}


def test_what_is_left_out_after_a_retry_is_told(project: pytest.Pytester, answer: Provider) -> None:
    answer.failures = 2
    result = run(project, "ask(); ask(); ask()", "--stream-record=once")
    result.assert_outcomes(passed=1)
    (line,) = [line for line in summary(result) if "left out" in line]
    assert line.endswith(
        "2 tries left out (503, 503), after which the client tried again with success; keep_failures=True records them"
    )


def test_a_header_that_is_none_cannot_be_kept(project: pytest.Pytester) -> None:
    result = run(project, marker="keep_headers='x-request-id: 7'")
    result.stdout.fnmatch_lines(
        ["*TapeError: 'x-request-id: 7' is no name of a header", "*keep_headers=[[]'x-request-id'[]]*"]
    )

"""Mutators as test items: `mutate=` on the marker, cassettes collected for an assembler, and real clients fed with mutated streams."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx2
import openai
import pytest

import stream_cassette.clients
import stream_cassette.collecting
import stream_cassette.settings
import stream_cassette.snapshot
from stream_cassette import Reply, assemble, fuzz, use
from stream_cassette.errors import CassetteMiss, LawBroken, NotApplicable, TapeError
from stream_cassette.model import TextPart
from stream_cassette.mutate import (
    CutAfterFrame,
    CutBeforeFinish,
    Disconnect,
    DropUsage,
    HttpError,
    InterleaveToolCalls,
    OneByteReads,
    Ping,
    Quirk,
    Rechunk,
    Refragment,
    Stall,
)
from stream_cassette.mutate.items import items, name_of, settled
from streams import CALLS, EVERY

INI = "[pytest]\npythonpath = .\naddopts = --strict-markers -p no:cacheprovider -p no:xdist -p no:hypothesispytest -p no:randomly\n"

TEST = """
import pytest
from stream_cassette import assemble
from stream_cassette.mutate import *

@pytest.mark.stream_cassette("shared/calls", mutate=["wire", InterleaveToolCalls(order=(0, 1)), CutBeforeFinish, Quirk("index-missing")])
def test_mine(stream_cassette):
    stream_cassette.check(assemble(stream_cassette.reads))
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini(INI)
    fuzz.save(pytester.path / "cassettes" / "shared" / "calls.yaml", CALLS)
    return pytester


def test_one_readable_item_for_each_mutator(project: pytest.Pytester) -> None:
    project.makepyfile(TEST)
    listed = project.runpytest_inprocess("--collect-only", "-q")
    listed.stdout.fnmatch_lines(
        [
            "*test_mine[[]Rechunk[]]",
            "*[[]OneByteReads[]]",
            "*InterleaveToolCalls(order=(0, 1))*",
            "*CutBeforeFinish*",
            "*Quirk(index-missing)*",
        ]
    )
    project.runpytest_inprocess().assert_outcomes(passed=8)


def test_the_law_of_the_item_is_checked(project: pytest.Pytester) -> None:
    project.makepyfile(TEST.replace("assemble(stream_cassette.reads)", "{'text': 'x', 'complete': True}"))
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=8)
    result.stdout.fnmatch_lines(
        ["*the law of Rechunk*", "*text: expected*", "*a clean success of a stream that broke*"]
    )


def test_a_client_that_raises_on_a_broken_stream_has_obeyed(project: pytest.Pytester) -> None:
    project.makepyfile(
        TEST.replace(
            "stream_cassette.check(assemble(stream_cassette.reads))", "stream_cassette.check(ValueError('cut'))"
        )
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=7)
    result.stdout.fnmatch_lines(["*broken: *raised ValueError: cut", "*fed: *bytes; *"])
    assert "telling.py" not in str(result.stdout)


@pytest.mark.parametrize("mode", ["all", "compare"])
def test_the_provider_is_asked_once_and_not_for_each_mutator(project: pytest.Pytester, mode: str) -> None:
    from stream_cassette import serve, synthesize

    text = """
import httpx2, pytest
from stream_cassette import assemble

@pytest.mark.stream_cassette(mutate=["wire", "cut"])
def test_tide(stream_cassette):
    with httpx2.stream("POST", URL + "/v1/chat/completions", json={"stream": True}) as response:
        stream_cassette.check(assemble(response.iter_raw()))
"""
    reply = Reply((TextPart("Low tide at six."),), "stop", ended=True)
    with serve(lambda request: synthesize(reply, "openai-chat", request=request).exchange) as provider:
        project.makepyfile(f"URL = {provider.url!r}\n{text}")
        project.runpytest_inprocess("--stream-record=once", "-k", "OneByteReads").assert_outcomes(
            passed=1, deselected=8
        )
        project.runpytest_inprocess(f"--stream-record={mode}").assert_outcomes(passed=1)
        assert len(provider.requests) == 2
    assert project.runpytest_inprocess().parseoutcomes()["passed"] > 5


def test_what_does_not_apply_is_skipped_with_its_reason(project: pytest.Pytester) -> None:
    project.makepyfile(TEST.replace('"wire"', 'Quirk("json-array")'))
    result = project.runpytest_inprocess("-rs")
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["*not applicable: openai-chat has no quirk 'json-array'*"])


def test_a_wrong_level_says_which_there_are(project: pytest.Pytester) -> None:
    project.makepyfile(TEST.replace('"wire"', '"wired"'))
    result = project.runpytest_inprocess()
    result.stdout.fnmatch_lines(["*mutate cannot be 'wired'*", "*one of all, wire, framing*"])


def test_all_items_of_a_test_play_what_the_test_recorded(project: pytest.Pytester) -> None:
    from stream_cassette import serve, synthesize

    reply = Reply((TextPart("Sunny in Pune."),), "stop", ended=True)
    text = """
import httpx2, pytest
from stream_cassette import assemble

@pytest.mark.parametrize("city", ["a-b", "c"])
@pytest.mark.stream_cassette(mode="once", mutate=["wire"])
def test_city(stream_cassette, city):
    with httpx2.stream("POST", URL + "/v1/chat/completions", json={"city": city}) as response:
        stream_cassette.check(assemble(response.iter_raw()))
"""
    with serve(lambda request: synthesize(reply, "openai-chat", request=request).exchange) as provider:
        project.makepyfile(f"URL = {provider.url!r}\n{text}")
        result = project.runpytest_inprocess()
        assert result.parseoutcomes().get("failed", 0) == 0
        assert len(provider.requests) == 2
    project.runpytest_inprocess("--stream-record=none").assert_outcomes(passed=8, skipped=2)


def test_cassettes_are_collected_for_an_assembler(project: pytest.Pytester) -> None:
    project.makepyfile(
        mine="from stream_cassette import assemble\n\ndef wrong(reads):\n    return len(list(reads))\n\nclass Holder:\n    right = assemble\n"
    )
    result = project.runpytest_inprocess(
        "cassettes", "--stream-assembler=stream_cassette:assemble", "--stream-levels=wire,cut", "-v"
    )
    result.assert_outcomes(passed=9, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*calls.yaml*as recorded*PASSED*",
            "*calls.yaml*Rechunk*PASSED*",
            "mutator*passed*failed*not applicable*",
            "Rechunk *1 *0 *0*",
            "mutators that had nothing to act on: 1",
        ]
    )
    result = project.runpytest_inprocess("cassettes", "--stream-assembler=mine:wrong", "--stream-levels=wire")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*the law of OneByteReads() is broken*", "*keep it:*"])
    project.runpytest_inprocess(
        "cassettes", "--stream-assembler=stream_cassette:assemble", "--stream-levels=wire", "--stream-feed=payloads"
    ).assert_outcomes(passed=1, skipped=5)


def test_a_cassette_without_a_stream_and_one_that_is_broken(project: pytest.Pytester) -> None:
    (project.path / "cassettes" / "shared" / "calls.yaml").unlink()
    (project.path / "cassettes" / "empty.yaml").write_text("format: 1\nrecorded: {at: '', by: ''}\ninteractions: []\n")
    (project.path / "cassettes" / "x.snap.yaml").write_text("format: 1\nsnapshots: []\n")
    project.runpytest_inprocess(
        "cassettes", "--stream-assembler=stream_cassette:assemble", "--stream-levels=loss"
    ).assert_outcomes(skipped=2)
    (project.path / "cassettes" / "empty.yaml").write_text("format: [")
    result = project.runpytest_inprocess(
        "cassettes", "--stream-assembler=stream_cassette:assemble", "--stream-levels=loss"
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*not YAML*"])


@pytest.mark.parametrize(
    "name", ["nowhere:f", "stream_cassette", "stream_cassette:nothing", "stream_cassette:__all__", ":x"]
)
def test_a_wrong_assembler_is_told_before_anything_runs(project: pytest.Pytester, name: str) -> None:
    result = project.runpytest_inprocess(f"--stream-assembler={name}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*write package.module:function*"])


def test_what_does_not_act_on_a_cassette_is_not_applicable(project: pytest.Pytester) -> None:
    fuzz.save(project.path / "cassettes" / "free.yaml", DropUsage().apply(CALLS))
    result = project.runpytest_inprocess(
        "cassettes/free.yaml", "--stream-assembler=stream_cassette:assemble", "--stream-levels=loss", "-rs"
    )
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*not applicable: there is no usage*"])
    assert stream_cassette.collecting.summary({}) == []
    assert stream_cassette.collecting.summary({"passed": [object()]}) == []
    report = SimpleNamespace(user_properties=[("someone", "else's")])
    assert stream_cassette.collecting.summary({"passed": [report]}) == []


def test_an_assembler_in_the_root_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "assembler_in_the_root.py").write_text("def mine(events):\n    return 7\n")
    assert stream_cassette.collecting.assembler_of("assembler_in_the_root:mine", tmp_path)(()) == 7


def test_items_come_from_the_arguments_alone() -> None:
    assert [name for name, _ in items("loss", "t")] == ["DropUsage"]
    assert [name for name, _ in items([Rechunk((3,)), Ping, "loss", "loss"], "t")] == [
        "Rechunk(cuts=(3,))",
        "Ping",
        "DropUsage",
    ]
    assert len(items("all", "t")) > 60
    assert name_of(Quirk("x-y")) == "Quirk(x-y)"
    assert settled(CutAfterFrame, CALLS) == CutAfterFrame(4)
    assert settled(Refragment(0, (1,)), CALLS) == Refragment(0, (1,))
    with pytest.raises(TapeError, match="mutate cannot be 7"):
        items([7], "t")


# ---------------------------------------------------------------------------------------------------------------- real clients


def openai_client() -> dict[str, Any]:
    """The released helper, as a user calls it."""
    client = openai.OpenAI(api_key="none", base_url="https://api.example.com/v1", max_retries=2)
    with client, client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "?"}]) as stream:
        message = stream.get_final_completion().choices[0]
    calls = [
        {"name": call.function.name, "arguments": call.function.arguments} for call in message.message.tool_calls or []
    ]
    return {"text": message.message.content, "tool_calls": calls, "finish_reason": message.finish_reason}


async def anthropic_client() -> Any:
    async with anthropic.AsyncAnthropic(api_key="none", base_url="https://api.example.com", max_retries=2) as client:
        async with client.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]
        ) as stream:
            message = await stream.get_final_message()
    return [block.model_dump(exclude_none=True) for block in message.content]


def test_a_real_client_is_the_assembler() -> None:
    fuzz.check(openai_client, CALLS, [OneByteReads()], feed="client")
    fuzz.check(openai_client, CALLS, [InterleaveToolCalls((0, 1))], feed="client")
    fuzz.check(openai_client, CALLS, [HttpError(503, 2)], feed="client")
    fuzz.check(openai_client, CALLS, [Disconnect(900)], feed="client")
    fuzz.check(anthropic_client, EVERY["anthropic"], [HttpError(529, 1, 30)], feed="client")
    fuzz.check(anthropic_client, EVERY["anthropic"], levels=["wire"], feed="client")
    with pytest.raises(LawBroken, match="index-all-zero"):
        fuzz.check(openai_client, CALLS, [Quirk("index-all-zero")], feed="client")


@pytest.mark.parametrize(
    ("mutator", "error"), [(Disconnect(900), httpx2.RemoteProtocolError), (Stall(900), httpx2.ReadTimeout)]
)
def test_a_dead_connection_is_the_library_s_own_exception(mutator: Any, error: type[Exception]) -> None:
    def client() -> bytes:
        return httpx2.post("https://api.example.com/v1/chat/completions", json={}).content

    fuzz.check(client, CALLS, [mutator], feed="client")
    with pytest.raises(error), stream_cassette.clients.intercepted(_tape(mutator)):
        client()


def _tape(mutator: Any) -> Any:
    from stream_cassette import Tape
    from stream_cassette.mutate import answers

    return Tape.answering(answers(CALLS, [mutator]))


def test_one_request_too_many_is_a_miss() -> None:
    def twice() -> Any:
        httpx2.get("https://api.example.com/")
        return httpx2.get("https://api.example.com/").content

    with pytest.raises(LawBroken, match="every exchange has been given"):
        fuzz.check(twice, CALLS, [Ping(1)], feed="client")


def test_use_mutates(tmp_path: Path) -> None:
    path = tmp_path / "calls.yaml"
    fuzz.save(path, CALLS)

    def ask() -> bytes:
        request = CALLS.exchange.request
        return httpx2.request(request.method, request.url, content=request.body, headers=dict(request.headers)).content

    with use(path, mutate=[HttpError(503), CutBeforeFinish()]) as tape:
        assert (
            httpx2.post(
                CALLS.exchange.request.url,
                content=CALLS.exchange.request.body,
                headers={"content-type": "application/json"},
            ).status_code
            == 503
        )
        tape.check(assemble([ask()]))
        assert tape.mutators == (HttpError(503), CutBeforeFinish())
        assert not tape.reply.complete
        with pytest.raises(LawBroken, match="a clean success"):
            tape.check({"complete": True})
    with use(path) as tape:
        ask()
        tape.check(tape.reply)
    with pytest.raises(NotApplicable), use(path, mutate=[Quirk("klingon")]):
        pass
    with use(tmp_path / "none.yaml", mode="once", mutate=[Ping]):
        pass
    with pytest.raises(CassetteMiss), use(path, mutate=[Ping]):
        assert ask() != ask()

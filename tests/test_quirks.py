"""Quirks: each acts on some stream of its dialect, obeys its law, and leaves alone what it does not concern; and real clients break on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from quirk_streams import (
    CLAUDE,
    CUSTOM,
    GEMINI,
    INTERLEAVED,
    OLLAMA,
    PLAIN,
    REPEATED,
    REQUEST,
    SEQUENTIAL,
    STREAMS,
    WHOLE,
    body_stream,
    chat,
    entry,
    sse,
)
from stream_cassette import Stream, assemble, jsontext
from stream_cassette.dialects import DIALECTS, dialect
from stream_cassette.dialects.base import payload_of
from stream_cassette.dialects.binary import write_event
from stream_cassette.errors import LawBroken, NotApplicable
from stream_cassette.fuzz import check, mutations
from stream_cassette.model import Exchange, Frame, Read
from stream_cassette.mutate import (
    CutBeforeFinish,
    DropDone,
    DropUsage,
    InterleaveToolCalls,
    Quirk,
    instances,
    law_of,
    mutate,
)
from stream_cassette.mutate.laws import Law, Outcome, broken

EVERY = [(each.name, quirk) for each in DIALECTS for quirk in each.quirks]
every_quirk = pytest.mark.parametrize(("name", "quirk"), EVERY)


def spelt(stream: Stream, *quirks: str) -> Stream:
    return mutate(stream, [Quirk(quirk) for quirk in quirks])


def payloads(stream: Stream) -> list[Any]:
    return [json.loads(frame.data) for frame in stream.frames if frame.data and frame.data[0] == "{"]


def faults(stream: Stream, quirks: list[str]) -> list[str]:
    """What our own assembler breaks, as `check` has it, but quicker."""
    mutated = spelt(stream, *quirks)
    law = law_of([Quirk(quirk) for quirk in quirks])
    return broken(
        law, Outcome(stream.reply), Outcome(assemble([read.data for read in mutated.exchange.reads])), mutated.reply
    )


@every_quirk
def test_a_quirk_acts_on_some_stream_and_obeys_its_law(name: str, quirk: str) -> None:
    acted = 0
    for stream in STREAMS[name]:
        try:
            check(assemble, stream, [Quirk(quirk)])
        except NotApplicable:
            continue
        acted += 1
        assert spelt(stream, quirk).spoken == name
    assert acted


_RESPELLS_ALL = ("ascii-escapes", "comment-after-id", "json-array", "last-line-open")


@every_quirk
def test_what_a_quirk_does_not_concern_keeps_its_bytes(name: str, quirk: str) -> None:
    """However oddly it is spelt: a frame that says the same as before, and one that carries no data."""
    for stream in STREAMS[name]:
        frames = body_stream(
            name, stream.body if name.startswith("bedrock") else stream.body.replace(b'":', b'" :')
        ).frames
        edit = dialect(name).quirks[quirk].rewrite(frames)
        assert len(edit) == len(frames)
        for frame, new in zip(frames, edit, strict=True):
            same = [each for each in new if (said(each), each.event) == (said(frame), frame.event)]
            assert quirk in _RESPELLS_ALL or all(each.raw == frame.raw for each in same)
            assert frame.data is not None or frame in new or quirk == "json-array"


def said(frame: Frame) -> str | None:
    value = payload_of(frame)
    return frame.data if value is None else jsontext.dump(value)


def test_equal_names_have_equal_laws() -> None:
    """A quirk is known by its name alone before there is a stream."""
    laws: dict[str, set[Any]] = {}
    for name, quirk in EVERY:
        spelling = dialect(name).quirks[quirk]
        laws.setdefault(quirk, set()).add((spelling.erases, spelling.other_finish, spelling.more_parts))
        assert spelling.why.strip() == spelling.why != ""
        assert "\n" not in spelling.why
    assert [quirk for quirk, found in laws.items() if len(found) > 1] == []
    assert Quirk("stop-beside-calls").law == Law(finish="any")
    assert Quirk("unknown-block").law == Law(other="any")
    assert str(Quirk("unknown-block").law) == "other any"
    assert Quirk("index-missing").law == Law()


_CASES = [
    (name, at, quirk)
    for name, streams in STREAMS.items()
    for at in range(len(streams))
    for quirk in dialect(name).quirks
]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=st.sampled_from(_CASES), data=st.data())
def test_two_quirks_at_once_obey_both_laws(case: tuple[str, int, str], data: st.DataObject) -> None:
    name, at, first = case
    second = data.draw(st.sampled_from(list(dialect(name).quirks)))
    with suppress(NotApplicable):
        assert faults(STREAMS[name][at], [first, second]) == []


@pytest.mark.parametrize(
    ("stream", "quirks"),
    [
        (CLAUDE, ["input-whole-in-start", "input-key-missing"]),
        (CLAUDE, ["data-after-done", "ascii-escapes"]),
        (GEMINI, ["usage-without-candidates", "stop-on-every-chunk"]),
        (GEMINI, ["json-array", "several-parts-per-chunk"]),  # the brackets and commas of the array follow
        (GEMINI, ["json-array", "one-part-per-chunk"]),
        (PLAIN, ["choice-without-delta", "message-beside-delta"]),
        (PLAIN, ["choice-without-delta", "role-repeated"]),
        (REPEATED, ["index-all-zero", "content-key-absent"]),
    ],
    ids=str,
)
def test_quirks_one_after_the_other(stream: Stream, quirks: list[str]) -> None:
    assert faults(stream, quirks) == []


def test_corpus(corpus: Path) -> None:
    """Every quirk on every healthy captured stream of its dialect."""
    expected = json.loads((corpus / "expected.json").read_text())
    known = {each.name for each in DIALECTS}
    acted = 0
    for file, row in expected.items():
        name = row["expected"]["dialect"]
        body = (corpus / file).read_bytes()
        if name not in known or not row["expected"]["complete"] or len(body) > 50_000:
            continue
        stream = Stream(Exchange(REQUEST, 200, (), (Read(0, body),)), name)
        for quirk in dialect(name).quirks:
            try:
                assert faults(stream, [quirk]) == [], (file, quirk)
            except NotApplicable:
                continue
            acted += 1
    assert acted > 1000


# ------------------------------------------------------------------------------------------------------- where a quirk holds back

_NO_INDEX = ("index-all-zero", "index-missing", "index-missing-on-second", "index-head-and-tail-differ")
_WITHOUT_IDS = chat(
    {"tool_calls": [entry(0, "{}", "f")]}, {"tool_calls": [entry(1, "{}", "g")]}, {"finish": "tool_calls"}
)
_TEXT_BETWEEN = chat(
    {"tool_calls": [entry(0, "{}", "f", "a")]},
    {"content": "and"},
    {"tool_calls": [entry(1, "{}", "g", "b")]},
    {"finish": "tool_calls"},
)
_NAMELESS = chat({"tool_calls": [entry(0, "{}", "", "a")]}, {"content": "Low"}, {"finish": "stop"})
_UNNUMBERED = chat(
    {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}, {"finish": "tool_calls"}
)
_SPACED = chat({"tool_calls": [entry(0, '{"a": 1}', "aa", "a")]}, {"finish": "tool_calls"})
_NOT_JSON = chat({"tool_calls": [entry(0, '{"a"', "f", "a")]}, {"finish": "tool_calls"})
_WITHOUT_CLOSE = sse("anthropic", {"type": "message_start", "message": {"role": "assistant"}}, {"type": "message_stop"})
_RESTARTED = body_stream(
    "cohere",
    b"".join(
        f"data: {json.dumps({'type': 'content-start', 'index': 0, 'delta': {'message': {'content': {'text': ''}}}})}\n\n".encode()
        for _ in range(2)
    ),
)

_NO_ARGUMENTS = chat({"tool_calls": [entry(0, "", "f", "a")]}, {"finish": "tool_calls"})
_LLAMA = body_stream(
    "bedrock-invoke",
    b"".join(write_event("chunk", {"bytes": data}).raw for data in ("!", "eyJnZW5lcmF0aW9uIjoiTG93In0=")),
)
_COHERE, _CONVERSE, _COMPLETION = (
    STREAMS["cohere"][0],
    STREAMS["bedrock-converse"][-1],
    STREAMS["openai-completions"][-1],
)
_CUT_LINES = body_stream("ollama", b'{"message":{"content":"Low","tool_calls":[{}]},"done":false}\n' * 2)

NOT_APPLICABLE = [
    (PLAIN, "klingon"),
    *((INTERLEAVED, quirk) for quirk in _NO_INDEX),  # nothing would tell whose a later piece is
    *((_WITHOUT_IDS, quirk) for quirk in _NO_INDEX),
    *((_UNNUMBERED, quirk) for quirk in ("index-from-one", "identity-repeated", "arguments-whole")),
    *((_NAMELESS, quirk) for quirk in ("index-from-one", "name-fragmented")),
    (WHOLE, "name-fragmented"),  # two equal pieces would be a repeat
    (WHOLE, "arguments-whole"),
    (_SPACED, "arguments-object"),  # its spelling would be lost
    (_NOT_JSON, "arguments-object"),
    (CUSTOM, "arguments-object"),
    (CUSTOM, "legacy-function-call"),
    (SEQUENTIAL, "legacy-function-call"),  # its id would be lost
    (_TEXT_BETWEEN, "two-calls-in-one-delta"),  # the order of parts would change
    (PLAIN, "stop-beside-calls"),
    (PLAIN, "surrogate-split"),
    (PLAIN, "usage-twice"),
    (PLAIN, "usage-null-after"),
    (PLAIN, "x-groq-usage"),
    (SEQUENTIAL, "message-at-end"),
    (PLAIN, "finish-twice-stop"),
    (_WITHOUT_CLOSE, "unknown-block"),
    (_WITHOUT_CLOSE, "no-message-stop"),
    (_RESTARTED, "text-initial"),
    (spelt(GEMINI, "json-array"), "comment-as-data"),
    (spelt(GEMINI, "json-array"), "done-sentinel"),
    (spelt(GEMINI, "json-array"), "json-array"),
    (spelt(CLAUDE, "type-only-in-event-line"), "event-line-missing"),  # nothing would say the type
    (spelt(CLAUDE, "event-line-missing"), "type-only-in-event-line"),
    (mutate(CLAUDE, [CutBeforeFinish()]), "done-sentinel"),  # it would look whole
    (mutate(PLAIN, [CutBeforeFinish()]), "data-after-done"),
    (mutate(PLAIN, [CutBeforeFinish()]), "finish-twice"),
    (body_stream("openai-chat", b'{"object":"chat.completion","choices":[{"message":{"content":"Low"},"finish_reason":"stop"}]}'), "created-float"),
    (body_stream("openai-chat", b'{"object":"chat.completion","choices":[{"message":{"content":"Low"},"finish_reason":"stop"}]}'), "azure-first-chunk"),
    (body_stream("openai-chat", b'{"choices":[{"delta":{"content":"Low"}}]}\n{"choices":[{"finish_reason":"stop"}]}\n'), "data-after-done"),
    (_WITHOUT_CLOSE, "usage-double"),
    (_NO_ARGUMENTS, "same-index-twice-in-one-delta"),
    (mutate(_CONVERSE, [DropUsage()]), "usage-before-stop"),
    (_LLAMA, "metrics-missing"),  # there are no other counts
    (spelt(GEMINI, "finish-as-number"), "stop-on-every-chunk"),
    (mutate(GEMINI, [DropUsage()]), "usage-on-last-only"),
    (mutate(GEMINI, [DropUsage()]), "usage-without-candidates"),
    (_CUT_LINES, "index-in-function"),
    (_CUT_LINES, "done-with-last-text"),
    (spelt(PLAIN, "content-list"), "message-beside-delta"),
    # a second time there is nothing left to do
    *((spelt(CLAUDE, quirk), quirk) for quirk in ("ping-first", "block-before-start", "done-sentinel", "text-initial", "signature-in-start", "input-key-missing")),
    *((spelt(_COHERE, quirk), quirk) for quirk in ("arguments-whole", "text-initial")),
    *((spelt(OLLAMA, quirk), quirk) for quirk in ("arguments-text", "last-line-open", "index-in-function")),
    (spelt(PLAIN, "azure-first-chunk"), "azure-first-chunk"),
    (spelt(_CONVERSE, "usage-before-stop"), "usage-before-stop"),
    (spelt(_COMPLETION, "logprobs-missing"), "logprobs-missing"),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "quirk"), NOT_APPLICABLE, ids=lambda value: value if isinstance(value, str) else "")
def test_a_quirk_that_would_change_the_meaning_does_nothing(stream: Stream, quirk: str) -> None:
    with pytest.raises(NotApplicable):
        Quirk(quirk).apply(stream)


def test_ids_on_every_fragment_do_without_the_index() -> None:
    """What index-all-zero needs of calls that run side by side."""
    indexes = [
        each["index"]
        for chunk in payloads(spelt(REPEATED, "index-all-zero"))
        for each in chunk["choices"][0]["delta"].get("tool_calls") or []
    ]
    assert indexes == [0, 0, 0, 0]


def test_a_stream_that_is_not_terminated_gets_nothing_behind_it() -> None:
    cut = body_stream("anthropic", CLAUDE.body.rstrip(b"\n"))
    with pytest.raises(NotApplicable):
        Quirk("done-sentinel").apply(cut)


def test_a_byte_order_mark_stays_first() -> None:
    marked = body_stream("anthropic", b"\xef\xbb\xbf" + CLAUDE.body)
    for quirk in ("ping-first", "comment-after-id"):
        body = spelt(marked, quirk).body
        assert body.startswith(b"\xef\xbb\xbf"), quirk
        assert body.count(b"\xef\xbb\xbf") == 1, quirk


def test_ids_that_are_there_stay() -> None:
    """Only events without ids get ids."""
    numbered = body_stream("openai-chat", PLAIN.body.replace(b"data:", b"id: x\ndata:"))
    assert b"id: 1" not in spelt(numbered, "comment-after-id").body
    assert b"id: 1\ndata:" in spelt(PLAIN, "comment-after-id").body


def test_a_mutator_that_needs_what_a_quirk_erased_is_not_applicable() -> None:
    for first, second in (
        (Quirk("index-missing"), InterleaveToolCalls((1, 0))),
        (Quirk("data-after-done"), DropDone()),
    ):
        with pytest.raises(NotApplicable, match="which a mutator before it erased"):
            mutate(SEQUENTIAL, [first, second])


def test_instances_are_the_quirks_that_act() -> None:
    found = [each.name for each in instances(PLAIN, "quirk") if isinstance(each, Quirk)]
    assert "role-repeated" in found
    assert "index-missing" not in found
    drawn = find(mutations(PLAIN, levels=["quirk"]), lambda mutators: True)
    assert all(isinstance(each, Quirk) for each in drawn)


# ------------------------------------------------------------------------------------------------------------------ the damage

Assembler = Callable[[Iterable[bytes]], Any]
_ASK: Any = {"model": "m-1", "messages": [{"role": "user", "content": "?"}]}


def _client(body: Iterable[bytes]) -> Any:
    import httpx2
    import openai

    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=b"".join(body))
    transport = httpx2.MockTransport(lambda request: answer)
    return openai.OpenAI(
        api_key="test", base_url="http://test/v1", max_retries=0, http_client=httpx2.Client(transport=transport)
    )


def helper(body: Iterable[bytes]) -> Any:
    """The official client's own accumulation."""
    with _client(body).chat.completions.stream(**_ASK) as stream:
        for _ in stream:
            pass
        reply = stream.get_final_completion()
    choice, usage = reply.choices[0], reply.usage
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    counts = usage and {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
    return {
        "text": choice.message.content or "",
        "tool_calls": calls,
        "finish_reason": choice.finish_reason,
        "usage": counts,
    }


def loop(body: Iterable[bytes]) -> Any:
    """The loop of the textbooks."""
    text, calls, reason, counts = "", {}, None, None
    for chunk in _client(body).chat.completions.create(stream=True, **_ASK):
        if chunk.usage:
            counts = {"input_tokens": chunk.usage.prompt_tokens, "output_tokens": chunk.usage.completion_tokens}
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        text += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            known = calls.setdefault(call.index, {"name": "", "arguments": ""})
            known["name"] += call.function.name or ""
            known["arguments"] += call.function.arguments or ""
        reason = choice.finish_reason or reason
    return {"text": text, "tool_calls": list(calls.values()), "finish_reason": reason, "usage": counts}


BOTH = ("index-all-zero", "index-missing", "index-head-and-tail-differ", "identity-repeated", "arguments-object", "x-groq-usage", "choice-without-delta",
        "delta-null", "content-list", "content-list-reference", "surrogate-split", "done-without-brackets", "comment-as-data", "comment-after-id", "empty-data",
        "event-without-data")  # fmt: skip
HELPER_ALONE = (
    "index-missing-on-second",
    "index-from-one",
    "index-negative",
    "index-with-gaps",
    "usage-null-after",
    "object-missing",
    "choice-index-missing",
)


@pytest.mark.parametrize(
    ("assembler", "quirk"),
    [
        *((assembler, quirk) for assembler in (helper, loop) for quirk in BOTH),
        *((helper, quirk) for quirk in HELPER_ALONE),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_real_clients_break(assembler: Assembler, quirk: str) -> None:
    """Faults of releases of 2026; when one is mended its row goes."""
    pytest.importorskip("openai")
    pytest.importorskip("httpx2")
    with pytest.raises(LawBroken):
        check(assembler, SEQUENTIAL, [Quirk(quirk)])

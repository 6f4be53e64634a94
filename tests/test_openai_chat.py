"""OpenAI's own client on chat streams: what it makes of what we synthesise, of captured streams, and where it is known to read them otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from mistralai.client import Mistral

from judges import corpus_streams, counts, served
from strategies import replies
from stream_cassette import Reply, ToolCall, aassemble, assemble, synthesize
from stream_cassette.errors import UnknownDialect
from stream_cassette.mutate import Quirk
from streams import EVERY, RICH

ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def streamed(body: bytes, *, helper: bool) -> tuple[list[Any], Any]:
    """What the client yields, and what its helper has put together in the end."""
    with served(body, "text/event-stream") as url, openai.OpenAI(api_key="none", base_url=url, max_retries=0) as api:
        if not helper:
            return list(api.chat.completions.create(**ASK, stream=True)), None
        with api.chat.completions.stream(**ASK) as stream:
            return list(stream), stream.current_completion_snapshot


def theirs(snapshot: Any) -> dict[str, Any]:
    choice = snapshot.choices[0]
    usage = snapshot.usage
    return {
        "text": choice.message.content or "",
        "refusal": choice.message.refusal,
        "calls": [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or []],
        "finish": choice.finish_reason,
        "usage": (usage.prompt_tokens, usage.completion_tokens) if usage else (None, None),
    }


def ours(reply: Reply) -> dict[str, Any]:
    return {
        "text": reply.text,
        "refusal": reply.refusal,
        "calls": [(part.id, part.name, part.arguments_text) for part in reply.parts if isinstance(part, ToolCall)],
        "finish": reply.finish_reason,
        "usage": counts(reply, "input_tokens", "output_tokens"),
    }


def in_objects(reply: Reply) -> Reply:
    """As it reads from the client's objects, among which there is no `[DONE]`."""
    return reply if reply.finish_reason else replace(reply, ended=False)


@settings(max_examples=25, deadline=None)
@given(reply=replies("openai-chat"))
def test_the_official_client_reads_what_we_synthesise(reply: Reply) -> None:
    stream = synthesize(reply, "openai-chat")
    if reply.errors:
        with pytest.raises(openai.APIError) as caught:
            streamed(stream.body, helper=False)
        assert caught.value.message == reply.errors[0].message
        return
    chunks, _ = streamed(stream.body, helper=False)
    if reply.finish_reason:
        got = assemble(chunks)
        assert (got, got.warnings) == (reply, ())
    else:
        assert assemble(chunks, dialect="openai-chat").text == reply.text
    custom = any(
        isinstance(part, ToolCall) and part.kind == "custom" for part in reply.parts
    )  # which the helper does not know
    if not custom and (reply.parts or reply.finish_reason):
        _, snapshot = streamed(stream.body, helper=True)
        assert theirs(snapshot) == ours(reply)


def test_the_events_of_the_helper() -> None:
    events, snapshot = streamed(EVERY["openai-chat"].body, helper=True)
    assert {event.type for event in events} >= {
        "chunk",
        "content.delta",
        "content.done",
        "tool_calls.function.arguments.delta",
    }
    reply = assemble(events)
    assert (reply, reply.warnings) == (EVERY["openai-chat"].reply, ())
    assert theirs(snapshot) == ours(reply)


def test_the_events_of_the_asynchronous_helper() -> None:
    events, _ = streamed(EVERY["openai-chat"].body, helper=True)

    async def source() -> AsyncIterator[Any]:
        for event in events:
            yield event

    assert asyncio.run(aassemble(source())) == EVERY["openai-chat"].reply


def test_the_events_of_mistral_s_client_which_wraps_every_chunk() -> None:
    reply = replace(RICH, parts=RICH.parts[1:])  # its own thoughts have another shape
    stream = Quirk("arguments-whole").apply(synthesize(reply, "openai-chat"))
    with (
        served(stream.body, "text/event-stream") as url,
        Mistral(api_key="none", server_url=url) as api,
        api.chat.stream(model="m", messages=ASK["messages"]) as events,
    ):
        got = assemble(events)
    assert (got, got.warnings) == (reply, ())


def test_a_selection_of_the_helper_s_events_is_an_error_that_says_so() -> None:
    events, _ = streamed(EVERY["openai-chat"].body, helper=True)
    with pytest.raises(UnknownDialect, match=r"'content\.delta'") as caught:
        assemble([event for event in events if event.type == "content.delta"])
    assert "every event of the SDK's helper" in caught.value.mend


# Captured streams that the helper reads otherwise than they are meant: what it does, and what the stream has that it was not made for.
KNOWN: dict[str, tuple[str, str]] = {
    "chat-azure-chat-completion-streamed": ("raises AttributeError", "a choice without delta, as Azure's content filter sends"),
    "recon-content-filter-midstream": ("raises AttributeError", "a choice without delta, as Azure's content filter sends"),
    "chat-sk-chat-completion-with-data-streaming-test-response": ("raises AssertionError", "`object` is `chat.completion`: it skips what is no `chat.completion.chunk`"),
    "chat-sk-chatcompletion-test-stream-response": ("raises AssertionError", "`object` is `text_completion`: it skips what is no `chat.completion.chunk`"),
    "chat-writer-async-streaming-chat-multiple-tool-call-requests-legacy": ("raises AssertionError", "tool calls without type"),
    "recon-openai-compat-tool-calls-without-index": ("raises TypeError", "tool calls without index"),
    "chat-synchronous-streaming-chat-completions-with-tool-call-response-e": ("raises TypeError", "tool calls without index"),
    "chat-openrouter-web-search-annotations-stream": ("raises RuntimeError", "a list in the delta, whose entries have no index"),
    "chat-groq-model-web-search-tool-stream": ("usage", "counts in `x_groq` alone"),
    "chat-mistral-hybrid-reasoning-streams-thinking-separately-from-conten": ("text", "content that is a list of parts at first and a text later"),
    "chat-legacy-function-call-block2": ("calls", "the legacy `function_call`"),
    "chat-tools-streaming-variant-a": ("calls", "the id and the name again in every piece of a call"),
    "chat-tools-streaming-variant-d": ("calls", "`arguments: null`"),
    "recon-two-tool-calls-both-index-0": ("calls", "index 0 for every call"),
    "chat-streaming-responses-perplexity-sonar-supports-streaming-response": ("finish", "the last chunk's `object` is `chat.completion.done`: it skips that"),
    "chat-snowflake-model-streaming": ("refusal", "`refusal: \"\"` in every chunk"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the client about its own objects
def test_the_helper_agrees_on_captured_streams_but_for_what_is_known(corpus: Any) -> None:
    different: dict[str, str] = {}
    checked = 0
    for name, body, _ in corpus_streams(corpus, "openai-chat"):
        reply = assemble(body)
        if reply.errors:
            with pytest.raises((openai.APIError, ValueError, AssertionError)):
                streamed(body, helper=True)
            continue
        checked += 1
        try:
            events, snapshot = streamed(body, helper=True)
        except (AttributeError, AssertionError, TypeError, RuntimeError) as error:
            different[name.removesuffix(".sse")] = f"raises {type(error).__name__}"
            continue
        got, want = theirs(snapshot), ours(reply)
        if differs := [field for field in want if want[field] != got[field]]:
            different[name.removesuffix(".sse")] = ", ".join(differs)
        else:
            assert assemble(events) == in_objects(reply), name
    assert different == {name: what for name, (what, _) in KNOWN.items()}
    assert checked - len(different) >= 30

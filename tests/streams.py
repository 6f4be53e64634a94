"""Streams to mutate: one rich reply in every dialect, and some that only one dialect can say."""

from __future__ import annotations

from dataclasses import replace

from stream_cassette import Reply, Stream, ToolCall, Usage, synthesize
from stream_cassette.dialects import DIALECTS, dialect
from stream_cassette.model import (
    Arguments,
    Delta,
    End,
    Exchange,
    Finish,
    Key,
    Read,
    ReasoningPart,
    Request,
    Start,
    Text,
    TextPart,
    ToolCallStart,
    UsageUpdate,
)

REQUEST = Request(
    "POST", "https://api.example.com/v1/chat/completions", (("content-type", "application/json"),), b'{"stream":true}'
)

RICH = Reply(
    parts=(
        ReasoningPart("Look it up: 漢字.", "c2ln"),
        TextPart("One moment. 🌊 Done."),
        ToolCall(
            0, id="call_a", name="tide_times", arguments_text='{"harbour":"Oban","deep":{"x":[1,2]}}', arguments={}
        ),
        ToolCall(1, id="call_b", name="moon_phase", arguments_text='{"on":"2031-01-04","é":true}', arguments={}),
    ),
    finish_reason="tool_calls",
    usage=Usage(input_tokens=12, output_tokens=30),
    ended=True,
    role="assistant",
    model="m-1",
    id="r-1",
)


def rich(name: str) -> Stream:
    """The rich reply as the dialect `name` says it, as far as it can."""
    return synthesize(RICH, name, request=REQUEST, lossy=True)


EVERY = {each.name: rich(each.name) for each in DIALECTS}


def chat(*deltas: Delta) -> Stream:
    """A stream of OpenAI chat chunks, one event a read, 10 ms apart."""
    frames = dialect("openai-chat").write(deltas)
    reads = tuple(Read(10 * number, frame.raw) for number, frame in enumerate(frames))
    return Stream(Exchange(REQUEST, 200, (("content-type", "text/event-stream"),), reads), "openai-chat")


K, A, B = Key(), Key(0, 0), Key(0, 1)
USAGE = UsageUpdate({"input_tokens": 12, "output_tokens": 30, "total_tokens": 42}, {})

# Two calls whose arguments come in several pieces, one call after the other.
CALLS = chat(
    Start(K, "assistant", "r-1", "m-1"),
    Text(K, "One moment, 漢字 "),
    Text(K, "please.\u2028"),
    ToolCallStart(replace(A, id="call_a"), "function", "tide_times"),
    Arguments(A, '{"harbour":'),
    Arguments(A, '{"name":"Oban"}}'),
    ToolCallStart(replace(B, id="call_b"), "function", "moon_phase"),
    Arguments(B, '{"on":{"day"'),
    Arguments(B, ':4},"x":1}'),
    Finish(K, "tool_calls"),
    USAGE,
    End(),
)

# The same with the counts on the finish chunk, and every argument text in one piece.
PLAIN_USAGE = chat(
    Start(K, "assistant", "r-1", "m-1"),
    Text(K, "One moment."),
    ToolCallStart(replace(A, id="call_a"), "function", "tide_times"),
    Arguments(A, '{"harbour":"Oban"}'),
    ToolCallStart(replace(B, id="call_b"), "function", "moon_phase"),
    Arguments(B, '{"on":4}'),
    Finish(K, "tool_calls"),
    USAGE,
    End(),
)

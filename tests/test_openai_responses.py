"""OpenAI Responses: what is said three times and may be missing twice; how a change is restated; and the official client as judge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given

from strategies import replies
from stream_cassette import Assembler, assemble, synthesize
from stream_cassette.dialects import dialect
from stream_cassette.dialects.base import Hint
from stream_cassette.framing import frames, sse
from stream_cassette.lanes import resolve
from stream_cassette.model import (
    Arguments,
    Delta,
    End,
    Finish,
    Frame,
    Keepalive,
    Key,
    Opaque,
    OpaquePart,
    PartEnd,
    PartStart,
    Reasoning,
    ReasoningPart,
    RefusalPart,
    Reply,
    ReplyError,
    Signature,
    Start,
    StreamError,
    Text,
    TextPart,
    ToolCall,
    ToolCallStart,
    Unknown,
    Usage,
    UsageUpdate,
    Whole,
)

RESPONSES = dialect("openai-responses")


def event(type_: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{type_}", **fields}


def said(*payloads: dict[str, Any]) -> Reply:
    return assemble(payloads, dialect="openai-responses")


def message(text: str, id: str | None = None) -> dict[str, Any]:
    return {"type": "message", "id": id, "status": "completed", "content": [{"type": "output_text", "text": text}]}


def call(name: str, arguments: str, call_id: str | None, **more: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
        **more,
    }


def completed(*output: Any, **more: Any) -> dict[str, Any]:
    return event("completed", response={"status": "completed", "output": list(output), **more})


def delta(text: str, index: int = 0, content: int = 0, **more: Any) -> dict[str, Any]:
    return event("output_text.delta", output_index=index, content_index=content, delta=text, **more)


def texts(reply: Reply) -> list[str]:
    return [part.text for part in reply.parts if isinstance(part, TextPart)]


# ----------------------------------------------------------------------------------------------------------------- one event

K = Key(index=1, within=(0,))
ITEM = Key(index=1, within=())

EVENTS: dict[str, tuple[dict[str, Any], list[Delta]]] = {
    "the content index is missing": ({"type": "response.output_text.delta", "output_index": 1, "delta": "a"}, [Text(K, "a")]),
    "the item id is carried": (delta("a", 1, item_id="i"), [Text(Key(index=1, id="i", within=(0,)), "a")]),
    "a delta that is null": (event("output_text.delta", output_index=1, delta=None), []),
    "a text that is a number": (event("output_text.delta", output_index=1, delta=3), []),
    "summary": (event("reasoning_summary_text.delta", output_index=1, summary_index=2, delta="a"), [Reasoning(Key(index=1, within=(0, 2)), "a")]),
    "thought": (event("reasoning_text.delta", output_index=1, content_index=2, delta="a"), [Reasoning(Key(index=1, within=(1, 2)), "a")]),
    "a part of reasoning opens": (event("reasoning_summary_part.added", output_index=1, part={"type": "summary_text", "text": ""}), []),
    "arguments as an object": (event("function_call_arguments.delta", output_index=1, item_id="i", delta={"a": 1}), [Arguments(ITEM, '{"a":1}')]),
    "arguments are done": (event("function_call_arguments.done", output_index=1, arguments="{}"), [Whole(ITEM, "arguments", "{}")]),
    "a message opens": (event("output_item.added", output_index=1, item=message("") | {"content": []}), []),
    "a sealed thought opens": (
        event("output_item.added", output_index=1, item={"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"}),
        [PartStart(Key(index=1, id="r", within=()), "reasoning"), Whole(Key(index=1, id="r", within=()), "signature", "e")],
    ),
    "a tool of the provider's opens": (
        event("output_item.added", output_index=1, item={"type": "mcp_call", "id": "m"}),
        [PartStart(Key(index=1, id="m", within=()), "mcp_call"), Opaque(Key(index=1, id="m", within=()), "mcp_call", {"type": "mcp_call", "id": "m"}, True)],
    ),
    "an item that is none": (event("output_item.added", output_index=1, item=None), []),
    "an item without a type": (event("output_item.done", output_index=1, item={"a": 1}), [Opaque(Key(index=1, within=(), listed="content"), "unknown", {"a": 1}, True)]),
    "a call that was cut": (
        event("output_item.done", output_index=1, item=call("f", "{", "c", status="incomplete")),
        [
            ToolCallStart(Key(index=1, id="c", within=(), listed="content"), "function", "f"),
            Whole(Key(index=1, within=(), listed="content"), "arguments", "{"),
        ],
    ),
    "content of another kind": (
        event("content_part.done", output_index=1, content_index=0, part={"type": "output_audio"}),
        [Opaque(K, "output_audio", {"type": "output_audio"}, True)],
    ),
    "content with two notes": (
        event("content_part.done", output_index=1, part={"type": "output_text", "text": "a", "annotations": [1, 2]}),
        [Whole(K, "text", "a"), Opaque(K, "annotation", 1, True), Opaque(K, "annotation", 2)],
    ),
    "progress of a tool": (
        event("web_search_call.searching", output_index=1, item_id="w"),
        [Opaque(Key(index=1, id="w", within=()), "web_search_call", event("web_search_call.searching", output_index=1, item_id="w"))],
    ),
    "an event not known": (event("dreaming", a=1), [Unknown("message", event("dreaming", a=1))]),
    "queued": (event("queued", response={"id": "r", "model": "m", "status": "queued"}), [Start(Key(), "assistant", "r", "m")]),
    "completed says no status": (event("completed", response={}), [Start(Key(), "assistant"), Finish(Key(), "completed"), End()]),
    "completed says it is running": (event("completed", response={"status": "in_progress"}), [Start(Key(), "assistant"), Finish(Key(), "completed"), End()]),
    "cancelled": (event("cancelled", response=None), [Start(Key(), "assistant"), Finish(Key(), "cancelled"), End()]),
    "failed without a reason": (
        event("failed", response={"error": None}),
        [Start(Key(), "assistant"), StreamError("failed", "the response failed"), Finish(Key(), "failed"), End()],
    ),
    "not streamed": (
        {"object": "response", "id": "r", "status": "incomplete", "output": [], "incomplete_details": {"reason": "content_filter"}},
        [Start(Key(), "assistant", "r"), Finish(Key(), "incomplete", detail="content_filter"), End()],
    ),
    "not streamed and not done": ({"object": "response", "id": "r", "status": "queued"}, [Start(Key(), "assistant", "r")]),
    "an error in the event itself": (
        {"type": "error", "code": "rate_limit", "message": "slow down"},
        [StreamError("rate_limit", "slow down", {"type": "error", "code": "rate_limit", "message": "slow down"})],
    ),
    "an error with a null code": ({"type": "error", "code": None, "message": "m"}, [StreamError("error", "m", {"type": "error", "code": None, "message": "m"})]),
    "a nested error": ({"type": "error", "error": {"type": "server_error", "message": "m"}}, [StreamError("server_error", "m", {"type": "server_error", "message": "m"})]),
    "an event with a line end in its name": (
        event("web_search_call.\n", output_index=1),
        [Opaque(Key(index=1, within=()), "web_search_call", event("web_search_call.\n", output_index=1))],
    ),
    "keep-alive": ({"type": "keepalive", "sequence_number": 3}, [Keepalive()]),
}  # fmt: skip


@pytest.mark.parametrize("name", EVENTS)
def test_an_event(name: str) -> None:
    payload, expected = EVENTS[name]
    assert RESPONSES.deltas(payload) == expected
    frame = sse.encode(json.dumps(payload), payload.get("type", "message").strip())
    if name not in REWORDED:
        assert [each for written in RESPONSES.write(expected, frame) for each in RESPONSES.read(written)] == expected


REWORDED = {"completed says it is running", "not streamed"}  # written as what they mean


def test_how_mutators_are_to_treat_it() -> None:
    assert RESPONSES.quirks
    assert (RESPONSES.words["length"], RESPONSES.usage_rides) == (("incomplete", "max_output_tokens"), False)
    assert Reply(finish_reason=RESPONSES.words["length"][0]).stop == "length"


def test_the_type_may_stand_on_the_event_line_alone() -> None:
    (frame,) = frames(b'event: response.output_text.delta\ndata: {"output_index":0,"delta":"a"}\n\n')
    assert RESPONSES.payload(frame) == {"type": "response.output_text.delta", "output_index": 0, "delta": "a"}
    assert RESPONSES.read(frame) == RESPONSES.deltas(RESPONSES.payload(frame)) == [Text(Key(index=0, within=(0,)), "a")]
    assert RESPONSES.payload(Frame(b": c\n\n")) is None


@pytest.mark.parametrize(
    ("payload", "event", "sure"),
    [
        ({"type": "response.created"}, "message", 90),
        ({"object": "response", "output": []}, "message", 85),
        ({"response": {"object": "response"}}, "response.created", 85),
        ({"delta": "a"}, "response.output_text.delta", 80),
        ({"type": "keepalive", "sequence_number": 0}, "message", 50),
        ({"type": "error", "error": {}}, "error", 0),
        ([], "response.created", 0),
    ],
)
def test_it_is_recognised(payload: Any, event: str, sure: int) -> None:
    assert RESPONSES.recognise(Hint(payload, event=event)) == sure


# ------------------------------------------------------------------------------------- said three times, and missing twice


def test_parts_stand_in_the_order_of_their_places() -> None:
    reply = said(
        event("output_item.added", output_index=2, item=call("g", "", "b")),
        delta("second", 1, 1),
        delta("first", 1, 0),
        event("output_item.added", output_index=0, item=call("f", "", "a")),
        completed(),
    )
    assert [part.name if isinstance(part, ToolCall) else part.text for part in reply.parts] == [
        "f",
        "first",
        "second",
        "g",
    ]
    assert [call.index for call in reply.tool_calls] == [1, 0]  # of first sight


def test_a_restatement_beats_its_deltas_and_an_empty_one_wipes_nothing() -> None:
    assert said(delta("half"), event("output_text.done", output_index=0, content_index=0, text="whole")).text == "whole"
    assert said(delta("whole"), event("output_text.done", output_index=0, content_index=0, text="")).text == "whole"
    assert said(delta("whole"), completed(message(""))).text == "whole"
    assert said(delta("whole"), completed({"type": "message"}, None)).text == "whole"
    assert (
        said(
            delta("a"), event("in_progress", response={"status": "in_progress", "output": [message("ab")]}), delta("c")
        ).text
        == "abc"
    )


LISTS: dict[str, tuple[list[dict[str, Any]], list[Any], list[str]]] = {
    "nothing was streamed": ([], [message("a"), message("b")], ["a", "b"]),
    "all was streamed": ([delta("a"), delta("b", 1)], [message("a"), message("b")], ["a", "b"]),
    "a number was left out": ([delta("a", 1), delta("b", 3)], [message("a"), message("b")], ["a", "b"]),
    "a number was left out, by id": ([delta("a", 1, item_id="m")], [message("A", "m")], ["A"]),
    "the ids changed": ([delta("a", 0, item_id="m")], [message("A", "n")], ["A"]),
    "the stream was resumed": ([delta("c", 2, item_id="z")], [message("a", "x"), message("b", "y"), message("c", "z")], ["a", "b", "c"]),
    "only the last is restated": ([delta("a", 0, item_id="x"), delta("b", 1, item_id="y")], [message("B", "y")], ["a", "B"]),
    "only the last is restated, by a new id": ([delta("b", 1, item_id="y")], [call("f", "{}", "c"), message("B", "q")], ["B"]),
    "another kind stands there": ([delta("a", 0, item_id="x")], [call("f", "{}", "c"), message("A", "x"), message("b", "y")], ["A", "b"]),
    "another kind stood there": ([delta("a", 0, item_id="x"), event("output_item.added", output_index=1, item=call("f", "{}", "c"))], [message("A", "x"), message("b", "y")], ["A", "b"]),
    "content goes on counting": ([delta("a", 0, 1), delta("b", 0, 2)], [{"type": "message", "content": [{"type": "output_text", "text": text} for text in "AB"]}], ["A", "B"]),
    "content was not all streamed": ([delta("b", 0, 1)], [{"type": "message", "content": [{"type": "output_text", "text": text} for text in "ABC"]}], ["A", "B", "C"]),
    "content of which none was streamed": ([], [{"type": "message", "content": [{"type": "output_text", "text": text} for text in "AB"]}], ["A", "B"]),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_what_a_list_restates(name: str) -> None:
    streamed, output, expected = LISTS[name]
    assert texts(said(*streamed, completed(*output))) == expected
    assert texts(said(*streamed, completed(*output) | {"type": "response.in_progress"}, completed(*output))) == expected


def test_a_done_item_restates_by_position_what_was_streamed_under_other_numbers() -> None:
    done = event("output_item.done", output_index=1, item=message("whole", "m"))
    assert texts(
        said(delta("ha", 1, 1, item_id="m"), delta("lf", 1, 1, item_id="n"), done, completed(message("whole", "m")))
    ) == ["whole"]


def test_a_call_keeps_its_first_id_whatever_a_restatement_calls_it() -> None:
    added = event("output_item.added", output_index=0, item=call("f", "", "a"))
    more = event("function_call_arguments.delta", output_index=0, delta='{"x":')
    done = event("output_item.done", output_index=0, item=call("f", '{"x":1}', "b"))
    reply = said(added, more, done, completed(call("f", '{"x":1}', "c")))
    assert [(each.id, each.name, each.arguments) for each in reply.tool_calls] == [("a", "f", {"x": 1})]
    unnamed = event("output_item.added", output_index=0, item=call("", "", None))
    assert [(each.id, each.name, each.arguments) for each in said(unnamed, more, done, completed()).tool_calls] == [
        ("b", "f", {"x": 1})
    ]
    halved = event("output_item.added", output_index=0, item=call("get_", "", "a"))
    whole = event("output_item.done", output_index=0, item=call("get_weather", "{}", "a"))
    assert [each.name for each in said(halved, whole, completed()).tool_calls] == ["get_weather"]


def test_parallel_calls_of_one_name() -> None:
    added = [event("output_item.added", output_index=at, item=call("f", "", id_)) for at, id_ in enumerate("ab")]
    more = [
        event("function_call_arguments.delta", output_index=at, delta=piece)
        for at, piece in ((0, '{"n"'), (1, '{"n"'), (1, ":2}"), (0, ":1}"))
    ]
    restated = completed(call("f", '{"n":2}', "b"), call("f", '{"n":1}', "a"))
    for end in (completed(), restated):
        assert [(each.id, each.arguments) for each in said(*added, *more, end).tool_calls] == [
            ("a", {"n": 1}),
            ("b", {"n": 2}),
        ]


def test_an_item_at_a_number_that_another_kind_of_item_had() -> None:
    reply = said(
        delta("a", 0, item_id="m"), event("output_item.done", output_index=0, item=call("f", "{}", "c")), completed()
    )
    assert (reply.text, [each.id for each in reply.tool_calls]) == ("a", ["c"])


def test_an_item_without_a_number() -> None:
    reply = said(
        event("output_item.done", item=call("f", "{}", "a")), event("output_text.delta", delta="a"), completed()
    )
    assert (reply.text, [each.name for each in reply.tool_calls]) == ("a", ["f"])


def test_an_item_announced_twice_is_one() -> None:
    added = event("output_item.added", output_index=0, item={"type": "reasoning", "summary": []})
    assert len(said(added, added, completed()).parts) == 1
    part = event("content_part.added", output_index=0, content_index=0, part={"type": "output_text", "text": ""})
    assert len(said(part, delta("a"), part, completed()).parts) == 1


def test_text_given_when_the_part_opens_counts() -> None:
    opened = event("content_part.added", output_index=0, content_index=0, part={"type": "output_text", "text": "a"})
    assert said(opened, delta("b"), completed()).text == "ab"
    item = event("output_item.added", output_index=0, item=message("a"))
    assert said(item, delta("b"), completed()).text == "ab"


def test_reasoning_is_its_summaries_then_its_thoughts_and_sealed() -> None:
    at = {"output_index": 0}
    item = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "early"}
    pieces = [
        event("output_item.added", **at, item=item),
        event("reasoning_text.delta", **at, content_index=0, delta="c"),
        event("reasoning_summary_text.delta", **at, summary_index=1, delta="b"),
        event("reasoning_summary_text.delta", **at, summary_index=0, delta="x"),
        event("reasoning_summary_text.done", **at, summary_index=0, text="a"),
        event("reasoning_part.done", **at, content_index=0, part={"type": "reasoning_text", "text": "C"}),
    ]
    assert said(*pieces).parts == (ReasoningPart("abC", "early"),)
    summary, content = (
        [{"type": "summary_text", "text": text} for text in "ab"],
        [{"type": "reasoning_text", "text": "C"}],
    )
    whole = item | {"summary": summary, "content": content, "encrypted_content": "late"}
    done = event("output_item.done", **at, item=whole)
    assert (
        said(*pieces, done, completed(whole)).parts == (ReasoningPart("abC", "late"),) == said(completed(whole)).parts
    )


def test_tools_of_the_provider_are_carried() -> None:
    started, ended = {"type": "mcp_call", "id": "m", "output": None}, {"type": "mcp_call", "id": "m", "output": "ok"}
    reply = said(
        event("output_item.added", output_index=0, item=started),
        event("mcp_call.in_progress", output_index=0, item_id="m"),
        event("mcp_call_arguments.delta", output_index=0, item_id="m", delta='{"a"'),
        event("mcp_call_arguments.done", output_index=0, item_id="m", arguments='{"a":1}'),
        event("output_item.done", output_index=0, item=ended),
        completed(ended),
    )
    assert reply.parts == (OpaquePart("mcp_call", (ended,), '{"a":1}'),)
    assert (reply.tool_calls, reply.warnings) == ((), ())


def test_citations_are_parts_beside_their_text() -> None:
    noted = event("output_text.annotation.added", output_index=0, content_index=1, annotation={"type": "url_citation"})
    item = {
        "type": "message",
        "content": [
            {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation"}, {"type": "file_citation"}]}
        ],
    }
    cited = OpaquePart("annotation", ({"type": "url_citation"}, {"type": "file_citation"}))
    assert said(delta("a", 0, 1), noted, completed(item)).parts == (TextPart("a"), cited) == said(completed(item)).parts


# -------------------------------------------------------------------------------------------------------------------- the end

STOPS: dict[str, tuple[dict[str, Any], str]] = {
    "whole": (completed(), "stop"),
    "with a call": (completed(call("f", "{}", "a")), "tool_calls"),
    "cut by length": (event("incomplete", response={"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}), "length"),
    "cut, and no reason": (event("incomplete", response={"status": "incomplete", "incomplete_details": None}), "length"),
    "filtered": (event("incomplete", response={"incomplete_details": {"reason": "content_filter"}}), "content_filter"),
    "completed, but cut": (event("completed", response={"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}), "content_filter"),
    "failed": (event("failed", response={"status": "failed", "error": {"code": "c", "message": "m"}}), "error"),
    "cancelled": (event("cancelled", response={"status": "cancelled"}), "other"),
}  # fmt: skip


@pytest.mark.parametrize("name", STOPS)
def test_why_it_stops(name: str) -> None:
    payload, stop = STOPS[name]
    reply = said(delta("a", 9), payload)
    assert (reply.stop, reply.ended, reply.complete) == (stop, True, stop != "error")
    assert reply.warnings == ()


def test_half_a_call_of_a_cut_reply_never_runs() -> None:
    half = call("f", '{"a":', "a", status="incomplete")
    reply = said(event("output_item.done", output_index=0, item=half), event("incomplete", response={"output": [half]}))
    assert [each.problem for each in reply.incomplete_tool_calls] == ["cut by the length limit"]
    whole = event("output_item.done", output_index=0, item=call("f", "{}", "a"))
    assert [each.name for each in said(whole).tool_calls] == [
        "f"
    ]  # closed by its own event, though the stream broke off


def test_a_call_that_opens_as_completed_is_still_open() -> None:
    added = event("output_item.added", output_index=0, item=call("f", "", "a"))
    assert [each.problem for each in said(added).incomplete_tool_calls] == ["no finish reason"]
    snapshot = event("in_progress", response={"status": "in_progress", "output": [call("f", "{}", "a")]})
    assert [each.name for each in said(added, snapshot).tool_calls] == ["f"]


def test_one_error_said_twice_is_one() -> None:
    error = {"type": "server_error", "code": "server_error", "message": "m"}
    reply = said({"type": "error", "error": error}, event("failed", response={"error": error | {"type": None}}))
    assert reply.errors == (ReplyError("server_error"),)
    assert (
        said({"type": "error", "error": error}, {"type": "error", "error": error | {"message": "n"}}).errors
        == (ReplyError("server_error"),) * 2
    )


def test_what_comes_after_the_end_is_ignored_but_for_the_mark_of_chat() -> None:
    body = b'data: {"type":"response.completed","response":{"status":"completed"}}\n\ndata: [DONE]\n\n'
    assert (assemble(body).complete, assemble(body).warnings) == (True, ())


# ------------------------------------------------------------------------------------------------------------------- changing


def stream_of(*payloads: dict[str, Any]) -> list[Frame]:
    return [
        sse.encode(json.dumps(payload | {"sequence_number": at}), payload["type"])
        for at, payload in enumerate(payloads)
    ]


def payloads(written: Sequence[Frame]) -> list[dict[str, Any]]:
    return [RESPONSES.payload(frame) for frame in written]


WEATHER: tuple[dict[str, Any], ...] = (
    event("created", response={"id": "r", "model": "m", "status": "in_progress", "output": []}),
    event("output_item.added", output_index=0, item=message("", "m") | {"content": []}),
    event("content_part.added", output_index=0, content_index=0, item_id="m", part={"type": "output_text", "text": "", "annotations": []}),
    delta("Rain ", item_id="m", obfuscation="xyz"),
    delta("today", item_id="m"),
    event("output_text.done", output_index=0, content_index=0, item_id="m", text="Rain today"),
    event("content_part.done", output_index=0, content_index=0, item_id="m", part={"type": "output_text", "text": "Rain today"}),
    event("output_item.done", output_index=0, item=message("Rain today", "m")),
    event("output_item.added", output_index=1, item=call("f", "", "c", id="fc")),
    event("function_call_arguments.delta", output_index=1, item_id="fc", delta='{"a":1}'),
    event("function_call_arguments.done", output_index=1, item_id="fc", arguments='{"a":1}'),
    event("output_item.done", output_index=1, item=call("f", '{"a":1}', "c", id="fc")),
    completed(message("Rain today", "m"), call("f", '{"a":1}', "c", id="fc"), id="r", model="m", tools=[{"a": 1}], usage={"input_tokens": 2}),
)  # fmt: skip


def changed(change: Any) -> list[Frame]:
    """The stream with the deltas of each frame mapped by `change`."""
    out: list[Frame] = []
    for frame in stream_of(*WEATHER):
        before = RESPONSES.read(frame)
        after = [each for delta in before for each in change(delta)]
        out += [frame] if after == before else RESPONSES.write(after, frame)
    return RESPONSES.finish(out)


def test_an_unchanged_stream_stays() -> None:
    assert changed(lambda delta: [delta]) == stream_of(*WEATHER)


def test_a_refragmented_text_is_renumbered() -> None:
    got = changed(lambda delta: [Text(delta.key, each) for each in delta.text] if isinstance(delta, Text) else [delta])
    assert [each["sequence_number"] for each in payloads(got)] == list(range(len(WEATHER) + 8))
    assert payloads(got)[3] == WEATHER[3] | {"delta": "R", "sequence_number": 3}
    assert assemble(got) == assemble(stream_of(*WEATHER))


def test_restatements_follow_a_changed_text_and_changed_arguments() -> None:
    def cut(delta: Delta) -> list[Delta]:
        match delta:
            case Text(key, "today"):
                return [Text(key, "to")]
            case Arguments(key, _):
                return [Arguments(key, '{"a":')]
        return [delta]

    got = changed(cut)
    reply = assemble(got)
    assert (reply.text, [each.arguments_text for each in reply.incomplete_tool_calls]) == ("Rain to", ['{"a":'])
    assert b"today" not in b"".join(frame.raw for frame in got)
    assert payloads(got)[-1]["response"]["tools"] == [{"a": 1}]
    assert [list(each) for each in payloads(got)] == [list(each | {"sequence_number": 0}) for each in WEATHER]


def test_usage_may_go_or_move() -> None:
    got = changed(lambda delta: [] if isinstance(delta, UsageUpdate) else [delta])
    assert assemble(got).usage is None
    assert assemble(got) == assemble(stream_of(*WEATHER[:-1], completed(id="r", model="m")))
    moved = changed(
        lambda delta: (
            [UsageUpdate({}, {"input_tokens": 2}), delta]
            if isinstance(delta, ToolCallStart) and not delta.key.listed
            else []
            if isinstance(delta, UsageUpdate)
            else [delta]
        )
    )
    assert assemble(moved) == assemble(stream_of(*WEATHER))
    assert payloads(moved)[8] == event(
        "in_progress",
        response={
            "id": "r",
            "status": "in_progress",
            "output": [],
            "error": None,
            "incomplete_details": None,
            "usage": {"input_tokens": 2},
        },
    ) | {"sequence_number": 8}


def test_a_reply_may_be_cut() -> None:
    def cut(delta: Delta) -> list[Delta]:
        if isinstance(delta, Finish):
            return [Finish(delta.key, "incomplete", detail="max_output_tokens")]
        return [] if isinstance(delta, PartEnd) else [delta]

    got = changed(cut)
    assert payloads(got)[-1]["type"] == "response.incomplete"
    assert payloads(got)[-2]["item"]["status"] == "incomplete"
    assert (assemble(got).stop, assemble(got).finish_detail) == ("length", "max_output_tokens")


def test_an_end_without_a_finish_reason() -> None:
    got = changed(lambda delta: [] if isinstance(delta, Finish) else [delta])
    assert (got[-1].data, payloads(got)[-2]["type"]) == ("[DONE]", "response.in_progress")
    assert (assemble(got).finish_reason, assemble(got).ended, assemble(got).text) == (None, True, "Rain today")


def test_a_failure_keeps_what_the_provider_said_of_it() -> None:
    failure = event(
        "failed",
        response={
            "id": "r",
            "status": "failed",
            "error": {"code": "c", "message": "m", "param": None},
            "usage": {"input_tokens": 1},
        },
    )
    (frame,) = stream_of(failure)
    (written,) = RESPONSES.write(
        [delta for delta in RESPONSES.read(frame) if not isinstance(delta, UsageUpdate)], frame
    )
    assert payloads([written])[0]["response"]["error"] == failure["response"]["error"]


def test_a_call_is_restated_where_a_change_left_it_out() -> None:
    """What is cut out of the restatements of a call would be the most dangerous lie: no arguments at all."""
    got = changed(lambda delta: [] if isinstance(delta, Whole | ToolCallStart) and delta.key.listed else [delta])
    items = [each["item"] for each in payloads(got) if each["type"] == "response.output_item.done"]
    assert [(item["call_id"], item["name"], item["arguments"]) for item in items] == [("c", "f", '{"a":1}')]
    assert payloads(got)[-1]["response"]["output"][1] == WEATHER[-1]["response"]["output"][1]
    assert assemble(got) == assemble(stream_of(*WEATHER))


def test_a_snapshot_of_a_reply_that_runs_on() -> None:
    def cut(delta: Delta) -> list[Delta]:
        return [] if isinstance(delta, Finish | End) else [delta]

    got = changed(cut)
    assert payloads(got)[-1]["type"] == "response.in_progress"
    assert (assemble(got).complete, [each.name for each in assemble(got).tool_calls]) == (False, ["f"])
    opened = changed(lambda delta: [] if isinstance(delta, Finish | End | PartEnd) else [delta])
    assert [each.problem for each in assemble(opened).incomplete_tool_calls] == ["no finish reason"]
    assert payloads(opened)[-1]["response"]["output"][1]["status"] == "in_progress"


def test_what_goes_from_a_list_leaves_its_position() -> None:
    (frame,) = stream_of(
        completed(
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]},
            message("a"),
            call("f", "{}", "c"),
            message("b"),
            message("c"),
        )
    )
    left = [
        delta
        for delta in RESPONSES.read(frame)
        if isinstance(delta, Start | Finish | End) or (isinstance(delta, Whole) and delta.value == "b")
    ]
    (written,) = RESPONSES.write(left, frame)
    assert RESPONSES.read(written) == left
    assert [item["type"] for item in RESPONSES.payload(written)["response"]["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "message",
    ]


def test_a_text_is_restated_where_a_change_left_but_its_notes() -> None:
    part = {"type": "output_text", "text": "ab", "annotations": [{"type": "url_citation"}, {"type": "file_citation"}]}
    item = {"type": "message", "id": "m", "content": [part]}
    stream = stream_of(delta("a"), delta("b"), event("output_item.done", output_index=0, item=item), completed(item))
    cut = [
        each
        for frame in stream
        for each in RESPONSES.write([one for one in RESPONSES.read(frame) if not isinstance(one, Whole)], frame)
    ]
    assert RESPONSES.finish(stream) == stream
    assert "text" not in payloads(cut)[2]["item"]["content"][0]
    assert payloads(RESPONSES.finish(cut))[2]["item"] == payloads(stream)[2]["item"]
    alone = RESPONSES.write([one for one in RESPONSES.read(stream[2]) if not isinstance(one, Whole)], stream[2])
    assert RESPONSES.finish(alone) == alone


@pytest.mark.parametrize("kept", [Start, Whole, StreamError, End])
def test_a_restatement_of_which_little_is_left(kept: type) -> None:
    frame = stream_of(WEATHER[-1])[0]
    left = [delta for delta in RESPONSES.read(frame) if isinstance(delta, kept)]
    assert [
        delta
        for written in RESPONSES.write(left, frame)
        for delta in RESPONSES.read(written)
        if isinstance(delta, kept)
    ] == left


def test_what_says_nothing_keeps_its_place_in_a_list() -> None:
    (frame,) = stream_of(completed(message("") | {"content": []}, message("a"), None, usage={"input_tokens": 1}))
    left = [delta for delta in RESPONSES.read(frame) if not isinstance(delta, UsageUpdate)]
    (written,) = RESPONSES.write(left, frame)
    assert RESPONSES.read(written) == left
    assert [bool(item and item["content"]) for item in RESPONSES.payload(written)["response"]["output"]] == [
        False,
        True,
        False,
    ]


R = Key(index=3, within=())
FOREIGN: dict[str, tuple[Delta, dict[str, Any]]] = {
    "text": (Text(Key(), "a"), event("output_text.delta", delta="a")),
    "a thought": (Reasoning(Key(index=3, within=(1, 0)), "a"), event("reasoning_text.delta", output_index=3, content_index=0, delta="a")),
    "a whole refusal": (Whole(Key(index=3, within=(0,)), "refusal", "a"), event("refusal.done", output_index=3, content_index=0, refusal="a")),
    "a seal": (Whole(Key(index=3, within=(), listed="content"), "signature", "s"), event("output_item.done", output_index=3, item={"encrypted_content": "s"})),
    "a call": (ToolCallStart(Key(index=3, id="c"), "custom", "f"), event("output_item.added", output_index=3, item={"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""})),
    "a part": (PartStart(Key(index=3, within=(0,)), "refusal"), event("content_part.added", output_index=3, content_index=0, part={"type": "refusal", "refusal": ""})),
    "a failure": (StreamError("t", "m"), {"type": "error", "error": {"type": "t", "message": "m"}}),
    "a whole text, of nowhere": (Whole(Key(), "text", "a"), event("output_text.done", text="a")),
    "a failure said in the event": (StreamError("c", "m", {"type": "error", "code": "c"}), {"type": "error", "code": "c"}),
    "a note": (Opaque(Key(index=3, within=(0,)), "annotation", 1), event("output_text.annotation.added", output_index=3, content_index=0, annotation=1)),
    "an end of a call": (PartEnd(Key(index=3, id="c")), event("output_item.done", output_index=3, item={})),
    "something else": (Unknown("x", {"a": 1}), {"a": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_a_delta_put_where_it_was_not_has_an_event_of_its_own(name: str) -> None:
    delta, expected = FOREIGN[name]
    (written,) = RESPONSES.write(
        [delta],
        sse.encode(
            json.dumps(
                {"type": "response.output_text.delta", "delta": "b", "obfuscation": "x"}
                if name != "text"
                else {"type": "ping"}
            )
        ),
    )
    assert json.loads(written.data or "") == expected


def test_other_deltas_put_where_they_were_not() -> None:
    like = sse.encode('{"type":"response.output_text.delta"}')
    assert [frame.raw for frame in RESPONSES.write([Keepalive(), End()], like)] == [
        b": keepalive\n\n",
        b"data: [DONE]\n\n",
    ]
    assert RESPONSES.write([Signature(R, "s")], like) == []
    done = Whole(Key(index=3, within=(0,), listed="content"), "text", "a")
    (written,) = RESPONSES.write([done, Opaque(Key(index=3, within=(1,), listed="content"), "x", 3, True)], like)
    assert json.loads(written.data or "")["item"]["content"] == [{"type": "output_text", "text": "a"}]
    cited = Opaque(Key(index=3, within=(1,), listed="content"), "annotation", 1, True)
    (written,) = RESPONSES.write([cited], like)
    assert json.loads(written.data or "")["item"]["content"] == [{"type": "output_text", "annotations": [1]}]


def test_a_thought_that_changed_is_restated_as_one_summary() -> None:
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in "ab"]}
    (frame,) = stream_of(event("output_item.done", output_index=0, item=item))
    (written,) = RESPONSES.write([Whole(Key(index=0, within=(), listed="content"), "reasoning", "c")], frame)
    assert payloads([written])[0]["item"]["summary"] == [{"type": "summary_text", "text": "c"}]


def test_only_the_first_choice_is_said() -> None:
    assert [frame for frame in RESPONSES.write([Text(Key(1), "b")])] == []


# ------------------------------------------------------------------------------------------------------- a stream from nothing

EVERYTHING = Reply(
    parts=(
        ReasoningPart("Look it up.", "c2ln"),
        TextPart("One moment. "),
        OpaquePart("mcp_call", ({"type": "mcp_call", "id": "m"},), '{"q":1}'),
        OpaquePart("web_search_call", ({"type": "web_search_call", "id": "w"},)),
        RefusalPart("Not that."),
        ToolCall(0, id="call_a", name="tide_times", arguments_text='{"harbour":"Oban"}', arguments={"harbour": "Oban"}),
        ToolCall(1, kind="custom", id="call_b", name="sql", arguments_text="SELECT 1"),
    ),
    finish_reason="completed",
    usage=Usage(12, 30, 42, 4, 7),
    ended=True,
    role="assistant",
    model="m-1",
    id="r-1",
)


def test_everything_is_said() -> None:
    stream = synthesize(EVERYTHING, "openai-responses")
    assert stream.reply == EVERYTHING
    assert [each["sequence_number"] for each in stream.payloads] == list(range(len(stream.payloads)))
    assert {frame.event for frame in stream.frames} == {payload["type"] for payload in stream.payloads}


@pytest.mark.parametrize(
    ("reply", "last"),
    [
        (Reply(finish_reason="incomplete", finish_detail="max_output_tokens", ended=True), "response.incomplete"),
        (Reply(finish_reason="failed", errors=(ReplyError("server_error", "m"),), ended=True), "response.failed"),
        (Reply(finish_reason="cancelled", ended=True), "response.cancelled"),
        (Reply(finish_reason="tool_use", ended=True), "response.completed"),
        (Reply(usage=Usage(1, 2)), "response.in_progress"),
        (Reply(errors=(ReplyError("a", "m"), ReplyError("b", "m"))), "error"),
    ],
)
def test_how_a_stream_ends(reply: Reply, last: str) -> None:
    stream = synthesize(reply, "openai-responses")
    assert (stream.payloads[-1]["type"], stream.reply) == (last, reply)


def test_deltas_of_another_wire_are_composed() -> None:
    foreign = [
        Text(Key(), "a"), Arguments(Key(index=1), "{}"), PartEnd(Key(index=9)), Keepalive(), Unknown("x", {}), Whole(Key(), "text", "b"),
        Opaque(Key(index=2), "odd", 3), StreamError("wire:bad_json", "m", "{oops"), Opaque(Key(index=4), "odd", {"type": "odd"}), Arguments(Key(index=4), "x"),
    ]  # fmt: skip
    written = RESPONSES.finish(RESPONSES.write(foreign))
    assert [frame.event for frame in written if frame.data] == [
        "response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_item.added",
        "response.function_call_arguments.delta", "x", "response.output_item.added", "message",
    ]  # fmt: skip
    assert assemble(written, dialect="openai-responses").text == "a"


# ------------------------------------------------------------------------------------------------------- the official client


def client(body: bytes) -> openai.OpenAI:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    return openai.OpenAI(
        api_key="none", max_retries=0, http_client=httpx2.Client(transport=httpx2.MockTransport(answer))
    )


def judged(body: bytes) -> Any:
    """The response that the client's own accumulator makes of a stream."""
    with client(body).responses.stream(model="m", input="x") as stream:
        return stream.get_final_response()


def agree(theirs: Any, ours: Reply) -> None:
    items = [item for item in theirs.output if item.type in ("function_call", "custom_tool_call")]
    calls = [
        (item.call_id, item.name, item.arguments if item.type == "function_call" else item.input) for item in items
    ]
    thoughts = [
        part.text
        for item in theirs.output
        if item.type == "reasoning"
        for part in [*item.summary, *(getattr(item, "content", None) or [])]
    ]
    refused = [
        part.refusal
        for item in theirs.output
        if item.type == "message"
        for part in item.content
        if part.type == "refusal"
    ]
    assert theirs.output_text == ours.text
    assert calls == [(part.id, part.name, part.arguments_text) for part in ours.parts if isinstance(part, ToolCall)]
    assert "".join(thoughts) == ours.reasoning
    assert "".join(refused) == (ours.refusal or "")
    assert theirs.status == ours.finish_reason
    if theirs.usage and ours.usage:
        assert (theirs.usage.input_tokens, theirs.usage.output_tokens) == (
            ours.usage.input_tokens,
            ours.usage.output_tokens,
        )
    else:
        assert (theirs.usage, ours.usage) == (None, None)


def test_the_client_reads_a_synthesised_stream() -> None:
    body = synthesize(EVERYTHING, "openai-responses").body
    events = list(client(body).responses.create(model="m", input="x", stream=True))
    assert type(events[0]).__name__ == "ResponseCreatedEvent"
    assert "".join(each.delta for each in events if each.type == "response.output_text.delta") == EVERYTHING.text
    assert assemble(events, dialect="openai-responses") == EVERYTHING
    agree(judged(body), EVERYTHING)


@given(reply=replies("openai-responses").filter(lambda reply: reply.finish_reason and not reply.errors))
def test_the_client_agrees_on_every_reply(reply: Reply) -> None:
    body = synthesize(reply, "openai-responses").body
    if reply.stop in ("length", "content_filter"):  # the accumulator has a final response for completed ones alone
        events = list(client(body).responses.create(model="m", input="x", stream=True))
        agree(events[-1].response, reply)
    else:
        agree(judged(body), reply)


def test_the_client_raises_the_error_of_a_synthesised_stream() -> None:
    body = synthesize(Reply(errors=(ReplyError("server_error", "gone"),)), "openai-responses").body
    with pytest.raises(openai.APIError, match="gone"):
        list(client(body).responses.create(model="m", input="x", stream=True))


def test_the_client_reads_a_changed_stream() -> None:
    got = changed(lambda delta: [Text(delta.key, each) for each in delta.text] if isinstance(delta, Text) else [delta])
    agree(judged(b"".join(frame.raw for frame in got)), assemble(got))


# Where the client's accumulator has no answer, and why: the bytes.
NO_ANSWER = {
    "bedrock-mantle/responses-providers-bedrock-mantle": 'the message\'s only part has "content_index":1, and it takes that for a position',
    "openai/responses-background-mode-streaming-starting-after": "a resumed stream begins with response.queued, and it insists on response.created",
    "openai/responses-openai-error-1": "event: error is raised as an APIError",
    "openai/responses-response-stream-incomplete": "it ends with response.incomplete, and only response.completed has a final response",
}


def test_the_client_agrees_on_captured_streams(corpus: Path) -> None:
    rows = [row for row in json.loads((corpus / "index.json").read_text()) if row["api"] == "openai-responses"]
    silent = set()
    for row in rows:
        body = (corpus / row["file"]).read_bytes()
        try:
            theirs = judged(body)
        except (openai.APIError, RuntimeError, IndexError):
            silent |= {name for name in NO_ANSWER if name in row["file"]} or {row["file"]}
            continue
        agree(theirs, assemble(body))
    assert rows
    assert silent == set(NO_ANSWER)


# A hand-made stream whose deltas ("The command ran successfully.") are not what its done events say.
SELF_CONTRADICTING = "responses-openai-shell-container-1.sse"


def test_a_captured_stream_is_finished_as_it_is(corpus: Path) -> None:
    for path in (corpus / "files").rglob("responses-*.sse"):
        given = frames(path.read_bytes())
        if path.name != SELF_CONTRADICTING:
            assert RESPONSES.finish(given) == given, path.name


def test_a_captured_stream_written_anew_says_the_same(corpus: Path) -> None:
    for path in (corpus / "files").rglob("responses-*.sse"):
        given = frames(path.read_bytes())
        written = [
            each
            for frame in given
            for each in (RESPONSES.write(RESPONSES.read(frame), frame) if RESPONSES.read(frame) else [frame])
        ]
        assert assemble(written, dialect="openai-responses") == assemble(given), path.name
        assert synthesize(assemble(given), "openai-responses", lossy=True).reply.text == assemble(given).text


def test_a_live_reply_never_shrinks(corpus: Path) -> None:
    for path in (corpus / "files").rglob("responses-*.sse"):
        assembler, shown = Assembler("openai-responses"), ""
        for frame in frames(path.read_bytes()):
            assembler.feed(frame)
            before, shown = shown, assembler.result().text
            assert shown.startswith(before) or path.name == SELF_CONTRADICTING, path.name


def test_lanes_tell_the_pieces_of_an_item_apart() -> None:
    lanes = resolve([delta for payload in WEATHER for delta in RESPONSES.deltas(payload)])
    assert resolve([PartEnd(Key(index=0, within=()))]) == [None]
    assert {(lane.kind, lane.order) for lane in lanes if lane} == {("text", (0, 0)), ("call", (1,))}

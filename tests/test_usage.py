"""Counts guessed from sizes: a rule that anybody can check by hand, and a mark that says that it was one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stream_cassette import Reply, ToolCall, Usage, assemble, estimate_usage
from stream_cassette.model import USAGE_COUNTS, OpaquePart, ReasoningPart, RefusalPart, Request, TextPart

REPLY = Reply((TextPart("four" * 3), ToolCall(0, name="tide", arguments_text='{"a":1}')), "tool_calls")


def test_a_token_for_every_four_bytes() -> None:
    usage = estimate_usage(REPLY, {"q": "x"})
    assert usage == Usage(input_tokens=3, output_tokens=6, total_tokens=9)
    assert usage.estimated
    assert repr(usage) == "Usage(input_tokens=3, output_tokens=6, total_tokens=9, estimated=True)"


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (TextPart(""), 0),
        (TextPart("a"), 1),
        (TextPart("漢字"), 2),
        (TextPart("\ud83c"), 1),
        (RefusalPart("12345"), 2),
        (ReasoningPart("1234", "signature"), 1),
        (OpaquePart("server_tool_use", (), "12345678"), 2),
        (ToolCall(0), 0),
    ],
)
def test_a_part(part: Any, tokens: int) -> None:
    usage = estimate_usage(Reply((part,)))
    assert usage.output_tokens == tokens
    assert usage.reasoning_tokens == (tokens if isinstance(part, ReasoningPart) else None)


@pytest.mark.parametrize(
    "request_",
    [
        {"q": "漢字"},
        '{"q": "漢字"}',
        b'{\n "q": "\\u6f22\\u5b57"\n}',
        Request("POST", "https://x.invalid/", body=b'{"q":"\\u6f22\\u5b57"}'),
    ],
)
def test_a_request_in_any_form_counts_alike(request_: Any) -> None:
    assert estimate_usage(Reply(), request_).input_tokens == 4


def test_a_request_that_is_no_json() -> None:
    assert estimate_usage(Reply(), "hello").input_tokens == 2
    assert estimate_usage(Reply(), b"\xff\xfe\xfd").input_tokens == 3
    assert estimate_usage(Reply()).input_tokens == 0


def test_every_choice_was_paid_for() -> None:
    one = Reply((TextPart("1234"),))
    assert estimate_usage(Reply(one.parts, choices=(one, one))).output_tokens == 2


def test_it_is_never_used_silently_and_the_mark_is_not_compared() -> None:
    assert assemble([{"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}]).usage is None
    assert replace(Usage(1, 2), estimated=True) == Usage(1, 2)
    assert "estimated" not in USAGE_COUNTS

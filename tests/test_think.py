"""`<think>` tags, split out on demand over any fragment boundary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_cassette import Reply, assemble
from stream_cassette.model import ReasoningPart, TextPart
from stream_cassette.think import split_think

CASES = [json.loads(line) for line in (Path(__file__).parent / "data" / "cases.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    "case", [case for case in CASES if "with_think_split" in case["expected"]], ids=lambda case: case["id"]
)
def test_case(case: dict[str, Any]) -> None:
    reply = split_think(assemble(case["wire"].encode()))
    assert {"text": reply.text, "reasoning": reply.reasoning} == case["expected"]["with_think_split"]


@pytest.mark.parametrize("at", range(1, len("<think>ab</think>c")))
def test_any_fragment_boundary(at: int) -> None:
    text = "<think>ab</think>c"
    chunks = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in (text[:at], text[at:])]
    assert split_think(assemble(chunks)).parts == (ReasoningPart("ab"), TextPart("c"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("plain", (TextPart("plain"),)),
        ("a<think>b", (ReasoningPart("b"), TextPart("a"))),
        ("<think>a</think>", (ReasoningPart("a"),)),
        ("<think>\n</think>b", (TextPart("b"),)),
        ("<think>a</think>b<think>c</think>d", (ReasoningPart("ac"), TextPart("bd"))),
    ],
)
def test_shapes(text: str, parts: tuple[Any, ...]) -> None:
    assert split_think(Reply((TextPart(text),))).parts == parts


def test_every_choice_is_split() -> None:
    one = Reply((TextPart("<think>a</think>b"),))
    assert [choice.reasoning for choice in split_think(Reply(one.parts, choices=(one, one))).choices] == ["a", "a"]

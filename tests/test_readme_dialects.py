"""The README's table of dialects says what the code does: it is made here, cell by cell, from what holds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from stream_cassette import Reply, Stream, ToolCall, Usage, assemble, synthesize
from stream_cassette.dialects import DIALECTS
from stream_cassette.dialects.base import Dialect
from stream_cassette.errors import NotApplicable
from stream_cassette.model import USAGE_COUNTS, Part, ReasoningPart, RefusalPart, ReplyError, Stop, TextPart
from stream_cassette.mutate import UnknownEvents
from streams import EVERY

HERE = Path(__file__).parent
README = (HERE.parent / "README.md").read_text("utf-8")

# The official client that reads what we synthesise as we do, and captured streams too, and the test that asks it.
JUDGES = {
    "openai-chat": ("openai", "test_openai_chat", "test_the_official_client_reads_what_we_synthesise"),
    "openai-responses": ("openai", "test_openai_responses", "test_the_client_agrees_on_every_reply"),
    "openai-completions": ("openai", "test_openai_completions", "test_the_client_agrees_on_every_reply"),
    "anthropic": ("anthropic", "test_anthropic", "test_the_official_client_reads_what_we_synthesise"),
    "gemini": ("google-genai", "test_gemini", "test_the_official_client_reads_what_we_synthesise"),
    "gemini-interactions": (
        "google-genai",
        "test_gemini",
        "test_the_official_client_reads_interactions_that_we_synthesise",
    ),
    "bedrock-converse": ("boto3", "test_bedrock", "test_boto3_reads_what_we_synthesise"),
    "bedrock-invoke": ("boto3", "test_bedrock", "test_boto3_reads_what_we_synthesise"),
    "cohere": ("cohere", "test_cohere", "test_the_official_client_reads_what_we_synthesise"),
    "ollama": ("ollama", "test_ollama", "test_the_official_client_reads_what_we_synthesise"),
}
MODULES = {"google-genai": "google.genai"}
YES, NO = "✓", "–"


def says(
    speaker: Dialect, *parts: Part, usage: Usage | None = None, errors: tuple[ReplyError, ...] = (), stop: Stop = "stop"
) -> bool:
    """Is there a stream of this dialect that says just this, and does it read so?"""
    word, *closer = speaker.words.get(stop, ("",)) if not errors else ("",)
    reply = Reply(
        parts,
        word or None,
        usage,
        errors,
        ended=speaker.end_mark and not errors,
        finish_detail=next(iter(closer), None),
    )
    return not speaker.losses(reply) and assemble(synthesize(reply, speaker.name)) == reply


def synthesised(speaker: Dialect) -> bool:
    """Is everything that it says of a rich reply said again, in a stream that is recognised?"""
    reply = EVERY[speaker.name].reply
    stream = synthesize(reply, speaker.name)
    return stream.reply == reply and Stream(stream.exchange).spoken == speaker.name


def call(index: int) -> ToolCall:
    return ToolCall(index, id=f"call_{index}", name="tide", arguments_text=f'{{"n":{index}}}', arguments={"n": index})


def counts(speaker: Dialect) -> str:
    said = [name for name in USAGE_COUNTS if says(speaker, TextPart("x"), usage=Usage(**{name: 7}))]
    return "all" if len(said) == len(USAGE_COUNTS) else ", ".join(name.removesuffix("_tokens") for name in said)


def errors(speaker: Dialect) -> str:
    if says(speaker, errors=(ReplyError("overloaded_error", "busy"),)):
        return YES
    return "no type" if says(speaker, errors=(ReplyError("error", "busy"),)) else NO


def unknown_events(speaker: Dialect) -> str:
    stream = EVERY[speaker.name]
    try:
        odd = UnknownEvents().apply(stream)
    except NotApplicable:
        return NO
    reply = assemble(odd)
    return YES if reply == stream.reply and any("unknown event" in warning for warning in reply.warnings) else NO


def cells(speaker: Dialect) -> dict[str, str]:
    marked = {True: YES, False: NO}
    return {
        "dialect": f"`{speaker.name}`",
        "text": marked[says(speaker, TextPart("x"))],
        "reasoning": marked[says(speaker, ReasoningPart("x"))],
        "signature": marked[says(speaker, ReasoningPart("x", "c2ln"))],
        "refusal": marked[says(speaker, RefusalPart("x"))],
        "tool calls": marked[says(speaker, call(0), stop="tool_calls")],
        "parallel calls": marked[says(speaker, call(0), call(1), stop="tool_calls")],
        "usage": counts(speaker),
        "errors": errors(speaker),
        "unknown events": unknown_events(speaker),
        "synthesis": marked[synthesised(speaker)],
        "SDK": JUDGES.get(speaker.name, (NO,))[0],
    }


def table() -> str:
    rows = [cells(speaker) for speaker in DIALECTS]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def test_the_table_of_the_readme_says_what_holds() -> None:
    assert table() in README, f"put this into README.md:\n\n{table()}"


@pytest.mark.parametrize("name", JUDGES)
def test_the_test_that_asks_the_sdk_is_there(name: str) -> None:
    package, module, test = JUDGES[name]
    tree = ast.parse((HERE / f"{module}.py").read_text())
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    wanted = MODULES.get(package, package)
    imported = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert any(each == wanted or each.startswith(f"{wanted}.") for each in imported)

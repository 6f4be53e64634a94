"""Rich healthy streams in every dialect, for its quirks to act on: what providers send, by hand where synthesis has no words for it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

from stream_cassette import Reply, Stream, ToolCall, Usage, synthesize
from stream_cassette.dialects import DIALECTS
from stream_cassette.dialects.binary import write_event
from stream_cassette.framing import frames
from stream_cassette.model import Exchange, Read, ReasoningPart, Request, TextPart

REQUEST = Request("POST", "https://api.example.com/v1/chat", (), b'{"stream":true}')

RICH = Reply(
    parts=(
        ReasoningPart("Look it up: 漢字.", "c2lnbmF0dXJl"),
        TextPart("One moment. 🌊 Done."),
        ToolCall(0, id="call_a", name="tide_times", arguments_text='{"harbour":"Oban"}', arguments={}),
        ToolCall(1, id="call_b", name="moon_phase", arguments_text='{"on":[4,{"é":null}]}', arguments={}),
    ),
    finish_reason="tool_calls",
    usage=Usage(input_tokens=12, output_tokens=30, total_tokens=42),
    ended=True,
    role="assistant",
    model="m-1",
    id="r-1",
)
TEXT = replace(RICH, parts=(TextPart("Low tide — 06:10 🌊."),), finish_reason="stop")
_WORDS = {
    "anthropic": "tool_use",
    "bedrock-converse": "tool_use",
    "bedrock-invoke": "tool_use",
    "gemini": "STOP",
    "cohere": "TOOL_CALL",
}


def body_stream(dialect: str, body: bytes) -> Stream:
    """One read an event."""
    reads = tuple(Read(10 * number, frame.raw) for number, frame in enumerate(frames(body)))
    return Stream(Exchange(REQUEST, 200, (), reads), dialect)


def sse(dialect: str, *payloads: Any, event: str = "", done: bool = False, end: str = "\n") -> Stream:
    """An event stream; `event` names the field of a payload that its event line repeats."""
    lines = [
        [*([f"event: {payload[event]}"] if event else []), f"data: {json.dumps(payload, ensure_ascii=False)}", "", ""]
        for payload in payloads
    ]
    lines += [["data: [DONE]", "", ""]] if done else []
    return body_stream(dialect, "".join(end.join(each) for each in lines).encode())


def chat(*choices: dict[str, Any], usage: dict[str, Any] | None = None, index: int = 0, end: str = "\n") -> Stream:
    """Chat chunks of one choice each, each a delta or (with `finish`) its reason."""
    chunks: list[dict[str, Any]] = []
    for said in choices:
        delta = {name: value for name, value in said.items() if name not in ("finish", "n")}
        choice = {"index": said.get("n", index), "delta": delta, "finish_reason": said.get("finish"), "logprobs": None}
        chunks.append(
            {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m-1", "choices": [choice]}
        )
    if usage:
        chunks.append({**chunks[0], "choices": [], "usage": usage})
    return sse("openai-chat", *chunks, done=True, end=end)


def entry(index: int, arguments: str | None, name: str = "", id_: str = "", kind: str = "function") -> dict[str, Any]:
    field = "input" if kind == "custom" else "arguments"
    identity = {"id": id_, "type": kind} if id_ else {}
    return {"index": index, **identity, kind: {**({"name": name} if name else {}), field: arguments}}


COUNTS = {
    "prompt_tokens": 12,
    "completion_tokens": 30,
    "total_tokens": 42,
    "prompt_tokens_details": {"cached_tokens": 2},
}
HEADS = entry(0, "", "tide_times", "call_a"), entry(1, "", "moon_phase", "call_b")

SEQUENTIAL = chat(
    {"role": "assistant", "content": ""},
    {"reasoning_content": "Check the table. "},
    {"content": "Un moment, 漢字 🌊"},
    {"content": " please."},
    {"tool_calls": [HEADS[0]]},
    {"tool_calls": [entry(0, '{"harbour":')]},
    {"tool_calls": [entry(0, '"Oban"}')]},
    {"tool_calls": [HEADS[1]]},
    {"tool_calls": [entry(1, '{"on":')]},
    {"tool_calls": [entry(1, "4}")]},
    {"finish": "tool_calls"},
    usage=COUNTS,
)
INTERLEAVED = chat(
    {"role": "assistant", "content": None},
    {"tool_calls": list(HEADS)},
    {"tool_calls": [entry(0, '{"harbour":'), entry(1, '{"on":')]},
    {"tool_calls": [entry(1, "4}")]},
    {"tool_calls": [entry(0, '"Oban"}')]},
    {"finish": "tool_calls"},
)
REPEATED = chat(
    {"role": "assistant", "content": None},
    {"tool_calls": [entry(0, '{"a":', "f", "call_a")]},
    {"tool_calls": [entry(1, '{"b":', "g", "call_b")]},
    {"tool_calls": [entry(0, "1}", "f", "call_a")]},
    {"tool_calls": [entry(1, "2}", "g", "call_b")]},
    {"finish": "tool_calls"},
)
CUSTOM = chat(
    {"role": "assistant", "content": None},
    {"tool_calls": [entry(0, "", "sql", "call_a", "custom")]},
    {"tool_calls": [entry(0, "select ", kind="custom")]},
    {"tool_calls": [entry(0, "1", kind="custom")]},
    {"finish": "tool_calls"},
)
WHOLE = chat({"role": "assistant", "tool_calls": [entry(0, '{"a":1}', "aa", "call_a")], "finish": "tool_calls"})
WITHOUT_ID = chat(
    {"role": "assistant"},
    {"tool_calls": [entry(0, "", "get")]},
    {"tool_calls": [entry(0, "{}")]},
    {"finish": "tool_calls"},
    end="\r\n",
)
TWO_CHOICES = chat(
    {"role": "assistant", "content": "Low ", "n": 0},
    {"role": "assistant", "content": "High ", "n": 1},
    {"content": "tide.", "n": 0},
    {"content": "🌊", "n": 1},
    {"finish": "stop", "n": 0},
    {"finish": "stop", "n": 1},
    usage=COUNTS,
)
PLAIN = chat({"role": "assistant", "content": "Low "}, {"content": "tide."}, {"finish": "stop"})
USAGE_ON_FINISH = sse(
    "openai-chat",
    {"status": "queued"},
    {"id": "c-1", "model": "m-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Low tide."}}]},
    {"id": "c-1", "model": "m-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": COUNTS},
    done=True,
)

_CLAUDE = (
    {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "model": "m-1", "content": [], "stop_sequence": None, "usage": {"input_tokens": 12, "output_tokens": 1, "cache_read_input_tokens": 2}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Check the 漢字."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2lnbmF0dXJl"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "One "}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "moment 🌊."}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "toolu_a", "name": "tide_times", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"harbour":'}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '"Oban"}'}},
    {"type": "content_block_stop", "index": 2},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "tool_use", "id": "toolu_b", "name": "now", "input": {}}},
    {"type": "content_block_stop", "index": 3},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 30}},
    {"type": "message_stop"},
)  # fmt: skip
CLAUDE = sse("anthropic", *_CLAUDE, event="type")


def _chunks() -> Stream:
    """Claude's events as Bedrock carries them."""
    last = {**_CLAUDE[-1], "amazon-bedrock-invocationMetrics": {"inputTokenCount": 12, "outputTokenCount": 30}}
    data = [base64.b64encode(json.dumps(payload).encode()).decode() for payload in (*_CLAUDE[:-1], last)]
    return body_stream(
        "bedrock-invoke", b"".join(write_event("chunk", {"bytes": each, "p": "ab"}).raw for each in data)
    )


def _candidate(*parts: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "content": {"role": "model", "parts": list(parts)}, **fields}]


_GEMINI_USAGE = {"promptTokenCount": 12, "candidatesTokenCount": 30, "totalTokenCount": 42}
GEMINI = sse(
    "gemini",
    {"candidates": _candidate({"text": "Check the 漢字.", "thought": True})},
    {"candidates": _candidate({"text": "One "})},
    {
        "candidates": _candidate({"text": "moment 🌊.", "thoughtSignature": "c2lnbmF0dXJl"}),
        "usageMetadata": {"promptTokenCount": 12},
    },
    {
        "candidates": _candidate(
            {"functionCall": {"name": "f", "args": {"a": 1}}}, {"functionCall": {"name": "g", "args": {}}}
        )
    },
    {"candidates": _candidate({"text": ""}, finishReason="STOP"), "usageMetadata": _GEMINI_USAGE},
    end="\r\n",
)
GEMINI_BRIEF = sse(
    "gemini",
    {"candidates": _candidate({"text": "Low "})},
    {"candidates": _candidate({"text": "tide."}, finishReason="STOP"), "usageMetadata": _GEMINI_USAGE},
)
_STEP = {"type": "function_call", "id": "call_a", "name": "f", "arguments": {}}
INTERACTION = sse(
    "gemini-interactions",
    {"event_type": "interaction.created", "event_id": "e1", "interaction": {"id": "i-1", "status": "in_progress"}},
    {"event_type": "interaction.status_update", "event_id": "e2", "status": "in_progress"},
    {"event_type": "step.start", "event_id": "e3", "index": 0, "step": _STEP},
    {
        "event_type": "step.delta",
        "event_id": "e4",
        "index": 0,
        "delta": {"type": "arguments_delta", "arguments": '{"é":'},
    },
    {"event_type": "step.delta", "event_id": "e5", "index": 0, "delta": {"type": "arguments_delta", "arguments": "1}"}},
    {"event_type": "step.stop", "event_id": "e6", "index": 0},
    {
        "event_type": "interaction.completed",
        "event_id": "e7",
        "interaction": {"id": "i-1", "status": "requires_action"},
    },
    event="event_type",
    done=True,
)


def _lines(*payloads: dict[str, Any]) -> Stream:
    return body_stream(
        "ollama", b"".join(json.dumps(payload, ensure_ascii=False).encode() + b"\n" for payload in payloads)
    )


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


OLLAMA = _lines(
    {"model": "m", "created_at": "2031-01-01T00:00:00Z", "message": {"role": "assistant", "content": "漢字 ", "thinking": "Hm."}, "done": False},
    {"model": "m", "created_at": "2031-01-01T00:00:01Z", "message": {"role": "assistant", "content": "", "tool_calls": [_call("f", a=1), _call("g")]}, "done": False},
    {"model": "m", "created_at": "2031-01-01T00:00:02Z", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 12, "eval_count": 30},
)  # fmt: skip
OLLAMA_ENDS_WITH_TEXT = _lines(
    {"model": "m", "message": {"role": "assistant", "content": "Low "}, "done": False},
    {
        "model": "m",
        "message": {"role": "assistant", "content": "tide."},
        "done": True,
        "done_reason": "stop",
        "eval_count": 3,
    },
)
OLLAMA_GENERATES = _lines(
    {"model": "m", "response": "Low ", "done": False},
    {"model": "m", "response": "tide.", "done": False},
    {"model": "m", "response": "", "done": True, "done_reason": "stop", "eval_count": 3},
)
OLLAMA_GENERATES_AT_END = _lines(
    {"model": "m", "response": "Low ", "done": False},
    {"model": "m", "response": "tide.", "done": True, "done_reason": "stop"},
)


def _converse() -> Stream:
    events: tuple[tuple[str, dict[str, Any]], ...] = (
        ("messageStart", {"role": "assistant", "p": "abc"}),
        ("contentBlockStart", {"contentBlockIndex": 0, "start": {}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Low tide 🌊."}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t-1", "name": "f"}}}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": '{"a":'}}}),
        ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": "1}"}}}),
        ("contentBlockStop", {"contentBlockIndex": 1}),
        ("messageStop", {"stopReason": "tool_use"}),
        ("metadata", {"usage": {"inputTokens": 12, "outputTokens": 30, "totalTokens": 42}}),
    )
    return body_stream("bedrock-converse", b"".join(write_event(*event).raw for event in events))


def _completion(text: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
    return {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "m-1", "choices": [choice], **more}


STREAMS: dict[str, list[Stream]] = {
    each.name: [
        synthesize(
            replace(reply, finish_reason=_WORDS.get(each.name, reply.finish_reason)),
            each.name,
            request=REQUEST,
            lossy=True,
        )
        for reply in (RICH, TEXT)
    ]
    for each in DIALECTS
}
"""Streams by dialect, the richest first."""

for _stream in (
    SEQUENTIAL, INTERLEAVED, REPEATED, CUSTOM, WHOLE, WITHOUT_ID, TWO_CHOICES, PLAIN, USAGE_ON_FINISH, CLAUDE, _chunks(), GEMINI, GEMINI_BRIEF,
    INTERACTION, OLLAMA, OLLAMA_ENDS_WITH_TEXT, OLLAMA_GENERATES, OLLAMA_GENERATES_AT_END, _converse(),
    sse(
        "tool-events",
        {"type": "text_delta", "text": "Low tide 🌊."},
        {"type": "tool_use_start", "id": "t-1", "name": "f"},
        {"type": "tool_args_delta", "id": "t-1", "delta": '{"a":'},
        {"type": "tool_args_delta", "id": "t-1", "delta": "1}"},
        {"type": "tool_use_stop", "id": "t-1"},
        {"type": "finish", "reason": "tool_use"},
        event="type",
    ),
    sse("openai-completions", _completion("Low tide 🌊"), _completion(" now.", "stop"), done=True),
    sse("openai-completions", _completion("Low tide."), _completion("", "stop"), {**_completion(""), "choices": [], "usage": COUNTS}, done=True),
):  # fmt: skip
    STREAMS[str(_stream.dialect)].append(_stream)

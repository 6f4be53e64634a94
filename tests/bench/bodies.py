"""The streams that the benchmarks run on: the deltas of synthesized replies, written event by event as a provider streams them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import Any

from stream_cassette import Reply, Stream, ToolCall, Usage
from stream_cassette.dialects import dialect
from stream_cassette.framing import sse
from stream_cassette.model import Delta, Exchange, Frame, Read, Request, TextPart
from stream_cassette.unfold import unfold

MEGABYTE = 1_000_000
SSE_HEADERS = (("content-type", "text/event-stream"),)
BINARY_HEADERS = (("content-type", "application/vnd.amazon.eventstream"),)

_URLS = {
    "openai-chat": "https://api.openai.com/v1/chat/completions",
    "openai-responses": "https://api.openai.com/v1/responses",
    "anthropic": "https://api.anthropic.com/v1/messages",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/models/gemini:streamGenerateContent?alt=sse",
    "bedrock-converse": "https://bedrock-runtime.us-east-1.amazonaws.com/model/nova/converse-stream",
}
# What OpenAI's own chunks carry beside what a synthesized one does.
_CHUNK = {
    "id": "chatcmpl-CkwQ8LxA3Z0PnYtR5uJmHbV1sDfG2",
    "object": "chat.completion.chunk",
    "created": 1800000000,
    "model": "gpt-5-mini",
    "service_tier": "default",
    "system_fingerprint": "fp_50906f2aac",
    "choices": [],
}
_LETTERS = "etaoinshrdlucmfwypvbgk"


def words(count: int) -> list[str]:
    """As many pieces of a text as a model sends them; now and then a line end, a quote, or what is no ASCII. The same every time."""
    random = Random(1)
    odd = ("\n\n", '"', "é", " 漢字", " 🌊", "\t", "\\")
    plain = ["".join(random.choices(_LETTERS, k=random.randint(1, 7))) for _ in range(count)]
    return [random.choice(odd) if random.random() < 0.03 else f" {word}" for word in plain]


def deltas(name: str, pieces: Sequence[str], *, call: bool = False) -> list[Delta]:
    """A reply whose text (or the arguments of its one call) comes in `pieces`, as deltas for the dialect `name`."""
    text = "".join(pieces)
    part = ToolCall(0, id="call_Zx81", name="save", arguments_text=text, arguments={}) if call else TextPart(text)
    reply = Reply(
        (part,),
        {"anthropic": "tool_use" if call else "end_turn", "gemini": "STOP"}.get(name, "tool_calls" if call else "stop"),
        usage=Usage(input_tokens=812, output_tokens=len(pieces)),
        ended=True,
        role="assistant",
        model=_CHUNK["model"],
        id=_CHUNK["id"],
    )
    return unfold(reply, dialect(name).numbers, lambda *_: pieces)


def events(name: str, said: Sequence[Delta]) -> tuple[bytes, ...]:
    """The body that says it, event by event."""
    speaker = dialect(name)
    if name == "openai-chat":
        like = sse.encode(json.dumps(_CHUNK, separators=(",", ":")))
        frames: list[Frame] = [frame for delta in said for frame in speaker.write([delta], like)]
    else:
        frames = speaker.finish(speaker.write(said))
    return tuple(frame.raw for frame in frames)


@cache
def stream(name: str, size: int) -> tuple[bytes, ...]:
    """Some `size` bytes of a text in the dialect `name`, event by event, a word or less each."""
    sample = 400
    each = sum(map(len, events(name, deltas(name, words(sample))))) / sample
    return events(name, deltas(name, words(round(size / each))))


@cache
def body(name: str, size: int) -> bytes:
    return b"".join(stream(name, size))


@cache
def padded(size: int) -> bytes:
    """OpenAI's chat as it pads every event since 2025, so that its length says nothing of the text: no two events are alike but for the text."""
    random = Random(2)
    pads = ("".join(random.choices(_LETTERS, k=random.randint(1, 12))).encode() for _ in range(size))
    marked = (
        event if b"[DONE]" in event else event[:-3] + b',"obfuscation":"%b"}\n\n' % next(pads)
        for event in stream("openai-chat", size)
    )
    return b"".join(marked)


@cache
def one_call(size: int) -> bytes:
    """A tool call with `size` bytes of arguments, in pieces of about ten, from OpenAI."""
    text = json.dumps({"rows": [f"row {number}" for number in range(size // 14)]})
    return b"".join(events("openai-chat", deltas("openai-chat", cut(text, 10), call=True)))


@cache
def one_text(size: int) -> bytes:
    """A text of `size` bytes in deltas of one byte, from Anthropic."""
    said = events("anthropic", deltas("anthropic", ["x"]))
    place = next(at for at, event in enumerate(said) if b"text_delta" in event)
    return b"".join((*said[:place], said[place] * size, *said[place + 1 :]))


@cache
def tiny() -> bytes:
    """The shortest whole reply."""
    return b"".join(events("openai-chat", deltas("openai-chat", ["Yes."])))


def cut(data: Any, size: int) -> list[Any]:
    """The data in pieces of `size`."""
    return [data[at : at + size] for at in range(0, len(data), size)]


def exchange(name: str, reads: Sequence[bytes], *, gap_ms: int = 7) -> Exchange:
    """The reads as the answer to a request, `gap_ms` apart."""
    request = Request("POST", _URLS[name], (("content-type", "application/json"),), b'{"stream":true}')
    headers = BINARY_HEADERS if name.startswith("bedrock") else SSE_HEADERS
    return Exchange(request, 200, headers, tuple(Read(gap_ms * number, data) for number, data in enumerate(reads)))


def recorded(name: str, size: int) -> Stream:
    """A stream of some `size` bytes, one event a read."""
    return Stream(exchange(name, stream(name, size)), name)


def payloads(data: bytes) -> Iterator[bytes]:
    """What stands behind `data:` in an event stream that is written as plainly as ours, the end mark left out."""
    for line in data.split(b"\n"):
        if line.startswith(b"data: {"):
            yield line[6:]

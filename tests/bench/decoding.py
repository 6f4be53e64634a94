"""Bytes to events: the decoder of event streams alone, against those of other Python packages on the same reads."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence

import anthropic._streaming
import bodies
import httpx2._sse
import httpx_sse._decoders
import openai._streaming
from measuring import OURS, Row, Runs, Target, contest, run

from stream_cassette.framing import sse


def texts(reads: Sequence[bytes]) -> Iterator[str]:
    """What httpx and httpx2 make of reads before their decoders see them."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return map(decoder.decode, reads)


def ours(reads: Sequence[bytes]) -> Iterator[object]:
    decoder = sse.Decoder()
    for data in reads:
        yield from decoder.feed(data)
    yield from decoder.close()


def of_httpx_sse(reads: Sequence[bytes]) -> Iterator[object]:
    lines, decoder = httpx_sse._decoders.SSELineDecoder(), httpx_sse._decoders.SSEDecoder()
    for text in texts(reads):
        for line in lines.decode(text):
            if event := decoder.decode(line):
                yield event


def of_httpx2(reads: Sequence[bytes]) -> Iterator[object]:
    parser = httpx2._sse._SSEParser()
    for text in texts(reads):
        yield from parser.decode(text)


def of_openai(reads: Sequence[bytes]) -> Iterator[object]:
    return openai._streaming.SSEDecoder().iter_bytes(iter(reads))


def of_anthropic(reads: Sequence[bytes]) -> Iterator[object]:
    return anthropic._streaming.SSEDecoder().iter_bytes(iter(reads))


def split(reads: Sequence[bytes]) -> Iterator[object]:
    return iter(b"".join(reads).split(b"\n\n"))


CONTESTANTS = {
    OURS: ours,
    "split": split,
    "httpx-sse": of_httpx_sse,
    "httpx2": of_httpx2,
    "openai": of_openai,
    "anthropic": of_anthropic,
}


def count(events: Iterable[object]) -> int:
    return sum(1 for _ in events)


def runs(reads: Sequence[bytes]) -> Runs:
    wanted = count(ours(reads))
    for name, decode in CONTESTANTS.items():  # `split` sees the nothing behind the last event too
        seen = count(decode(reads))
        assert abs(seen - wanted) <= 1, f"{name} sees {seen} events, not {wanted}"
    return {name: run(lambda decode=decode: count(decode(reads))) for name, decode in CONTESTANTS.items()}


def chat(size: int = 10 * bodies.MEGABYTE) -> bytes:
    return bodies.body("openai-chat", size)


TARGETS = (Target("httpx-sse", 1 / 1.5), Target("httpx2", 0.999), Target("openai", 0.999), Target("anthropic", 0.999))
ROWS: Sequence[Row] = (
    contest("SSE decoding alone, 10 MB, 16 KiB reads", lambda: runs(bodies.cut(chat(), 16384)), TARGETS),
    contest(
        "SSE decoding alone, 10 MB, one event a read",
        lambda: runs(bodies.stream("openai-chat", 10 * bodies.MEGABYTE)),
        TARGETS,
    ),
    contest(
        "SSE decoding alone, 10 MB of Anthropic's, 16 KiB reads",
        lambda: runs(bodies.cut(bodies.body("anthropic", 10 * bodies.MEGABYTE), 16384)),
        TARGETS,
    ),
)

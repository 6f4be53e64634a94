"""Bytes to `Reply`: against parsing JSON alone, and against the helpers of the SDKs, each with its own client on a transport that has the reads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import bodies
import httpx2
import jiter
from measuring import OURS, Row, Runs, Target, contest, race, run

from stream_cassette import Assembler, assemble

ASK: Mapping[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Say it."}]}


def answering(module: Any, reads: Sequence[bytes], content_type: str = "text/event-stream") -> Any:
    """A client of httpx2 whose every response has these reads."""
    transport = module.MockTransport(
        lambda request: module.Response(200, headers={"content-type": content_type}, content=iter(reads))
    )
    return module.Client(transport=transport)


def parsed(data: bytes) -> Callable[[], object]:
    found = list(bodies.payloads(data))

    def parse() -> None:
        for payload in found:
            jiter.from_json(payload)

    return parse


def whole(data: bytes) -> Runs:
    assert assemble(data).complete
    return {OURS: run(lambda: assemble(data)), "jiter per event": run(parsed(data))}


def many(data: bytes, count: int) -> Runs:
    parse = parsed(data)
    return {
        OURS: run(lambda: [assemble(data) for _ in range(count)]),
        "jiter per event": run(lambda: [parse() for _ in range(count)]),
    }


# ------------------------------------------------------------------------------------------------------------ helpers of SDKs


def openai_helper(reads: Sequence[bytes]) -> str:
    import openai

    client = openai.OpenAI(api_key="none", http_client=answering(httpx2, reads), max_retries=0)
    with client.chat.completions.stream(**ASK) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0].message.content or ""


def openai_loop(reads: Sequence[bytes]) -> str:
    """What a user of the SDK writes without the helper."""
    import openai

    client = openai.OpenAI(api_key="none", http_client=answering(httpx2, reads), max_retries=0)
    found = client.chat.completions.create(**ASK, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in found if chunk.choices)


def anthropic_helper(reads: Sequence[bytes]) -> str:
    import anthropic

    client = anthropic.Anthropic(api_key="none", http_client=answering(httpx2, reads), max_retries=0)
    with client.messages.stream(**ASK, max_tokens=9) as stream:
        for _ in stream:
            pass
        return "".join(block.text for block in stream.get_final_message().content if block.type == "text")


def litellm_builder(reads: Sequence[bytes]) -> str:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it asks the network
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import litellm
    import openai

    litellm.suppress_debug_info = True
    client = openai.OpenAI(api_key="none", http_client=answering(httpx2, reads), max_retries=0)
    found = litellm.completion(**ASK | {"model": "openai/m"}, stream=True, client=client)
    built: Any = litellm.stream_chunk_builder(list(found), messages=list(ASK["messages"]))
    return built.choices[0].message.content or ""


def helpers(name: str, size: int, peers: Mapping[str, Callable[[Sequence[bytes]], str]]) -> Runs:
    reads = bodies.cut(bodies.body(name, size), 16384)
    text = assemble(reads).text
    for peer, helper in peers.items():
        said = helper(reads)
        assert said == text, f"{peer} says {len(said)} characters, not {len(text)}"
    return {
        OURS: run(lambda: assemble(reads)),
        **{peer: run(lambda helper=helper: helper(reads)) for peer, helper in peers.items()},
    }


# --------------------------------------------------------------------------------------------------------------------- growth


def push(data: bytes, size: int) -> Callable[[], object]:
    """Fed in reads of `size` bytes, while it streams."""
    reads = bodies.cut(data, size)

    def feed() -> None:
        assembler = Assembler()
        for read in reads:
            assembler.feed_bytes(read)
        assembler.close()
        assert assembler.result().complete

    return feed


_TENTH = "a tenth of the stream"


def growth(name: str, make: Callable[[int], Callable[[], object]], size: int, *, rounds: int = 3) -> Row:
    """A row of what a byte costs in a stream of `size` bytes and in one of a tenth of that: the same, if the time is linear."""

    def measure() -> Mapping[str, float]:
        best = race({OURS: run(make(size)), _TENTH: run(make(size // 10))}, rounds)
        return {OURS: best[OURS] / size, _TENTH: best[_TENTH] / (size // 10)}

    return Row(name, measure, (Target(_TENTH, 1.25),), unit="ns a byte", scale=1e9)


# -------------------------------------------------------------------------------------------------------------------- Bedrock


def boto3_events(reads: Sequence[bytes]) -> str:
    """botocore's own event stream with the parser and the shapes of the service, and the loop that its users write."""
    import botocore.session
    from botocore.eventstream import EventStream
    from botocore.parsers import EventStreamJSONParser

    session = botocore.session.get_session()
    model = session.get_service_model("bedrock-runtime").operation_model("ConverseStream")
    shape = model.output_shape.members["stream"]

    class Raw:
        def stream(self) -> Any:
            return iter(reads)

    text = []
    for event in EventStream(Raw(), shape, EventStreamJSONParser(), "ConverseStream"):
        if "contentBlockDelta" in event:
            text.append(event["contentBlockDelta"]["delta"]["text"])
    return "".join(text)


CHAT, ANTHROPIC = "openai-chat", "anthropic"
OPENAI = {"openai helper": openai_helper, "openai loop": openai_loop}

# The helpers take seconds for what takes us a fraction of one, and litellm's longer than its stream is worth waiting for.
AGAINST: Sequence[tuple[str, float, Mapping[str, Callable[[Sequence[bytes]], str]], tuple[Target, ...]]] = (
    (CHAT, 10, OPENAI, (Target("openai helper", 1 / 40),)),
    (CHAT, 1, {"litellm builder": litellm_builder}, (Target("litellm builder", 1 / 40),)),
    (ANTHROPIC, 10, {"anthropic helper": anthropic_helper}, (Target("anthropic helper", 1 / 30),)),
)

ROWS: Sequence[Row] = (
    *(
        contest(
            f"bytes to Reply, {name}, {size} MB at once",
            lambda name=name, size=size: whole(bodies.body(name, size * bodies.MEGABYTE)),
            (Target("jiter per event", 3.5),),
            rounds=5,
        )
        for name, size in ((CHAT, 10), (ANTHROPIC, 10), ("openai-responses", 2), ("gemini", 2))
    ),
    contest(
        "bytes to Reply, openai-chat with a random pad in every event, 10 MB at once",
        lambda: whole(bodies.padded(10 * bodies.MEGABYTE)),
        (Target("jiter per event", 3.5),),
        rounds=5,
    ),
    *(
        contest(
            f"bytes to Reply, {name}, {size} MB, 16 KiB reads, against {' and '.join(peers)}",
            lambda name=name, size=size, peers=peers: helpers(name, size * bodies.MEGABYTE, peers),
            targets,
            rounds=2,
        )
        for name, size, peers, targets in AGAINST
    ),
    contest("bytes to Reply, 10,000 streams of 1 kB", lambda: many(bodies.tiny(), 10_000), rounds=3),
    *(
        growth(
            f"fed in pieces of {piece} bytes, openai-chat",
            lambda size, piece=piece: push(bodies.body(CHAT, size), piece),
            size,
        )
        for piece, size in ((1, 2 * bodies.MEGABYTE), (64, 5 * bodies.MEGABYTE), (1500, 10 * bodies.MEGABYTE))
    ),
    growth("one tool call with 1 MB of arguments", lambda size: push(bodies.one_call(size), 16384), bodies.MEGABYTE),
    growth(
        "one text of 1 MB in deltas of one byte",
        lambda size: push(bodies.one_text(size), 16384),
        bodies.MEGABYTE,
        rounds=1,
    ),
    contest(
        "Bedrock frames to Reply, 2 MB, 16 KiB reads",
        lambda: helpers("bedrock-converse", 2 * bodies.MEGABYTE, {"boto3": boto3_events}),
        (Target("boto3", 1 / 3),),
        rounds=5,
    ),
)

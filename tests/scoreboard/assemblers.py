"""Released assemblers of streams, each as a function from reads to a plain result, through its own real code and an in-process transport.

A result has `text`, `reasoning`, `tool_calls` (name and arguments), `finish_reason`, `usage` and `complete`; Anthropic's a `signature` too. It says what
the library hands out, seen as kindly as a caller can: arguments that a library leaves as text are parsed by strict JSON, and a call whose text is no object
is left out, as the caller's `json.loads` would raise; a reply is complete where the library names a finish reason.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

Result = dict[str, Any]

_ASK: Any = {"model": "m-1", "messages": [{"role": "user", "content": "?"}]}


@dataclass(frozen=True, slots=True)
class Peer:
    """A released assembler, the dialect that it reads, the distribution that it comes from, and the client that reads the events for it."""

    name: str
    dialect: str
    distribution: str
    client: str
    assemble: Callable[[Iterable[bytes]], Result]

    @property
    def version(self) -> str | None:
        """None where it is not installed."""
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return None


# --------------------------------------------------------------------------------------------------------------- the transport


class Wire:
    """What answers every request: the reads that were put there last, one by one. A client is made once, its reads change."""

    def __init__(self, content_type: str = "text/event-stream") -> None:
        self.headers = {"content-type": content_type}
        self.reads: list[bytes] = []

    def transport(self, library: ModuleType) -> Any:
        """A transport of httpx or httpx2, which refuse each other's."""
        wire = self

        class Body(library.SyncByteStream, library.AsyncByteStream):
            def __iter__(self) -> Iterator[bytes]:
                yield from wire.reads

            async def __aiter__(self) -> AsyncIterator[bytes]:
                for read in wire.reads:
                    yield read

        return library.MockTransport(lambda request: library.Response(200, headers=wire.headers, stream=Body()))


def _runnable(calls: Iterable[tuple[str | None, Any]]) -> list[dict[str, Any]]:
    """Calls as a caller runs them: whose arguments are an object, or the text of one; or nothing at all, with which the caller must deal."""
    out = []
    for name, arguments in calls:
        try:
            value = json.loads(arguments) if isinstance(arguments, str) else arguments
        except ValueError:
            continue
        if isinstance(value, Mapping) or arguments is None:
            out.append({"name": name, "arguments": value})
    return out


def _counts(usage: Any, input_tokens: str, output_tokens: str) -> dict[str, Any] | None:
    get = usage.get if isinstance(usage, Mapping) else lambda name: getattr(usage, name, None)
    return {"input_tokens": get(input_tokens), "output_tokens": get(output_tokens)} if usage else None


def _chat_counts(usage: Any) -> dict[str, Any] | None:
    return _counts(usage, "prompt_tokens", "completion_tokens")


def _result(
    text: str | None,
    calls: Iterable[tuple[str | None, Any]],
    finish: str | None,
    usage: dict[str, Any] | None,
    complete: bool | None = None,
    **more: Any,
) -> Result:
    return {
        "text": text or "",
        "tool_calls": _runnable(calls),
        "finish_reason": finish,
        "usage": usage,
        "complete": finish is not None if complete is None else complete,
        **more,
    }


# -------------------------------------------------------------------------------------------------------------------- openai


@cache
def _openai() -> tuple[Wire, Any]:
    import httpx2
    import openai

    wire = Wire()
    client = httpx2.Client(transport=wire.transport(httpx2))
    return wire, openai.OpenAI(api_key="test", base_url="http://test/v1", max_retries=0, http_client=client)


def openai_helper(reads: Iterable[bytes]) -> Result:
    wire, client = _openai()
    wire.reads = list(reads)
    with client.chat.completions.stream(**_ASK) as stream:
        for _ in stream:
            pass
        reply = stream.get_final_completion()
    choice = reply.choices[0]
    legacy = choice.message.function_call
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    calls += [(legacy.name, legacy.arguments)] if legacy else []
    return _result(choice.message.content, calls, choice.finish_reason, _chat_counts(reply.usage))


def textbook_loop(reads: Iterable[bytes]) -> Result:
    wire, client = _openai()
    wire.reads = list(reads)
    text, calls, finish, usage = "", {}, None, None
    for chunk in client.chat.completions.create(stream=True, **_ASK):
        usage = chunk.usage or usage
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        text += choice.delta.content or ""
        for piece in choice.delta.tool_calls or []:
            name, arguments = calls.get(piece.index, ("", ""))
            calls[piece.index] = (name + (piece.function.name or ""), arguments + (piece.function.arguments or ""))
        finish = choice.finish_reason or finish
    return _result(text, calls.values(), finish, _chat_counts(usage))


def openai_responses(reads: Iterable[bytes]) -> Result:
    wire, client = _openai()
    wire.reads = list(reads)
    with client.responses.stream(model="m-1", input="?") as stream:
        for _ in stream:
            pass
        reply = stream.get_final_response()
    calls = [(item.name, item.arguments) for item in reply.output if item.type == "function_call"]
    usage = _counts(reply.usage, "input_tokens", "output_tokens")
    return _result(reply.output_text, calls, reply.status, usage, reply.status != "in_progress")


# ----------------------------------------------------------------------------------------------------------------- anthropic


@cache
def _anthropic() -> tuple[Wire, Any]:
    import anthropic
    import httpx2

    wire = Wire()
    client = httpx2.Client(transport=wire.transport(httpx2))
    return wire, anthropic.Anthropic(api_key="test", base_url="http://test", max_retries=0, http_client=client)


def anthropic_helper(reads: Iterable[bytes]) -> Result:
    wire, client = _anthropic()
    wire.reads = list(reads)
    with client.messages.stream(max_tokens=99, **_ASK) as stream:
        reply = stream.get_final_message()
    said: dict[str, list[Any]] = {}
    for block in reply.content:
        said.setdefault(block.type, []).append(block)
    thoughts = said.get("thinking", [])
    return _result(
        "".join(block.text for block in said.get("text", [])),
        [(block.name, block.input) for block in said.get("tool_use", [])],
        reply.stop_reason,
        _counts(reply.usage, "input_tokens", "output_tokens"),
        reasoning="".join(block.thinking for block in thoughts),
        signature=[block.signature for block in thoughts],
    )


# ----------------------------------------------------------------------------------------------------------------- frameworks


@cache
def _langchain() -> tuple[Wire, Any]:
    import httpx2
    from langchain_openai import ChatOpenAI

    wire = Wire()
    client = httpx2.Client(transport=wire.transport(httpx2))
    return wire, ChatOpenAI(model="m-1", api_key="test", base_url="http://test/v1", max_retries=0, http_client=client)


def langchain_openai(reads: Iterable[bytes]) -> Result:
    wire, model = _langchain()
    wire.reads = list(reads)
    reply: Any = None
    for chunk in model.stream("?"):
        reply = chunk if reply is None else reply + chunk
    text = "".join(block if isinstance(block, str) else block.get("text", "") for block in reply.content)
    calls = [(call["name"], call["args"]) for call in reply.tool_calls]
    if legacy := reply.additional_kwargs.get("function_call"):
        calls.append((legacy["name"], legacy["arguments"]))
    usage = _counts(reply.usage_metadata, "input_tokens", "output_tokens")
    return _result(text, calls, reply.response_metadata.get("finish_reason"), usage)


@cache
def _pydantic_ai() -> tuple[Wire, Any, asyncio.Runner]:
    import httpx2
    import openai
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    wire = Wire()
    client = httpx2.AsyncClient(transport=wire.transport(httpx2))
    sdk = openai.AsyncOpenAI(api_key="test", base_url="http://test/v1", max_retries=0, http_client=client)
    return wire, OpenAIChatModel("m-1", provider=OpenAIProvider(openai_client=sdk)), asyncio.Runner()


def pydantic_ai(reads: Iterable[bytes]) -> Result:
    wire, model, runner = _pydantic_ai()
    wire.reads = list(reads)
    reply, usage = runner.run(_pydantic_ai_reply(model))
    calls = [(part.tool_name, part.args) for part in reply.parts if part.part_kind == "tool-call"]
    text = "".join(part.content for part in reply.parts if part.part_kind == "text")
    thoughts = "".join(part.content for part in reply.parts if part.part_kind == "thinking")
    counts = _counts(usage, "input_tokens", "output_tokens") if usage.has_values() else None
    return _result(text, calls, reply.finish_reason, counts, reasoning=thoughts)


async def _pydantic_ai_reply(model: Any) -> Any:
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.messages import ModelRequest

    async with model_request_stream(model, [ModelRequest.user_text_prompt("?")]) as stream:
        async for _ in stream:
            pass
    reply = stream.get()
    return reply, reply.usage


@cache
def _litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks the network
    import litellm

    litellm.suppress_debug_info = True
    return litellm


def litellm_builder(reads: Iterable[bytes]) -> Result:
    litellm = _litellm()
    wire, client = _openai()
    wire.reads = list(reads)
    chunks = litellm.completion(
        model="openai/m-1",
        messages=_ASK["messages"],
        stream=True,
        client=client,
        stream_options={"include_usage": True},
    )
    reply = litellm.stream_chunk_builder(list(chunks), messages=_ASK["messages"])
    choice = reply.choices[0]
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    return _result(choice.message.content, calls, choice.finish_reason, _chat_counts(reply.usage))


# ------------------------------------------------------------------------------------------------------------ other providers


@cache
def _genai() -> tuple[Wire, Any]:
    import httpx2
    from google import genai

    wire = Wire()
    client = httpx2.Client(transport=wire.transport(httpx2))
    options = genai.types.HttpOptions(httpx_client=client, base_url="http://test")
    return wire, genai.Client(api_key="test", http_options=options)


def google_genai(reads: Iterable[bytes]) -> Result:
    wire, client = _genai()
    wire.reads = list(reads)
    text = thoughts = ""
    calls, finish, usage = [], None, None
    for chunk in client.models.generate_content_stream(model="m-1", contents="?"):
        usage = chunk.usage_metadata or usage
        for candidate in (chunk.candidates or [])[:1]:
            finish = candidate.finish_reason or finish
            for part in (candidate.content and candidate.content.parts) or []:
                thoughts += (part.text or "") if part.thought else ""
                text += (part.text or "") if not part.thought else ""
                call = part.function_call
                if call and call.name and not call.will_continue:
                    calls.append((call.name, call.args or {}))
    counts = _counts(usage, "prompt_token_count", "candidates_token_count")
    return _result(text, calls, finish and finish.value, counts, reasoning=thoughts)


class _Raw:
    """The response of urllib3, as far as botocore reads it."""

    def __init__(self, reads: list[bytes]) -> None:
        self._reads = reads

    def stream(self) -> Iterator[bytes]:
        yield from self._reads

    def close(self) -> None:
        pass


@cache
def _bedrock() -> tuple[Wire, Any]:
    import boto3
    from botocore.awsrequest import AWSResponse

    wire = Wire("application/vnd.amazon.eventstream")
    client = boto3.client(
        "bedrock-runtime", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )

    def answer(request: Any, **_: Any) -> AWSResponse:
        return AWSResponse(request.url, 200, wire.headers, _Raw(wire.reads))

    client.meta.events.register("before-send.bedrock-runtime.ConverseStream", answer)
    return wire, client


def boto3_converse(reads: Iterable[bytes]) -> Result:
    wire, client = _bedrock()
    wire.reads = list(reads)
    text, finish, usage = "", None, None
    calls: dict[int, tuple[str, str]] = {}
    for event in client.converse_stream(modelId="m-1", messages=[{"role": "user", "content": [{"text": "?"}]}])[
        "stream"
    ]:
        if opened := event.get("contentBlockStart"):
            if "toolUse" in opened["start"]:
                calls[opened["contentBlockIndex"]] = (opened["start"]["toolUse"]["name"], "")
        elif said := event.get("contentBlockDelta"):
            text += said["delta"].get("text", "")
            if "toolUse" in said["delta"]:
                name, arguments = calls[said["contentBlockIndex"]]
                calls[said["contentBlockIndex"]] = (name, arguments + said["delta"]["toolUse"]["input"])
        elif stopped := event.get("messageStop"):
            finish = stopped["stopReason"]
        elif metadata := event.get("metadata"):
            usage = metadata["usage"]
    return _result(text, calls.values(), finish, _counts(usage, "inputTokens", "outputTokens"))


@cache
def _ollama() -> tuple[Wire, Any]:
    import httpx
    import ollama

    wire = Wire("application/x-ndjson")
    return wire, ollama.Client("http://test", transport=wire.transport(httpx))


def ollama_client(reads: Iterable[bytes]) -> Result:
    wire, client = _ollama()
    wire.reads = list(reads)
    text = thoughts = ""
    calls, finish, last, done = [], None, None, False
    for last in client.chat(stream=True, **_ASK):
        text += last.message.content or ""
        thoughts += last.message.thinking or ""
        calls += [(call.function.name, call.function.arguments) for call in last.message.tool_calls or []]
        finish, done = last.done_reason or finish, last.done or done
    usage = _counts(last, "prompt_eval_count", "eval_count") if last and last.eval_count is not None else None
    return _result(text, calls, finish, usage, bool(done), reasoning=thoughts)


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("textbook loop", "openai-chat", "openai", "openai", textbook_loop),
        Peer("openai helper", "openai-chat", "openai", "openai", openai_helper),
        Peer("langchain-openai", "openai-chat", "langchain-openai", "openai", langchain_openai),
        Peer("pydantic-ai", "openai-chat", "pydantic-ai-slim", "openai", pydantic_ai),
        Peer("litellm builder", "openai-chat", "litellm", "openai", litellm_builder),
        Peer("openai responses", "openai-responses", "openai", "openai", openai_responses),
        Peer("anthropic helper", "anthropic", "anthropic", "anthropic", anthropic_helper),
        Peer("google-genai", "gemini", "google-genai", "google-genai", google_genai),
        Peer("boto3 converse", "bedrock-converse", "boto3", "boto3", boto3_converse),
        Peer("ollama client", "ollama", "ollama", "ollama", ollama_client),
    )
}
"""By name, as `--only` takes them."""

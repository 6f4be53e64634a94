"""The clients that the matrix asks: how each is made, how it asks for a stream, and what it calls an error.

`connect(url, patience)` gives a client as its users make it, with the base URL of the provider and a read timeout in seconds; `ask(client, prompt)` opens one
stream and gives its events. Both are (asynchronous) context managers: leaving `ask` is leaving the stream as the client's own documentation has it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import anthropic
import boto3
import botocore.config
import botocore.exceptions
import cohere
import cohere.core
import groq
import httpx
import httpx2
import mistralai.client as mistralai
import ollama
import openai
import requests
import urllib3
from google import genai
from google.genai import types as google
from mistralai.client import errors as mistral_errors
from mistralai.client.utils import BackoffStrategy, RetryConfig

from stream_cassette.mutate import Mutator, Quirk

KEY = "sk-this-is-the-secret-key"
MODEL = "m"


@dataclass(frozen=True, slots=True)
class Client:
    """A row of the matrix.

    `packages` are the distributions whose versions the README names. `dialect` is what its provider speaks. `errors` is what it raises when a stream
    goes wrong. `retries`: it asks again by itself after a 503 (else the code under test does). `boundaries`: its events are the reads of the network.
    `spelling`: what its provider does to what we synthesise in that dialect.
    """

    name: str
    packages: tuple[str, ...]
    dialect: str
    connect: Callable[[str, float], Any]
    ask: Callable[[Any, str], Any]
    errors: tuple[type[BaseException], ...]
    asynchronous: bool = False
    retries: bool = False
    boundaries: bool = False
    spelling: tuple[Mutator, ...] = ()

    def __repr__(self) -> str:
        return self.name


def messages(prompt: str) -> list[Any]:
    return [{"role": "user", "content": prompt}]


def chat(prompt: str) -> dict[str, Any]:
    return {"model": MODEL, "messages": messages(prompt), "stream": True}


PATH = "/v1/chat/completions"


# -------------------------------------------------------------------------------------------------------------- HTTP libraries


def httpx_sync(library: Any, url: str, patience: float) -> Any:
    return library.Client(base_url=url, timeout=patience)


def httpx_async(library: Any, url: str, patience: float) -> Any:
    return library.AsyncClient(base_url=url, timeout=patience)


@contextmanager
def httpx_ask(client: Any, prompt: str) -> Iterator[Iterator[bytes]]:
    with client.stream("POST", PATH, json=chat(prompt)) as response:
        if response.is_error:
            with noted(response.read().decode()):
                response.raise_for_status()
        yield response.iter_raw()


@asynccontextmanager
async def httpx_ask_async(client: Any, prompt: str) -> AsyncIterator[AsyncIterator[bytes]]:
    async with client.stream("POST", PATH, json=chat(prompt)) as response:
        if response.is_error:
            with noted((await response.aread()).decode()):
                response.raise_for_status()
        async with aclosing(response.aiter_raw()) as reads:
            yield reads


@contextmanager
def noted(body: str) -> Iterator[None]:
    """Adds what the provider said to the error of a library that leaves it in the response."""
    try:
        yield
    except Exception as error:
        error.add_note(body)
        raise


@contextmanager
def urllib3_connect(url: str, patience: float) -> Iterator[Any]:
    retry = urllib3.Retry(2, status_forcelist=[503], allowed_methods=None)
    with urllib3.PoolManager(timeout=patience, retries=retry) as pool:
        yield functools.partial(pool.request, "POST", f"{url}{PATH}", preload_content=False)


@contextmanager
def urllib3_ask(post: Callable[..., Any], prompt: str) -> Iterator[Iterator[bytes]]:
    with closing(post(json=chat(prompt))) as response:
        if response.status >= 400:
            raise Refused(response.status, response.data.decode())
        yield response.stream()


class Refused(Exception):
    """What code makes of a status where the library has no error for it."""


@contextmanager
def requests_connect(url: str, patience: float) -> Iterator[Any]:
    retry = urllib3.Retry(2, status_forcelist=[503], allowed_methods=None)
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
        yield functools.partial(session.post, f"{url}{PATH}", stream=True, timeout=patience)


@contextmanager
def requests_ask(post: Callable[..., Any], prompt: str) -> Iterator[Iterator[bytes]]:
    with post(json=chat(prompt)) as response:
        with noted(response.text if not response.ok else ""):
            response.raise_for_status()
        yield response.iter_content(chunk_size=None)


def aiohttp_connect(url: str, patience: float) -> Any:
    return aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=None, sock_read=patience))


@asynccontextmanager
async def aiohttp_ask(session: aiohttp.ClientSession, prompt: str) -> AsyncIterator[AsyncIterator[bytes]]:
    async with session.post(PATH, json=chat(prompt)) as response:
        with noted(await response.text() if not response.ok else ""):
            response.raise_for_status()
        yield response.content.iter_any()


# ------------------------------------------------------------------------------------------------------------------------ SDKs


def openai_sync(url: str, patience: float) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=patience)


def openai_async(url: str, patience: float) -> Any:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=patience)


def openai_aiohttp(url: str, patience: float) -> Any:
    http = openai.DefaultAioHttpClient(timeout=patience)
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, http_client=http)


def groq_sync(url: str, patience: float) -> Any:
    return groq.Groq(base_url=url, api_key=KEY, timeout=patience)


def groq_async(url: str, patience: float) -> Any:
    return groq.AsyncGroq(base_url=url, api_key=KEY, timeout=patience)


def completions_ask(client: Any, prompt: str) -> Any:
    return client.chat.completions.create(**chat(prompt))


@asynccontextmanager
async def completions_ask_async(client: Any, prompt: str) -> AsyncIterator[Any]:
    async with await client.chat.completions.create(**chat(prompt)) as stream:
        yield stream


def anthropic_sync(url: str, patience: float) -> Any:
    return anthropic.Anthropic(base_url=url, api_key=KEY, timeout=patience)


def anthropic_async(url: str, patience: float) -> Any:
    return anthropic.AsyncAnthropic(base_url=url, api_key=KEY, timeout=patience)


def anthropic_aiohttp(url: str, patience: float) -> Any:
    http = anthropic.DefaultAioHttpClient(timeout=patience)
    return anthropic.AsyncAnthropic(base_url=url, api_key=KEY, http_client=http)


def anthropic_ask(client: Any, prompt: str) -> Any:
    return client.messages.create(**chat(prompt), max_tokens=99)


@asynccontextmanager
async def anthropic_ask_async(client: Any, prompt: str) -> AsyncIterator[Any]:
    async with await client.messages.create(**chat(prompt), max_tokens=99) as stream:
        yield stream


def genai_options(url: str, patience: float, **more: Any) -> dict[str, Any]:
    again = google.HttpRetryOptions(attempts=3, initial_delay=0.001, jitter=0)
    return {"api_key": KEY, "http_options": google.HttpOptions(base_url=url, timeout=int(patience * 1000), retry_options=again, **more)}  # fmt: skip


def genai_sync(url: str, patience: float) -> Any:
    return genai.Client(**genai_options(url, patience))


@asynccontextmanager
async def genai_async(url: str, patience: float) -> AsyncIterator[Any]:
    """Where aiohttp is installed, it takes that; a transport of one's own makes it take httpx2."""
    own = {"transport": httpx2.AsyncHTTPTransport()}
    async with genai.Client(**genai_options(url, patience, async_client_args=own)).aio as client:
        yield client


@asynccontextmanager
async def genai_aiohttp(url: str, patience: float) -> AsyncIterator[Any]:
    async with genai.Client(**genai_options(url, patience)).aio as client:
        yield client


def genai_ask(client: genai.Client, prompt: str) -> Any:
    return closing(client.models.generate_content_stream(model=MODEL, contents=prompt))


@asynccontextmanager
async def genai_ask_async(client: Any, prompt: str) -> AsyncIterator[Any]:
    async with aclosing(await client.models.generate_content_stream(model=MODEL, contents=prompt)) as stream:
        yield stream


def mistral_connect(url: str, patience: float) -> Any:
    again = RetryConfig("backoff", BackoffStrategy(1, 1, 1, 60_000, 0), False)
    return mistralai.Mistral(server_url=url, api_key=KEY, timeout_ms=int(patience * 1000), retry_config=again)


def mistral_ask(client: mistralai.Mistral, prompt: str) -> Any:
    return client.chat.stream(model=MODEL, messages=messages(prompt))


@asynccontextmanager
async def mistral_ask_async(client: mistralai.Mistral, prompt: str) -> AsyncIterator[Any]:
    async with await client.chat.stream_async(model=MODEL, messages=messages(prompt)) as stream:
        yield stream


def cohere_sync(url: str, patience: float) -> Any:
    return cohere.ClientV2(base_url=url, api_key=KEY, timeout=patience)


def cohere_async(url: str, patience: float) -> Any:
    return cohere.AsyncClientV2(base_url=url, api_key=KEY, timeout=patience)


def cohere_ask(client: cohere.ClientV2, prompt: str) -> Any:
    return closing(client.chat_stream(model=MODEL, messages=messages(prompt)))


def cohere_ask_async(client: cohere.AsyncClientV2, prompt: str) -> Any:
    return aclosing(client.chat_stream(model=MODEL, messages=messages(prompt)))


def ollama_sync(url: str, patience: float) -> Any:
    return ollama.Client(host=url, timeout=patience)


@asynccontextmanager
async def ollama_async(url: str, patience: float) -> AsyncIterator[Any]:
    client = ollama.AsyncClient(host=url, timeout=patience)
    try:
        yield client
    finally:
        await client.close()


def ollama_ask(client: ollama.Client, prompt: str) -> Any:
    return closing(client.chat(**chat(prompt)))


@asynccontextmanager
async def ollama_ask_async(client: ollama.AsyncClient, prompt: str) -> AsyncIterator[Any]:
    async with aclosing(await client.chat(**chat(prompt))) as stream:
        yield stream


@functools.cache
def aws() -> boto3.Session:
    return boto3.Session(aws_access_key_id="x", aws_secret_access_key="y", region_name="us-east-1")


def boto3_connect(url: str, patience: float) -> Any:
    config = botocore.config.Config(read_timeout=patience)
    return closing(aws().client("bedrock-runtime", endpoint_url=url, config=config))


def converse_ask(client: Any, prompt: str) -> Any:
    content = [{"role": "user", "content": [{"text": prompt}]}]
    return closing(client.converse_stream(modelId=MODEL, messages=content)["stream"])


def invoke_ask(client: Any, prompt: str) -> Any:
    body = json.dumps({"messages": messages(prompt), "max_tokens": 99})
    return closing(client.invoke_model_with_response_stream(modelId=MODEL, body=body)["body"])


@contextmanager
def botocore_ask(client: Any, prompt: str) -> Iterator[Iterator[bytes]]:
    """The bytes of a body, without the decoder of events."""
    body = json.dumps({"messages": messages(prompt), "max_tokens": 99})
    with closing(client.invoke_model(modelId=MODEL, body=body)["body"]) as stream:
        yield stream.iter_chunks(64)


HTTPX_ERRORS, HTTPX2_ERRORS = (httpx.HTTPError,), (httpx2.HTTPError,)
AWS_ERRORS = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, urllib3.exceptions.HTTPError)
GENAI_ERRORS = (genai.errors.APIError, *HTTPX2_ERRORS, aiohttp.ClientError, TimeoutError)
# Of the SDKs only OpenAI's has an error of its own for a stream that breaks.
OPENAI_ERRORS = (openai.OpenAIError,)
ANTHROPIC_ERRORS = (anthropic.AnthropicError, *HTTPX2_ERRORS)
GROQ_ERRORS = (groq.GroqError, *HTTPX_ERRORS)
MISTRAL_ERRORS = (mistral_errors.MistralError, *HTTPX2_ERRORS)
COHERE_ERRORS = (cohere.core.ApiError, *HTTPX_ERRORS)
OLLAMA_ERRORS = (ollama.ResponseError, *HTTPX_ERRORS)
# Mistral sends a call in one piece, and its client refuses one without a name.
WHOLE_CALLS = (Quirk("arguments-whole"),)

CLIENTS: tuple[Client, ...] = (
    Client("httpx", ("httpx",), "openai-chat", functools.partial(httpx_sync, httpx), httpx_ask, HTTPX_ERRORS, boundaries=True),
    Client("httpx async", ("httpx",), "openai-chat", functools.partial(httpx_async, httpx), httpx_ask_async, HTTPX_ERRORS, True, boundaries=True),
    Client("httpx2", ("httpx2",), "openai-chat", functools.partial(httpx_sync, httpx2), httpx_ask, HTTPX2_ERRORS, boundaries=True),
    Client("httpx2 async", ("httpx2",), "openai-chat", functools.partial(httpx_async, httpx2), httpx_ask_async, HTTPX2_ERRORS, True, boundaries=True),
    Client("urllib3", ("urllib3",), "openai-chat", urllib3_connect, urllib3_ask, (urllib3.exceptions.HTTPError, Refused), retries=True, boundaries=True),
    Client("requests", ("requests",), "openai-chat", requests_connect, requests_ask, (requests.RequestException,), retries=True, boundaries=True),
    Client("aiohttp", ("aiohttp",), "openai-chat", aiohttp_connect, aiohttp_ask, (aiohttp.ClientError, TimeoutError), True, boundaries=True),
    Client("botocore", ("botocore",), "bedrock-invoke", boto3_connect, botocore_ask, AWS_ERRORS, retries=True),
    Client("openai", ("openai",), "openai-chat", openai_sync, completions_ask, OPENAI_ERRORS, retries=True),
    Client("openai async", ("openai",), "openai-chat", openai_async, completions_ask_async, OPENAI_ERRORS, True, retries=True),
    Client("openai async over aiohttp", ("openai", "aiohttp"), "openai-chat", openai_aiohttp, completions_ask_async, OPENAI_ERRORS, True, retries=True),
    Client("anthropic", ("anthropic",), "anthropic", anthropic_sync, anthropic_ask, ANTHROPIC_ERRORS, retries=True),
    Client("anthropic async", ("anthropic",), "anthropic", anthropic_async, anthropic_ask_async, ANTHROPIC_ERRORS, True, retries=True),
    Client("anthropic async over aiohttp", ("anthropic", "aiohttp"), "anthropic", anthropic_aiohttp, anthropic_ask_async, ANTHROPIC_ERRORS, True, retries=True),
    Client("google-genai", ("google-genai",), "gemini", genai_sync, genai_ask, GENAI_ERRORS, retries=True),
    Client("google-genai async", ("google-genai",), "gemini", genai_async, genai_ask_async, GENAI_ERRORS, True, retries=True),
    Client("google-genai async over aiohttp", ("google-genai", "aiohttp"), "gemini", genai_aiohttp, genai_ask_async, GENAI_ERRORS, True, retries=True),
    Client("boto3 converse_stream", ("boto3",), "bedrock-converse", boto3_connect, converse_ask, AWS_ERRORS, retries=True),
    Client("boto3 invoke_model_with_response_stream", ("boto3",), "bedrock-invoke", boto3_connect, invoke_ask, AWS_ERRORS, retries=True),
    Client("mistralai", ("mistralai",), "openai-chat", mistral_connect, mistral_ask, MISTRAL_ERRORS, retries=True, spelling=WHOLE_CALLS),
    Client("mistralai async", ("mistralai",), "openai-chat", mistral_connect, mistral_ask_async, MISTRAL_ERRORS, True, retries=True, spelling=WHOLE_CALLS),
    Client("cohere", ("cohere",), "cohere", cohere_sync, cohere_ask, COHERE_ERRORS),
    Client("cohere async", ("cohere",), "cohere", cohere_async, cohere_ask_async, COHERE_ERRORS, True),
    Client("groq", ("groq",), "openai-chat", groq_sync, completions_ask, GROQ_ERRORS, retries=True),
    Client("groq async", ("groq",), "openai-chat", groq_async, completions_ask_async, GROQ_ERRORS, True, retries=True),
    Client("ollama", ("ollama",), "ollama", ollama_sync, ollama_ask, OLLAMA_ERRORS),
    Client("ollama async", ("ollama",), "ollama", ollama_async, ollama_ask_async, OLLAMA_ERRORS, True),
)  # fmt: skip

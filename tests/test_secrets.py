"""Secrets planted in every place of an exchange: none comes into a file, and nothing else changes."""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_cassette import serve, use
from stream_cassette.cassette import dumps, load
from stream_cassette.dialects import DIALECTS, dialect
from stream_cassette.errors import CassetteMiss, UnknownDialect
from stream_cassette.matching import fingerprint
from stream_cassette.model import (
    COMPLETE,
    Arguments,
    Cassette,
    Exchange,
    Interaction,
    Read,
    Reasoning,
    ReasoningPart,
    Reply,
    Request,
    Text,
    TextPart,
    ToolCall,
    Usage,
)
from stream_cassette.redact import NO_MORE, glance, scrub, scrub_request, scrubbed
from stream_cassette.stream import Stream, assembled
from stream_cassette.tape import Mode, Tape
from stream_cassette.unfold import unfold

# ------------------------------------------------------------------------------------------------------------------ the kinds


@dataclass(frozen=True)
class Planted:
    """A made-up secret of a kind, and the text that carries it, which says what it is where it does not say so itself."""

    secret: str
    carrier: str

    @property
    def forms(self) -> list[str]:
        """Every spelling in which it must not be found."""
        lines = [line for line in self.secret.split("\n") if len(line) > 8]
        return [
            form
            for line in lines
            for form in (
                line,
                quote_plus(line),
                quote(line, safe=""),
                json.dumps(line)[1:-1],
                line.replace("-", "\\u002d"),
                line.replace("/", "\\/"),
            )
        ]


def of(alphabet: str) -> Callable[[random.Random, int], str]:
    return lambda rng, count: "".join(rng.choices(alphabet, k=count - 2)) + "7b"


alnum, hexes, lower, upper = (
    of(string.ascii_letters + string.digits),
    of("0123456789abcdef"),
    of(string.ascii_lowercase + string.digits),
    lambda rng, count: "".join(rng.choices(string.ascii_uppercase + "234567", k=count)),
)
word = of(string.ascii_letters + string.digits + "_-")


def pem(rng: random.Random) -> str:
    return "\n".join(alnum(rng, 64) for _ in range(4)) + "\n" + alnum(rng, 30) + "=="


def jwt(rng: random.Random) -> str:
    parts = [json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps({"sub": alnum(rng, 12), "iat": 1700000000})]
    return ".".join([*(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts), word(rng, 43)])


# Kind: (how the secret is made, the text that carries it).
KINDS: dict[str, tuple[Callable[[random.Random], str], str]] = {
    "openai project key": (lambda rng: f"sk-proj-{word(rng, 148)}", "{}"),
    "openai service account key": (lambda rng: f"sk-svcacct-{word(rng, 148)}", "{}"),
    "openai admin key": (lambda rng: f"sk-admin-{word(rng, 120)}", "{}"),
    "openai user key": (lambda rng: f"sk-{alnum(rng, 48)}", "{}"),
    "openai session": (lambda rng: f"sess-{alnum(rng, 40)}", "{}"),
    "openai organisation": (lambda rng: f"org-{alnum(rng, 24)}", "{}"),
    "openai project": (lambda rng: f"proj_{alnum(rng, 24)}", "{}"),
    "anthropic key": (lambda rng: f"sk-ant-api03-{word(rng, 93)}AA", "{}"),
    "google key": (lambda rng: f"AIza{word(rng, 35)}", "{}"),
    "google access token": (lambda rng: f"ya29.{word(rng, 120)}", "{}"),
    "google client secret": (lambda rng: f"GOCSPX-{word(rng, 28)}", "{}"),
    "service account": (pem, "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n"),
    "ssh key": (pem, "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----"),
    "aws access key id": (lambda rng: f"AKIA{upper(rng, 16)}", "{}"),
    "aws session key id": (lambda rng: f"ASIA{upper(rng, 16)}", "{}"),
    "aws secret key": (lambda rng: alnum(rng, 40), "AWS_SECRET_ACCESS_KEY={}"),
    "aws secret key in JSON": (lambda rng: alnum(rng, 40), '{{"SecretAccessKey": "{}"}}'),
    "aws secret key in XML": (lambda rng: alnum(rng, 40), "<SecretAccessKey>{}</SecretAccessKey>"),
    "aws session token in XML": (lambda rng: f"{alnum(rng, 100)}/+{alnum(rng, 50)}==", "<SessionToken>{}</SessionToken>"),
    "sigv4 header": (lambda rng: hexes(rng, 64), "AWS4-HMAC-SHA256 Credential=x/20261130/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature={}"),
    "sigv4 query": (lambda rng: hexes(rng, 64), "https://s3.example.org/x?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature={}"),
    "azure key": (lambda rng: hexes(rng, 32), "api-key: {}"),
    "azure openai key": (lambda rng: alnum(rng, 84), "AZURE_OPENAI_API_KEY={}"),
    "azure storage": (lambda rng: alnum(rng, 86) + "==", "AccountName=x;AccountKey={};EndpointSuffix=core.windows.net"),
    "groq key": (lambda rng: f"gsk_{alnum(rng, 52)}", "{}"),
    "xai key": (lambda rng: f"xai-{alnum(rng, 80)}", "{}"),
    "mistral key": (lambda rng: alnum(rng, 32), 'MISTRAL_API_KEY="{}"'),
    "openrouter key": (lambda rng: f"sk-or-v1-{hexes(rng, 64)}", "{}"),
    "together key": (lambda rng: hexes(rng, 64), "TOGETHER_API_KEY={}"),
    "together key, new": (lambda rng: f"tgp_v1_{word(rng, 43)}", "{}"),
    "fireworks key": (lambda rng: f"fw_{alnum(rng, 24)}", "{}"),
    "replicate token": (lambda rng: f"r8_{alnum(rng, 37)}", "{}"),
    "hugging face token": (lambda rng: f"hf_{alnum(rng, 34)}", "{}"),
    "cohere key": (lambda rng: alnum(rng, 40), "CO_API_KEY={}"),
    "perplexity key": (lambda rng: f"pplx-{alnum(rng, 48)}", "{}"),
    "deepseek key": (lambda rng: f"sk-{hexes(rng, 32)}", "{}"),
    "cerebras key": (lambda rng: f"csk-{lower(rng, 48)}", "{}"),
    "nvidia key": (lambda rng: f"nvapi-{word(rng, 64)}", "{}"),
    "tavily key": (lambda rng: f"tvly-dev-{alnum(rng, 32)}", "{}"),
    "langsmith key": (lambda rng: f"lsv2_pt_{hexes(rng, 32)}_{hexes(rng, 10)}", "{}"),
    "elevenlabs key": (lambda rng: f"sk_{hexes(rng, 48)}", "{}"),
    "github token": (lambda rng: f"ghp_{alnum(rng, 36)}", "{}"),
    "github oauth token": (lambda rng: f"gho_{alnum(rng, 36)}", "{}"),
    "github app token": (lambda rng: f"ghs_{alnum(rng, 36)}", "{}"),
    "github fine-grained token": (lambda rng: f"github_pat_{alnum(rng, 22)}_{alnum(rng, 59)}", "{}"),
    "gitlab token": (lambda rng: f"glpat-{word(rng, 20)}", "{}"),
    "slack token": (lambda rng: f"xoxb-123456789012-1234567890123-{alnum(rng, 24)}", "{}"),
    "slack webhook": (lambda rng: f"T{upper(rng, 8)}/B{upper(rng, 8)}/{alnum(rng, 24)}", "https://hooks.slack.com/services/{}"),
    "stripe key": (lambda rng: f"sk_live_{alnum(rng, 24)}", "{}"),
    "stripe restricted key": (lambda rng: f"rk_live_{alnum(rng, 24)}", "{}"),
    "npm token": (lambda rng: f"npm_{alnum(rng, 36)}", "{}"),
    "json web token": (jwt, "{}"),
    "bearer token": (lambda rng: alnum(rng, 40), "Authorization: Bearer {}"),
    "basic credentials": (lambda rng: base64.b64encode(f"user:{alnum(rng, 12)}".encode()).decode(), "Authorization: Basic {}"),
    "token of a scheme of its own": (lambda rng: alnum(rng, 40), "Authorization: Token {}"),
    "url with a password": (lambda rng: f"admin:{alnum(rng, 12)}", "postgres://{}@db.example.org:5432/x"),
    "url parameter": (lambda rng: alnum(rng, 24), "https://example.org/a?n=1&access_token={}"),
    "cookie": (lambda rng: f"session={alnum(rng, 24)}", "Cookie: {}"),
    "api key field": (lambda rng: word(rng, 20), '{{"api_key": "{}"}}'),
    "password field": (lambda rng: f"hunter2!{alnum(rng, 6)}", '{{"user": "x", "password": "{}"}}'),
    "client secret field": (lambda rng: word(rng, 24), '{{"client_secret": "{}"}}'),
    "access token field": (lambda rng: word(rng, 24), '{{"access_token": "{}", "expires_in": 3600}}'),
    "refresh token field": (lambda rng: word(rng, 24), '{{"refresh_token": "{}"}}'),
    "python keyword": (lambda rng: word(rng, 24), "Client(api_key='{}')"),
}  # fmt: skip


LOOKED_FOR = (
    "openai project key",
    "anthropic key",
    "github token",
    "google key",
    "aws access key id",
    "json web token",
)


def planted(kind: str, seed: int = 0) -> Planted:
    make, carrier = KINDS[kind]
    secret = make(random.Random(f"{kind} {seed}"))
    return Planted(secret, carrier.format(secret))


# ----------------------------------------------------------------------------------------------------------------- the places

JSON = (("content-type", "application/json"),)
ASKED = Request("POST", "https://api.example.org/v1/chat/completions", JSON, b'{"model":"m","stream":true}')


def request(
    url: str = ASKED.url,
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes = ASKED.body,
    kind: str = "application/json",
) -> Exchange:
    return Exchange(Request("POST", url, (("content-type", kind), *headers), body), 200, (), (Read(0, b"ok"),))


def multipart(name: str, value: str) -> Exchange:
    body = f'--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--xyz\r\nContent-Disposition: form-data; name="{name}"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n{value}\r\n--xyz--\r\n'
    return request(body=body.encode(), kind="multipart/form-data; boundary=xyz")


def header_safe(text: str) -> str:
    return text.replace("\n", " ")


IN_REQUESTS: dict[str, Callable[[Planted], Exchange]] = {
    "authorization header": lambda it: request(headers=(("authorization", f"Bearer {header_safe(it.secret)}"),)),
    "x-api-key header": lambda it: request(headers=(("x-api-key", header_safe(it.secret)),)),
    "api-key header": lambda it: request(headers=(("api-key", header_safe(it.secret)),)),
    "cookie header": lambda it: request(headers=(("cookie", header_safe(it.secret)),)),
    "organisation header": lambda it: request(headers=(("openai-organization", header_safe(it.secret)),)),
    "a header that is kept": lambda it: request(headers=(("anthropic-beta", header_safe(it.carrier)),)),
    "query, by name": lambda it: request(f"{ASKED.url}?alt=sse&key={quote_plus(it.secret)}"),
    "query, by look": lambda it: request(f"{ASKED.url}?q={quote_plus(it.carrier)}&n=1"),
    "path": lambda it: request(f"https://example.org/v1/{quote(it.carrier, safe='')}/stream"),
    "fragment": lambda it: request(f"{ASKED.url}#access_token={quote_plus(it.secret)}"),
    "userinfo": lambda it: request(f"https://me:{quote(it.secret, safe='')}@api.example.org/v1"),
    "JSON, by name": lambda it: request(body=json.dumps({"tools": [{"type": "mcp", "authorization": it.secret}]}).encode()),
    "JSON, by look": lambda it: request(body=json.dumps({"messages": [{"role": "user", "content": f"Use {it.carrier} now"}]}).encode()),
    "JSON, deep": lambda it: request(body=json.dumps({"a": [[{"b": [{"c": it.carrier}]}]]}).encode()),
    "JSON, key": lambda it: request(body=json.dumps({"metadata": {it.carrier: 1}}).encode()),
    "JSON, spaced and escaped": lambda it: request(body=json.dumps({"text": it.carrier}, indent=2).replace("/", "\\/").replace("-", "\\u002d").encode()),
    "JSON in JSON": lambda it: request(body=json.dumps({"messages": [{"tool_calls": [{"function": {"arguments": json.dumps({"q": it.carrier})}}]}]}).encode()),
    "JSON with a key twice": lambda it: request(body=f'{{"a": 1, "a": {json.dumps(it.carrier)}}}'.encode()),
    "form, by name": lambda it: request(body=f"a=1&client_secret={quote_plus(it.secret)}".encode(), kind="application/x-www-form-urlencoded"),
    "form, by look": lambda it: request(body=f"a=1&q={quote_plus(it.carrier)}".encode(), kind="application/x-www-form-urlencoded"),
    "multipart, by name": lambda it: multipart("api_key", it.secret),
    "multipart, by look": lambda it: multipart("file", f"see {it.carrier} there"),
    "text": lambda it: request(body=f"see {it.carrier} there".encode(), kind="text/plain"),
    "output that somebody quotes": lambda it: request(body=json.dumps({"messages": [{"content": f"it printed 'A\\n{it.carrier}\\n'"}]}).encode()),
}  # fmt: skip


def answered(
    body: bytes | list[bytes],
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),),
    status: int = 200,
) -> Exchange:
    reads = tuple(Read(at, data) for at, data in enumerate([body] if isinstance(body, bytes) else body))
    return Exchange(ASKED, status, headers, reads)


def chunk(delta: object, **more: object) -> bytes:
    return f"data: {json.dumps({'id': 'chatcmpl-1', 'choices': [{'index': 0, 'delta': delta, **more}]})}\n\n".encode()


END = chunk({}, finish_reason="stop") + b"data: [DONE]\n\n"


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def texts(it: Planted, size: int, field: str = "content") -> bytes:
    return (
        b"".join(chunk({field: piece}) for piece in pieces(f"Use {it.carrier} now. ", size))
        + chunk({"content": "Bye."})
        + END
    )


def arguments(it: Planted, size: int) -> bytes:
    call = {"index": 0, "id": "call_a", "type": "function", "function": {"name": "save", "arguments": ""}}
    cut = pieces(json.dumps({"note": it.carrier, "n": 1}), size)
    return (
        chunk({"tool_calls": [call]})
        + b"".join(chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in cut)
        + END
    )


def parallel(it: Planted, size: int) -> bytes:
    """Two calls whose pieces take turns."""
    cut = [
        pieces(json.dumps({"note": text, "n": 1}), size)
        for text in (it.carrier, "a harmless one that is about as long as the other, word by word")
    ]
    opened = [
        chunk(
            {
                "tool_calls": [
                    {"index": at, "id": f"call_{at}", "type": "function", "function": {"name": "save", "arguments": ""}}
                ]
            }
        )
        for at in (0, 1)
    ]
    turns = [
        chunk({"tool_calls": [{"index": call, "function": {"arguments": cut[call][at]}}]})
        for at in range(max(map(len, cut)))
        for call in (0, 1)
        if at < len(cut[call])
    ]
    return b"".join([*opened, *turns]) + END


def responses(it: Planted, size: int) -> bytes:
    text = f"Use {it.carrier} now."
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    whole = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    events = [
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
        *(
            {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
            for piece in pieces(text, size)
        ),
        {"type": "response.output_text.done", **place, "text": text},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [whole]}},
    ]
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def partial_arguments(it: Planted, size: int) -> bytes:
    """Vertex AI sends an argument in pieces."""
    cut = pieces(it.carrier, size)
    calls = [
        {"name": "save"},
        *(
            {"partialArgs": [{"jsonPath": "$.note", "stringValue": piece, "willContinue": True}], "willContinue": True}
            for piece in cut
        ),
        {},
    ]
    frames = [{"candidates": [{"content": {"role": "model", "parts": [{"functionCall": call}]}}]} for call in calls]
    return b"".join(
        f"data: {json.dumps(frame)}\r\n\r\n".encode() for frame in [*frames, {"candidates": [{"finishReason": "STOP"}]}]
    )


def unknown(it: Planted, size: int) -> bytes:
    """A stream of a dialect that nobody knows."""
    return b"".join(
        f"data: {json.dumps({'kind': 'bit', 'payload': {'bit': piece}})}\n\n".encode()
        for piece in pieces(it.carrier, size)
    )


def log_probabilities(it: Planted, size: int) -> bytes:
    def tokens(piece: str) -> dict[str, object]:
        one = {"token": piece, "logprob": -0.1, "bytes": list(piece.encode())}
        return {"logprobs": {"content": [{**one, "top_logprobs": [one]}]}}

    return b"".join(chunk({"content": piece}, **tokens(piece)) for piece in pieces(it.carrier, size)) + END


def escaped(text: str) -> str:
    return json.dumps(text).replace("/", "\\/").replace("-", "\\u002d").replace("=", "\\u003D")


def two_reads(it: Planted) -> Exchange:
    body = texts(it, 10_000)
    middle = body.index(json.dumps(it.secret.split("\n")[0])[1:-1].encode()) + 5
    return answered([body[:middle], body[middle:]])


IN_RESPONSES: dict[str, Callable[[Planted], Exchange]] = {
    "set-cookie header": lambda it: answered(END, (("set-cookie", f"a={header_safe(it.secret)}; Path=/"),)),
    "location header, by look": lambda it: answered(b"", (("location", f"https://example.org/?u={quote_plus(it.carrier)}"),), 307),
    "a header that is kept": lambda it: answered(END, (("x-amzn-errortype", header_safe(it.carrier)),)),
    "one text delta": lambda it: answered(texts(it, 10_000)),
    "over two reads": two_reads,
    "every byte a read": lambda it: answered([bytes([byte]) for byte in texts(it, 10_000)]),
    "cut over text deltas of 1": lambda it: answered(texts(it, 1)),
    "cut over text deltas of 4": lambda it: answered(texts(it, 4)),
    "cut over text deltas of 30": lambda it: answered(texts(it, 30)),
    "cut over reasoning": lambda it: answered(texts(it, 5, "reasoning_content")),
    "whole arguments": lambda it: answered(arguments(it, 10_000)),
    "cut over argument fragments of 1": lambda it: answered(arguments(it, 1)),
    "cut over argument fragments of 7": lambda it: answered(arguments(it, 7)),
    "cut over fragments of parallel calls": lambda it: answered(parallel(it, 6)),
    "cut over arguments by path": lambda it: answered(partial_arguments(it, 6)),
    "deltas and restatements": lambda it: answered(responses(it, 5)),
    "an unknown dialect": lambda it: answered(unknown(it, 5)),
    "log probabilities": lambda it: answered(log_probabilities(it, 4)),
    "escapes": lambda it: answered(f'data: {{"choices":[{{"index":0,"delta":{{"content":{escaped(f"Use {it.carrier} now.")}}}}}]}}\n\n'.encode() + END),
    "an error body": lambda it: answered(json.dumps({"error": {"message": f"Incorrect: {it.carrier}", "code": "invalid_api_key"}}, indent=2).encode(), JSON, 401),
    "JSON in an error body": lambda it: answered(json.dumps({"error": {"metadata": {"raw": json.dumps({"detail": it.carrier})}}}).encode(), JSON, 502),
    "a text body": lambda it: answered(f"Bad gateway\n\n{it.carrier}\n".encode(), (("content-type", "text/plain"),), 502),
    "an error event": lambda it: answered(chunk({"content": "Hi"}) + f"event: error\ndata: {json.dumps({'error': {'message': it.carrier}})}\n\n".encode()),
    "a comment between events": lambda it: answered(f": {header_safe(it.carrier)}\n\n".encode() + texts(planted("npm token"), 9)),
    "a comment inside an event": lambda it: answered(f": {header_safe(it.carrier)}\n".encode() + chunk({"content": "Hi"}) + END),
    "an event's name and id": lambda it: answered(f"event: {header_safe(it.carrier)}\nid: {header_safe(it.carrier)}\n".encode() + chunk({"content": "Hi"}) + END),
    "a name of a field": lambda it: answered(chunk({"content": "Hi", "extra": {it.carrier: 1}}) + END),
    "NDJSON": lambda it: answered(b"".join(json.dumps({"model": "m", "message": {"role": "assistant", "content": piece}, "done": False}).encode() + b"\n" for piece in pieces(it.carrier, 4)) + b'{"model":"m","done":true,"done_reason":"stop"}\n'),
    "output that somebody quotes": lambda it: answered(texts(replace(it, carrier=f"'A\\n{it.carrier}\\n'"), 7)),
    "a url inside": lambda it: answered(texts(replace(it, carrier=f"https://example.org/cb?next={quote_plus(it.carrier)}"), 6)),
}  # fmt: skip

PLACES = {
    **{f"request, {name}": place for name, place in IN_REQUESTS.items()},
    **{f"response, {name}": place for name, place in IN_RESPONSES.items()},
}


def filed(clean: Exchange) -> str:
    """The cassette's text, as the tape writes it."""
    stream = Stream(clean)
    try:
        interaction = Interaction(clean, "t", stream.spoken, assembled(stream.reply))
    except UnknownDialect:
        interaction = Interaction(clean, "t")
    return dumps(Cassette((interaction,)))


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_in_any_place(kind: str) -> None:
    it = planted(kind)
    for place, make in PLACES.items():
        exchange = make(it)
        clean = scrub(exchange)
        text = filed(clean)
        assert not [form for form in it.forms if form in text], place
        assert [len(read.data) for read in clean.reads] == [len(read.data) for read in exchange.reads], place
        assert scrubbed(clean) == (clean, ()), place


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_matches_its_recording_whatever_key_it_is_made_with(kind: str) -> None:
    for place, make in IN_REQUESTS.items():
        mine, yours = (scrub_request(make(planted(kind, seed)).request) for seed in (0, 1))
        assert fingerprint(mine) == fingerprint(yours), place


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_over_the_end_of_a_window(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    overlap = 256
    monkeypatch.setattr(glance, "WINDOW", 64)
    monkeypatch.setattr(glance, "OVERLAP", overlap)
    it = planted(kind)
    for at in range(0, overlap + len(it.carrier), 29):
        text = f"{'word ' * at}"[:at] + f" {it.carrier} and then more"
        spelled = json.dumps(text)[1:-1]
        units = re.findall(r"\\u....|\\.|.", spelled)
        for said in (text, json.dumps({"a": text}), "".join(f'{{"c":"{unit}"}}\n' for unit in units)):
            known = glance.suspects(pieces(said, 50), NO_MORE)
            assert known is not None
            assert known.find(text)


@pytest.mark.parametrize("kind", LOOKED_FOR)
def test_windows_make_no_difference(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = [make(planted(kind)) for make in IN_RESPONSES.values()]
    expected = [scrubbed(exchange) for exchange in exchanges]
    monkeypatch.setattr(glance, "WINDOW", 64)
    monkeypatch.setattr(glance, "OVERLAP", 512)
    assert [scrubbed(exchange) for exchange in exchanges] == expected


# ------------------------------------------------------------------------------------------------------ what must stay the same


def same_but_for_stars(before: object, after: object) -> bool:
    """Equal, but for texts in which stars stand over some characters."""
    match before, after:
        case (str(), str()):
            return len(before) == len(after) and all(new in (old, "*") for old, new in zip(before, after, strict=True))
        case (dict(), dict()):
            return before.keys() == after.keys() and all(same_but_for_stars(before[key], after[key]) for key in before)
        case (list(), list()):
            return len(before) == len(after) and all(map(same_but_for_stars, before, after))
        case _:
            return before == after


CUT = {
    name: place
    for name, place in IN_RESPONSES.items()
    if name.startswith(("cut", "one", "whole", "deltas", "over", "every"))
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_stream_still_assembles_and_says_everything_else(kind: str) -> None:
    for place, make in CUT.items():
        exchange = make(planted(kind))
        before, after = Stream(exchange), Stream(scrub(exchange))
        assert same_but_for_stars(assembled(before.reply), assembled(after.reply)), place
        for one, other in zip(before.frames, after.frames, strict=True):
            assert (len(one.raw), one.event, one.id, one.problem) == (
                len(other.raw),
                other.event,
                other.id,
                other.problem,
            ), place
        assert [type(delta) for delta in before.deltas] == [type(delta) for delta in after.deltas], place


SAID = Reply(
    (
        ReasoningPart("The user gave me a key. ", "EqQBCkgIBRABGAIiQL7bSk-projAAAA1234567890abcdef+AIzaSyA1234567890abcdefghijklmnopqrstuv/x=="),
        TextPart("Here it is: {} - keep it."),
        ToolCall(0, id="call_a", name="save", arguments_text='{"note":"{}","n":1}'),
    ),
    "tool_use",
    Usage(21, 9),
    ended=True,
    role="assistant",
    model="m-1",
    id="r-1",
)  # fmt: skip


def streamed(name: str, secret: str, cuts: list[int]) -> tuple[bytes, Reply]:
    """`SAID` with a secret in it, in the dialect `name`, its texts cut at `cuts` (counted within each text)."""
    speaker = dialect(name)
    reply = replace(SAID, finish_reason="stop" if speaker.losses(SAID) else "tool_use")
    deltas = []
    for delta in unfold(reply, speaker.numbers):
        match delta:
            case Text(key, text) | Arguments(key, text) | Reasoning(key, text):
                text = text.replace("{}", secret)
                edges = sorted({0, len(text), *(cut % len(text) for cut in cuts)})
                deltas += [type(delta)(key, text[a:b]) for a, b in pairwise(edges)]
            case _:
                deltas.append(delta)
    body = b"".join(frame.raw for frame in speaker.finish(speaker.write(deltas)))
    return body, Stream(answered(body, ()), name).reply


@given(st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("name", [each.name for each in DIALECTS])
def test_a_key_cut_anywhere_in_any_dialect(name: str, data: st.DataObject) -> None:
    it = planted(data.draw(st.sampled_from(LOOKED_FOR)), data.draw(st.integers(0, 99)))
    body, before = streamed(name, it.secret, data.draw(st.lists(st.integers(0, 400), max_size=60)))
    places = sorted({0, len(body), *data.draw(st.lists(st.integers(0, len(body)), max_size=20))})
    exchange = answered([body[a:b] for a, b in pairwise(places)], ())
    clean, found = scrubbed(exchange)
    stream = Stream(clean, name)
    assert it.secret in repr(before)
    assert not [
        form for form in it.forms if form in dumps(Cassette((Interaction(clean, None, name, assembled(stream.reply)),)))
    ]
    assert not any(it.secret in piece for piece in (stream.reply.text, stream.reply.reasoning, repr(stream.reply)))
    assert same_but_for_stars(assembled(before), assembled(stream.reply))
    assert [part.signature for part in stream.reply.parts if isinstance(part, ReasoningPart)] == [
        part.signature for part in before.parts if isinstance(part, ReasoningPart)
    ]
    assert [len(read.data) for read in clean.reads] == [len(read.data) for read in exchange.reads]
    assert not any(frame.problem for frame in stream.frames)
    assert scrubbed(clean) == (clean, ())
    assert found
    assert not any(it.secret in str(each) for each in found)


# ---------------------------------------------------------------------------------------------------------- over the whole way


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_and_replayed_with_another_key(kind: str, tmp_path) -> None:
    path = tmp_path / "x.yaml"
    places = list(IN_REQUESTS.values())

    def asked(seed: int) -> list[Request]:
        return [replace(place(planted(kind, seed)).request, method=f"POST{at}") for at, place in enumerate(places)]

    tape = Tape(path, mode="all")
    for request, body in zip(
        asked(0), [texts(planted(kind), 4), arguments(planted(kind), 7)] * len(places), strict=False
    ):
        take = tape.open(request)
        take.start(200, (("content-type", "text/event-stream"),))
        for piece in (body[:100], body[100:]):
            take.read(piece)
        take.end(COMPLETE)
    tape.close()
    assert not [form for form in planted(kind).forms if form in path.read_text("utf-8")]
    assert tape.redactions
    assert not [form for form in planted(kind).forms if form in repr(tape.redactions) + repr(tape.remarks)]

    replay = Tape(path)
    for request in asked(1):
        replay.open(request)
    assert replay.failure is None
    assert len(replay.streams) == len(places)
    replay.check_assembled()
    assert load(path).interactions[0].assembled == assembled(replay.replies[0])


def test_what_is_told_of_a_miss_shows_no_secret(tmp_path) -> None:
    path = tmp_path / "x.yaml"
    for kind in KINDS:
        it, other = planted(kind), planted(kind, 1)
        tape = Tape(path, mode="all")
        take = tape.open(
            request(
                f"{ASKED.url}?key={quote_plus(it.secret)}", body=json.dumps({"a": it.carrier, "n": 1}).encode()
            ).request
        )
        take.start(200, ())
        take.end(COMPLETE)
        tape.close()
        with pytest.raises(CassetteMiss) as raised:
            Tape(path).open(
                request(
                    f"{ASKED.url}?key={quote_plus(other.secret)}",
                    body=json.dumps({"a": other.carrier, "n": 2}).encode(),
                ).request
            )
        assert "body.n: recorded 1, now 2" in str(raised.value)
        assert not [form for form in (*it.forms, *other.forms) if form in str(raised.value)]


def test_use_with_patterns_and_a_last_hand(tmp_path) -> None:
    path = tmp_path / "x.yaml"

    def anonymous(exchange: Exchange) -> Exchange:
        asked = exchange.request
        return replace(exchange, request=replace(asked, url=asked.url.replace("anna", "someone")))

    def played(mode: Mode, user: str) -> Tape:
        with use(path, mode=mode, secrets=[r"customer: customer-\d+"], scrub=anonymous) as tape:
            take = tape.open(replace(ASKED, url=f"https://example.org/{user}", body=b"I am customer-17"))
            if mode != "none":
                take.start(200, ())
                take.read(b"customer-18, hello")
                take.end(COMPLETE)
        return tape

    tape = played("all", "anna")
    assert [str(each) for each in tape.redactions] == ["customer in request body", "customer in response body"]
    assert tape.remarks == (f"{path}: 2 secrets replaced: customer in request body, customer in response body",)
    text = path.read_text("utf-8")
    assert "anna" not in text
    assert "customer-1" not in text
    assert played("none", "anna").failure is None
    with pytest.raises(CassetteMiss, match="/someoneX"):
        played("none", "annaX")


CONFTEST = """
    from dataclasses import replace

    def pytest_stream_cassette_scrub(exchange):
        return replace(exchange, request=replace(exchange.request, url=exchange.request.url.replace("/v1", "/v0")))
"""
TEST = """
    import httpx2, pytest

    @pytest.fixture
    def stream_cassette_config():
        return {"secrets": "tenant=(\\\\w+)"}

    @pytest.mark.stream_cassette(secrets=["Rosie"])
    def test_it(stream_cassette, stream_snapshot):
        said = httpx2.post("http://127.0.0.1:%d/v1/chat/completions", json={"a": "tenant=acme, customer-17, Rosie"}).text
        assert {"key": "SECRET", "customer": "customer-17", "password": "tops3cret!"} == stream_snapshot
        assert "SECRET" in said or "*" * len("SECRET") in said
"""


def test_the_plugin_tells_of_secrets_and_takes_patterns_and_the_hook(pytester: pytest.Pytester) -> None:
    secret = planted("groq key").secret
    pytester.makeini(
        "[pytest]\naddopts = -p no:cacheprovider -p no:xdist -p no:hypothesispytest -p no:asyncio -p no:randomly -p no:rerunfailures -p no:timeout\nstream_cassette_secrets =\n  customer: customer-\\d+\n"
    )
    pytester.makeconftest(CONFTEST)
    with serve(lambda asked: replace(answered(texts(Planted(secret, secret), 4000)), request=asked)) as server:
        pytester.makepyfile((TEST % int(server.url.rpartition(":")[2])).replace("SECRET", secret))
        recorded = pytester.runpytest_inprocess("--stream-record=once", "--stream-snapshot-update")
    recorded.assert_outcomes(passed=1)
    recorded.stdout.fnmatch_lines(["*test_it.yaml: 4 secrets replaced: *groq key in response body, frame 1*"])
    files = {path.name: path.read_text("utf-8") for path in pytester.path.rglob("*.yaml")}
    assert set(files) == {"test_it.yaml", "test_it.snap.yaml"}
    for text in files.values():
        for hidden in (secret, "customer-17", "tops3cret!", "acme", "Rosie", "/v1"):
            assert hidden not in text
    replayed = pytester.runpytest_inprocess()
    replayed.assert_outcomes(passed=1)
    assert secret not in recorded.stdout.str() + replayed.stdout.str()


@pytest.mark.parametrize("given", ["[", "x*"])
def test_a_pattern_that_cannot_be_is_a_clear_error(given: str, pytester: pytest.Pytester) -> None:
    pytester.makeini(
        f"[pytest]\naddopts = -p no:cacheprovider -p no:xdist -p no:hypothesispytest -p no:asyncio -p no:randomly -p no:rerunfailures -p no:timeout\nstream_cassette_secrets =\n  {given}\n"
    )
    pytester.makepyfile("import pytest\n@pytest.mark.stream_cassette\ndef test_it(): pass\n")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*TapeError*"])

"""Others' recordings become cassettes: what each format may hold, what is told, and what the command does with files."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import pytest
import pytest_recording.plugin  # before VCR, whose assertions it has rewritten
import requests
import vcr.request
import vcr.serialize
from hypothesis import given
from hypothesis import strategies as st
from vcr.serializers import jsonserializer, yamlserializer

from stream_cassette import serve, synthesize, use
from stream_cassette.cassette import dumps, load, loads
from stream_cassette.cli import main
from stream_cassette.errors import CassetteError, StreamCassetteError
from stream_cassette.importing import FORMATS, NO_TIMES, Facts, Imported, names_in, read, save, sources, targets_of
from stream_cassette.model import Cassette, Interaction, Reply, Request, TextPart
from stream_cassette.redact import Scrubbing, secrets_of
from stream_cassette.settings import _own_name
from stream_cassette.stream import assembled
from streams import EVERY

DATA = Path(__file__).parent / "data"
URL = "https://api.example.org/v1/chat/completions"
STREAM = synthesize(Reply((TextPart("Hello 🌊"),), "stop", ended=True), "openai-chat")
CHAT, FRAMES_OF_CHAT = STREAM.body, len(STREAM.frames)
ASSEMBLED = {"text": "Hello 🌊", "finish_reason": "stop"}
CUT = CHAT[: CHAT.index(b"\n\n") + 2]
KEY = "sk-proj-" + "mN3vQ8xK2pL7wR5tY9zB4cD6fG1hJ0aS" * 2


def only(imported: Imported) -> Interaction:
    assert imported.left_out == ()
    (interaction,) = imported.cassette.interactions
    return interaction


def written(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


# ------------------------------------------------------------------------------------------------------------------------ VCR


def vcr_file(path: Path, *exchanges: tuple[Any, Any, dict[str, list[str]]]) -> Path:
    """A cassette as VCR.py writes it: for each exchange the body of the request and of the response, and the headers of the latter."""
    requests = [
        vcr.request.Request("post", URL, asked, {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
        for asked, _, _ in exchanges
    ]
    responses = [
        {"status": {"code": 200, "message": "OK"}, "headers": headers, "body": {"string": answered}}
        for _, answered, headers in exchanges
    ]
    serializer = jsonserializer if path.suffix == ".json" else yamlserializer
    path.write_text(vcr.serialize.serialize({"requests": requests, "responses": responses}, serializer))
    return path


SSE = {"Content-Type": ["text/event-stream; charset=utf-8"], "Set-Cookie": ["a=b", "c=d"], "X-Request-Id": ["r"]}
ZIPPED = {**SSE, "Content-Encoding": ["gzip"], "Content-Length": ["1"]}
DEFLATED = {**SSE, "content-encoding": ["identity, deflate"]}


@pytest.mark.parametrize(
    ("ending", "body", "headers", "was"),
    [
        ("yaml", CHAT, SSE, ""),
        ("json", CHAT, SSE, ""),
        ("yaml", CHAT.replace(b"\n", b"\r\n"), SSE, ""),
        ("yaml", gzip.compress(CHAT), ZIPPED, "gzip"),
        ("yaml", CHAT, ZIPPED, "gzip"),  # as aiohttp's and older stubs of VCR keep it
        ("json", CHAT, ZIPPED, "gzip"),
        ("yaml", zlib.compress(CHAT), DEFLATED, "deflate"),
        ("yaml", CHAT, DEFLATED, "deflate"),
        (
            "yaml",
            CHAT,
            {**SSE, "content-encoding": [f"sk-proj-{'Ab3' * 16}"]},
            "",
        ),  # no coding; it must not come in as one
    ],
)
def test_a_stream_in_a_cassette_of_vcr(tmp_path: Path, ending: str, body: bytes, headers: Any, was: str) -> None:
    found = read(vcr_file(tmp_path / f"a.{ending}", (b'{"stream": true}', body, headers)))
    interaction = only(found)
    exchange = interaction.exchange
    assert (found.format, found.remarks) == ("vcr", (NO_TIMES,))
    assert exchange.request == Request("POST", URL, (("content-type", "application/json"),), b'{"stream":true}')
    assert exchange.headers == (("content-type", "text/event-stream; charset=utf-8"),)
    assert (exchange.body, exchange.was, exchange.status) == (CHAT if was else body, was, 200)
    assert [read.at_ms for read in exchange.reads] == [0] * FRAMES_OF_CHAT
    assert (interaction.test, interaction.dialect, interaction.assembled) == (None, "openai-chat", ASSEMBLED)


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        (None, b""),
        ("{'é'", b"{'\xc3\xa9'"),
        (b"\xff\xfe", b"\xff\xfe"),
        (io.BytesIO(b"a file"), b"a file"),
        (io.BytesIO(), b""),
        (iter([b"pie", b"ces"]), b"pieces"),
    ],
)
def test_every_body_that_vcr_keeps_of_a_request(tmp_path: Path, asked: Any, stored: bytes) -> None:
    assert only(read(vcr_file(tmp_path / "a.yaml", (asked, b"", {})))).exchange.request.body == stored


def test_what_several_exchanges_share_is_an_alias(tmp_path: Path) -> None:
    shared = ["text/event-stream"]
    path = vcr_file(tmp_path / "a.yaml", *[(b"1", CHAT, {"Content-Type": shared})] * 2)
    assert "&id001" in path.read_text()
    found = read(path).cassette.interactions
    assert [each.exchange.header("content-type") for each in found] == ["text/event-stream"] * 2


ANY_REQUEST = f"request: {{method: GET, uri: {URL}, headers: {{}}, body: null}}"


@pytest.mark.parametrize(
    ("response", "status", "headers", "body"),
    [
        # httpx before VCR.py 6
        ("{status_code: 201, http_version: HTTP/1.1, headers: {etag: x}, content: hé}", 201, (("etag", "x"),), "hé"),
        ("{status: {code: 200}, headers: {}, body: {base64_string: aGk=}}", 200, (), "hi"),
        ("{status: {code: 200}, headers: {}, body: {}}", 200, (), ""),
        ("{status: {code: 200}, headers: {}, body: hi}", 200, (), "hi"),
        ("{status: {code: 200}, headers: {etag: !!binary eA==}, body: {string: !!str 1}}", 200, (("etag", "x"),), "1"),
        ("{status: {code: 200}, headers: {}, body: {string: !!python/unicode hi}}", 200, (), "hi"),
        # pydantic_ai.testing and its like
        (
            "{status: {code: 200}, headers: {}, parsed_body: {a: [1, 1.5, true, null]}}",
            200,
            (),
            '{"a":[1,1.5,true,null]}',
        ),
    ],
)
def test_what_other_versions_and_serializers_of_vcr_wrote(
    tmp_path: Path, response: str, status: int, headers: Any, body: str
) -> None:
    path = written(tmp_path / "a.yaml", f"interactions:\n- {ANY_REQUEST}\n  response: {response}\nversion: 1\n")
    exchange = only(read(path)).exchange
    assert (exchange.status, exchange.headers, exchange.body.decode()) == (status, headers, body)


def test_a_request_kept_as_parsed_body(tmp_path: Path) -> None:
    asked = f"{{method: POST, uri: {URL}, headers: {{}}, parsed_body: {{model: m}}}}"
    answered = "{status: {code: 200}, headers: {}, body: {string: ''}}"
    path = written(tmp_path / "a.yml", f"interactions: [{{request: {asked}, response: {answered}}}]\nversion: 1")
    assert only(read(path)).exchange.request.body == b'{"model":"m"}'


ANSWER = "{status: {code: 200}, headers: {}, body: {string: hi}}"


@pytest.mark.parametrize(
    ("interaction", "why"),
    [
        (f"{{{ANY_REQUEST}}}", "it has no response"),
        (f"{{request: 1, response: {ANSWER}}}", "its request is no dict"),
        ("one", "it has no request"),
        (f"{{request: {{method: GET}}, response: {ANSWER}}}", "it has no uri"),
        (f"{{request: {{method: GET, uri: /v1}}, response: {ANSWER}}}", "it has no absolute HTTP URL"),
        (f"{{request: {{method: GET, uri: 'ftp://a/b'}}, response: {ANSWER}}}", "ftp: is no HTTP URL"),
        (f"{{request: {{method: GET, uri: 'http:///b'}}, response: {ANSWER}}}", "http: is no HTTP URL"),
        (f"{{request: {{method: GET, uri: 'http://a:b/'}}, response: {ANSWER}}}", "its URL is none: Port could not be"),
        (f"{{request: {{method: GET, uri: {URL}, headers: [1]}}, response: {ANSWER}}}", "its headers are no mapping"),
        (
            f"{{request: {{method: GET, uri: {URL}, body: 1.5}}, response: {ANSWER}}}",
            "its body is neither text nor byt",
        ),
        (f"{{{ANY_REQUEST}, response: {{status: {{code: 99}}}}}}", "its status is no HTTP status: 99"),
        (f"{{{ANY_REQUEST}, response: {{status: {{code: true}}}}}}", "its status is no HTTP status: True"),
        (
            f"{{{ANY_REQUEST}, response: {{status: {{code: 200}}, body: {{base64_string: a}}}}}}",
            "its body is not base64",
        ),
    ],
)
def test_an_interaction_of_vcr_that_cannot_be_imported_is_told(tmp_path: Path, interaction: str, why: str) -> None:
    good = f"{{{ANY_REQUEST}, response: {ANSWER}}}"
    found = read(written(tmp_path / "a.yaml", f"interactions: [{good}, {interaction}, {good}]\nversion: 1\n"))
    assert len(found.cassette.interactions) == 2
    (left,) = found.left_out
    assert str(left).startswith(f"interaction 2: {why}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("interactions: !!python/object/apply:os.system ['true']", "python/object/apply:os.system makes an object"),
        ("interactions: !!python/name:os.system ''", "python/name:os.system makes an object"),
        ("- request: !!python/object:vcr.request.Request {}", "python3 -m vcr.migration FILE"),
        ("interactions: [!!binary 'a']", "not base64"),
        ("interactions: &a [*a]", "an alias (*) stands within what it names"),
        ("interactions: &a {b: [*a]}", "an alias (*) stands within what it names"),
        ("interactions: [", "not YAML"),
        ("interactions: " + "[" * 5000, "not YAML"),
        ("", "an empty file is no recording that is known"),
        ("version: 1\n", "a mapping with the keys 'version' is no recording"),
        ("{a: 1, b: 2, c: 3, d: 4, e: 5, f: 6}", "a mapping with the keys 'a', 'b', 'c', 'd', 'e', ... is no"),
        ("http_interactions: []\n", "a mapping with the keys 'http_interactions' is no recording"),
        ("just text", "a str is no recording that is known"),
        ("format: 1\nrecorded: {at: '', by: ''}\ninteractions: []\n", "it is a cassette of this package already"),
    ],
)
def test_a_yaml_file_that_is_no_recording(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CassetteError) as error:
        read(written(tmp_path / "a.yaml", text))
    assert said.replace("python3", "python") in str(error.value)
    assert str(tmp_path / "a.yaml") in error.value.where


def test_an_alias_costs_nothing_however_often_it_stands_for_more(tmp_path: Path) -> None:
    bomb = "".join(f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 60))
    text = f"x0: &a0 [hi]\n{bomb}interactions: []\nversion: 1\n"
    assert read(written(tmp_path / "a.yaml", text)).cassette.interactions == ()


def test_a_cassette_of_vcr_needs_no_ending(tmp_path: Path) -> None:
    path = vcr_file(tmp_path / "a", (b"", CHAT, SSE))
    assert read(path).format == "vcr"
    path.write_text(f"# mine\n{path.read_text()}")
    with pytest.raises(CassetteError, match="what begins with b'# mine"):
        read(path)
    assert only(read(path, format="vcr")).assembled == ASSEMBLED


# ------------------------------------------------------------------------------------------------------------------ cassetter


@pytest.mark.parametrize("name", ["cassetter.yaml", "cassetter.toml"])
def test_a_cassette_of_cassetter(name: str) -> None:
    """Files that cassetter 0.16.1 wrote."""
    found = read(DATA / name)
    assert (found.format, found.cassette.at) == ("cassetter", "2026-02-20T10:30:01Z")
    chat, nothing, form, listed = found.cassette.interactions
    assert chat.assembled == ASSEMBLED
    assert chat.exchange.request.url == "https://example.org/v1/chat/completions?x=1"
    asked = {"model": "m", "stream": True, "n": None, "temperature": 1.0, "day": "2026-01-01", "yes": "yes"}
    asked |= {"number": "1e5", "octal": "0o7", "null": "null", "text": "ü\n"}
    assert json.loads(chat.exchange.request.body) == asked
    assert (nothing.exchange.status, nothing.exchange.reads) == (204, ())
    assert (form.exchange.request.body, form.exchange.body) == (b"a=b&c=d", b"\x00\xff\x01")
    assert form.exchange.headers == (("link", "<a>"), ("link", "<b>"))
    assert (listed.exchange.request.body, listed.exchange.body) == (b'[1,"a"]', b'{"x": 1}\n{"y":2}\n')
    others = [
        "WebSocket interaction 1: a WebSocket is no HTTP exchange",
        "gRPC interaction 1: gRPC is no HTTP exchange",
    ]
    assert [str(each) for each in found.left_out] == (others if name.endswith("yaml") else [])


def test_a_cassette_of_cassetter_without_http(tmp_path: Path) -> None:
    found = read(written(tmp_path / "a.yaml", "version: 1\ninteractions: []\ngrpc_interactions: [{}]\n"))
    assert (found.format, found.cassette.interactions, len(found.left_out)) == ("cassetter", (), 1)
    assert read(written(tmp_path / "b.yaml", "version: 1\nws_interactions: [{}]\n")).format == "cassetter"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("{type: odd, content: 1}", "its body is of the kind 'odd'"),
        ("{type: binary, content: xyz}", "its body is no binary: "),
        ("{type: text, content: 1}", "its body is of the kind 'text'"),
    ],
)
def test_an_interaction_of_cassetter_that_cannot_be_imported_is_told(tmp_path: Path, body: str, why: str) -> None:
    asked = f"{{method: GET, uri: {URL}, headers: {{}}}}"
    text = f"interactions: [{{request: {asked}, response: {{status: 200, headers: {{}}, body: {body}}}}}]"
    (left,) = read(written(tmp_path / "a.yaml", text)).left_out
    assert left.why.startswith(why)


def test_toml_that_is_broken(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match="not TOML"):
        read(written(tmp_path / "a.toml", "version = "))


# ------------------------------------------------------------------------------------------------------------------------ HAR


def entry(**changes: Any) -> dict[str, Any]:
    """An entry as a browser exports it; `request_...` and `response_...` change those."""
    found: dict[str, Any] = {
        "startedDateTime": "2026-03-04T05:06:07.890+01:00",
        "_resourceType": "fetch",
        "request": {
            "method": "POST",
            "url": URL,
            "headers": [{"name": ":authority", "value": "x"}, {"name": "Content-Type", "value": "application/json"}],
            "postData": {"mimeType": "application/json", "text": '{"stream":true}'},
            "bodySize": 15,
        },
        "response": {
            "status": 200,
            "headers": [
                {"name": "content-type", "value": "text/event-stream"},
                {"name": "content-encoding", "value": "br"},
            ],
            "content": {"size": len(CHAT), "mimeType": "text/event-stream", "text": CHAT.decode()},
        },
        "timings": {"wait": 400.5, "receive": 1234.6},
    }
    for name, value in changes.items():
        where, _, key = name.partition("__")
        place = found[where] if key else found
        if value is ...:
            del place[key or where]
        else:
            place[key or where] = value
    return found


def har_file(path: Path, *entries: dict[str, Any]) -> Path:
    return written(path, "\ufeff" + json.dumps({"log": {"version": "1.2", "creator": {}, "entries": entries}}))


def test_an_http_archive(tmp_path: Path) -> None:
    found = read(har_file(tmp_path / "a.har", entry()))
    interaction = only(found)
    exchange = interaction.exchange
    assert (found.format, found.cassette.at) == ("har", "2026-03-04T04:06:07Z")
    assert exchange.request == Request("POST", URL, (("content-type", "application/json"),), b'{"stream":true}')
    assert (exchange.body, exchange.was, exchange.headers) == (CHAT, "br", (("content-type", "text/event-stream"),))
    assert [each.at_ms for each in exchange.reads] == [*[0] * (FRAMES_OF_CHAT - 1), 1235]
    assert interaction.assembled == ASSEMBLED
    assert found.remarks[0].endswith("the last comes when the archive says that the body ended")


@pytest.mark.parametrize(
    ("changes", "asked", "answered"),
    [
        ({"request__postData": ..., "request__bodySize": 0}, b"", CHAT),
        ({"request__postData": ..., "request__bodySize": -1}, b"", CHAT),
        (
            {
                "request__postData": {
                    "mimeType": "application/x-www-form-urlencoded",
                    "params": [{"name": "a b", "value": "c"}],
                }
            },
            b"a+b=c",
            CHAT,
        ),
        ({"request__postData": {"text": "/wA=", "encoding": "base64"}}, b"\xff\x00", CHAT),
        ({"response__content": {"size": 3, "text": "/wAB", "encoding": "base64"}}, b'{"stream":true}', b"\xff\x00\x01"),
        ({"response__content": {"size": 0}}, b'{"stream":true}', b""),
        ({"response__content": {"text": "hi"}}, b'{"stream":true}', b"hi"),
        ({"response__content": {"size": 5, "text": "hi"}}, b'{"stream":true}', b"hi"),  # a byte order mark before it
        ({"response__content": {"size": 4, "text": "h", "mimeType": "a/b;charset=UTF-16"}}, b'{"stream":true}', b"h"),
        ({"response__status": 204, "response__content": {"size": 9}}, b'{"stream":true}', b""),
        ({"request__method": "head", "response__content": {"size": 9}}, b'{"stream":true}', b""),
        ({"timings": ..., "startedDateTime": "yesterday"}, b'{"stream":true}', CHAT),
        ({"timings": {"receive": -1}, "startedDateTime": None}, b'{"stream":true}', CHAT),
    ],
)
def test_what_an_http_archive_may_leave_out(tmp_path: Path, changes: Any, asked: bytes, answered: bytes) -> None:
    exchange = only(read(har_file(tmp_path / "a.har", entry(**changes)))).exchange
    assert (exchange.request.body, exchange.body) == (asked, answered)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("text/event-stream\ntext/event-stream", ["text/event-stream"] * 2),
        ("text/event-stream;\r\n  charset=utf-8\r\na/b", ["text/event-stream; charset=utf-8", "a/b"]),
        ("\ntext/event-stream\0\n", ["text/event-stream "]),
        ("text/event-stream\r\n\r\ndata: x", ["text/event-stream", "data: x"]),
    ],
)
def test_headers_of_one_name_that_an_http_archive_joins(tmp_path: Path, value: str, found: list[str]) -> None:
    """Chrome does so with line ends, of requests too; on a wire they would end the headers."""
    fields = [{"name": "content-type", "value": value}, {"name": "etag", "value": "x"}]
    har = har_file(tmp_path / "a.har", entry(response__headers=fields, request__headers=fields))
    save(tmp_path / "a.yaml", read(har).cassette)
    (interaction,) = load(tmp_path / "a.yaml").interactions
    said = tuple(("content-type", each) for each in found)
    assert interaction.exchange.headers == (*said, ("etag", "x"))
    assert interaction.exchange.request.headers == said
    with use(tmp_path / "a.yaml"):
        response = requests.post(URL, json={"stream": True}, timeout=5)
    assert (response.content, response.headers["content-type"]) == (CHAT, ", ".join(found))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"_resourceType": "websocket"}, "a WebSocket is no HTTP exchange"),
        ({"_webSocketMessages": []}, "a WebSocket is no HTTP exchange"),
        ({"request__url": "wss://example.org/"}, "a WebSocket is no HTTP exchange"),
        ({"request__url": ...}, "it has no url"),
        ({"request__url": ""}, "it has no absolute HTTP URL"),
        ({"request__url": "data:text/plain,hi"}, "data: is no HTTP URL"),
        ({"request__postData": ...}, "the archive leaves the body of the request out"),
        (
            {"request__postData": {"mimeType": "multipart/form-data", "params": [{}]}},
            "the archive leaves the body of the req",
        ),
        ({"request__postData": {"text": "x", "encoding": "rot13"}}, "its body has the encoding 'rot13'"),
        (
            {"response__content": {"size": 900, "mimeType": "text/event-stream"}},
            "the archive leaves the body of the response",
        ),
        (
            {"response__content": {"size": -1}},
            "the archive leaves the body of the response out (export it with content)",
        ),
        ({"response__content": {"size": 900, "text": "cut"}}, "the archive has 3 of the 900 bytes of the body"),
        ({"response__content": {"size": 9, "text": "a", "encoding": "base64"}}, "its body is not base64"),
        ({"response__content": ...}, "it has no content"),
        ({"response__status": 0}, "no response came"),
        ({"response___error": "net::ERR_ABORTED"}, "the response did not come, or not whole: net::ERR_ABORTED"),
        ({"response__headers": [{"name": "a"}]}, "it has no value"),
    ],
)
def test_an_entry_of_an_http_archive_that_cannot_be_imported_is_told(tmp_path: Path, changes: Any, why: str) -> None:
    found = read(har_file(tmp_path / "a.json", entry(), entry(**changes), entry()))
    assert len(found.cassette.interactions) == 2
    (left,) = found.left_out
    assert str(left).startswith(f"entry 2: {why}")


# ------------------------------------------------------------------------------------------------------------- raw responses

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nDate: Tue, 03 Mar 2026 10:00:00 GMT\r\n\r\n"
LINES = b'{"a":1}\n{"b":2}\n'
FRAMES = EVERY["bedrock-converse"].body


@pytest.mark.parametrize(
    ("data", "status", "content_type", "body"),
    [
        (CHAT, 200, "text/event-stream", CHAT),
        (b": ping\n\n" + CHAT, 200, "text/event-stream", b": ping\n\n" + CHAT),
        (LINES, 200, "application/x-ndjson", LINES),
        (b'[{"a":1}\n,\r\n{"b":2}]', 200, "application/json", b'[{"a":1}\n,\r\n{"b":2}]'),
        (b'{"a":\n1}', 200, "application/json", b'{"a":\n1}'),
        (FRAMES, 200, "application/vnd.amazon.eventstream", FRAMES),
        (HEAD + CHAT, 200, "text/event-stream", CHAT),
        (HEAD.replace(b"\r", b"") + CHAT, 200, "text/event-stream", CHAT),
        (b"HTTP/2 429 \r\nretry-after: 7\r\n\r\n{}", 429, "application/json", b"{}"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + CHAT, 200, "text/event-stream", CHAT),
        (
            b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 307 x\r\nlocation: /\r\n\r\n" + HEAD,
            200,
            "text/event-stream",
            b"",
        ),
        (b"HTTP/1.1 204 No Content\r\n", 204, "text/event-stream", b""),
    ],
)
def test_a_response_by_itself(tmp_path: Path, data: bytes, status: int, content_type: str, body: bytes) -> None:
    found = read(written(tmp_path / "a.txt", data), facts=Facts(URL, request_body=b'{"stream": true}'))
    exchange = only(found).exchange
    assert found.format == "raw"
    assert exchange.request == Request("POST", URL, (("content-type", "application/json"),), b'{"stream":true}')
    assert (exchange.status, exchange.header("content-type"), exchange.body) == (status, content_type, body)
    passed = [remark for remark in found.remarks if "passed over" in remark]
    assert bool(passed) == (data.count(b"HTTP/") > 1)
    assert (found.cassette.at == "2026-03-03T10:00:00Z") == (b"Date:" in data)


def test_what_the_user_says_of_a_response_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", HEAD + b"hi")
    facts = Facts(URL, "get", status=503, content_type="text/plain")
    exchange = only(read(path, facts=facts)).exchange
    assert (exchange.status, exchange.headers, exchange.request) == (
        503,
        (("content-type", "text/plain"),),
        Request("GET", URL),
    )
    form = only(read(path, facts=replace(facts, request_body=b"a=b"))).exchange.request
    assert (form.headers, form.body) == ((), b"a=b")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (Facts(), "--url"),
        (Facts("example.org/v1"), "it has no absolute HTTP URL"),
        (Facts(URL, status=1), "its status is no HTTP status: 1"),
    ],
)
def test_a_response_by_itself_needs_a_request(tmp_path: Path, facts: Facts, said: str) -> None:
    with pytest.raises(CassetteError) as error:
        read(written(tmp_path / "a.sse", CHAT), facts=facts)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "data", [b"What is this?", b'{"name": "package"}', b"\x00\x00\x00\x00 no event stream", b"[1, 2]", b"{"]
)
def test_what_might_be_anything_is_named_by_the_user(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path / "a.json", data)
    with pytest.raises(CassetteError, match="is no recording that is known") as error:
        read(path)
    assert "--format" in error.value.mend
    assert only(read(path, format="raw", facts=Facts(URL))).exchange.body == data


def test_a_json_value_is_a_response_where_there_is_a_url(tmp_path: Path) -> None:
    assert read(written(tmp_path / "a.json", b'{"a": 1}'), facts=Facts(URL)).format == "raw"
    with pytest.raises(CassetteError, match="is no recording that is known"):
        read(written(tmp_path / "a.yaml", b"a: 1"), facts=Facts(URL))


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl here")
def test_what_curl_prints(tmp_path: Path) -> None:
    with serve(lambda request: replace(EVERY["anthropic"].exchange, request=request), paced=False) as server:
        url = f"{server.url}/v1/messages"
        for flags in ("-sN", "-siN"):
            done = subprocess.run(["curl", flags, url, "-d", "{}"], capture_output=True, check=True, timeout=60)
            interaction = only(read(written(tmp_path / "got.txt", done.stdout), facts=Facts(url, request_body=b"{}")))
            assert interaction.dialect == "anthropic"
            assert interaction.assembled == assembled(EVERY["anthropic"].reply)
            assert interaction.exchange.body == EVERY["anthropic"].body


# ------------------------------------------------------------------------------------------------------- what comes of them all


def as_vcr(path: Path, body: bytes) -> Imported:
    return read(vcr_file(path.with_suffix(".yaml"), (b"{}", body, {"content-type": ["x/y"]})))


def as_har(path: Path, body: bytes) -> Imported:
    content = {"size": len(body), "text": base64.b64encode(body).decode(), "encoding": "base64"}
    return read(har_file(path, entry(response__content=content)))


def as_raw(path: Path, body: bytes) -> Imported:
    return read(written(path, body), facts=Facts(URL))


@pytest.mark.parametrize("way", [as_vcr, as_har, as_raw])
@pytest.mark.parametrize("dialect", EVERY)
def test_a_stream_of_every_dialect(tmp_path: Path, dialect: str, way: Callable[[Path, bytes], Imported]) -> None:
    stream = EVERY[dialect]
    interaction = only(way(tmp_path / "a", stream.body))
    assert interaction.dialect == dialect
    assert interaction.assembled == assembled(stream.reply)
    assert interaction.exchange.body == stream.body
    save(tmp_path / "b.yaml", Cassette((interaction,)))
    assert load(tmp_path / "b.yaml").interactions == (interaction,)


def test_secrets_are_replaced_as_in_a_recording(tmp_path: Path) -> None:
    answered = CHAT.replace("Hello 🌊".encode(), f"{KEY} customer-123".encode())
    path = vcr_file(tmp_path / "a.yaml", (json.dumps({"api_key": "hunter2hunter2", "n": 1}), answered, SSE))
    scrubbing = Scrubbing(secrets_of([r"customer: customer-\d+"], "here"))
    found = read(path, scrubbing=scrubbing, test="tests/test_a.py::test_b")
    interaction = only(found)
    assert KEY not in repr(found)
    assert "customer-123" not in repr(found)
    assert "hunter2" not in repr(found)
    assert interaction.test == "tests/test_a.py::test_b"
    assert interaction.assembled is not None
    assert interaction.assembled["text"] == "*" * len(KEY) + " " + "*" * len("customer-123")
    assert found.remarks[-1].startswith("3 secrets replaced: ")


@pytest.mark.parametrize(
    ("body", "headers", "said"),
    [
        (CUT, SSE, "neither a finish reason nor an end mark came: the stream may have been cut"),
        (b"data: hi\n\n", SSE, "a stream of no known dialect, so it has no `assembled`"),
        (gzip.compress(CHAT)[:-9], ZIPPED, "the gzip data ends in the middle; the body is stored as it came"),
        (b"\xff\xfe no gzip", ZIPPED, "the gzip data is damaged"),
        (b'data: {"error": {"type": "overloaded", "message": "x"}}\n\n', SSE, None),
        (b"", ZIPPED, None),
        (b"hi", {"content-type": ["text/plain"]}, None),
        (FRAMES, {"Content-Encoding": ["gzip"]}, None),
    ],
)
def test_what_a_person_should_look_at_is_said(tmp_path: Path, body: bytes, headers: Any, said: str | None) -> None:
    found = read(vcr_file(tmp_path / "a.yaml", (b"{}", body, headers)))
    remarks = [remark for remark in found.remarks if remark != NO_TIMES]
    assert len(remarks) == (said is not None)
    assert all(remark.startswith(f"interaction 1: {said}") for remark in remarks)
    assert only(found).exchange.body == body


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match="cannot read the file"):
        read(tmp_path)
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(CassetteError, match="at most"):
        read(tmp_path / "large.yaml")


@pytest.mark.parametrize("name", ["har", "cassetter", "vcr"])
def test_a_file_of_another_format_than_the_user_says(tmp_path: Path, name: str) -> None:
    har_file(tmp_path / "har.json", entry())
    vcr_file(tmp_path / "vcr.yaml", (b"", CHAT, SSE))
    shutil.copy(DATA / "cassetter.yaml", tmp_path)
    for path in tmp_path.iterdir():
        if path.stem != name:
            with pytest.raises(CassetteError, match=f"is none of the {FORMATS[name].whose}"):
                read(path, format=name)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.just(URL),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value within `value`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in inner for place in places(each, (*at, key)))]


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = changed(value[at[0]], at[1:], new)
    return copy


BODY = {"type": "json", "content": {"a": [1]}}
WHOLE: list[Any] = [
    {"log": {"entries": [entry(), entry(request__postData={"mimeType": "urlencoded", "params": [{"name": "a"}]})]}},
    {
        "version": 1,
        "interactions": [
            {
                "request": {"method": "GET", "uri": URL, "headers": {"accept": ["a"]}, "body": "hi"},
                "response": {"status": {"code": 200}, "headers": {"etag": ["a"]}, "body": {"string": CHAT.decode()}},
            }
        ],
    },
    {
        "version": 1,
        "interactions": [
            {
                "request": {"method": "GET", "uri": URL, "headers": {"accept": ["a"]}, "body": BODY},
                "response": {"status": 200, "headers": {"etag": ["a"]}, "body": BODY},
                "recorded_at": "2026-02-20T10:30:01",
            }
        ],
        "ws_interactions": [{}],
    },
]


@pytest.mark.parametrize("whole", WHOLE, ids=["har", "vcr", "cassetter"])
@given(data=st.data())
def test_whatever_stands_in_a_file_is_imported_or_told(
    whole: Any, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.json"
    value = changed(whole, data.draw(st.sampled_from(places(whole))), data.draw(VALUES))
    path.write_text(json.dumps(value))
    try:
        found = read(path)
    except CassetteError:
        return
    again = loads(dumps(found.cassette), name="again")
    assert again == found.cassette


# ------------------------------------------------------------------------------------------------------------------- the names


@pytest.mark.parametrize(
    ("nodeid", "theirs", "ours"),
    [
        ("tests/test_a.py::test_b", "test_b", "test_b"),
        ("tests/test_a.py::TestC::test_b[x-1]", "TestC.test_b[x-1]", "TestC.test_b[x-1]"),
        ("tests/test_a.py::TestO::TestC::test_b", "TestC.test_b", "TestO.TestC.test_b"),
        ("tests/test_a.py::test_b[openai:m/1::x]", "test_b[openai-m-1--x]", "test_b[openai-m-1--x]-"),
        ("tests/test_a.py::test_b[(a)]", "test_b[(a)]", "test_b[-a-]-"),
    ],
)
def test_a_cassette_is_named_as_the_plugin_looks_for_it(nodeid: str, theirs: str, ours: str) -> None:
    test, bracket, parameters = nodeid.partition("[")
    *_, owner, name = test.split("::")
    owner_class = type(owner, (), {}) if owner.startswith("Test") else None
    assert pytest_recording.plugin.get_default_cassette_name(owner_class, name + bracket + parameters) == theirs
    root, tests = Path("/r"), Path("/r/tests")
    wanted = Path("/to", f"{_own_name(nodeid, root, [tests], tests / 'test_a.py')}.yaml")
    names = names_in(["", f"{nodeid}\n", "1 test collected in 0.1s"])
    assert targets_of(Path("/to"), PurePath("cassettes/test_a", f"{theirs}.yaml"), names) == [wanted]
    assert wanted.stem == ours or (ours.endswith("-") and re.fullmatch(f"{re.escape(ours)}[0-9a-f]{{8}}", wanted.stem))


def test_two_tests_that_share_a_cassette_get_one_each() -> None:
    names = names_in(["test_a.py::test_b[a/b]", "test_a.py::test_b[a:b]", "test_a.py::test_b[a-b]"])
    found = targets_of(Path("to"), PurePath("test_a/test_b[a-b].yaml"), names)
    assert len(set(found)) == 3


def test_a_name_that_pytest_recording_shortened() -> None:
    import hashlib

    name = f"test_b[{'x' * 300}]"
    digest = hashlib.md5(name.encode()).hexdigest()
    (found,) = targets_of(
        Path("to"), PurePath(f"test_a/{name[:210]}...{digest}.yaml"), names_in([f"t/test_a.py::{name}"])
    )
    assert found.name.startswith("test_b[xxx")
    assert len(found.name) < 110


def test_which_files_are_read(tmp_path: Path) -> None:
    for name in ("a.yaml", "b/c.yml", "b/d.HAR", "b/e.json", "f.toml", "g.py", "h", ".hidden.yaml", "b/.git/i.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        written(tmp_path / name, b"")
    found = [str(below) for _, below in sources([tmp_path])]
    assert found == ["a.yaml", "b/c.yml", "b/d.HAR", "b/e.json", "f.toml"]
    assert len(sources([tmp_path], any_ending=True)) == 7
    assert sources([tmp_path / "b" / "c.yml", tmp_path / "h"])[1] == (tmp_path / "h", PurePath("h"))
    with pytest.raises(StreamCassetteError, match="there is no such file or folder"):
        sources([tmp_path / "none"])


# ----------------------------------------------------------------------------------------------------------------- the command


def test_a_tree_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "tests" / "unit" / "cassettes" / "test_a"
    old.mkdir(parents=True)
    vcr_file(old / "test_b.yaml", (b"1", CHAT, SSE), (b"2", CHAT, SSE))
    vcr_file(old / "TestC.test_d[x-1].yaml", (b"1", CUT, SSE))
    new = tmp_path / "cassettes"
    assert main(["import", str(tmp_path / "tests"), "--to", str(new)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count(f"  {NO_TIMES}\n") == 2
    assert "TestC.test_d[x-1].yaml: 1 exchange\n" in out
    assert "  interaction 1: neither a finish reason nor an end mark came" in out
    assert "cassettes written: 2, exchanges: 3, left out: 0\n" in out
    assert "pytest --collect-only -q | stream-cassette import ... --tests -" in out
    assert len(load(new / "unit" / "test_a" / "test_b.yaml").interactions) == 2
    assert len(load(new / "unit" / "test_a" / "TestC.test_d[x-1].yaml").interactions) == 1


def test_names_come_from_a_list_of_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old" / "test_a"
    old.mkdir(parents=True)
    vcr_file(old / "test_b[a-b].yaml", (b"1", CHAT, SSE))

    class Stdin:
        buffer = io.BytesIO(b"tests/test_a.py::test_b[a:b]\n\n1 test collected in 0.01s\n")

    monkeypatch.setattr("sys.stdin", Stdin)
    assert main(["import", str(tmp_path / "old"), "--to", str(tmp_path / "new"), "--tests", "-"]) == 0
    (path,) = (tmp_path / "new").rglob("*.yaml")
    assert path.name.startswith("test_b[a-b]-")
    assert "--collect-only" not in capsys.readouterr().out


def test_one_file_to_one_file_and_what_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = har_file(tmp_path / "a.har", entry(_resourceType="websocket"), entry())
    to = tmp_path / "b.yaml"
    assert main(["import", str(path), "--to", str(to)]) == 1
    assert "  left out: entry 1: a WebSocket is no HTTP exchange\n" in capsys.readouterr().out
    assert len(load(to).interactions) == 1
    before = to.read_bytes()

    assert main(["import", str(path), "--to", str(to)]) == 2
    assert "--force" in capsys.readouterr().err
    assert to.read_bytes() == before
    assert main(["import", str(path), "--to", str(to), "--force", "--test", "t.py::test_x"]) == 1
    assert load(to).interactions[0].test == "t.py::test_x"


def test_a_file_with_nothing_to_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = har_file(tmp_path / "a.har", entry(_resourceType="websocket"))
    assert main(["import", str(path), "--to", str(tmp_path / "out")]) == 1
    assert "nothing to import\n" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_one_file_that_is_broken_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, good = written(tmp_path / "a.yaml", "odd: 1\n"), vcr_file(tmp_path / "b.yaml", (b"1", CHAT, SSE))
    arguments = ["import", str(bad), str(good), "--to", str(tmp_path / "out"), "--json"]
    assert main(arguments) == 2
    broken, done = json.loads(capsys.readouterr().out)
    assert "a mapping with the keys 'odd'" in broken["error"]
    assert (broken["file"], broken["to"], broken["interactions"]) == (str(bad), None, 0)
    assert done == {
        "file": str(good),
        "format": "vcr",
        "to": str(tmp_path / "out" / "b.yaml"),
        "interactions": 1,
        "left_out": [],
        "remarks": [NO_TIMES],
        "error": None,
    }
    assert main(arguments[:-1]) == 2
    out, err = capsys.readouterr()
    assert out == "cassettes written: 0, exchanges: 0, left out: 0, errors: 2\n"
    assert err.count("stream-cassette import: ") == 2


def test_what_curl_printed_and_what_was_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    got, asked = (
        written(tmp_path / "got.txt", CHAT + KEY.encode()),
        written(tmp_path / "ask.json", b'{"customer": "c-17"}'),
    )
    arguments = ["import", str(got), "--to", str(tmp_path / "out"), "--url", URL, "--method", "PUT", "--status", "201"]
    arguments += ["--content-type", "text/plain", "--request-body", str(asked), "--secret", r"c-\d+"]
    assert main(arguments) == 0
    (interaction,) = load(tmp_path / "out" / "got.yaml").interactions
    exchange = interaction.exchange
    assert (exchange.status, exchange.headers) == (201, (("content-type", "text/plain"),))
    assert exchange.request.method == "PUT"
    assert b"c-17" not in exchange.request.body
    assert KEY.encode() not in exchange.body
    assert "2 secrets replaced" in capsys.readouterr().out


def test_a_folder_of_responses(tmp_path: Path) -> None:
    written(tmp_path / "one", CHAT)
    written(tmp_path / "two.txt", CHAT)
    arguments = ["import", str(tmp_path), "--to", str(tmp_path / "out"), "--format", "raw", "--url", URL]
    assert main(arguments) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["one.yaml", "two.yaml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.yaml", "b.yaml", "--to", "c.yaml"], "one file cannot hold several"),
        (["d", "--to", "c.yaml"], "one file cannot hold several"),
        (["a.yaml", "d/a.json", "--to", "out"], "would take the place of that of a.yaml"),
        (["a.yaml", "--to", "a.yaml"], "would be written over a.yaml, which is to be imported"),
        (["d", "b.yaml", "--to", "."], "which is to be imported"),
        (["empty", "--to", "out"], "no recordings there"),
        (["none", "--to", "out"], "there is no such file or folder"),
        (["a.yaml", "--to", "out", "--request-body", "none"], "cannot read the file"),
        (["a.yaml", "--to", "out", "--secret", "("], "--secret"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_written(
    tmp_path: Path, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("d", "empty"):
        Path(folder).mkdir()
    for name in ("a.yaml", "b.yaml", "d/a.json"):
        vcr_file(Path(name), (b"1", CHAT, SSE))
    before = {path: path.read_bytes() for path in Path().rglob("*.*")}
    assert main(["import", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path().rglob("*.*")} == before


def test_what_is_told_of_a_file_quotes_no_secret(tmp_path: Path) -> None:
    key = f"sk-proj-{'Ab3' * 16}"
    content = {"mimeType": "text/plain", "text": "x", "encoding": key}
    entry = {
        "request": {"method": "GET", "url": "https://h.test/", "headers": []},
        "response": {"status": 200, "headers": [], "content": content},
    }
    (tmp_path / "a.har").write_text(json.dumps({"log": {"version": "1.2", "entries": [entry]}}))
    found = read(tmp_path / "a.har")
    assert len(found.left_out) == 1
    assert "encoding" in found.left_out[0].why
    assert key not in repr(found)

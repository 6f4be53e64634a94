"""What never reaches a file, and what must reach it untouched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_cassette.errors import TapeError
from stream_cassette.framing import eventstream, frames
from stream_cassette.model import Ending, Exchange, FrameHeader, Read, Request
from stream_cassette.redact import (
    KINDS,
    PLACEHOLDER,
    Redaction,
    Scrubbing,
    Secrets,
    glance,
    is_secret_field,
    scrub,
    scrub_request,
    scrub_value,
    scrubbed,
    secrets_of,
    summary,
)
from stream_cassette.redact.bodies import scrub_body, scrub_reads
from stream_cassette.redact.glance import Glance, suspects

JSON = (("content-type", "application/json"),)


def asked(url: str = "https://example.org/", headers=(), body: bytes = b"") -> Request:
    return scrub_request(Request("POST", url, headers, body))


def test_headers_outside_the_allow_lists_go():
    request = (
        ("host", "api.openai.com"),
        ("authorization", "Bearer sk-secret"),
        ("x-api-key", "secret"),
        ("api-key", "secret"),
        ("x-goog-api-key", "secret"),
        ("cookie", "session=secret"),
        ("proxy-authorization", "Basic secret"),
        ("user-agent", "OpenAI/Python"),
        ("x-stainless-os", "Linux"),
        ("openai-organization", "org-1"),
        ("idempotency-key", "1"),
        ("content-length", "12"),
        ("accept", "text/event-stream"),
        ("content-type", "application/json"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "a"),
        ("anthropic-beta", "b"),
        ("openai-beta", "assistants=v2"),
    )
    response = (
        ("date", "today"),
        ("set-cookie", "__cf_bm=secret"),
        ("x-request-id", "req_1"),
        ("request-id", "req_1"),
        ("openai-organization", "org-1"),
        ("x-ratelimit-remaining-tokens", "1"),
        ("anthropic-organization-id", "1"),
        ("transfer-encoding", "chunked"),
        ("content-type", "text/event-stream"),
        ("retry-after", "2"),
        ("retry-after-ms", "1500"),
        ("x-should-retry", "true"),
        ("etag", 'W/"a1"'),
        ("www-authenticate", 'Digest realm="r", nonce="a41f", qop="auth"'),
        ("link", '<https://example.org/?page=2&token=REDACTED>; rel="next", </last>; rel="last"'),
        ("location", "https://u:p@example.org/next?token=abc&n=1"),
    )
    sent = tuple((name, value.replace("REDACTED", "abc")) for name, value in response)
    reads = (Read(3, b"data: sk-harmless\n\n"),)
    ending = Ending("disconnected", "read")
    found = scrub(Exchange(Request("POST", "https://example.org/", request), 307, sent, reads, ending))
    assert found == Exchange(
        Request("POST", "https://example.org/", request[-6:]),
        307,
        (*response[-8:-1], ("location", "https://example.org/next?token=REDACTED&n=1")),
        reads,
        ending,
    )


def test_header_names_are_compared_without_case():
    found = asked(headers=(("Content-Type", "application/json"), ("Authorization", "Bearer x")), body=b" 1 ")
    assert found.headers == (("Content-Type", "application/json"),)
    assert found.body == b"1"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.org", None),
        ("https://example.org/a/b?alt=sse&x=%41+b&&y&z=#top", None),
        (
            "https://example.org/v1/models/m:streamGenerateContent?alt=sse&key=AIza123",
            "https://example.org/v1/models/m:streamGenerateContent?alt=sse&key=REDACTED",
        ),
        ("https://example.org/?key=a&b=1&key=c", "https://example.org/?key=REDACTED&b=1&key=REDACTED"),
        ("https://example.org/?key=", "https://example.org/?key=REDACTED"),
        ("https://example.org/?key", None),
        ("https://example.org/?key=a=b?c", "https://example.org/?key=REDACTED"),
        ("https://example.org/??key=a", "https://example.org/??key=REDACTED"),
        ("https://example.org/?%6bey=a", "https://example.org/?%6bey=REDACTED"),
        ("https://example.org/#access_token=a&x=1", "https://example.org/#access_token=REDACTED&x=1"),
        ("https://user:pass@example.org:8080/a?b=1", "https://example.org:8080/a?b=1"),
        ("https://us@er:p@ss@example.org/a@b", "https://example.org/a@b"),
        ("https://example.org/@a?b=c@d", None),
        ("/relative?sig=a", "/relative?sig=REDACTED"),
        ("//user@host/x", "//host/x"),
    ],
)
def test_urls(url, expected):
    assert asked(url).url == (url if expected is None else expected)
    assert asked(asked(url).url).url == asked(url).url


SECRET_NAMES = [
    "key", "Key", "api_key", "api-key", "apikey", "apiKey", "x-goog-api-key", "subscription-key", "ocp-apim-subscription-key", "token", "access_token",
    "refresh_token", "id_token", "auth_token", "sessionToken", "sig", "signature", "X-Amz-Credential", "X-Amz-Security-Token", "X-Amz-Signature",
    "X-Goog-Credential", "X-Goog-Signature", "AWSAccessKeyId", "code", "client_secret", "secret", "password", "auth", "authorization", "jwt", "pwd",
]  # fmt: skip
HARMLESS_NAMES = [
    "model", "alt", "api-version", "pageToken", "max_tokens", "keys", "key_id", "monkey", "keyword", "encode", "codes", "design", "author", "x-amz-date",
    "x-amz-expires", "x-amz-algorithm", "x-amz-signedheaders", "beta", "n",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secret_parameters(name):
    assert (
        asked(f"https://example.org/?a=1&{name}=s3cret&b=2").url == f"https://example.org/?a=1&{name}={PLACEHOLDER}&b=2"
    )


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_harmless_parameters(name):
    assert asked(f"https://example.org/?{name}=value").url == f"https://example.org/?{name}=value"


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        (JSON, b'{ "a": [1, 2.50, null], "\\u00fc": "\\ud83d\\ude00" }', '{"a":[1,2.5,null],"ü":"😀"}'.encode()),
        ((), b'\n{"a": 1}\n', b'{"a":1}'),
        ((), b"[1, 2]", b"[1,2]"),
        ((), b" 1 ", None),
        ((("content-type", "application/vnd.x+JSON; charset=utf-8"),), b" 1 ", b"1"),
        (JSON, b"", None),
        (JSON, b"not JSON", None),
        (JSON, b'{ "a": 1 } { "a": 2 }', None),
        (JSON, b'{ "a": "\\ud83d" }', None),  # a lone surrogate: UTF-8 has none
        (JSON, b'{ "a": "\xed\xa0\xbd" }', None),
        (JSON, b'{ "a": 1, "a": 2 }', None),
        (JSON, b'{ "a": NaN }', None),
        (JSON, b'{ "a": 1e999 }', None),
        (JSON, b'{ "a": 1' + b"0" * 5000 + b" }", None),
        (JSON, b"[ " * 100_000, None),
        (JSON, '{ "a": "ü" }'.encode("latin-1"), None),
        (JSON, '{ "a": 1 }'.encode("utf-16"), None),
        (JSON, b'\xef\xbb\xbf{ "a": 1 }', None),
        ((("content-type", "multipart/form-data; boundary=x"),), b'--x\r\n\r\n{ "a": 1 }\r\n--x--', None),
    ],
)
def test_request_bodies(headers, body, expected):
    assert asked(headers=headers, body=body).body == (body if expected is None else expected)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def names(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(name for inner in value.values() for name in names(inner))]
    return [name for inner in value for name in names(inner)] if isinstance(value, list) else []


@given(json_values.filter(lambda value: not any(map(is_secret_field, names(value)))))
def test_a_json_body_keeps_its_meaning(value):
    for body in (json.dumps(value).encode(), json.dumps(value, indent=1).encode()):
        found = asked(headers=JSON, body=body).body
        assert json.loads(found) == value
        assert asked(headers=JSON, body=found).body == found


@given(st.text(), st.lists(st.tuples(st.text(), st.text())).map(tuple), st.binary())
def test_scrubbing_twice_changes_nothing_more(url, headers, body):
    once = scrub(Exchange(Request("GET", url, headers, body), 200, headers, ()))
    assert scrub(once) == once


# ----------------------------------------------------------------------------------------------------------- what is no secret

PROSE = """
An API key is a secret. Set OPENAI_API_KEY, or pass api_key="YOUR_API_KEY" (never your password!) to the client:
    client = OpenAI(api_key=os.environ["OPENAI_API_KEY"], organization="my-org")
    curl -H "Authorization: Bearer $OPENAI_API_KEY" -H "x-api-key: ${KEY}" "https://api.example.org/v1?key=YOUR_API_KEY&page=2"
    api_key = settings.openai_api_key   # or config.get_secret_value("api_key")
    password: str = Field(min_length=8); token = tokenizer.encode(text); cookie = request.cookies.get("session")
Basic understanding of the bearer responsibilities; basic authentication. A password: at least eight characters. The secret: practice.
risk-free, task-oriented, disk-based, ask-me-anything, sk-learn-pipeline-v2-tutorial, sk-toggleable__control, org-mode, org-chart-2026
postgres://user:password@localhost/db, https://example.org:8080/a@b, mailto:me@example.org, git@github.com:org/repo.git
{"password": "must be at least 8 characters long", "password": "string", "api_key": "<your key>", "secret": "***", "api_key": null}
https://example.org/?code=200&token=abc&q=key, Signature=none, hf_hub_download, gsk_file, xai-sdk, fw_update, r8_model, npm_config_registry
-----BEGIN CERTIFICATE----- MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A -----END CERTIFICATE----- and -----BEGIN PRIVATE KEY-----
"""
# Of the wires: ids, hashes, what is sealed, what is no text.
IDS = [
    "call_abc123def456ghi789jkl012", "call_00_Xk3jd9fkWm2LqPz7", "chatcmpl-9xYzAbC123dEf456GhI789jKl", "chatcmpl-tool-0123456789abcdef0123456789abcdef",
    "msg_01XFDUDYJgAACzvnptvVoYEL", "msg_0a1b2c3d4e5f60718293a4b5c6d7e8f90123456789abcdef", "toolu_01T1x1fJ34qAmk2tNTrN7Up6", "toolu_bdrk_01A2b3C4d5E6f7G8h9J0",
    "fc_68a1b2c3d4e5f60718293a4b", "rs_0a1b2c3d4e5f60718293", "resp_67ccd3a9da748190baa7f1570fe91ac604becb25c45c1d41", "req_011CSHoEeqs5C35K2UUqR7Fy",
    "gen-1700000000-AbCdEfGhIjKlMnOpQrSt", "fp_44709d6fcb", "run_AbC123", "file-AbC123dEf456GhI789", "asst_abc123", "thread_abc123def456", "ses-1",
    "123e4567-e89b-12d3-a456-426614174000", "d41d8cd98f00b204e9800998ecf8427e", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "claude-sonnet-4-5-20250929", "gpt-4o-mini-2024-07-18", "us.anthropic.claude-3-5-haiku-20241022-v1:0",
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/x", "accounts/fireworks/models/deepseek-v3p1", "2026-11-30T14:05:11.123Z",
]  # fmt: skip


def blob(size: int) -> str:
    import base64
    import random

    made = base64.b64encode(random.Random(size).randbytes(size)).decode()
    middle = len(made) // 2
    return f"{made[:middle]}/AKIAABCDEFGHIJKLMNOP/AIza{'Sy0aB1cD' * 5}/hf_{'aB1c' * 9}/sk-{'aB1' * 9}{made[middle:]}"


@pytest.mark.parametrize("text", [PROSE, *IDS, blob(6000)], ids=lambda text: text[:30])
def test_what_is_no_secret_stays(text: str) -> None:
    bodies = [
        text.encode(),
        json.dumps({"error": {"message": text}}).encode(),
        b"".join(
            f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text[at : at + 7]}}]})}\n\n".encode()
            for at in range(0, len(text), 7)
        ),
    ]
    for body in bodies:
        exchange = Exchange(
            Request("POST", "https://example.org/", JSON, json.dumps({"messages": [text]}).encode()),
            200,
            (),
            (Read(0, body),),
        )
        clean, found = scrubbed(exchange)
        assert found == ()
        assert clean.reads == exchange.reads
        assert json.loads(clean.request.body) == {"messages": [text]}


@pytest.mark.parametrize("field", ["signature", "thoughtSignature", "encrypted_content"])
def test_what_is_sealed_stays(field: str) -> None:
    sealed = "AbC+sk-proj-abcdefghijklmnop1234567890/AIzaSy0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV=="
    body = b"".join(
        f"data: {json.dumps({'choices': [{'delta': {field: piece, 'content': 'x'}}]})}\n\n".encode()
        for piece in (sealed[:20], sealed[20:], sealed)
    )
    exchange = Exchange(
        Request("POST", "https://example.org/", JSON, json.dumps({"a": [{field: sealed}]}).encode()),
        200,
        (),
        (Read(0, body),),
    )
    assert scrub(exchange).body == body
    assert json.loads(scrub(exchange).request.body) == {"a": [{field: sealed}]}
    plain = json.dumps({"a": {field: sealed}, "b": "sk-proj-abcdefghijklmnop1234567890"}).encode()
    assert json.loads(scrub_body(plain, Secrets())[0]) == {"a": {field: sealed}, "b": "*" * 34}


def test_no_secret_in_captured_streams(corpus) -> None:
    found = []
    for entry in json.loads((corpus / "index.json").read_text("utf-8")):
        body = (corpus / entry["file"]).read_bytes()
        clean, hits = scrub_body(body, Secrets())
        found += [(entry["file"], hit.kind, hit.frames) for hit in hits]
        assert clean == body or hits
    assert found == []


# -------------------------------------------------------------------------------------------------------------- odd bodies

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


def covered(body: bytes, secrets: Secrets = Secrets()) -> bytes:  # noqa: B008 - frozen
    clean, _ = scrub_body(body, secrets)
    assert len(clean) == len(body)
    assert scrub_body(clean, secrets) == (clean, [])
    return clean


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", b""),
        (KEY.encode(), b"*" * 44),
        (b'{"a": "' + KEY.encode(), b'{"a": "' + b"*" * 44),  # cut
        (b'{"a": "' + KEY.encode() + b"\\", b'{"a": "' + b"*" * 44 + b"\\"),
        (('"ü🌊 ' + KEY + '"').encode(), '"ü🌊 '.encode() + b"*" * 44 + b'"'),
        (b"\xff\xfe " + KEY.encode() + b" \xff", b"\xff\xfe " + b"*" * 44 + b" \xff"),
        (b'"stray\n{"a":"' + KEY.encode() + b'"}', b'"stray\n{"a":"' + b"*" * 44 + b'"}'),
        (b'["sk\\u002dproj-' + KEY[8:].encode() + b'"]', b'["' + b"*" * 49 + b'"]'),
        (b'{"password":"a\\"b\\\\c\\u00fcd"}', b'{"password":"' + b"*" * 14 + b'"}'),
        (b'{"password":"hunter2', b'{"password":"*******'),
        (b'{"a":"b","password":"hunter2', b'{"a":"b","password":"*******'),  # cut where a field was complete before
        (b'{"a":"Server=x;Password=hunter2","b":"c"}', b'{"a":"Server=x;Password=*******","b":"c"}'),
        (b'{"a":"conn = \\"Server=x;Pwd=hunter2\\"","b":"c"}', b'{"a":"conn = \\"Server=x;Pwd=*******\\"","b":"c"}'),
        (b'{"logprobs":{"content":[{"token":"x","bytes":[1,23, 145]}]},"t":"' + KEY.encode() + b'"}',
         b'{"logprobs":{"content":[{"token":"*","bytes":[9,99, 999]}]},"t":"' + b"*" * 44 + b'"}'),
    ],
)  # fmt: skip
def test_odd_bodies(body: bytes, expected: bytes) -> None:
    assert covered(body) == expected


def test_a_key_in_pieces_far_into_a_long_stream() -> None:
    def said(text: str) -> bytes:
        return b"".join(
            f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': unit}}]})}\n\n".encode() for unit in text
        )

    body = said("word " * 250 + KEY + " word" * 250)
    expected = said("word " * 250 + "*" * len(KEY) + " word" * 250)
    assert covered(body) == expected
    reads = [body[at : at + 50] for at in range(0, len(body), 50)]
    clean, found = scrub_reads(reads, Secrets())
    assert b"".join(clean) == expected
    assert [(each.frames, each.line) for each in found] == [(f", frames 1251 to {1250 + len(KEY)}", 2500)]
    # What holds nothing of it is not held a second time.
    kept = sum(mine is old for mine, old in zip(clean, reads, strict=True))
    assert len(reads) - 60 < kept < len(reads)


def test_a_call_whose_arguments_are_an_object() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": "y", "note": f"a {KEY}", "z": "z"}}}
    body = b"".join(
        f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()
        for delta in ({"content": "other", "tool_calls": [call]}, {"content": "x"})
    )
    assert covered(body) == body.replace(KEY.encode(), b"*" * 44)


def test_escaped_characters_of_two_code_units() -> None:
    body = json.dumps({"a": f"🌊\n{KEY} \ud800"}).encode()
    assert covered(body) == body.replace(KEY.encode(), b"*" * 44)


def test_a_secret_of_which_a_part_looks_like_one() -> None:
    assert asked("https://example.org/api_key=abcdefgh12345678%2D99xyz/b").url == "https://example.org/api_key=REDACTED"


def binary(*payloads: bytes) -> list[bytes]:
    headers = [
        FrameHeader(":event-type", "chunk"),
        FrameHeader("odd", f'"{KEY}"'),
        FrameHeader(":message-type", "event"),
    ]
    return [eventstream.encode(headers, payload).raw for payload in payloads]


def test_binary_frames_keep_their_checksums() -> None:
    whole = binary(json.dumps({"a": KEY}).encode(), b'{"a":1}', KEY.encode(), b"\xff\x00")
    damaged = bytearray(binary(KEY.encode())[0])
    damaged[-1] ^= 1
    for body in (b"".join(whole), b"".join([*whole, whole[0][:-9]]), b"".join([*whole, bytes(damaged)])):
        clean = covered(body)
        assert KEY.encode() not in clean
        assert [frame.problem for frame in frames(clean)] == [frame.problem for frame in frames(body)]
        assert [len(frame.raw) for frame in frames(clean)] == [len(frame.raw) for frame in frames(body)]


def test_malformed_headers_of_a_binary_frame() -> None:
    from zlib import crc32

    message = binary(b'{"a":1}')[0][:-4].replace(b":message-type", b":event-type\0\0")
    body = message + crc32(message).to_bytes(4, "big") + b"".join(binary(b"{}"))
    clean = covered(body)
    assert KEY.encode() not in clean
    assert [frame.problem for frame in frames(clean)] == [frame.problem for frame in frames(body)]


@pytest.mark.parametrize("wrapped", [b"AAA", b"A===", b"Zm9=", b"", b"no"])
def test_a_chunk_that_is_not_wrapped_as_it_should_be(wrapped: bytes) -> None:
    body = b"".join(binary(b'{"bytes":"' + wrapped + b'","p":"' + KEY.encode() + b'"}'))
    assert KEY.encode() not in covered(body)


# ------------------------------------------------------------------------------------------------------- what the user knows


def test_patterns_of_the_user() -> None:
    secrets = secrets_of([r"customer-\d+", "tenant id: tenant=(\\w+)", r"\b\d{16}\b", "Straße [0-9]+"])
    assert [kind.name for kind in secrets.own] == [
        "secret pattern 1",
        "tenant id",
        "secret pattern 3",
        "secret pattern 4",
    ]
    text = "customer-17 tenant=acme Straße 9 4111111111111111"
    request = Request(
        "POST", "https://example.org/?a=customer-17", JSON, json.dumps({"customer-17": [text], "n": 1}).encode()
    )
    body = json.dumps({"a": f"ä{text}", "card": 4111111111111111, "customer-3": "x"}, ensure_ascii=False).encode()
    stream = b"".join(
        f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n\n".encode()
        for piece in ("custo", "mer-", "1", "7!")
    )
    clean, found = scrubbed(Exchange(request, 200, (), (Read(0, body),)), secrets)
    assert clean.request.url == "https://example.org/?a=REDACTED-secret-pattern-1"
    assert json.loads(clean.request.body) == {
        "REDACTED-secret-pattern-1": [
            "REDACTED-secret-pattern-1 tenant=REDACTED-tenant-id REDACTED-secret-pattern-4 REDACTED-secret-pattern-3"
        ],
        "n": 1,
    }
    assert json.loads(clean.body) == {
        "a": "ä*********** tenant=**** ********* ****************",
        "card": 9999999999999999,
        "**********": "x",
    }
    assert len(clean.body) == len(body)
    assert scrubbed(clean, secrets) == (clean, ())
    assert Redaction("tenant id", "response body") in found
    assert b"1" not in covered(stream, secrets)


def test_a_pattern_that_goes_over_fields_leaves_json_alone() -> None:
    secrets = secrets_of([r'"a":"x\\n", *"b": *[\w"]+'])
    assert covered(b'{"a":"x\\n", "b": "yz", "c": true}', secrets) == b'{"*":"***", "*": "**", "c": true}'
    assert covered(b'not JSON {"a":"x\\n", "b": "yz"', secrets) == b"not JSON {" + b"*" * 20


def test_a_pattern_that_cuts_an_escape() -> None:
    assert json.loads(covered(b'{"a":"x\\u00e4y \\n"}', secrets_of(["u00"]))) == {"a": "x******y \n"}


@pytest.mark.parametrize("pattern", ["(", "x*", "name: ["])
def test_patterns_that_cannot_be(pattern: str) -> None:
    with pytest.raises(TapeError) as raised:
        secrets_of([pattern], "stream_cassette_secrets")
    assert raised.value.where == "stream_cassette_secrets"
    assert raised.value.mend


def test_keys_that_become_equal_stay_apart() -> None:
    found = asked(headers=JSON, body=json.dumps({KEY: 1, KEY + "x": 2, "a": 3}).encode())
    assert json.loads(found.body) == {"REDACTED-openai-key": 1, "REDACTED-openai-key+": 2, "a": 3}
    assert asked(headers=JSON, body=found.body).body == found.body


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "[1", '{"a":' * 2000, '{"api_key":"x"}', '{ "b": 1 }'])
def test_json_in_a_text(text: str) -> None:
    body = json.loads(asked(headers=JSON, body=json.dumps({"arguments": text}).encode()).body)
    assert body == {"arguments": '{"api_key":"REDACTED"}' if "api_key" in text else text}


@pytest.mark.parametrize(
    "head",
    [
        'Content-Disposition: form-data; name="api_key"\r\n\r\n',
        'Content-Disposition: form-data; name="api_key"\nContent-Type: text/plain\n\n',
    ],
)
def test_parts_of_a_form(head: str) -> None:
    def body(value: str) -> bytes:
        return f'--x\r\n{head}{value}\r\n--x\r\nContent-Disposition: form-data; name="b"\r\n\r\nc\r\n--x--\r\n'.encode()

    kind = (("content-type", 'multipart/form-data; boundary="x"; charset=utf-8'),)
    assert asked(headers=kind, body=body("s3cret")).body == body(PLACEHOLDER)
    assert asked(headers=kind, body=body("")).body == body(PLACEHOLDER)


# -------------------------------------------------------------------------------------------------------- what is told of it


def test_what_was_replaced_is_told_by_kind_and_place() -> None:
    chunks = [
        f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n\n"
        for piece in ("Hi ", KEY[:9], KEY[9:20], KEY[20:] + " ", KEY)
    ]
    request = Request(
        "POST",
        f"https://me:{KEY}@example.org/?key=x&n=1",
        (*JSON, ("anthropic-beta", KEY)),
        json.dumps({"a": KEY, "password": "x"}).encode(),
    )
    exchange = Exchange(request, 200, (("location", f"/?token={KEY}"),), (Read(0, "".join(chunks).encode()),))
    _, found = scrubbed(exchange)
    assert [str(each) for each in found] == [
        "password in a url in request url",
        "secret url parameter in request url",
        "openai key in request header anthropic-beta",
        "openai key in request body",
        "field password in request body",
        "secret url parameter in response header location",
        "openai key in response body, frames 2 to 4",
        "openai key in response body, frame 5",
    ]
    assert summary(found) == (
        "8 secrets replaced: password in a url in request url, secret url parameter in request url, openai key in request header anthropic-beta, "
        "openai key in request body, field password in request body, and 3 more"
    )
    assert summary([Redaction("a", "b")] * 2) == "2 secrets replaced: a in b (2 times)"
    assert summary([Redaction("a", "b")]) == "1 secret replaced: a in b"
    assert summary([]) == ""


def test_the_last_hand() -> None:
    from dataclasses import replace

    exchange = Exchange(Request("POST", "https://example.org/"), 200, (), (Read(0, b"x"),))
    assert Scrubbing().exchange(exchange) == (exchange, ())
    assert Scrubbing(last=lambda each: None).exchange(exchange) == (exchange, ())
    changed = Scrubbing(
        last=lambda each: replace(each, status=each.status + 1, request=replace(each.request, url="/x"))
    )
    assert changed.exchange(exchange)[0].status == 201
    assert changed.request(exchange.request).url == "/x"
    assert changed.stored(exchange.request) == exchange.request
    with pytest.raises(TapeError, match="gave back dict, not an Exchange"):
        Scrubbing(last=lambda each: {}).exchange(exchange)


def test_plain_values_become_what_a_replay_gives() -> None:
    value = {
        "text": f"Use {KEY}.",
        "calls": [{"arguments": {"api_key": "tops3cret", "password": "string", "n": 1, "secret": None, KEY: True}}],
    }
    expected = {
        "text": f"Use {'*' * 44}.",
        "calls": [{"arguments": {"api_key": "*" * 9, "password": "string", "n": 1, "secret": None, "*" * 44: True}}],
    }
    assert scrub_value(value) == expected
    assert scrub_value(expected) == expected
    assert scrub_value("customer-1", secrets_of([r"customer-\d"])) == "*" * 10
    body = json.dumps(value).encode()
    assert json.loads(scrub_body(body, Secrets())[0]) == expected


def test_every_kind_says_where_it_comes_from() -> None:
    assert len({kind.name for kind in KINDS}) >= 40
    for kind in KINDS:
        assert kind.source
        assert kind.anchors
        assert not kind.folded or list(kind.anchors) == [anchor.lower() for anchor in kind.anchors]


# ------------------------------------------------------------------------------------------------------- a text in windows


WHOLE = 1 << 30
FRAGMENTS = [
    '{"choices":[{"index":0,"delta":{"content":"', '{"choices":[{"index":1,"delta":{"content":"', '"}}]}\n\n', '"index": 1', '"index"', " : ", "12", ",",
    '"a":"b"', '"', "\\", '\\"', "\n", "\\n", " ", "word ", "password", '":"', "é🌊", "x" * 50, KEY, KEY[:9], KEY[9:], "\\u002d", "%2D", "Bearer ", "1, " * 90,
]  # fmt: skip


def look(pieces: Sequence[str], window: int, overlap: int) -> Secrets | None:
    glance = Glance(Secrets(), window, overlap)
    for piece in pieces:
        glance.feed(piece)
    return glance.close()


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=60), st.integers(1, 200))
def test_a_look_in_windows_sees_what_a_look_at_the_whole_sees(pieces: list[str], window: int) -> None:
    whole, seen = look(["".join(pieces)], WHOLE, WHOLE), look(pieces, window, 512)
    if whole is not None:
        assert seen is not None
        assert set(whole.known) <= set(seen.known)


def turns(*numbers: int, fill: str = "") -> list[str]:
    return [f'{{"index": {number}, {fill}"delta": "x"}}' for number in numbers]


@pytest.mark.parametrize("fill", ["", "1234, " * 500, "1234, " * 500 + '"number": "'])
@pytest.mark.parametrize(
    ("numbers", "take_turns"), [((0, 0, 1, 1), False), ((0, 1, 0), True), ((1, 10, 11, 1), True), ((12, 1, 2), False)]
)
def test_parts_that_take_turns(numbers: tuple[int, ...], take_turns: bool, fill: str) -> None:
    text = "".join(turns(*numbers, fill=fill))
    for size in (1, 7, 100, len(text)):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        for window in (1, 50, 1000, WHOLE):
            assert (look(pieces, window, 128) is not None) == take_turns


@pytest.mark.parametrize(
    "text",
    [
        'a password: "your_own" and more, ' * 200,  # cut within a value that is harmless as a whole
        'pw {"password": "string", "n": 1}\n' * 200,
        "0123456789abcdef" * 500,
        '{"image": "' + "AbCd0123" * 500 + '"}',
    ],
)
def test_a_cut_makes_nothing_suspect(text: str) -> None:
    for window in (1, 10, 100, 1000, WHOLE):
        assert look(list(text), window, 128) is None


def test_a_secret_is_told_by_its_beginning_where_it_is_longer_than_what_is_looked_at_again() -> None:
    for text in (f'the password: "{"ab+c-" * 400}"', f'{{"content": "the password: \\"{"ab+c-" * 400}\\""}}'):
        for window in (1, 10, 100, 1000, WHOLE):
            assert look(list(text), window, 128) is not None


def test_what_waits_for_its_end_is_not_searched_again_for_every_window() -> None:
    taken: list[int] = []

    class Counted(Glance):
        def _take_apart(self) -> None:
            taken.append(len(self._rest) + self._size)
            super()._take_apart()

    counted = Counted(Secrets(), 100, 64)
    for piece in ["x" * 100] * 500 + ['"image": "'] + ["A" * 100] * 2000 + ['"']:
        counted.feed(piece)
    assert counted.close() is None
    assert sum(taken) < 3 * 250_000


def test_patterns_of_the_user_see_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glance, "WINDOW", 10)
    monkeypatch.setattr(glance, "OVERLAP", 10)
    text = "BEGIN " + "x" * 500 + " END"
    assert suspects(list(text), secrets_of(["BEGIN [x]+ END"])) is not None
    assert suspects(list(text), secrets_of(["BEGIN [y]+ END"])) is None


# ------------------------------------------------------------------------------------------------------------------ how fast


def test_of_a_large_clean_body_what_repeats_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    find = Secrets.find

    def counted(self: Secrets, said: str) -> Any:
        searched.append(len(said))
        return find(self, said)

    piece = (
        "data: "
        + json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "delta": {"content": " word\n"}, "finish_reason": None}],
            }
        )
        + "\n\n"
    )
    text = piece * (1_200_000 // len(piece))
    monkeypatch.setattr(Secrets, "find", counted)
    assert suspects((text,), Secrets()) is None
    assert searched
    assert sum(searched) < len(text) // 10

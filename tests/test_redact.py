"""What never reaches a file, and what must reach it untouched."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_cassette.model import Ending, Exchange, Read, Request
from stream_cassette.redact import PLACEHOLDER, scrub, scrub_request

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
        ("location", "https://u:p@example.org/next?token=abc&n=1"),
    )
    reads = (Read(3, b"data: sk-untouched\n\n"),)
    ending = Ending("disconnected", "read")
    found = scrub(Exchange(Request("POST", "https://example.org/", request), 307, response, reads, ending))
    assert found == Exchange(
        Request("POST", "https://example.org/", request[-6:]),
        307,
        (*response[-5:-1], ("location", "https://example.org/next?token=REDACTED&n=1")),
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
        ("https://example.org/v1/models/m:streamGenerateContent?alt=sse&key=AIza123", "https://example.org/v1/models/m:streamGenerateContent?alt=sse&key=REDACTED"),
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
    assert asked(f"https://example.org/?a=1&{name}=s3cret&b=2").url == f"https://example.org/?a=1&{name}={PLACEHOLDER}&b=2"


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


@given(json_values)
def test_a_json_body_keeps_its_meaning(value):
    for body in (json.dumps(value).encode(), json.dumps(value, indent=1).encode()):
        found = asked(headers=JSON, body=body).body
        assert json.loads(found) == value
        assert asked(headers=JSON, body=found).body == found


@given(st.text(), st.lists(st.tuples(st.text(), st.text())).map(tuple), st.binary())
def test_scrubbing_twice_changes_nothing_more(url, headers, body):
    once = scrub(Exchange(Request("GET", url, headers, body), 200, headers, ()))
    assert scrub(once) == once

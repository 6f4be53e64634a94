"""Which recorded request answers which, and how a difference is told."""

from __future__ import annotations

import json

import pytest

from stream_cassette.errors import TapeError
from stream_cassette.matching import differences, fingerprint, ignored, matches, nearest, value_differences
from stream_cassette.model import Request

URL = "https://api.example.com/v1/chat"


def post(body: object = None, url: str = URL, **more: object) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", url, (("content-type", "application/json"),), raw)


def form(boundary: str, *, quoted: bool = False) -> Request:
    named = f'"{boundary}"' if quoted else boundary
    body = f'--{boundary}\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n--{boundary}--\r\n'
    return Request(
        "POST", URL, (("content-type", f"multipart/form-data; boundary={named}; charset=utf-8"),), body.encode()
    )


SAME = {
    "equal": (post({"a": 1}), post({"a": 1})),
    "key order and white space": (post(b'{"a": 1, "b": [2]}'), post(b'{ "b":[2],\n"a":1}')),
    "escapes": (post(b'"\\u00e9\\/"'), post('"é/"'.encode())),
    "spelling of a float": (post(b"1.50"), post(b"15e-1")),
    "not a number": (post(b'{"a": NaN}'), post(b'{"a":NaN}')),
    "query order": (post({}, URL + "?a=1&b=2&a=0"), post({}, URL + "?b=2&a=0&a=1")),
    "default port and case of the host": (
        post({}, "https://API.example.com:443/x"),
        post({}, "https://api.example.com/x"),
    ),
    "no path": (post({}, "https://a.example"), post({}, "https://a.example/")),
    "fragment": (post({}, URL + "#a"), post({}, URL)),
    "headers do not count": (Request("GET", URL, (("accept", "a"),)), Request("GET", URL)),
    "multipart boundary": (form("abc"), form("xyz-123", quoted=True)),
    "bytes": (Request("POST", URL, body=b"\xff\x00"), Request("POST", URL, body=b"\xff\x00")),
    "not JSON, too deep": (post(b"[" * 100_000), post(b"[" * 100_000)),
}


@pytest.mark.parametrize(("recorded", "wanted"), SAME.values(), ids=SAME.keys())
def test_the_same_request(recorded: Request, wanted: Request) -> None:
    assert matches(recorded, wanted)
    assert fingerprint(recorded) == fingerprint(wanted)
    assert differences(recorded, wanted) == []


LONG = "the same words again and again, up to a place far behind which it is "

OTHER = {
    "method": (Request("GET", URL), Request("POST", URL), ["method: recorded 'GET', now 'POST'"]),
    "host": (
        post({}, "https://a.example/x?y=1"),
        post({}, "https://b.example/x?y=1"),
        ["url: recorded 'https://a.example/x', now 'https://b.example/x'"],
    ),
    "port": (
        post({}, "http://a.example:81/"),
        post({}, "http://a.example/"),
        ["url: recorded 'http://a.example:81/', now 'http://a.example/'"],
    ),
    "query": (
        post({}, URL + "?a=1&b=1&b=1&c="),
        post({}, URL + "?a=2&b=1&d=4&d=5"),
        [
            "query.a: recorded '1', now '2'",
            "query.b: recorded '1', now nothing",
            "query.c: recorded '', now nothing",
            "query.d: recorded nothing, now ['4', '5']",
        ],
    ),
    "text": (
        post({"messages": [{"content": "x"}]}),
        post({"messages": [{"content": "y"}]}),
        ["body.messages[0].content: recorded 'x', now 'y'"],
    ),
    "keys": (
        post({"a": None, "b": 2}),
        post({"b": 2, "c": [3]}),
        ["body.a: recorded None, now nothing", "body.c: recorded nothing, now [3]"],
    ),
    "length of a list": (post([1, 2]), post([1]), ["body[1]: recorded 2, now nothing"]),
    "longer list": (post([1]), post([1, {"a": 2}]), ["body[1]: recorded nothing, now {'a': 2}"]),
    "kind of a value": (post({"a": [1]}), post({"a": {"b": 1}}), ["body.a: recorded [1], now {'b': 1}"]),
    "integer and float": (post(b"1"), post(b"1.0"), ["body: recorded 1, now 1.0"]),
    "integer and bool": (post(b'{"a": 1}'), post(b'{"a": true}'), ["body.a: recorded 1, now True"]),
    "not a number among others": (post(b"[NaN, 1]"), post(b"[NaN, 2]"), ["body[1]: recorded 1, now 2"]),
    "long text, cut around the difference": (
        post(LONG + "recorded so"),
        post(LONG + "now otherwise, and with an end that is long enough to be cut as well"),
        [
            "body: recorded ... behind which it is recorded so', now ... behind which it is now otherwise, and with an end that is l..."
        ],
    ),
    "JSON and bytes": (post(b"{}"), post(b"\xff"), ["body: recorded b'{}', now b'\\xff'"]),
    "a boundary that no header names": (
        Request("POST", URL, (("content-type", "multipart/form-data"),), b"--a--"),
        Request("POST", URL, (("content-type", "multipart/form-data"),), b"--b--"),
        ["body: recorded b'--a--', now b'--b--'"],
    ),
    "nothing and empty object": (post(b""), post(b"{}"), ["body: recorded b'', now b'{}'"]),
}


@pytest.mark.parametrize(("recorded", "wanted", "lines"), OTHER.values(), ids=OTHER.keys())
def test_another_request(recorded: Request, wanted: Request, lines: list[str]) -> None:
    assert not matches(recorded, wanted)
    assert differences(recorded, wanted) == lines


def test_many_differences_are_counted() -> None:
    lines = differences(post(list(range(30))), post([]))
    assert len(lines) == 11
    assert lines[0] == "body[0]: recorded 0, now nothing"
    assert lines[-1] == "and 20 more"


def test_plain_values() -> None:
    assert value_differences(
        "assembled", {"text": "a", "usage": {"input_tokens": 1}}, {"text": "b", "usage": {"input_tokens": 1}}
    ) == ["assembled.text: recorded 'a', now 'b'"]


def test_the_nearest() -> None:
    wanted = post({"a": 1, "b": 2})
    elsewhere = post({"a": 1, "b": 2}, "https://other.example/")
    other_method = Request("PUT", URL, (), wanted.body)
    far, near = post({"a": 3, "b": 4}), post({"a": 1, "b": 4})
    assert nearest([], wanted) == []
    assert nearest([elsewhere, other_method, far, near], wanted) == [(3, 1), (2, 2), (1, 1), (0, 1)]
    assert nearest([far, far], wanted) == [(0, 2), (1, 2)]
    assert nearest([far, near], wanted, ignored(["a", "b"])) == [(0, 0), (1, 0)]


AGENT = {
    "model": "m",
    "metadata": {"session": "s1", "user": "u"},
    "messages": [{"id": 1, "content": "hi"}, {"id": 2, "content": "ho"}, "text"],
    "tools": [{"function": {"name": "f", "description": "old"}}],
    "odd.key": [1, 2],
    "body": 1,
}


def changed(**more: object) -> dict[str, object]:
    return {**AGENT, **more}


IGNORED: dict[str, tuple[str, object, object, list[str]]] = {
    "a key": ("metadata.session", AGENT, changed(metadata={"session": "s2", "user": "u"}), []),
    "a key that one of them lacks": ("metadata.session", AGENT, changed(metadata={"user": "u"}), []),
    "a key as a difference shows it": ("body.metadata.session", AGENT, changed(metadata={"user": "u"}), []),
    "a key from the root": ("$.metadata.session", AGENT, changed(metadata={"user": "u"}), []),
    "a whole value": ("metadata", AGENT, changed(metadata=5), []),
    "in every item": (
        "messages[*].id",
        AGENT,
        changed(messages=[{"id": 8, "content": "hi"}, {"id": 9, "content": "ho"}, "text"]),
        [],
    ),
    "in one item": (
        "messages[0].id",
        AGENT,
        changed(messages=[{"id": 8, "content": "hi"}, {"id": 9, "content": "ho"}, "text"]),
        ["body.messages[1].id: recorded 2, now 9"],
    ),
    "deep": ("tools[*].function.description", AGENT, changed(tools=[{"function": {"name": "f"}}]), []),
    "anywhere": ("**.description", AGENT, changed(tools=[{"function": {"name": "f", "description": "new"}}]), []),
    "a key with a dot": ("['odd.key']", AGENT, changed(**{"odd.key": None}), []),
    "the key body": ("body", AGENT, changed(body=2), []),
    "at the root of a list": ("[0].a", [{"a": 1}], [{"a": 2}], []),
    "another value": (
        "metadata.session",
        AGENT,
        changed(messages=[{"id": 1, "content": "hey"}]),
        [
            "body.messages[0].content: recorded 'hi', now 'hey'",
            "body.messages[1]: recorded {'id': 2, 'content': 'ho'}, now nothing",
            "body.messages[2]: recorded 'text', now nothing",
        ],
    ),
    "what is not there": ("messages[9].id", AGENT, AGENT, []),
    "not JSON": ("a", b"a", b"b", ["body: recorded b'a', now b'b'"]),
}


@pytest.mark.parametrize(("path", "recorded", "wanted", "lines"), IGNORED.values(), ids=IGNORED.keys())
def test_what_is_ignored(path: str, recorded: object, wanted: object, lines: list[str]) -> None:
    ignore = ignored([path])
    assert differences(post(recorded), post(wanted), ignore) == lines
    assert matches(post(recorded), post(wanted), ignore) is not bool(lines)


@pytest.mark.parametrize("path", ["", ".", "a..b", "a[", "a[x]", "[]", "a.[0]x]"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(TapeError, match="is no path into a JSON body"):
        ignored([path])

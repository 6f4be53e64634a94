"""JSON bodies: all NDJSON vectors whole and in pieces, arrays element by element, printed objects, and lines that break off."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_cassette import jsontext
from stream_cassette.errors import CannotSay
from stream_cassette.framing import jsonlines
from stream_cassette.model import Frame

VECTORS: list[dict[str, Any]] = [
    *json.loads((Path(__file__).parent / "data" / "ndjson_vectors.json").read_text("utf-8")),
    {
        "name": "long-line",
        "input_base64": base64.b64encode(b'{"a":"' + b"x" * 70000 + b'"}\n{"a":2}\n').decode(),
        "expect": [{"a": "x" * 70000}, {"a": 2}],
        "error": None,
    },
]
# Where this reader takes more than the strict NDJSON reader that the vectors describe, or another of the choices that they leave.
OURS: dict[str, list[Any]] = {
    "pretty-printed": [{"error": "x"}],  # an error body, whatever the content type says, must be readable
    "comma-array": [{"a": 1}, {"a": 2}],  # the vector says that a reader which knows this shape may take it: Gemini
    "invalid-utf8": [{"a": 1}, {"a": "x\ufffdy"}],  # lenient, as the text event-stream framing is by its standard
}
LINE_ENDS = "the line ends inside this JSON value"
BODY_ENDS = "the body ends inside this JSON value"


def decode(*reads: bytes) -> list[Frame]:
    decoder = jsonlines.Decoder()
    found = [frame for read in reads for frame in decoder.feed(read)]
    return found + decoder.close()


def values(frames: list[Frame]) -> tuple[list[Any], dict[str, Any] | None]:
    """The values before the first error, and that error as the vectors tell it."""
    found: list[Any] = []
    line = 1
    for frame in frames:
        if frame.problem is not None:
            code = "truncated" if frame.problem == BODY_ENDS else "bad_json"
            return found, {"code": code, "after": len(found), "line": line}
        try:
            found += [jsontext.parse(frame.data)] if frame.data is not None else []
        except ValueError:
            return found, {"code": "bad_json", "after": len(found), "line": line}
        line += frame.raw.count(b"\n")
    return found, None


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in VECTORS])
def test_vector(row: dict[str, Any]) -> None:
    body = base64.b64decode(row["input_base64"])
    frames = decode(body)
    assert b"".join(frame.raw for frame in frames) == body
    found, error = values(frames)
    if row["name"] in OURS:
        assert (found, error) == (OURS[row["name"]], None)
    else:
        assert found == row["expect"]
        assert error is None if row["error"] is None else row["error"].items() <= (error or {}).items()
    ends = [sum(row["chunks"][:count]) for count in range(len(row.get("chunks", ())) + 1)] if "chunks" in row else [0]
    assert decode(*(body[a:b] for a, b in zip(ends, [*ends[1:], len(body)], strict=True))) == frames
    assert decode(*(body[at : at + 1] for at in range(len(body)))) == frames
    # Every two-way split; a few hundred of a long body.
    for at in range(0, len(body), 1 + len(body) // 300) if len(body) < 10_000 else (1, 6, 70000, 70007, 70008, 70009):
        assert decode(body[:at], body[at:]) == frames


# ------------------------------------------------------------------------------------------------------- shapes, frame by frame

Row = tuple[bytes, str | None, str | None]


def frame(raw: bytes, data: str | None = None, problem: str | None = None) -> Row:
    return raw, data, problem


def whole(raw: bytes) -> Row:
    return raw, raw.decode().strip(), None


def cut(raw: bytes, problem: str = LINE_ENDS) -> Row:
    return raw, raw.decode().strip(), problem


SHAPES: dict[str, list[Row]] = {
    # lines
    "blank lines and the mark": [frame(b"\xef\xbb\xbf\r\n"), whole(b"{}\r\n"), frame(b"  \n"), frame(b" \t")],
    "the mark": [frame(b'\xef\xbb\xbf{"a":1}\n', '{"a":1}'), frame(b"\xef\xbb\xbf{}\n", "\ufeff{}")],
    "no final line end": [whole(b'{"a":1}\n'), whole(b'{"a":2}')],
    "brackets and escapes in a string": [whole(b'{"a":"}{][\\"\\\\"}\n'), whole(b"[]\n")],
    "text with brackets": [whole(b"data: {[\n"), whole(b"}}]\n"), whole(b"{}\n")],
    "text with a quote": [whole(b"{}\n"), cut(b'an "odd line\n'), whole(b"{}\n")],
    "brackets that do not pair": [whole(b'{"a":[1}\n'), whole(b'{"a":2}\n')],
    "more behind a value": [whole(b'{"a":1}{"b":[\n'), whole(b'{"a":2}\n')],
    # values over several lines
    "printed object": [whole(b'{\n  "a": {\n    "b": [\n\n      1,\n      "x"\n    ]\n  }\n}\n'), whole(b"{}\n")],
    "printed object, CRLF": [whole(b'{\r\n  "a": 1\r\n}\r\n')],
    "printed object without indent": [whole(b'{\n"a": [\n{\n"b": 1\n},\n{}\n],\n"c":\n-1\n}')],
    "printed array of numbers": [whole(b"[\n  1,\n  2\n]\n")],
    "rows in an object": [whole(b'{"rows":[\n{"a":1},\n{"a":2}\n]}\n'), whole(b'{"a":3}\n')],
    "a key, then its colon": [whole(b'{"a"\n:1}\n')],
    "printed error between lines": [whole(b'{"a":1}\n'), whole(b'{\n "error": "x"\n}\n'), whole(b'{"a":2}\n')],
    # lines that break off
    "cut in a string": [cut(b'{"a":"x\n'), whole(b'{"a":2}\n')],
    "cut in an escape": [cut(b'{"a":"x\\\n'), whole(b'{"a":2}\n')],
    "cut at a comma": [cut(b'{"a":1,\n'), whole(b'{"a":2}\n')],
    "cut at an opening brace": [cut(b'{"a":{\n'), whole(b'{"a":2}\n')],
    "cut behind a value": [cut(b'{"a":1\n'), whole(b'{"a":2}\n')],
    "cut at a colon": [cut(b'{"a":\n'), whole(b'{"a":2}\n'), whole(b'{"a":3}\n')],
    "cut at a comma in an array": [cut(b'{"a":[1,\n'), whole(b'{"a":2}\n'), whole(b'{"a":3}\n')],
    "cut twice": [cut(b'{"a":\n'), whole(b'{"a":2}\n'), cut(b'{"a":[\n{"b":\n'), whole(b'{"a":"{"}\n'), whole(b"{}")],
    "the last line goes on wrongly": [cut(b'{"a":1,\n'), whole(b'{"b":2}}\n')],
    "text where a key should be": [cut(b'{"a":1,\n'), whole(b"oops\n")],
    # the body ends
    "body cut in a string": [whole(b'{"a":1}\n'), cut(b'{"a":"x', BODY_ENDS)],
    "body cut in an escape": [cut(b'{"a":"x\\', BODY_ENDS)],
    "body cut in an object": [cut(b'{"a":1', BODY_ENDS)],
    "body cut in a printed object": [cut(b'{\n "a": {\n  "b": 1\n', BODY_ENDS)],
    "body cut behind a cut line": [cut(b'{"a":\n'), whole(b'{"b":2}')],
    "body cut in two lines": [cut(b'{"a":\n'), whole(b'{"b":2}\n'), cut(b',"c":[\n', BODY_ENDS)],
    "only a bracket": [cut(b"[", BODY_ENDS)],
    # array bodies
    "array, Gemini": [
        frame(b'[{"a":1}', '{"a":1}'),
        frame(b'\n,\r\n{"a":2}', '{"a":2}'),
        frame(b"\n]"),
        frame(b"\n"),
    ],
    "array, printed": [
        frame(b'\xef\xbb\xbf[\n\n  {\n    "a": [\n      1\n    ]\n  }', '{\n    "a": [\n      1\n    ]\n  }'),
        frame(b',\n  {\n    "a": "]}"\n  }', '{\n    "a": "]}"\n  }'),
        frame(b"\n]"),
        frame(b"\n"),
    ],
    "array on one line": [frame(b"[{}", "{}"), frame(b",{}", "{}"), frame(b", [1]", "[1]"), frame(b"]")],
    "array, a comma missing": [frame(b"[{}", "{}"), frame(b'\n{"error":1}', '{"error":1}'), frame(b"\n]")],
    "array, then lines": [frame(b"[{}", "{}"), frame(b"]"), frame(b"\n"), whole(b"[{},{}]\n"), whole(b"{}\n")],
    "array behind blank lines": [frame(b"\n"), frame(b" [{}", "{}"), frame(b"]")],
    "array not ended": [frame(b"[{}", "{}"), frame(b"\n,\r\n")],
    "array cut in an element": [frame(b"[{}", "{}"), frame(b',\n{"a":1', '{"a":1', BODY_ENDS)],
    "array cut in a string": [
        frame(b'[{"a":"x\n', '{"a":"x', LINE_ENDS),
        frame(b',\r\n{"a":2}', '{"a":2}'),
        frame(b"]"),
    ],
    "array, an element breaks off": [
        frame(b'[{"a":[1,\n', '{"a":[1', LINE_ENDS),
        frame(b',\r\n{"a":2}', '{"a":2}'),
        frame(b"\n]"),
    ],
    "array, an element breaks off at the end": [
        frame(b'[{"a":1,\n', '{"a":1', LINE_ENDS),
        frame(b',{"a":2}', '{"a":2}'),
    ],
    "array with text": [frame(b"[{}", "{}"), frame(b",\noops\n", "oops"), frame(b",{}", "{}"), frame(b"\n]")],
    "array with a bracket too many": [frame(b"[{}", "{}"), frame(b"}\n", "}"), frame(b"]")],
    "array with more than objects": [
        frame(b"[{}", "{}"),
        frame(b', "]", null]', '"]", null'),
        frame(b"\n"),
    ],
    "array of arrays": [whole(b"[[1],[2]]\n"), whole(b'[{"a":1}]\n')],
    "array with text before": [whole(b'x [{"a":1}]\n')],
    "array with text inside": [whole(b'[x {"a":1}]\n')],
}


@pytest.mark.parametrize("rows", SHAPES.values(), ids=SHAPES.keys())
def test_shape(rows: list[Row]) -> None:
    body = b"".join(raw for raw, _, _ in rows)
    frames = decode(body)
    assert [(each.raw, each.data, each.problem) for each in frames] == rows
    assert {(each.event, each.id, each.retry, each.headers) for each in frames} == {("message", "", None, ())}
    assert decode(*(body[at : at + 1] for at in range(len(body)))) == frames
    for at in range(len(body)):
        assert decode(body[:at], body[at:]) == frames


def test_nothing() -> None:
    assert decode() == decode(b"") == []


# ------------------------------------------------------------------------------------------------------------- early and linear


def test_a_line_is_out_with_its_line_end_and_an_element_with_its_last_byte() -> None:
    decoder = jsonlines.Decoder()
    assert decoder.feed(b'{"a":1}') == []
    assert [each.data for each in decoder.feed(b"\n")] == ['{"a":1}']
    decoder = jsonlines.Decoder()
    assert decoder.feed(b'[{"a":{}') == []
    assert [each.raw for each in decoder.feed(b"}")] == [b'[{"a":{}}']
    assert decoder.feed(b"\n,\r\n{") == []
    assert [each.raw for each in decoder.feed(b"}]")] == [b"\n,\r\n{}", b"]"]


class Counting:
    """A pattern that counts the bytes it goes over."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self.pattern = pattern
        self.bytes = 0

    def match(self, data: bytearray, at: int) -> re.Match[bytes] | None:
        found = self.pattern.match(data, at)
        self.bytes += found.end() - at if found else 0
        return found


LONG = {
    "one line": b'{"a":"' + b"x" * 50_000 + b'"}\n',
    "escapes": b'{"a":"' + b'\\"' * 50_000 + b'"}\n',
    "no JSON": b"x" * 100_000 + b"\n",
    "an element": b'[{"a":"' + b"x" * 100_000 + b'"}]',
    "many lines": b'{"a":[1,{"b":"c"}]}\n' * 3_000,
    "line ends in an array": b"[{}" + b"\n" * 20_000,
    "white space before a value": b" " * 50_000 + b"[" + b"\n" * 20_000,
    "a value that goes on and on": b'{"a":\n' * 6_000,
    "strings that break off": b'{"a":"x\n' * 3_000,
    "lines that break off": b'{"a":1,\n' * 3_000,
    "blocks that break off": b"[\n1,\n{\n" * 3_000,
}


@pytest.mark.parametrize("body", LONG.values(), ids=LONG.keys())
def test_work_is_linear_in_any_chunking(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, in_string = Counting(jsonlines._PLAIN), Counting(jsonlines._IN_STRING)
    monkeypatch.setattr(jsonlines, "_PLAIN", plain)
    monkeypatch.setattr(jsonlines, "_IN_STRING", in_string)
    for size in (1400, 13):
        plain.bytes = in_string.bytes = 0
        decode(*(body[at : at + size] for at in range(0, len(body), size)))
        # Every byte is gone over once; once more where a line turns out to be none of what came before it.
        assert plain.bytes + in_string.bytes <= 2 * len(body)


PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b"\n",
    b",",
    b":",
    b" ",
    b"1",
    b"a",
    b'"a"',
    b'{"a":1}',
    b"\xef\xbb\xbf",
    b"\r\n",
]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join), st.integers(0, 30))
def test_any_split_gives_the_same_frames_and_they_give_back_the_body(body: bytes, at: int) -> None:
    frames = decode(body)
    assert b"".join(each.raw for each in frames) == body
    assert all(each.raw for each in frames)
    assert decode(body[:at], body[at:]) == frames
    assert decode(*(body[at : at + 1] for at in range(len(body)))) == frames


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON, max_size=3)


@given(st.lists(JSON, max_size=4), st.sampled_from([None, 0, 2]))
def test_values_one_after_the_other_are_read(expected: list[Any], indent: int | None) -> None:
    body = "".join(json.dumps(value, ensure_ascii=False, indent=indent) + "\n" for value in [0, *expected])
    assert values(decode(body.encode())) == ([0, *expected], None)


@given(st.lists(OBJECTS, min_size=1, max_size=4), st.sampled_from([None, 0, 2]))
def test_an_array_is_read_element_by_element(expected: list[Any], indent: int | None) -> None:
    body = json.dumps(expected, ensure_ascii=False, indent=indent)
    assert values(decode(body.encode())) == (expected, None)


# --------------------------------------------------------------------------------------------------------------------- writing

NDJSON = decode(b'{"a":1}\r\n{"a":2}\n{"a":3}')
ARRAY = decode(b'\xef\xbb\xbf[{"a":1}\n,\r\n{"a":2}\n,\r\n{"a":3}\n]')


@pytest.mark.parametrize(
    ("data", "like", "raw"),
    [
        ('{"b":"é"}', None, '{"b":"é"}\n'.encode()),
        ("{}", NDJSON[0], b"{}\r\n"),
        ("{}", NDJSON[1], b"{}\n"),
        ("{}", NDJSON[2], b"{}\n"),
        ("{}", ARRAY[0], b"\xef\xbb\xbf[{}"),
        ('{\n"b":1}', ARRAY[1], b'\n,\r\n{\n"b":1}'),
        ("{}", ARRAY[3], b"{}\n"),
        ("{}", Frame(b"{oops\xff,}\n", "{oops\ufffd,}"), b"{}\n"),
    ],
)
def test_encode(data: str, like: Frame | None, raw: bytes) -> None:
    assert jsonlines.encode(data, like) == Frame(raw, data)


@pytest.mark.parametrize("like", [None, NDJSON[0]])
def test_a_line_cannot_hold_a_line_end(like: Frame | None) -> None:
    with pytest.raises(CannotSay, match="a line end inside one JSON line"):
        jsonlines.encode('{\n"b":1}', like)


@pytest.mark.parametrize(
    ("frames", "raw"),
    [
        (ARRAY, b'\xef\xbb\xbf[{"a":1}\n,\r\n{"a":2}\n,\r\n{"a":3}\n]'),
        (ARRAY[1:], b'[{"a":2}\n,\r\n{"a":3}\n]'),
        ([ARRAY[1], ARRAY[0], ARRAY[3]], b'[{"a":2},{"a":1}\n]'),
        ([ARRAY[0], jsonlines.encode("{}", ARRAY[0])], b'\xef\xbb\xbf[{"a":1},{}'),
        (NDJSON[1:], b'{"a":2}\n{"a":3}'),
    ],
)
def test_relink(frames: list[Frame], raw: bytes) -> None:
    relinked = jsonlines.relink(frames)
    assert b"".join(each.raw for each in relinked) == raw
    assert [each.data for each in relinked] == [each.data for each in decode(raw)]

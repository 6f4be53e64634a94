"""The binary event-stream framing: all vectors whole and in pieces, damage in words, and headers of every type there and back."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from itertools import takewhile
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_cassette.errors import CannotSay
from stream_cassette.framing import eventstream
from stream_cassette.model import Frame, FrameHeader

VECTORS = json.loads((Path(__file__).parent / "data" / "eventstream_vectors.json").read_text("utf-8"))

# What a problem says, by the code that the vectors give it.
WORDS = {
    "prelude_crc": r"the checksum of the prelude is wrong",
    "message_crc": r"the checksum of the frame is wrong",
    "length": r"no frame can be \d+ bytes long, \d+ of them headers",
    "headers_oversize": r"\d+ bytes of headers are more than the 131072 allowed",
    "payload_oversize": r"\d+ bytes of payload are more than the 25165824 allowed",
    "truncated": r"the body ends inside this frame",
    "header_type": r"has the type \d+, which does not exist",
    "header_overrun": r"a header reaches beyond the header section",
    "header_name": r"a header has no name",
    "header_duplicate": r"the header 'a' is there twice",
    "header_utf8": r"a header is not UTF-8",
}


def by_hand(section: bytes, payload: bytes) -> bytes:
    """A frame from its bytes, without the module under test."""
    lengths = struct.pack(">II", 16 + len(section) + len(payload), len(section))
    message = lengths + struct.pack(">I", zlib.crc32(lengths)) + section + payload
    return message + struct.pack(">I", zlib.crc32(message))


def huge(name: str, section: bytes, header: dict[str, Any], payload: bytes) -> dict[str, Any]:
    message = {"headers": [header], "payload_base64": base64.b64encode(payload).decode()}
    body = base64.b64encode(by_hand(section, payload)).decode()
    return {"name": name, "layer": "frame", "input_base64": body, "messages": [message], "error": None}


HUGE = [
    huge(
        "header-value-max",
        b"\x01h\x07\x7f\xff" + b"v" * 32767,
        {"name": "h", "type": "string", "value": "v" * 32767},
        b"p",
    ),
    huge("payload-64k", b"\x01h\x02\x01", {"name": "h", "type": "byte", "value": 1}, b"z" * 70000),
]


def decode(*reads: bytes) -> list[Frame]:
    decoder = eventstream.Decoder()
    found = [frame for read in reads for frame in decoder.feed(read)]
    return found + decoder.close()


def header_of(row: dict[str, Any]) -> FrameHeader:
    """The header of a vector: 64-bit numbers stand there as text, bytes as base64."""
    match row["type"]:
        case "long" | "timestamp":
            return FrameHeader(row["name"], int(row["value"]), row["type"])
        case "byte_array":
            return FrameHeader(row["name"], base64.b64decode(row["value"]), row["type"])
    return FrameHeader(row["name"], row["value"], row["type"])


def named(rows: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(row, id=row["name"]) for row in rows]


@pytest.mark.parametrize("row", named(VECTORS + HUGE))
def test_vector(row: dict[str, Any]) -> None:
    body = base64.b64decode(row["input_base64"])
    frames = decode(body)
    assert b"".join(frame.raw for frame in frames) == body
    good = list(takewhile(lambda frame: frame.problem is None, frames))
    assert [(frame.headers, eventstream.payload(frame)) for frame in good] == [
        (tuple(map(header_of, message["headers"])), base64.b64decode(message["payload_base64"]))
        for message in row["messages"]
    ]
    assert all(decode(frame.raw) == [frame] for frame in good)
    rest = frames[len(good) :]
    if row["error"] is None:
        assert rest == []
        return
    # Where the vector lets a reader be lenient (`also_allowed_ok`) this one is not: what it reads, it can write again.
    codes = [row["error"]["code"], *row.get("also_allowed", ())]
    assert any(re.search(WORDS[code], str(rest[0].problem)) for code in codes), rest[0].problem
    if len(rest[0].raw) >= 4 and "missing" in row["error"]:
        assert f", {row['error']['missing']} bytes before its end" in str(rest[0].problem)
    assert all(frame.problem and frame.data is None and frame.headers == () for frame in rest)
    assert [eventstream.payload(frame) for frame in rest] == [b""] * len(rest)


@pytest.mark.parametrize("row", named(VECTORS))
def test_vector_in_pieces(row: dict[str, Any]) -> None:
    body = base64.b64decode(row["input_base64"])
    whole = decode(body)
    assert decode(*(body[at : at + 1] for at in range(len(body)))) == whole
    for at in range(len(body)):
        assert decode(body[:at], body[at:]) == whole


@pytest.mark.parametrize("row", named(HUGE))
def test_huge_vector_in_pieces(row: dict[str, Any]) -> None:
    body = base64.b64decode(row["input_base64"])
    whole = decode(body)
    for size in (1, 1400):
        assert decode(*(body[at : at + size] for at in range(0, len(body), size))) == whole
    for at in (1, 11, 12, 13, 17, len(body) - 5, len(body) - 4, len(body) - 1):
        assert decode(body[:at], body[at:]) == whole


@pytest.mark.parametrize("row", named([row for row in VECTORS + HUGE if row["error"] is None]))
def test_what_is_read_is_written_byte_for_byte(row: dict[str, Any]) -> None:
    for frame in decode(base64.b64decode(row["input_base64"])):
        assert eventstream.encode(frame.headers, eventstream.payload(frame)) == frame


# ------------------------------------------------------------------------------------------------------------- the event layer


def read_error(frame: Frame) -> dict[str, Any]:
    said = json.loads(frame.data)["message"] if frame.data else frame.header(":error-message")
    return {"kind": frame.header(":message-type"), "type": frame.event, "message": said}


def summarise(frames: list[Frame]) -> dict[str, Any]:
    """The few fields of a ConverseStream reply that the vectors tell."""
    found: dict[str, Any] = {"text": "", "reasoning": "", "finish_reason": None, "usage": None, "tool_calls": []}
    for frame in frames:
        payload = json.loads(frame.data or "{}")
        delta = payload.get("delta", {})
        found["text"] += delta.get("text", "")
        found["reasoning"] += delta.get("reasoningContent", {}).get("text", "")
        if tool := payload.get("start", {}).get("toolUse"):
            call = {"index": payload["contentBlockIndex"], "id": tool["toolUseId"], "name": tool["name"]}
            found["tool_calls"].append({**call, "arguments": ""})
        if "toolUse" in delta:
            found["tool_calls"][-1]["arguments"] += delta["toolUse"]["input"]
        if frame.event == "messageStop":
            found["finish_reason"] = payload["stopReason"]
        if frame.event == "metadata":
            found["usage"] = payload["usage"]
    return found


@pytest.mark.parametrize("row", named([row for row in VECTORS if row["layer"] == "event"]))
def test_events(row: dict[str, Any]) -> None:
    frames = decode(base64.b64decode(row["input_base64"]))
    names = [{header["name"]: header["value"] for header in message["headers"]} for message in row["messages"]]
    assert [frame.event for frame in frames] == [
        name.get(":event-type") or name.get(":exception-type") or name[":error-code"] for name in names
    ]
    if "event_error" in row:
        assert read_error(frames[-1]) == row["event_error"]
    if "event_summary" in row:
        summary = summarise(frames)
        assert {key: summary[key] for key in row["event_summary"]} == row["event_summary"]
    if "invoke_chunks" in row:
        chunks = [json.loads(base64.b64decode(json.loads(str(frame.data))["bytes"])) for frame in frames]
        assert chunks == row["invoke_chunks"]


@pytest.mark.parametrize(
    ("headers", "event"),
    [
        ([], "message"),
        ([FrameHeader(":event-type", "chunk")], "chunk"),
        ([FrameHeader(":event-type", "")], "message"),
        ([FrameHeader(":event-type", 7, "byte")], "message"),
        ([FrameHeader(":error-code", "Oops"), FrameHeader(":exception-type", "x")], "x"),
        ([FrameHeader(":Event-Type", "chunk")], "message"),
    ],
)
def test_the_header_that_names_the_event(headers: list[FrameHeader], event: str) -> None:
    frame = eventstream.encode(headers)
    assert (frame.event, frame.data, frame.headers) == (event, "", tuple(headers))


def test_a_header_by_name() -> None:
    frame = eventstream.encode([FrameHeader("a", 1, "byte"), FrameHeader("b", True, "boolean")])
    assert (frame.header("b"), frame.header("B")) == (True, None)
    assert hash(frame) == hash(decode(frame.raw)[0])
    assert FrameHeader("a", 1, "byte") != FrameHeader("a", 1, "short")


def test_a_payload_that_is_no_text() -> None:
    frame = eventstream.encode([FrameHeader(":event-type", "audio")], b"\xff\x00\xfe")
    assert (frame.data, frame.problem, eventstream.payload(frame)) == (None, None, b"\xff\x00\xfe")


# --------------------------------------------------------------------------------------------------------------------- damage

GOOD = by_hand(b"\x01a\x07\x00\x011", b"one")
OTHER = by_hand(b"\x01a\x07\x00\x012", b"two")
BAD_CHECKSUM = OTHER[:-1] + bytes([OTHER[-1] ^ 1])
BAD_PRELUDE = OTHER[:8] + bytes([OTHER[8] ^ 1]) + OTHER[9:]
BAD_HEADER = by_hand(b"\x01a\x0a", b"")
ENDS_IT = "not read: it follows a frame with a wrong checksum, where the stream ends by its specification"

DAMAGED: dict[str, tuple[bytes, list[tuple[bytes, str | None]]]] = {
    "a bad checksum ends the stream": (
        GOOD + BAD_CHECKSUM + OTHER + GOOD,
        [(GOOD, None), (BAD_CHECKSUM, "message_crc"), (OTHER + GOOD, ENDS_IT)],
    ),
    "a bad checksum at the end": (GOOD + BAD_CHECKSUM, [(GOOD, None), (BAD_CHECKSUM, "message_crc")]),
    "a broken prelude takes the rest": (GOOD + BAD_PRELUDE + GOOD, [(GOOD, None), (BAD_PRELUDE + GOOD, "prelude_crc")]),
    "a malformed header leaves the next frame alone": (
        BAD_HEADER + GOOD,
        [(BAD_HEADER, "header_type"), (GOOD, None)],
    ),
    "text behind the frames": (GOOD + b"HTTP/1.1 500 oops", [(GOOD, None), (b"HTTP/1.1 500 oops", "prelude_crc")]),
    "a little text behind the frames": (GOOD + b"oops", [(GOOD, None), (b"oops", "truncated")]),
}


@pytest.mark.parametrize(("body", "expected"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damage(body: bytes, expected: list[tuple[bytes, str | None]]) -> None:
    frames = decode(body)
    assert [frame.raw for frame in frames] == [raw for raw, _ in expected]
    for frame, (_, code) in zip(frames, expected, strict=True):
        assert (frame.problem is None) if code is None else re.search(WORDS.get(code, code), str(frame.problem))
    assert decode(*(body[at : at + 1] for at in range(len(body)))) == frames


def test_a_length_is_believed_only_where_a_frame_can_have_it() -> None:
    assert decode(b"\0\0\0\x1d")[0].problem == "the body ends inside this frame, 25 bytes before its end"
    assert decode(b"oops")[0].problem == "the body ends inside this frame"


def test_a_frame_is_out_with_its_last_byte() -> None:
    decoder = eventstream.Decoder()
    assert decoder.feed(GOOD[:-1]) == []
    assert [frame.raw for frame in decoder.feed(GOOD[-1:] + OTHER[:3])] == [GOOD]


def test_work_is_linear_in_any_chunking(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = 0

    def counting(data: bytes) -> int:
        nonlocal checked
        checked += len(data)
        return zlib.crc32(data)

    body = GOOD * 500 + by_hand(b"", b"x" * 500_000)
    monkeypatch.setattr(eventstream, "crc32", counting)
    for size in (len(body), 1400, 7):
        checked = 0
        assert len(decode(*(body[at : at + size] for at in range(0, len(body), size)))) == 501
        assert checked <= len(body) + 8 * 501  # every byte once, and the eight of each prelude once more


# ---------------------------------------------------------------------------------------------------------------------- writing


def numbers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def headers() -> st.SearchStrategy[list[FrameHeader]]:
    values: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "byte": numbers(8),
        "short": numbers(16),
        "integer": numbers(32),
        "long": numbers(64),
        "byte_array": st.binary(max_size=20),
        "string": st.text(max_size=20),
        "timestamp": numbers(64),
        "uuid": st.uuids().map(str),
    }
    kinds = st.sampled_from(sorted(values))
    names = st.text(min_size=1, max_size=20)
    one = kinds.flatmap(lambda kind: st.builds(FrameHeader, names, values[kind], st.just(kind)))
    return st.lists(one, max_size=5, unique_by=lambda header: header.name)


@given(headers(), st.binary(max_size=40))
def test_what_is_written_is_read(headers: list[FrameHeader], payload: bytes) -> None:
    frame = eventstream.encode(headers, payload)
    assert decode(frame.raw) == [frame]
    assert (frame.headers, eventstream.payload(frame)) == (tuple(headers), payload)
    assert [type(header.value) for header in frame.headers] == [type(header.value) for header in headers]


def test_a_uuid_is_written_in_its_canonical_form() -> None:
    text = "01234567-89AB-CDEF-0123-456789ABCDEF"
    assert eventstream.encode([FrameHeader("h", text, "uuid")]).header("h") == str(UUID(text)) == text.lower()


UNSAYABLE: dict[str, tuple[list[FrameHeader], bytes, str]] = {
    "a byte out of range": ([FrameHeader("h", 128, "byte")], b"", "cannot carry the header"),
    "a long out of range": ([FrameHeader("h", 2**63, "long")], b"", "cannot carry the header"),
    "a bool as number": ([FrameHeader("h", True, "byte")], b"", "byte does not hold a bool"),
    "a number as bool": ([FrameHeader("h", 1, "boolean")], b"", "boolean does not hold a int"),
    "bytes as text": ([FrameHeader("h", b"x")], b"", "string does not hold a bytes"),
    "a lone surrogate": ([FrameHeader("h", "\ud83d")], b"", "surrogates not allowed"),
    "not a uuid": ([FrameHeader("h", "x", "uuid")], b"", "badly formed"),
    "text too long": ([FrameHeader("h", "v" * 32768)], b"", "32768 bytes"),
    "bytes too long": ([FrameHeader("h", b"v" * 32768, "byte_array")], b"", "32768 bytes"),
    "a name too long": ([FrameHeader("n" * 256, "v")], b"", "a name of at most 255"),
    "no name": ([FrameHeader("", "v")], b"", "a header has no name"),
    "a name there twice": ([FrameHeader("a", "1"), FrameHeader("a", "2")], b"", "the header 'a' is there twice"),
    "too many headers": (
        [FrameHeader(name, "v" * 32767) for name in "abcd"],
        b"",
        "bytes of headers are more than",
    ),
    "too much payload": ([], bytes(24 * 1024 * 1024 + 1), "bytes of payload are more than"),
}


@pytest.mark.parametrize(("headers", "payload", "why"), UNSAYABLE.values(), ids=UNSAYABLE.keys())
def test_what_a_frame_cannot_carry(headers: list[FrameHeader], payload: bytes, why: str) -> None:
    with pytest.raises(CannotSay) as caught:
        eventstream.encode(headers, payload)
    assert why in str(caught.value)
    assert caught.value.mend


def test_headers_that_differ_from_frame_to_frame_are_each_read() -> None:
    headers = [(FrameHeader("n", number, "integer"),) for number in [*range(200), 0, 0]]
    decoder = eventstream.Decoder()
    assert [frame.headers for each in headers for frame in decoder.feed(eventstream.encode(each).raw)] == headers

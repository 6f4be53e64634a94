"""The event-stream framing against the standard's vectors, any split, and sizes that make careless parsers quadratic."""

from __future__ import annotations

import base64
import json
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import ODD, splits
from stream_cassette.errors import CannotSay
from stream_cassette.framing import sse
from stream_cassette.model import Frame

DATA = Path(__file__).parent / "data"
VECTORS: list[dict[str, Any]] = json.loads((DATA / "sse_vectors.json").read_text())


def _event(data: str) -> dict[str, Any]:
    return {"event": "message", "data": data, "id": "", "retry": None}


def _sized(name: str, body: bytes, *data: str, chunks: int = 0) -> dict[str, Any]:
    vector: dict[str, Any] = {"name": name, "body": body, "expect": [_event(each) for each in data]}
    return vector | ({"chunks": [len(body[at : at + chunks]) for at in range(0, len(body), chunks)]} if chunks else {})


VECTORS += [
    _sized("size-long-line", b"data: " + b"x" * 70_000 + b"\n\n", "x" * 70_000),
    _sized("size-long-line-chunks", b"data: " + b"x" * 70_000 + b"\n\n", "x" * 70_000, chunks=1400),
    _sized("size-many-data-lines", b"data: y\n" * 3000 + b"\n", "\n".join(["y"] * 3000)),
    _sized("size-many-empty-data-lines", b"data\n" * 2000 + b"\n", "\n" * 1999),
    _sized("size-many-events", b"".join(b"data: %d\n\n" % n for n in range(1000)), *map(str, range(1000))),
    _sized("size-long-name", b"x" * 70_000 + b": b\ndata: a\n\n", "a"),
]


def decode(pieces: list[bytes]) -> tuple[list[Frame], list[int]]:
    """All frames, and how many events were out after each piece."""
    decoder, frames, counts = sse.Decoder(), [], []
    for piece in pieces:
        frames += decoder.feed(piece)
        counts.append(len(events(frames)))
    return frames + decoder.close(), counts


def events(frames: list[Frame]) -> list[dict[str, Any]]:
    """What the standard dispatches."""
    return [
        {"event": frame.event, "data": frame.data, "id": frame.id, "retry": frame.retry}
        for frame in frames
        if frame.data is not None and frame.problem is None
    ]


def ways(vector: dict[str, Any], body: bytes) -> dict[str, list[bytes]]:
    edges = list(accumulate(vector.get("chunks") or [len(body)], initial=0))
    out = {
        "its own chunks": [body[a:b] for a, b in pairwise(edges)],
        "whole": [body],
        "bytes": [bytes([byte]) for byte in body],
    }
    if len(body) <= 200:
        out |= {f"cut at {at}": [body[:at], body[at:]] for at in range(1, len(body))}
    return out


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vector(vector: dict[str, Any]) -> None:
    body = vector.get("body") or base64.b64decode(vector["input_base64"])
    for way, pieces in ways(vector, body).items():
        frames, counts = decode(pieces)
        got = events(frames)
        if not vector.get("compare_retry", True):
            got = [each | {"retry": None} for each in got]
        assert got == vector["expect"], way
        assert b"".join(frame.raw for frame in frames) == body, way
        if "final" in vector:
            retries = [frame.retry for frame in frames if frame.retry is not None]
            assert (frames[-1].id if frames else "") == vector["final"]["last_event_id"], way
            assert (retries or [None])[-1] == vector["final"]["reconnection_time"], way
        if way == "its own chunks" and "events_after_chunk" in vector:
            assert counts == vector["events_after_chunk"]


def test_there_are_213_vectors() -> None:
    assert len(VECTORS) == 213


stream_like = st.lists(
    st.sampled_from(
        [
            "data: a",
            "data:",
            ": c",
            "id: 1",
            "id: a\0b",
            "event: x",
            "retry: 9",
            "data",
            "",
            "\n",
            "\r",
            "\r\n",
            "\ufeff",
            "\0",
        ]
    )
    | st.text(ODD, max_size=3)
).map(lambda lines: "".join(lines).encode())


@given(body=st.one_of(st.binary(max_size=60), stream_like), data=st.data())
def test_any_split_gives_the_same_events_and_every_byte_back(body: bytes, data: st.DataObject) -> None:
    pieces = data.draw(splits(body))
    frames, _ = decode(pieces)
    whole, _ = decode([body])
    assert b"".join(frame.raw for frame in frames) == body
    assert events(frames) == events(whole)


@pytest.mark.parametrize(
    ("tail", "data", "problem"),
    [
        (b"data: x", "x", True),
        (b"data: x\n", "x", True),
        (b"data: x\r\n", "x", True),
        (b"event: message_stop\n", None, True),
        (b": comment", None, False),
        (b"\r\n", None, False),
    ],
)
def test_an_unterminated_tail_is_one_frame(tail: bytes, data: str | None, problem: bool) -> None:
    *_, last = decode([b"id: 7\ndata: a\n\n" + tail])[0]
    assert (last.data, last.problem is not None, last.id) == (data, problem, "7")


def test_a_byte_order_mark_alone_is_kept() -> None:
    assert [frame.raw for frame in decode([b"\xef\xbb"])[0]] == [b"\xef\xbb"]
    assert [frame.raw for frame in decode([b"\xef\xbb", b"\xbf"])[0]] == [b"\xef\xbb\xbf"]


def test_comments_and_blank_lines_between_blocks_are_frames_of_their_own() -> None:
    frames = decode([b": one\n\n: two\ndata: a\n\n\n"])[0]
    assert [frame.raw for frame in frames] == [b": one\n", b"\n", b": two\n", b"data: a\n\n", b"\n"]


class CountingBuffer(bytearray):
    """Counts the bytes that a search looks at."""

    searched = 0

    def find(self, mark: Any, start: Any = 0, end: Any = None) -> int:
        found = super().find(mark, start)
        type(self).searched += (found if found >= 0 else len(self)) - start
        return found


@pytest.mark.parametrize("piece", [1, 7, 1400])
def test_a_long_line_is_searched_once_however_it_is_cut(piece: int) -> None:
    CountingBuffer.searched = 0
    decoder = sse.Decoder()
    decoder._buffer = CountingBuffer()
    size = 200_000
    for start in range(0, size, piece):
        assert decoder.feed(b"x" * min(piece, size - start)) == []
    assert CountingBuffer.searched <= size * 4  # up to three bytes are looked at again in each read
    assert [frame.problem for frame in decoder.close()] != [None]


@pytest.mark.parametrize("line", [b"\n", b": c\n", b"\r\n", b"\r"])
def test_a_hundred_thousand_lines_without_events_leave_nothing_behind(line: bytes) -> None:
    decoder = sse.Decoder()
    frames = decoder.feed(line * 100_000)
    assert len(frames) in (100_000, 100_001)
    assert len(decoder._buffer) == 0
    assert decoder.feed(b"data: a\n\n")[-1].data == "a"


def test_fifty_megabytes_without_a_line_end() -> None:
    decoder = sse.Decoder()
    megabyte = b"x" * 1_000_000
    assert all(decoder.feed(megabyte) == [] for _ in range(50))
    (frame,) = decoder.close()
    assert (len(frame.raw), frame.data) == (50_000_000, None)


@given(
    data=st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])),
    event=st.text("abc_.", min_size=1),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_what_is_encoded_decodes_to_the_same(data: str, event: str, end: str) -> None:
    frame = sse.encode(data, event, like=Frame(b"data: x" + end.encode() * 2))
    (read,) = decode([frame.raw])[0][:1]
    assert (read.data, read.event, read.raw) == (data, event, frame.raw)


def test_encoding_follows_the_line_ends_and_the_id_of_its_model() -> None:
    (model,) = decode([b"id: 4\r\ndata: x\r\n\r\n"])[0]
    assert sse.encode("a\nb", "e", like=model) == Frame(b"event: e\r\ndata: a\r\ndata: b\r\n\r\n", "a\nb", "e", "4")


@pytest.mark.parametrize(("data", "event"), [("a\rb", "e"), ("a", "e\nx"), ("a", "e\rx"), ("\ud800", "e")])
def test_what_the_framing_cannot_carry_is_refused(data: str, event: str) -> None:
    with pytest.raises(CannotSay, match="mend"):
        sse.encode(data, event)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_one_event_a_read(end: str) -> None:
    """As a live stream comes: the shortest way through the decoder, which keeps the last id and gives way to what is no plain event."""
    blocks = ["data: a", "event: x{e}data: b", "id: 7", "data: c", "data: d{e}data: e", ": f", "retry: 9", "data: g"]
    reads = [f"{block.format(e=end)}{end}{end}".encode() for block in blocks]
    frames, _ = decode(reads)
    assert [frame.raw for frame in frames if frame.raw.strip()] == [
        read if read[:1] != b":" else read.removesuffix(end.encode()) for read in reads
    ]
    assert [(event["event"], event["data"], event["id"]) for event in events(frames)] == [
        ("message", "a", ""),
        ("x", "b", ""),
        ("message", "c", "7"),
        ("message", "d\ne", "7"),
        ("message", "g", "7"),
    ]

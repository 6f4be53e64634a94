"""The choice of the framing by the first byte that tells, and what holds for every framing: the frames are a partition of the body."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_cassette.framing import DECODERS, Sniffer, eventstream, frames
from stream_cassette.model import Frame, FrameHeader

BINARY = eventstream.encode([FrameHeader(":event-type", "chunk")], b"{}").raw

CHOICES: dict[str, tuple[bytes, str]] = {
    "event stream": (b"data: {}\n\n", "sse"),
    "comment": (b": ok\n\n", "sse"),
    "mark and event stream": (b"\xef\xbb\xbfdata: {}\n\n", "sse"),
    "nothing": (b"", "sse"),
    "blank lines": (b"\r\n\n ", "sse"),
    "half a mark": (b"\xef\xbb", "sse"),
    "a bare value": (b"1\n", "sse"),
    "object": (b'{"error":{}}', "jsonlines"),
    "array": (b"[{}]", "jsonlines"),
    "mark, white space, object": (b'\xef\xbb\xbf \r\n\t{"a":1}\n', "jsonlines"),
    "binary": (BINARY, "eventstream"),
    "binary of 16 MiB": (b"\x01\x00\x00\x10", "eventstream"),
    "a NUL behind white space": (b"\n\x00\x00", "sse"),
    "binary longer than any frame": (b"\x02\x00\x00\x00", "sse"),
}


@pytest.mark.parametrize(("body", "framing"), CHOICES.values(), ids=CHOICES.keys())
def test_the_first_byte_that_tells(body: bytes, framing: str) -> None:
    decoder = DECODERS[framing]()
    expected = decoder.feed(body) + decoder.close()
    for reads in ([body], [body[at : at + 1] for at in range(len(body))], [b"", *([body] if body else [])]):
        sniffer = Sniffer()
        found = [frame for read in reads for frame in sniffer.feed(read)] + sniffer.close()
        assert (found, sniffer.framing) == (expected, framing)
    assert frames(body) == expected


def test_the_framing_is_known_with_the_byte_that_tells() -> None:
    sniffer = Sniffer()
    assert [sniffer.feed(b"\xef"), sniffer.feed(b"\xbb\xbf"), sniffer.feed(b"\r\n")] == [[], [], []]
    assert sniffer.framing is None
    assert sniffer.feed(b"{}\n") == [Frame(b"\xef\xbb\xbf\r\n"), Frame(b"{}\n", "{}")]
    assert sniffer.framing == "jsonlines"


def test_an_error_in_json_where_binary_frames_are_expected() -> None:
    assert [frame.data for frame in frames(b'{\n  "message": "no such model"\n}')] == [
        '{\n  "message": "no such model"\n}'
    ]


FRAGMENTS = [
    *(BINARY, BINARY[:-1] + b"?", BINARY[:9], b"\0\0\0\x20", b"\x00", b"\xff"),
    *(b"data: x\n\n", b"data", b": ", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf"),
    *(b'{"a":1}', b"{", b"}", b"[", b"]", b'"', b"\\", b",", b" "),
]
BODIES = st.lists(st.sampled_from(FRAGMENTS), max_size=10).map(b"".join) | st.binary(max_size=60)


def in_pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    return [body[start:end] for start, end in pairwise(at)]


@pytest.mark.parametrize("framing", [*DECODERS, "sniffed"])
@given(body=BODIES, cuts=st.lists(st.integers(0, 120), max_size=4))
def test_frames_are_a_partition_of_the_body(framing: str, body: bytes, cuts: list[int]) -> None:
    decoder = DECODERS.get(framing, Sniffer)()
    found = [frame for read in in_pieces(body, cuts) for frame in decoder.feed(read)] + decoder.close()
    assert b"".join(frame.raw for frame in found) == body
    assert all(frame.raw for frame in found)


@pytest.mark.parametrize("framing", ["eventstream", "jsonlines"])
@given(body=BODIES, cuts=st.lists(st.integers(0, 120), max_size=4))
def test_the_split_makes_no_difference(framing: str, body: bytes, cuts: list[int]) -> None:
    once, often = DECODERS[framing](), DECODERS[framing]()
    found = [frame for read in in_pieces(body, cuts) for frame in often.feed(read)] + often.close()
    assert found == once.feed(body) + once.close()


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("word", [b"data: ", b"event: "])
def test_a_line_that_begins_like_an_event_again_and_again(word: bytes, end: bytes) -> None:
    """Looked at from each of those places to its end, it would take hours."""
    body = b"data: x" + end + end + word * 400_000 + end + b"foo: bar" + end + end
    found = frames(body)
    assert b"".join(frame.raw for frame in found) == body
    assert [frame.data is None for frame in found] == [False, word == b"event: "]

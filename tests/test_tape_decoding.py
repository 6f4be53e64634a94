"""Compression comes off while recording: every coding, any cut, and what cannot be decoded stays as it came."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import brotli
import httpx
import pytest

from stream_cassette import decoding
from stream_cassette.cassette import load
from stream_cassette.clients import use
from stream_cassette.decoding import Undecodable, codings, decoded
from stream_cassette.model import COMPLETE, Ending, Exchange, Headers, Read, Request
from stream_cassette.recording import Recorder
from stream_cassette.server import serve

try:
    from compression import zstd  # from 3.14 on
except ImportError:
    from backports import zstd

SSE: Headers = (("content-type", "text/event-stream"),)
PIECES = (b"data: one\n\n", b"data: tw\xc3", b"\xb6\n\n", b"data: [DONE]\n\n")
WHOLE = b"".join(PIECES)


def by_zlib(wbits: int) -> tuple[bytes, ...]:
    """One network read for each piece, flushed, and one for the trailer."""
    coder = zlib.compressobj(wbits=wbits)
    return (*(coder.compress(piece) + coder.flush(zlib.Z_SYNC_FLUSH) for piece in PIECES), coder.flush())


def by_brotli() -> tuple[bytes, ...]:
    coder = brotli.Compressor()
    return (*(coder.process(piece) + coder.flush() for piece in PIECES), coder.finish())


def by_zstd() -> tuple[bytes, ...]:
    coder = zstd.ZstdCompressor()
    flushed = [coder.compress(piece) + coder.flush(zstd.ZstdCompressor.FLUSH_BLOCK) for piece in PIECES]
    return (*flushed, coder.flush())


SENT = {
    "gzip": by_zlib(31),
    "x-gzip": by_zlib(31),
    "deflate": by_zlib(15),
    "deflate, raw": by_zlib(-15),
    "br": by_brotli(),
    "zstd": by_zstd(),
}
each_coding = pytest.mark.parametrize(("coding", "sent"), SENT.items(), ids=SENT.keys())


def name_of(coding: str) -> str:
    return coding.removesuffix(", raw")


def reads(*sent: bytes) -> list[tuple[float, bytes]]:
    return [(float(place), data) for place, data in enumerate(sent)]


@each_coding
def test_a_read_of_the_network_is_a_read_of_what_it_holds(coding: str, sent: tuple[bytes, ...]) -> None:
    assert decoded([name_of(coding)], reads(*sent), whole=True) == reads(*PIECES)


@each_coding
@pytest.mark.parametrize("size", [1, 2, 7])
def test_wherever_the_network_cuts(coding: str, sent: tuple[bytes, ...], size: int) -> None:
    joined = b"".join(sent)
    cut = [joined[start : start + size] for start in range(0, len(joined), size)]
    got = decoded([name_of(coding)], reads(*cut), whole=True)
    assert b"".join(data for _, data in got) == WHOLE
    assert all(data for _, data in got)


@each_coding
def test_a_body_that_was_cut_gives_what_came(coding: str, sent: tuple[bytes, ...]) -> None:
    assert decoded([name_of(coding)], reads(*sent[:2]), whole=False) == reads(*PIECES[:2])
    with pytest.raises(Undecodable, match="ends in the middle"):
        decoded([name_of(coding)], reads(*sent[:2]), whole=True)


@each_coding
def test_damaged_data(coding: str, sent: tuple[bytes, ...]) -> None:
    with pytest.raises(Undecodable, match=f"the {name_of(coding)} data is damaged"):
        decoded([name_of(coding)], reads(sent[0], b"\xff\xff\xff" + sent[1], *sent[2:]), whole=False)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_several_members_in_a_row(coding: str) -> None:
    sent = b"".join(SENT[coding])
    assert decoded([coding], reads(sent, sent), whole=True) == reads(WHOLE, WHOLE)
    assert decoded([coding], reads(sent + sent[:9], sent[9:] + bytes(7), b"\0\0"), whole=True)[0] == (0.0, WHOLE)
    assert decoded([coding], reads(sent, bytes(1)), whole=True) == reads(WHOLE)
    with pytest.raises(Undecodable, match="damaged"):
        decoded([coding], reads(sent, SENT[coding][0], b"\xff\xff\xff\xff\xff"), whole=False)


def test_several_codings() -> None:
    inner = zlib.compress(WHOLE, wbits=31)
    outer = brotli.compress(inner)
    assert decoded(["gzip", "br"], reads(outer), whole=True) == reads(WHOLE)
    assert codings(" GZIP, identity,, br") == ("gzip", "br")


@pytest.mark.parametrize("missing", [["compression.zstd"], ["compression.zstd", "backports.zstd"]])
def test_zstd_by_whatever_is_installed(missing: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    assert decoded(["zstd"], reads(*by_zstd()), whole=True) == reads(*PIECES)


NOT_INSTALLED = {
    "br": "nothing here decodes br: pip install brotli",
    "zstd": "nothing here decodes zstd: pip install backports.zstd",
    "aes128gcm": "nothing here decodes aes128gcm",
}


@pytest.mark.parametrize(("coding", "words"), NOT_INSTALLED.items())
def test_nothing_that_decodes_it(coding: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("brotli", "brotlicffi", "compression.zstd", "backports.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Undecodable) as caught:
        decoded([coding], reads(b"x"), whole=True)
    assert str(caught.value) == words


def test_every_package_is_said_how_to_get() -> None:
    assert set(decoding._PACKAGES) <= set(decoding._DECODERS)


# ---------------------------------------------------------------------------------------------------------- as it is recorded


def recorded(sent: tuple[bytes, ...], coding: str, ending: Ending = COMPLETE) -> Recorder:
    take = Recorder(Request("GET", "http://x/"), lambda: 0.0)
    take.start(200, (*SSE, ("content-encoding", coding), ("content-length", "1")))
    for data in sent:
        take.read(data)
    take.end(ending)
    return take


def test_what_it_was_is_noted() -> None:
    exchange = recorded(by_zlib(31), "GZip").exchange
    assert (exchange.was, exchange.headers) == ("gzip", SSE)
    assert [read.data for read in exchange.reads] == list(PIECES)


def test_what_cannot_be_decoded_is_told() -> None:
    take = recorded((b"no gzip",), "gzip")
    assert take.exchange.body == b"no gzip"
    assert ("content-encoding", "gzip") in take.exchange.headers
    assert take.exchange.was == ""
    assert "damaged" in take.problem
    assert "neither a person nor the search for secrets" in take.problem


@pytest.mark.parametrize("coding", ["identity", "", "gzip"])
def test_nothing_to_decode(coding: str) -> None:
    take = recorded((), coding)
    assert (take.exchange.was, take.problem) == ("", "")


def stream(url: str) -> list[bytes]:
    with httpx.stream("GET", url) as response:
        return list(response.iter_bytes())


@pytest.mark.parametrize("coding", [coding for coding in SENT if coding != "x-gzip"])  # which httpx does not know
def test_the_client_gets_what_the_server_sent_and_then_the_same(tmp_path: Path, coding: str) -> None:
    path = tmp_path / "x.yaml"
    sent = SENT[coding]
    headers = (*SSE, ("content-encoding", name_of(coding)))
    answer = Exchange(Request("GET", "http://x/"), 200, headers, tuple(Read(0, data) for data in sent))
    with serve(lambda request: answer) as server:
        with use(path, mode="all") as tape:
            live = stream(server.url)
            assert httpx.get(server.url).headers["content-encoding"] == name_of(coding)
        assert tape.remarks == ()
    with use(path):
        assert b"".join(stream(server.url)) == b"".join(live) == WHOLE
        assert "content-encoding" not in httpx.get(server.url).headers
    assert load(path).interactions[0].exchange.was == name_of(coding)
    assert f"was: {name_of(coding)}" in path.read_text()


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_damaged_data_fails_the_client_alike(tmp_path: Path, coding: str) -> None:
    path = tmp_path / "x.yaml"
    sent = (SENT[coding][0], b"\xff\xff\xff\xff\xff", SENT[coding][1])
    headers = (*SSE, ("content-encoding", coding))
    answer = Exchange(Request("GET", "http://x/"), 200, headers, tuple(Read(0, data) for data in sent))

    def client(url: str) -> list[bytes]:
        got: list[bytes] = []
        with httpx.stream("GET", url) as response, pytest.raises(httpx.DecodingError):
            got.extend(response.iter_bytes())
        return got

    with serve(lambda request: answer) as server:
        with use(path, mode="all") as tape:
            live = client(server.url)
    with use(path):
        assert client(server.url) == live
    assert [f"{path}: GET {server.url}: the {coding} data is damaged" in each for each in tape.remarks] == [True]

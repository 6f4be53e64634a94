"""Bytes to frames: one file per framing, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from ..model import Frame
from . import eventstream, jsonlines, sse


class Decoder(Protocol):
    """Fed the body in any pieces; every frame comes out once, and `raw` joined over all of them is the body."""

    def feed(self, data: bytes) -> list[Frame]: ...

    def close(self) -> list[Frame]: ...


DECODERS: Mapping[str, Callable[[], Decoder]] = {
    "sse": sse.Decoder,
    "eventstream": eventstream.Decoder,
    "jsonlines": jsonlines.Decoder,
}
"""The framings by name."""

_SAYS_NOTHING = b" \t\r\n\xef\xbb\xbf"


class Sniffer:
    """A decoder that waits for the first byte that tells, then hands on to the decoder of that framing.

    A binary frame begins with its length in four bytes, which is at most 24 MiB and its headers. No line of a text event stream that says
    anything begins with a brace or bracket; a body that does is JSON, whatever the content type says.
    """

    def __init__(self) -> None:
        self.framing: str | None = None
        """The name of the framing in `DECODERS`, once it is known."""
        self._decoder: Decoder | None = None
        self._held: list[bytes] = []

    def feed(self, data: bytes) -> list[Frame]:
        if self._decoder is None:
            framing = self._choose(data)
            self._held.append(data)
            return self._begin(framing) if framing else []
        return self._decoder.feed(data)

    def close(self) -> list[Frame]:
        if self._decoder is None:
            return self._begin("sse") + self.close()
        return self._decoder.close()

    def _choose(self, data: bytes) -> str | None:
        if data[:1] in (b"\x00", b"\x01") and not any(self._held):
            return "eventstream"
        first = data.lstrip(_SAYS_NOTHING)[:1]
        if not first:
            return None
        return "jsonlines" if first in b"{[" else "sse"

    def _begin(self, framing: str) -> list[Frame]:
        self.framing = framing
        self._decoder = DECODERS[framing]()
        held = b"".join(self._held)
        self._held.clear()
        return self._decoder.feed(held)


def frames(body: bytes | Iterable[bytes]) -> list[Frame]:
    """All frames of a body; joining their `raw` gives it back."""
    return list(framed([body] if isinstance(body, bytes) else body))


def framed(reads: Iterable[bytes]) -> Iterator[Frame]:
    """The frames of the body that `reads` join to, one after the other."""
    decoder = Sniffer()
    for data in reads:
        yield from decoder.feed(data)
    yield from decoder.close()

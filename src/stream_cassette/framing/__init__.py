"""Bytes to frames: one file per framing, and the choice between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..model import Frame
from . import jsonbody, sse


class Decoder(Protocol):
    """Fed the body in any pieces; every frame comes out once, and `raw` joined over all of them is the body."""

    def feed(self, data: bytes) -> list[Frame]: ...

    def close(self) -> list[Frame]: ...


class Sniffer:
    """A decoder that waits for the first byte that tells, then hands on to the decoder of that framing.

    No line of an event stream that says anything begins with a brace or bracket; a body that does is JSON, whatever the content type says.
    """

    def __init__(self) -> None:
        self._decoder: Decoder | None = None
        self._held: list[bytes] = []

    def feed(self, data: bytes) -> list[Frame]:
        if self._decoder is None:
            self._held.append(data)
            first = data.lstrip(b" \t\r\n\xef\xbb\xbf")[:1]
            if not first:
                return []
            self._decoder = jsonbody.Decoder() if first in b"{[" else sse.Decoder()
            data = b"".join(self._held)
        return self._decoder.feed(data)

    def close(self) -> list[Frame]:
        if self._decoder is None:
            self._decoder = sse.Decoder()
            return self._decoder.feed(b"".join(self._held)) + self._decoder.close()
        return self._decoder.close()


def frames(body: bytes | Iterable[bytes]) -> list[Frame]:
    """All frames of a body; joining their `raw` gives it back."""
    decoder = Sniffer()
    found = [frame for data in ([body] if isinstance(body, bytes) else body) for frame in decoder.feed(data)]
    return found + decoder.close()

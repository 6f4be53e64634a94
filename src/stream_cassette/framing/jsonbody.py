"""A body that is one JSON value: an error or an unstreamed reply, whatever the content type says."""

from __future__ import annotations

from ..model import Frame


class Decoder:
    """The whole body as one frame, out when the body ends."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> list[Frame]:
        self._pieces.append(data)
        return []

    def close(self) -> list[Frame]:
        raw = b"".join(self._pieces)
        self._pieces.clear()
        return [Frame(raw, raw.decode("utf-8", "replace"))] if raw else []

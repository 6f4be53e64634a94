"""The body of a response without its compression, read by read. Pure functions; what decodes br and zstd is used where it is installed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

Reads = list[tuple[float, bytes]]
Decode = Callable[[bytes], bytes]
Ended = Callable[[], bool]


class Undecodable(Exception):
    """The body has to stay as it is; the text says why."""


def codings(header: str) -> tuple[str, ...]:
    """The codings that a content-encoding header names, in the order in which they were put on; `identity` is none."""
    named = [name.strip().lower() for name in header.split(",")]
    return tuple(name for name in named if name not in ("", "identity"))


def decoded(names: Sequence[str], reads: Reads, *, whole: bool) -> Reads:
    """The reads without the compression `names`; a read of which nothing can be decoded yet goes with the next.

    `whole`: the end of the body was seen, so data that stops in the middle is damaged. Raises `Undecodable`.
    """
    for name in reversed(names):
        reads = _without(name, reads, whole)
    return reads


def _without(name: str, reads: Reads, whole: bool) -> Reads:
    problem = ""
    for make in _DECODERS.get(name, ()):
        try:
            decode, ended = make()
        except ImportError:
            continue
        try:
            pieces = [(at, decode(data)) for at, data in reads]
        except Exception as error:  # noqa: BLE001 - each package has errors of its own
            problem = problem or f"the {name} data is damaged: {error}"
            continue
        if not whole or ended():
            return [(at, data) for at, data in pieces if data]
        problem = f"the {name} data ends in the middle"
    how = f": pip install {_PACKAGES[name]}" if name in _PACKAGES else ""
    raise Undecodable(problem or f"nothing here decodes {name}{how}")


class _Members:
    """For formats whose data may be several whole ones in a row. What follows the last and is none is padding, which every client skips."""

    def __init__(self, new: Callable[[], Any]) -> None:
        self._new = new
        self._current = new()
        self._first = True
        self._said = False  # whether the current one gave anything
        self._over = False

    def decode(self, data: bytes) -> bytes:
        pieces = []
        while data and not self._over:
            if self._current.eof:
                self._current, self._first, self._said = self._new(), False, False
            try:
                pieces.append(self._current.decompress(data))
            except Exception:
                if self._first or self._said:
                    raise
                self._over = True
            else:
                self._said = self._said or bool(pieces[-1])
                data = self._current.unused_data
        return b"".join(pieces)

    def ended(self) -> bool:
        return bool(self._current.eof) or self._over or not (self._first or self._said)


def _members(new: Callable[[], Any]) -> tuple[Decode, Ended]:
    members = _Members(new)
    return members.decode, members.ended


def _zlib(wbits: int) -> Callable[[], tuple[Decode, Ended]]:
    return lambda: _members(lambda: zlib.decompressobj(wbits))


def _brotli(package: str) -> Callable[[], tuple[Decode, Ended]]:
    def make() -> tuple[Decode, Ended]:
        decoder = import_module(package).Decompressor()
        return decoder.process, decoder.is_finished

    return make


def _zstd(package: str) -> Callable[[], tuple[Decode, Ended]]:
    return lambda: _members(import_module(package).ZstdDecompressor)


def _zstandard() -> tuple[Decode, Ended]:
    package = import_module("zstandard")
    return _members(lambda: package.ZstdDecompressor().decompressobj())


# In order of trust. `deflate` is zlib's format by the standard and raw deflate by the habit of some servers.
_DECODERS: dict[str, tuple[Callable[[], tuple[Decode, Ended]], ...]] = {
    "gzip": (_zlib(31),),
    "x-gzip": (_zlib(31),),
    "deflate": (_zlib(15), _zlib(-15)),
    "br": (_brotli("brotli"), _brotli("brotlicffi")),
    "zstd": (_zstd("compression.zstd"), _zstd("backports.zstd"), _zstandard),
}
KNOWN = frozenset(_DECODERS)
"""The names of the codings that can come off."""

_PACKAGES = {"br": "brotli", "zstd": "backports.zstd"}

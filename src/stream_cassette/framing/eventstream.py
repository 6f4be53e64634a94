"""The binary event-stream framing of AWS (`application/vnd.amazon.eventstream`), sans-IO: bytes to frames and back.

The wire facts are those of https://smithy.io/2.0/aws/amazon-eventstream.html. A frame is a prelude (the length of the frame, the length of its
headers, a CRC-32 of both), the headers, the payload, and a CRC-32 of everything before it; all integers are big-endian.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from struct import error as StructError
from uuid import UUID
from zlib import crc32

from ..errors import CannotSay
from ..model import Frame, FrameHeader, FrameHeaderType

_LENGTHS = Struct(">II")
_CRC = Struct(">I")
_SIZE = Struct(">H")
_PRELUDE_SIZE = 12
_OVERHEAD = 16  # the prelude and the checksum of the frame

# The specification leaves it to the services to hold these. A reader that waits for a whole frame must too: a length beyond them is damage.
_HEADERS_AT_MOST = 128 * 1024
_PAYLOAD_AT_MOST = 24 * 1024 * 1024
_VALUE_AT_MOST = 2**15 - 1

_NUMBERS: Mapping[int, tuple[FrameHeaderType, Struct]] = {
    2: ("byte", Struct(">b")),
    3: ("short", Struct(">h")),
    4: ("integer", Struct(">i")),
    5: ("long", Struct(">q")),
    8: ("timestamp", Struct(">q")),
}
_NUMBER_CODES: Mapping[str, int] = {name: code for code, (name, _) in _NUMBERS.items()}
_NAMES_THE_EVENT = (":event-type", ":exception-type", ":error-code")

# Header sections by their bytes: the event that they name, and the headers. Bounded, for a header may count or tell the time.
_Known = dict[bytes, tuple[str, tuple[FrameHeader, ...]]]
_KNOWN_AT_MOST = 64

_BAD_PRELUDE = "the checksum of the prelude is wrong: what follows cannot be cut into frames"
_BAD_CHECKSUM = "the checksum of the frame is wrong"
_AFTER_BAD_CHECKSUM = "not read: it follows a frame with a wrong checksum, where the stream ends by its specification"


class Decoder:
    """Frames of a binary event stream, each out with its last byte, whatever pieces the bytes come in.

    A frame that cannot be read has a `problem` and neither data nor headers. Decoding goes on behind one whose headers are malformed: its
    checksums say where it ends. It ends with a wrong checksum ("the stream MUST be terminated") and with a length that no frame can have: what
    then comes is one more frame with a `problem`, out when the body ends, as is a frame that the body breaks off. Time is linear in the bytes
    fed, memory in the longest frame (in the rest of the body once that is damaged).
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._total = 0  # the length of the frame at the front, once its prelude has come
        self._problem: str | None = None  # why nothing more is read
        self._known: _Known = {}

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that end within `data`."""
        self._buffer += data
        found: list[Frame] = []
        start = 0
        while self._begin(start) and len(self._buffer) - start >= self._total:
            end = start + self._total
            frame = _read(bytes(self._buffer[start:end]), self._known)
            found.append(frame)
            start, self._total = end, 0
            if frame.problem == _BAD_CHECKSUM:
                self._problem = _AFTER_BAD_CHECKSUM
        del self._buffer[:start]
        return found

    def close(self) -> list[Frame]:
        """What is left when the body ends: nothing, or one frame with a `problem`."""
        raw = bytes(self._buffer)
        self._buffer.clear()
        return [Frame(raw, problem=self._problem or _cut_short(raw))] if raw else []

    def _begin(self, start: int) -> bool:
        """Is it known how long the frame at `start` is? Its prelude is looked at once."""
        if self._problem is None and not self._total and len(self._buffer) - start >= _PRELUDE_SIZE:
            prelude = bytes(self._buffer[start : start + _PRELUDE_SIZE])
            total, headers_length = _LENGTHS.unpack_from(prelude)
            if crc32(prelude[:8]) != _CRC.unpack_from(prelude, 8)[0]:
                self._problem = _BAD_PRELUDE
            else:
                self._problem = _bad_lengths(total, headers_length)
                self._total = total if self._problem is None else 0
        return self._total > 0


def encode(headers: Iterable[FrameHeader], payload: bytes = b"") -> Frame:
    """The frame of `headers` and `payload`, with right lengths and checksums.

    `CannotSay` for what the framing cannot carry: a value that does not fit its type, a name that is empty, too long or there twice, text or
    bytes over 32,767 bytes, headers over 128 KiB, a payload over 24 MiB.
    """
    section = b"".join(_write(header) for header in headers)
    total = _OVERHEAD + len(section) + len(payload)
    problem = _bad_lengths(total, len(section))
    if problem is None:
        lengths = _LENGTHS.pack(total, len(section))
        message = b"".join((lengths, _CRC.pack(crc32(lengths)), section, payload))
        frame = _read(message + _CRC.pack(crc32(message)), {})
        if frame.problem is None:
            return frame
        problem = frame.problem
    raise CannotSay(f"not a binary event-stream frame: {problem}", mend="mend the headers or shorten the payload")


def payload(frame: Frame) -> bytes:
    """The payload of a frame of this framing, where `data` is None because it is no text too; empty for a frame with a `problem`."""
    if frame.problem is not None:
        return b""
    return frame.raw[_PRELUDE_SIZE + _LENGTHS.unpack_from(frame.raw)[1] : -_CRC.size]


def _bad_lengths(total: int, headers_length: int) -> str | None:
    if total < _OVERHEAD or headers_length > total - _OVERHEAD:
        return f"no frame can be {total} bytes long, {headers_length} of them headers"
    if headers_length > _HEADERS_AT_MOST:
        return f"{headers_length} bytes of headers are more than the {_HEADERS_AT_MOST} allowed"
    if total - headers_length - _OVERHEAD > _PAYLOAD_AT_MOST:
        return f"{total - headers_length - _OVERHEAD} bytes of payload are more than the {_PAYLOAD_AT_MOST} allowed"
    return None


def _cut_short(raw: bytes) -> str:
    total = int.from_bytes(raw[:4], "big") if len(raw) >= 4 else 0
    # Less than a prelude may be anything, so that its first bytes are believed only if they are a length.
    known = total and _bad_lengths(total, 0) is None
    return f"the body ends inside this frame{f', {total - len(raw)} bytes before its end' if known else ''}"


def _read(raw: bytes, known: _Known) -> Frame:
    """The frame in `raw`, whose lengths are right. The header sections of a stream are few: each is read once, and is then in `known`."""
    checked = len(raw) - _CRC.size
    if crc32(memoryview(raw)[:checked]) != _CRC.unpack_from(raw, checked)[0]:
        return Frame(raw, problem=_BAD_CHECKSUM)
    payload_at = _PRELUDE_SIZE + _LENGTHS.unpack_from(raw)[1]
    section = raw[_PRELUDE_SIZE:payload_at]
    if section not in known:
        try:
            headers = _read_headers(section)
        except _Malformed as why:
            return Frame(raw, problem=str(why))
        if len(known) >= _KNOWN_AT_MOST:
            known.clear()
        known[section] = _event(headers), headers
    event, headers = known[section]
    try:
        data = raw[payload_at:checked].decode()
    except UnicodeDecodeError:
        data = None
    return Frame(raw, data, event, headers=headers)


def _event(headers: tuple[FrameHeader, ...]) -> str:
    named = {header.name: header.value for header in headers if isinstance(header.value, str) and header.value}
    return next((named[name] for name in _NAMES_THE_EVENT if name in named), "message")


# ----------------------------------------------------------------------------------------------------------------- headers


class _Malformed(Exception):
    """Why a header section cannot be read."""


class _Section:
    """A header section, taken byte by byte from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise _Malformed("a header reaches beyond the header section")
        self._at += count
        return taken

    def number(self, form: Struct) -> int:
        (number,) = form.unpack(self.take(form.size))
        return int(number)

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise _Malformed("a header is not UTF-8") from None


def _read_headers(data: bytes) -> tuple[FrameHeader, ...]:
    section, found = _Section(data), {}
    while section:
        name = section.text(section.take(1)[0])
        if not name:
            raise _Malformed("a header has no name")
        if name in found:
            raise _Malformed(f"the header {name!r} is there twice")
        found[name] = _read_value(name, section)
    return tuple(found.values())


def _read_value(name: str, section: _Section) -> FrameHeader:
    code = section.take(1)[0]
    match code:
        case 0 | 1:
            return FrameHeader(name, code == 0, "boolean")
        case 6:
            return FrameHeader(name, section.take(section.number(_SIZE)), "byte_array")
        case 7:
            return FrameHeader(name, section.text(section.number(_SIZE)), "string")
        case 9:
            return FrameHeader(name, str(UUID(bytes=section.take(16))), "uuid")
        case _ if code in _NUMBERS:
            kind, form = _NUMBERS[code]
            return FrameHeader(name, section.number(form), kind)
        case _:
            raise _Malformed(f"the header {name!r} has the type {code}, which does not exist")


def _write(header: FrameHeader) -> bytes:
    try:
        name = header.name.encode()
        return bytes([len(name)]) + name + _write_value(header)
    except (ValueError, StructError) as error:
        raise CannotSay(
            f"a binary event-stream frame cannot carry the header {header!r}: {error}",
            mend="give a value that its type can hold, in at most 32,767 bytes, and a name of at most 255",
        ) from None


def _write_value(header: FrameHeader) -> bytes:
    match header.type, header.value:
        case "boolean", bool(value):
            return b"\x00" if value else b"\x01"
        case "byte_array", bytes(value):
            return b"\x06" + _sized(value)
        case "string", str(value):
            return b"\x07" + _sized(value.encode())
        case "uuid", str(value):
            return b"\x09" + UUID(value).bytes
        case kind, int(value) if kind in _NUMBER_CODES and not isinstance(value, bool):
            code = _NUMBER_CODES[kind]
            return bytes([code]) + _NUMBERS[code][1].pack(value)
        case _:
            raise ValueError(f"{header.type} does not hold a {type(header.value).__name__}")


def _sized(value: bytes) -> bytes:
    if len(value) > _VALUE_AT_MOST:
        raise ValueError(f"{len(value)} bytes")
    return _SIZE.pack(len(value)) + value

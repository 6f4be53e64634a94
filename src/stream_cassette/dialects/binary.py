"""Events in the binary frames of AWS (https://smithy.io/2.0/aws/amazon-eventstream.html): `:message-type` is event, exception or error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import jsontext
from ..framing import eventstream
from ..model import Delta, Frame, FrameHeader, StreamError
from .base import as_dict, as_text, payload_of, read_frame

_MESSAGE_TYPE, _ERROR_CODE, _ERROR_MESSAGE = ":message-type", ":error-code", ":error-message"


def event_of(frame: Frame) -> Any:
    """The event in a binary frame as boto3 shows it, `{event type: payload}`; an error by its two headers; a bare JSON body as it is; else None."""
    if frame.problem is not None:
        return None
    if frame.header(_MESSAGE_TYPE) == "error":
        return {name: str(frame.header(name) or "") for name in (_ERROR_CODE, _ERROR_MESSAGE)}
    payload = payload_of(frame)
    return {frame.event: payload} if frame.headers and payload is not None else payload


def read_event(frame: Frame, deltas: Callable[[Any, str], list[Delta]]) -> list[Delta]:
    """What a binary frame says, by `deltas`; exceptions, errors and damage say the same in every dialect."""
    if not frame.headers and not _is_binary(frame):
        return read_frame(frame, deltas)  # JSON where frames were expected
    if frame.problem is not None:
        cut = frame.problem.startswith("the body ends")
        return [StreamError("wire:truncated" if cut else "wire:checksum", frame.problem)]
    event = event_of(frame)
    match frame.header(_MESSAGE_TYPE):
        case "error":
            return [StreamError(event[_ERROR_CODE] or "error", event[_ERROR_MESSAGE], event)]
        case "exception":
            message = as_text(as_dict(as_dict(event).get(frame.event)).get("message"))
            return [StreamError(frame.event, message or frame.event, event)]
    if event is None:
        return [StreamError("wire:bad_json", f"the payload of {frame.event!r} is not JSON", frame.data)]
    return deltas(event, frame.event)


def broken_event(frame: Frame) -> StreamError | None:
    """What is wrong with a binary frame that no dialect is needed to read: damage, an exception or an error. None for any other frame."""
    said = read_event(frame, lambda payload, event: []) if _is_binary(frame) else []
    return said[0] if said and isinstance(said[0], StreamError) else None


def _is_binary(frame: Frame) -> bool:
    return frame.raw[:1] in (b"\x00", b"\x01")


def write_event(event: str, payload: Any, like: Frame | None = None, kind: str = "event") -> Frame:
    """The binary frame that says `event`, of the message type `kind`, with the headers that the service added to `like`."""
    own = {f":{kind}-type": event, ":content-type": "application/json", _MESSAGE_TYPE: kind}
    kept = [header for header in like.headers if not header.name.startswith(":")] if like else []
    return eventstream.encode([*map(FrameHeader, own, own.values()), *kept], jsontext.dump(payload).encode())


def write_event_error(error: StreamError, like: Frame | None = None) -> Frame:
    """The binary frame of an error: an exception, unless it was read from the headers of an error."""
    payload = as_dict(error.payload)
    if _ERROR_CODE in payload:
        own = {**payload, _MESSAGE_TYPE: "error"}
        return eventstream.encode([FrameHeader(name, str(value)) for name, value in own.items()])
    return write_event(error.type, payload.get(error.type, {"message": error.message}), like, "exception")

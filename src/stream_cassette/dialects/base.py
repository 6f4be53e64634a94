"""What a wire dialect is, and what the dialects share: JSON payloads in event-stream frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .. import jsontext
from ..model import USAGE_COUNTS, Delta, End, Frame, Keepalive, Reply, StreamError, ToolCall, Unknown, UsageUpdate


@dataclass(frozen=True, slots=True)
class Hint:
    """What there is to recognise a dialect by: the request URL and the content type (empty if not known), and the first JSON payload."""

    payload: Any
    url: str = ""
    content_type: str = ""


class Dialect(Protocol):
    """One wire dialect: what its frames say, and how it says what a delta means. Stateless."""

    @property
    def name(self) -> str:
        """As in `assemble(..., dialect=name)`."""
        ...

    @property
    def numbers(self) -> Literal["parts", "calls"]:
        """What an index counts on this wire: every content part, or tool calls alone."""
        ...

    def recognise(self, hint: Hint) -> int:
        """How sure it is that the stream is its own, 0 (no) to 100."""
        ...

    def payload(self, frame: Frame) -> Any:
        """The JSON value that an SDK user would see for this event, or None where there is none."""
        ...

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        """What one payload says. Never raises: whatever JSON value stands in whatever place."""
        ...

    def read(self, frame: Frame) -> list[Delta]:
        """What one frame says."""
        ...

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        """The frames that say `deltas`, reading to the same deltas again; what the wire has no words for is left out (see `losses`).

        With `like` they take its envelope (ids, model, extra keys, line ends) and share an event where one event can say them in this order.
        Without it every delta has its own event, as a provider would stream it.
        """
        ...

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        """The same frames, renumbered where a change put them out of order. An unchanged frame stays as it is, byte for byte."""
        ...

    def losses(self, reply: Reply) -> tuple[str, ...]:
        """What of `reply` this dialect cannot say, in words; empty where a written reply reads to the same."""
        ...


# ------------------------------------------------------------------------------------------------------------ JSON in frames


def payload_of(frame: Frame) -> Any:
    """The JSON value in an event-stream frame, or None."""
    text = _payload_text(frame)
    try:
        return jsontext.parse(text) if text else None
    except ValueError:
        return None


def read_frame(frame: Frame, deltas: Callable[[Any, str], list[Delta]]) -> list[Delta]:
    """What a frame with a JSON payload says, by `deltas`; and what one without says to every dialect."""
    text = _payload_text(frame)
    if text is None:
        return _read_dataless(frame)
    if text in ("[DONE]", "DONE"):
        return [End()]
    if not text or text.startswith(":"):  # some gateways wrap a keep-alive comment into a data line
        return [Keepalive()]
    try:
        payload = jsontext.parse(text)
    except ValueError as error:
        kind = "wire:truncated" if frame.problem else "wire:bad_json"
        return [StreamError(kind, f"{frame.problem or 'not JSON'}: {error}", frame.data)]
    return deltas(payload, frame.event)


def _payload_text(frame: Frame) -> str | None:
    if frame.data is not None:
        return frame.data.strip()
    # Some servers put a bare JSON error between events, where the framing sees a line with an unknown field.
    bare = frame.raw.strip()
    return bare.decode("utf-8", "replace") if bare.startswith(b"{") else None


def _read_dataless(frame: Frame) -> list[Delta]:
    said = frame.raw.strip(b"\r\n \xef\xbb\xbf")
    if not said or said.startswith(b":"):
        return [Keepalive()]
    if frame.problem:
        return [StreamError("wire:truncated", frame.problem, said.decode("utf-8", "replace"))]
    return [Unknown(frame.event, said.decode("utf-8", "replace"))]


# -------------------------------------------------------------------------------------------------- tolerant looks at a value


def as_int(value: Any) -> int | None:
    return value if type(value) is int else None  # a bool is no index


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def read_error(error: Any) -> StreamError:
    """An error as providers put it into a stream: an object with type, code and message, or a mere text."""
    said = as_dict(error)
    kind = said.get("type") or said.get("code") or said.get("status") or "error"
    return StreamError(str(kind), str(said.get("message") or error), error)


# --------------------------------------------------------------------------------------------------------------------- usage

UsageNames = Mapping[str, Sequence[tuple[str, ...]]]
"""For each count of `Usage` the paths under which the dialect's usage object may hold it; the first is the one to write."""


def read_usage(raw: Any, names: UsageNames) -> list[Delta]:
    """The update that a usage object says: none where it is missing, null or without any value."""
    if not isinstance(raw, dict) or all(value is None for value in raw.values()):
        return []
    counts: dict[str, int] = {}
    for name, paths in names.items():
        for path in paths:
            value: Any = raw
            for key in path:
                value = as_dict(value).get(key)
            if as_int(value) is not None:
                counts[name] = value
                break
    return [UsageUpdate(counts, raw)]


def write_usage(update: UsageUpdate, names: UsageNames) -> dict[str, Any]:
    """The dialect's usage object: the provider's own where there is one, else the counts in its spelling."""
    if update.raw:
        return dict(update.raw)
    raw: dict[str, Any] = {}
    for name, count in update.counts.items():
        if name in names:
            *parents, last = names[name][0]
            place = raw
            for key in parents:
                place = place.setdefault(key, {})
            place[last] = count
    return raw


# -------------------------------------------------------------------------------------------------------- what cannot be said

NO_FINISH = "no finish reason"
STREAM_BROKE = "the stream broke"


def is_open(call: ToolCall) -> bool:
    """Had the wire not closed this call when it ended?"""
    return call.problem is not None and call.problem.startswith((NO_FINISH, STREAM_BROKE))


def common_losses(reply: Reply, counts: UsageNames) -> list[str]:
    """What no dialect with this usage object can say."""
    out = [f"the error {error.type!r}" for error in reply.errors if error.type.startswith("wire:")]
    if reply.usage:
        sent = [name for name in USAGE_COUNTS if getattr(reply.usage, name) is not None]
        out += [f"usage.{name}" for name in sent if name not in counts] or ([] if sent else ["usage without any count"])
    return out

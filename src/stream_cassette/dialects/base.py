"""What a wire dialect is, and what the dialects share: JSON payloads in event-stream frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from .. import jsontext
from ..framing import jsonlines, sse
from ..model import (
    USAGE_COUNTS,
    Delta,
    End,
    Frame,
    Keepalive,
    Reply,
    Stop,
    StreamError,
    ToolCall,
    Unknown,
    UsageUpdate,
)

Framing = Literal["sse", "eventstream", "jsonlines"]


Trait = Literal["call_index", "call_id", "end_mark", "whole_frames"]
"""Something of a stream that one change may erase and another may need."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """Another way in which real servers of a dialect spell the same reply.

    `why`: who sends it, and what breaks where nobody thought of it. `rewrite`: all frames of a healthy stream → for each what stands in its place; the
    frames unchanged where there is nothing to spell so. `erases`: what of the stream is gone after it (`call_index` ...). `other_finish`: it says
    another finish reason, `more_parts`: it adds content that is carried and not interpreted; a reader must bear both.
    """

    why: str
    rewrite: Callable[[Sequence[Frame]], list[list[Frame]]]
    erases: frozenset[Trait] = frozenset()
    other_finish: bool = False
    more_parts: bool = False


@dataclass(frozen=True, slots=True)
class Hint:
    """What there is to recognise a dialect by: the request URL and the content type (empty if not known), the first JSON payload and its event name."""

    payload: Any
    url: str = ""
    content_type: str = ""
    event: str = "message"


class Dialect(Protocol):
    """One wire dialect: what its frames say, and how it says what a delta means. Stateless."""

    @property
    def name(self) -> str:
        """As in `assemble(..., dialect=name)`."""
        ...

    @property
    def framing(self) -> Framing:
        """The framing that it is written in; what it reads may come in another."""
        ...

    @property
    def numbers(self) -> Literal["parts", "calls", "nothing"]:
        """What an index counts on this wire: every content part, or tool calls alone; or there is none, and parts follow one another."""
        ...

    @property
    def end_mark(self) -> bool:
        """Does this wire say when it is over, beside the finish reason (`[DONE]`, `message_stop`)?"""
        ...

    @property
    def words(self) -> Mapping[Stop, tuple[str, ...]]:
        """This wire's finish reason for each of our words for why a reply ends, and its finish detail where it has a second word that says it
        closer. `stop` and `length` are always there; what is missing this wire has no word for."""
        ...

    @property
    def usage_rides(self) -> bool:
        """May usage stand on any event of this wire?"""
        ...

    @property
    def quirks(self) -> Mapping[str, Spelling]:
        """Spellings of the same reply that real servers send, by name."""
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


def problem_of(dialect: Any) -> str | None:
    """In words what keeps `dialect` from being one, or None."""
    if isinstance(dialect, type):
        return f"it is a class; give an instance, {dialect.__name__}()"
    members = [name for name in vars(Dialect) if not name.startswith("_")]
    if missing := [name for name in members if not hasattr(dialect, name)]:
        return f"it lacks {', '.join(missing)}"
    known: dict[str, tuple[Any, ...]] = {"framing": get_args(Framing), "numbers": ("parts", "calls", "nothing")}
    known |= dict.fromkeys(("end_mark", "usage_rides"), (True, False))
    for name in members:
        value = getattr(dialect, name)
        if name in known and value not in known[name]:
            return f"its {name!r} is {value!r}, not one of {', '.join(map(repr, known[name]))}"
        if name == "quirks" and not isinstance(value, Mapping):
            return f"its {name!r} is {value!r}, not a mapping"
        if name not in (*known, "name", "words", "quirks") and not callable(value):
            return f"its {name!r} is {value!r}, not callable"
    if not (isinstance(dialect.name, str) and re.fullmatch(r"[a-z0-9][a-z0-9._-]*", dialect.name)):
        return f"its name is {dialect.name!r}, not small letters, digits, dots and dashes"
    if not (isinstance(dialect.words, Mapping) and dialect.words.get("stop") and dialect.words.get("length")):
        return f"its words are {dialect.words!r}, without one for 'stop' and 'length'"
    return None


# ------------------------------------------------------------------------------------------------------------ JSON in frames


def payload_of(frame: Frame) -> Any:
    """The JSON value in an event-stream frame, or None."""
    text = _payload_text(frame)
    try:
        return jsontext.parse(text) if text else None
    except ValueError:
        return None


def typed_payload_of(frame: Frame) -> Any:
    """The same, with the `type` that some servers write on the event line alone."""
    payload = payload_of(frame)
    if isinstance(payload, dict) and "type" not in payload and frame.event != "message":
        return {"type": frame.event, **payload}
    return payload


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
    said = frame.raw.strip(b"\r\n \xef\xbb\xbf[],")  # brackets and commas: what holds a JSON array together
    if not said or said.startswith(b":"):
        return [Keepalive()]
    if frame.problem:
        return [StreamError("wire:truncated", frame.problem, said.decode("utf-8", "replace"))]
    return [Unknown(frame.event, said.decode("utf-8", "replace"))]


# ----------------------------------------------------------------------------------------------------- writing in any framing


# Not line ends of JSON lines, but many a client takes them for such; escaped, nobody can.
_LINE_SEPARATORS = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}


def write_json(payload: Any, framing: Framing, event: str = "message", like: Frame | None = None) -> Frame:
    """The frame of a JSON payload in the framing of `like`, else in `framing` (one of the two that carry text)."""
    text = jsontext.dump(payload)
    if framing_of(like, framing) == "jsonlines":
        return jsonlines.encode(text.translate(_LINE_SEPARATORS), like)
    return sse.encode(text, event, like)


def write_keepalive(framing: Framing, like: Frame | None = None) -> Frame:
    return Frame(b"\n" if framing_of(like, framing) == "jsonlines" else b": keepalive\n\n")


def write_damage(error: StreamError, framing: Framing, like: Frame | None = None) -> list[Frame]:
    """Damage keeps its bytes: those of `like`, if it was read there, else its text. Binary damage has no other way to be written."""
    if like is not None and (like.problem is not None or like.data == error.payload):
        return [like]
    if not isinstance(error.payload, str) or framing == "eventstream":
        return []
    return [jsonlines.encode(error.payload, like) if framing == "jsonlines" else sse.encode(error.payload, like=like)]


def framing_of(like: Frame | None, default: Framing) -> Framing:
    if like is None or like.data is None:
        return default
    # No line of an event stream with data begins like this.
    return "jsonlines" if like.raw.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] in (b"{", b"[", b",") else "sse"


def relinked(frames: Sequence[Frame]) -> list[Frame]:
    """The same frames; the elements of a JSON array body opened and parted as an array needs it."""
    found = list(frames)
    return jsonlines.relink(found) if all(framing_of(frame, "jsonlines") == "jsonlines" for frame in found) else found


# -------------------------------------------------------------------------------------------------- tolerant looks at a value


def as_int(value: Any) -> int | None:
    return value if type(value) is int else None  # a bool is no index


def as_index(value: Any) -> int | None:
    """A number of a part or call, also where a server sends it as `"0"` or `0.0`."""
    if isinstance(value, str):
        return int(value) if len(value) < 10 and value.lstrip("-").isdecimal() and value.isascii() else None
    return int(value) if isinstance(value, float) and value.is_integer() else as_int(value)


_OURS = ("text", "reasoning", "refusal", "call")
_THEIRS = " of the wire"


def opaque_kind(name: str) -> str:
    """The kind of an opaque part from the wire's word for it, which may be one of our own words for a part that is interpreted."""
    return f"{name}{_THEIRS}" if name in _OURS else name


def wire_name(kind: str) -> str:
    """The wire's word for an opaque kind."""
    return kind.removesuffix(_THEIRS)


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


def read_usage(raw: Any, names: UsageNames, *, fallback: bool = False) -> list[Delta]:
    """The update that a usage object says: none where it is missing, null or without any value."""
    if not isinstance(raw, dict) or all(value is None for value in raw.values()):
        return []
    counts: dict[str, int] = {}
    for name, paths in names.items():
        for path in paths:
            value: Any = raw
            for key in path:
                value = as_dict(value).get(key)
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # Titan counts in 6.0
            if as_int(value) is not None:
                counts[name] = value
                break
    return [UsageUpdate(counts, raw, fallback)]


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
NOT_CLOSED = "no end event of its own"
STREAM_BROKE = "the stream broke"


def is_open(call: ToolCall) -> bool:
    """Had the wire not closed this call when it ended?"""
    return call.problem is not None and call.problem.startswith((NO_FINISH, NOT_CLOSED, STREAM_BROKE))


def arguments_field(name: str, text: str, like: Frame | None) -> dict[str, Any]:
    """`{name: arguments}` for a wire that sends them as a JSON value. What is no object is only said again, where `like` said it."""
    try:
        value = jsontext.parse(text)
    except ValueError:
        value = text
    if isinstance(value, dict):
        return {name: value}
    said = text if isinstance(value, str | None) else value
    return {name: said} if like is not None and _holds(payload_of(like), said) else {}


def _holds(payload: Any, value: Any) -> bool:
    """Does `value` stand anywhere in a JSON value?"""
    inner = payload.values() if isinstance(payload, dict) else payload if isinstance(payload, list) else ()
    return bool(payload == value) or any(_holds(each, value) for each in inner)


def object_loss(call: ToolCall) -> str | None:
    """What is lost of a call on a wire that sends arguments as a JSON value, not as text."""
    if call.kind == "custom":
        return "a tool call with free text"
    if not call.name:
        return "a tool call without a name"
    try:
        value = jsontext.parse(call.arguments_text) if call.arguments_text else {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return f"arguments that are no JSON object: {call.arguments_text[:60]!r}"
    if call.arguments_text and jsontext.dump(value) != call.arguments_text:
        return f"the spelling of the arguments {call.arguments_text[:60]!r}"
    return None


def untyped_errors(reply: Reply) -> list[str]:
    """What is lost of errors on a wire that sends them as a mere text."""
    return [
        f"the type of the error {error.type!r}"
        for error in reply.errors
        if error.type != (read_error(error.payload).type if isinstance(error.payload, dict) else "error")
    ]


def first_choice_losses(reply: Reply, loss_of: Callable[[Any], str | None]) -> list[str]:
    """What of the parts gets lost, and that all choices but the first do, on a wire that has only one."""
    out = [loss for part in reply.parts if (loss := loss_of(part))]
    return [*out, "the choices but the first"] if reply.choices else out


def common_losses(reply: Reply, counts: UsageNames, *, details: bool = False) -> list[str]:
    """What no dialect with this usage object can say; `details`: this one has a second word for why a reply ends."""
    out = [f"the error {error.type!r}" for error in reply.errors if error.type.startswith("wire:")]
    out += [f"the finish detail {reply.finish_detail!r}"] if reply.finish_detail and not details else []
    if reply.usage:
        sent = [name for name in USAGE_COUNTS if getattr(reply.usage, name) is not None]
        out += [f"usage.{name}" for name in sent if name not in counts] or ([] if sent else ["usage without any count"])
    return out

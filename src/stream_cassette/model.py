"""Every noun: what goes over the wire, what it says, and what comes of it. Frozen, and no behaviour beyond derived properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, NamedTuple

Headers = tuple[tuple[str, str], ...]
"""Header fields in wire order, names in lower case."""


def _short_repr(value: Any) -> str:
    """The constructor call without the arguments that have their default: short, and it can be pasted back."""
    shown = []
    for each in fields(value):
        got = getattr(value, each.name)
        if each.default is MISSING or got != each.default:
            shown.append(f"{each.name}={got!r}")
    return f"{type(value).__name__}({', '.join(shown)})"


# ---------------------------------------------------------------------------------------------------------------- the wire


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request. `method` in upper case, `url` absolute, `body` as sent (empty for none)."""

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""


class Read(NamedTuple):
    """One network read: `data`, never empty, came `at_ms` whole milliseconds after the response headers.

    A tuple, unlike most nouns, because a stream has tens of thousands and a frozen dataclass takes five times as long to make.
    """

    at_ms: int
    data: bytes


EndingKind = Literal["complete", "closed", "disconnected", "stalled"]
EndingError = Literal["", "protocol", "chunk", "read"]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a response body ended.

    `complete`: its end was seen. `closed`: the reader left before. `disconnected`: the connection died, `error` being `protocol` (the peer closed
    or broke the message), `chunk` (it did so within a chunk of HTTP/1.1, which some clients never show) or `read` (the socket failed). `stalled`: the client's read timeout struck. `error` is empty for the other kinds.
    """

    kind: EndingKind
    error: EndingError = ""


COMPLETE = Ending("complete")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One HTTP request and its response, body read by read.

    `was` names the compression that came off while recording, as the content-encoding header had it (`gzip`); `reads` are what it held.
    """

    request: Request
    status: int
    headers: Headers
    reads: tuple[Read, ...]
    ending: Ending = COMPLETE
    was: str = ""

    @property
    def body(self) -> bytes:
        return b"".join(read.data for read in self.reads)

    def header(self, name: str) -> str | None:
        """The first value of the response header `name` (lower case), or None."""
        return next((value for key, value in self.headers if key == name), None)


ResponseState = Literal["open", "ended", "closed"]


@dataclass(frozen=True, slots=True)
class Response:
    """How the code under test took a response: `reads` of its body, and then?

    `open`: it has neither come to the end nor closed it, so far; `ended`: it came to the end, be that a dead connection; `closed`: it closed the
    response before.
    """

    request: Request
    status: int
    reads: int
    state: ResponseState


FrameHeaderType = Literal["boolean", "byte", "short", "integer", "long", "byte_array", "string", "timestamp", "uuid"]


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """One typed header of a binary event-stream frame (https://smithy.io/2.0/aws/amazon-eventstream.html, whose type names these are).

    `value` is a bool for `boolean`, bytes for `byte_array`, text for `string` and `uuid` (in its canonical form), and else an int: of 8, 16, 32 or
    64 signed bits, a `timestamp` counting milliseconds since 1970 (an int because the wire reaches beyond every calendar).
    """

    name: str
    value: bool | int | str | bytes
    type: FrameHeaderType = "string"


class Frame(NamedTuple):
    """One piece of a body as its framing cuts it. Joining `raw` over all frames of a body gives the body back.

    `data` is None where nothing is dispatched: comments, blank lines, blocks without data. `event` and `id` are as the event-stream standard has them
    (`message` and the last event id by default), `retry` in milliseconds. `problem` says in words why the frame is damaged or unterminated.
    `headers` are those of a binary event-stream frame, in wire order; its `event` is the one that names the event, the exception or the error.
    A tuple for the reason that a `Read` is one.
    """

    raw: bytes
    data: str | None = None
    event: str = "message"
    id: str = ""
    retry: int | None = None
    problem: str | None = None
    headers: tuple[FrameHeader, ...] = ()

    def header(self, name: str) -> bool | int | str | bytes | None:
        """The value of the header `name` (names differ in case), or None."""
        return next((header.value for header in self.headers if header.name == name), None)


# ------------------------------------------------------------------------------------------------------- what the wire says


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """The wire's own words for where a delta belongs: the choice, the index within it and the id, as far as they were sent.

    `serial`: this wire numbers nothing and sends its parts one after the other; a piece continues the part before it if that is of its kind and
    still open, else it opens the next one.

    `within` goes on inside the part at `index` (the number of a content part or of a summary; empty for the part itself). Where it is not None the
    numbers are places: parts are ordered by them, not by first sight. `listed` says that a number is a mere position in a list that restates what
    was streamed, maybe under other numbers: the content of one item, or (`output`) the items too.
    """

    choice: int = 0
    index: int | None = None
    id: str | None = None
    serial: bool = False
    within: tuple[int, ...] | None = None
    listed: Literal["", "content", "output"] = ""

    __repr__ = _short_repr


@dataclass(frozen=True, slots=True)
class Start:
    """The reply begins."""

    key: Key = Key()
    role: str | None = None
    id: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class PartStart:
    """A content part opens. `kind` is `text`, `reasoning`, `refusal` or the wire's own type of a part that is carried, not interpreted."""

    key: Key
    kind: str


@dataclass(frozen=True, slots=True)
class Text:
    key: Key
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    key: Key
    text: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A piece of the signature of a reasoning part."""

    key: Key
    text: str


@dataclass(frozen=True, slots=True)
class Refusal:
    key: Key
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A tool call opens, or says again or further who it is: `name` may be empty, a repeat, or the next piece of a name.

    `own_end`: on this wire every call has an end event of its own, and without it not even the end of the reply closes the call.
    """

    key: Key
    kind: Literal["function", "custom"]
    name: str
    own_end: bool = False


@dataclass(frozen=True, slots=True)
class Arguments:
    """The next piece of the argument text of a tool call."""

    key: Key
    text: str


@dataclass(frozen=True, slots=True)
class ArgumentsAt:
    """A value, or with `more` the next piece of a string, within the arguments of a tool call.

    `path` is a JSON path of names and numbers as `$.a.b[0]` (RFC 9535). `more`: further pieces of the string at this path follow.
    """

    key: Key
    path: str
    value: Any
    more: bool = False


@dataclass(frozen=True, slots=True)
class Whole:
    """A restatement of everything a part said: it replaces what was streamed, and saying it twice changes nothing. An empty one wipes nothing."""

    key: Key
    kind: Literal["text", "reasoning", "refusal", "arguments", "signature"]
    value: str


@dataclass(frozen=True, slots=True)
class PartEnd:
    """A part is whole. Without an index it is the last one that the choice opened."""

    key: Key


@dataclass(frozen=True, slots=True)
class Opaque:
    """Content that is carried and not interpreted (server tools, citations, audio): the JSON value as sent; `whole` replaces what came before it."""

    key: Key
    kind: str
    payload: Any
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """The provider's word for why the reply ends. The first one counts, unless one `revises` it: some say `STOP` on every chunk and the reason last.

    `detail` is a second word that says it closer (Responses: status `incomplete`, because of `max_output_tokens`).
    """

    key: Key
    reason: str
    revises: bool = False
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class UsageUpdate:
    """Token counts so far. `counts` has the names of `Usage`, `raw` is the provider's own object; None says nothing.

    `fallback`: counted by a service in between; it counts only where the model says nothing itself.
    """

    counts: Mapping[str, int]
    raw: Mapping[str, Any]
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error inside the stream: the provider's `type` and `message`, or a `type` of ours, `wire:...`, where the bytes are damaged."""

    type: str
    message: str
    payload: Any = None


@dataclass(frozen=True, slots=True)
class End:
    """The dialect's end mark (`[DONE]`, `message_stop`)."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    """A frame that only keeps the connection alive (ping, comment, empty data)."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """An event that the dialect does not know, carried on."""

    event: str
    payload: Any


Delta = (
    Start
    | PartStart
    | Text
    | Reasoning
    | Signature
    | Refusal
    | ToolCallStart
    | Arguments
    | ArgumentsAt
    | Whole
    | PartEnd
    | Opaque
    | Finish
    | UsageUpdate
    | StreamError
    | End
    | Keepalive
    | Unknown
)


def key_of(delta: Delta) -> Key | None:
    """The part that `delta` belongs to; None where it is about the whole stream."""
    match delta:
        case UsageUpdate() | StreamError() | End() | Keepalive() | Unknown():
            return None
        case _:
            return delta.key


# ------------------------------------------------------------------------------------------------------------ what comes of it


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class RefusalPart:
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class OpaquePart:
    """A part that is carried, not interpreted: every payload as sent, and the text of its argument deltas joined."""

    kind: str
    payloads: tuple[Any, ...] = ()
    arguments_text: str = ""

    __repr__ = _short_repr


@dataclass(frozen=True, slots=True, repr=False)
class ToolCall:
    """One call that the model asks the client to run.

    `index` counts from 0 in order of first sight. `kind` is `function` or `custom` (free text as arguments). `arguments_text` is what the wire said;
    `arguments` is the JSON object it parses to (None for a custom call or where there is a problem). `problem` says in words why the call must not
    be run; it is None exactly for the calls in `Reply.tool_calls`.
    """

    index: int = field(compare=False)
    kind: Literal["function", "custom"] = "function"
    id: str | None = None
    name: str = ""
    arguments_text: str = ""
    arguments: dict[str, Any] | None = field(default=None, compare=False)
    problem: str | None = None

    __repr__ = _short_repr


Part = TextPart | ReasoningPart | RefusalPart | ToolCall | OpaquePart


@dataclass(frozen=True, slots=True, repr=False)
class Usage:
    """Token counts in the provider's own sense (OpenAI's `input_tokens` include cached ones, Anthropic's do not); None where it sent none.

    `estimated`: nobody sent them, `estimate_usage` guessed them from the size of the texts.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)
    estimated: bool = field(default=False, compare=False)

    def __repr__(self) -> str:
        counts = {name: getattr(self, name) for name in USAGE_COUNTS} | {"estimated": self.estimated or None}
        return f"Usage({', '.join(f'{name}={count}' for name, count in counts.items() if count is not None)})"


USAGE_COUNTS = ("input_tokens", "output_tokens", "total_tokens", "cached_tokens", "reasoning_tokens")


@dataclass(frozen=True, slots=True, repr=False)
class ReplyError:
    """An error of the reply. Two are equal when their types are: providers reword messages."""

    type: str
    message: str = field(default="", compare=False)
    payload: Any = field(default=None, compare=False, hash=False)

    def __repr__(self) -> str:
        return f"ReplyError({self.type!r}, {self.message!r})"


Stop = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "error", "other"]

# The words of each provider's reference for why a reply ended, in our vocabulary.
_STOPS: Mapping[str, Stop] = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "refusal",
    "pause_turn": "pause",
    "error": "error",
    "insufficient_system_resource": "error",
    "completed": "stop",
    "incomplete": "length",
    "max_output_tokens": "length",
    "failed": "error",
    # Gemini (https://ai.google.dev/api/generate-content#FinishReason), its interactions, and Cohere
    "STOP": "stop",
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "requires_action": "tool_calls",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MALFORMED_FUNCTION_CALL": "error",
    "UNEXPECTED_TOOL_CALL": "error",
    "TOO_MANY_TOOL_CALLS": "error",
    "MISSING_THOUGHT_SIGNATURE": "error",
    "MALFORMED_RESPONSE": "error",
    "ERROR": "error",
    "TIMEOUT": "error",
    # Bedrock (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_MessageStopEvent.html) and Titan
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "malformed_model_output": "error",
    "malformed_tool_use": "error",
    "FINISH": "stop",
    "FINISHED": "stop",
    "STOP_CRITERIA_MET": "stop",
    "LENGTH": "length",
    "CONTENT_FILTERED": "content_filter",
    "INTERVENED": "content_filter",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reply:
    """The assembled reply.

    `parts` keeps content in order of first sight, or of its places where the wire numbers those. `finish_reason` is the provider's word,
    `finish_detail` a second one where the first is vague, `ended` says that the dialect's end mark came. `choices` holds every choice, lowest index
    first, where there are several; the reply itself then shows the first. Everything else derives from these.

    Two replies are equal when parts, finish_reason and its detail, usage counts (None is not 0), complete and the error types are.
    """

    parts: tuple[Part, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    errors: tuple[ReplyError, ...] = ()
    warnings: tuple[str, ...] = ()
    ended: bool = False
    role: str | None = None
    model: str | None = None
    id: str | None = None
    choices: tuple[Reply, ...] = ()
    finish_detail: str | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def refusal(self) -> str | None:
        """The refusal text, or None where the model did not refuse in words."""
        pieces = [part.text for part in self.parts if isinstance(part, RefusalPart)]
        return "".join(pieces) if pieces else None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that may be run: closed, and their arguments a JSON object on the wire."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall) and part.problem is None)

    @property
    def incomplete_tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that must not be run; each `problem` says why."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall) and part.problem is not None)

    @property
    def stop(self) -> Stop | None:
        """`finish_reason` in one vocabulary for all providers; None while there is none."""
        if self.finish_reason is None:
            return None
        if self.finish_reason in ("completed", "STOP") and self.tool_calls:
            return "tool_calls"  # the words of wires that make no difference there
        return _STOPS.get(self.finish_detail or "") or _STOPS.get(self.finish_reason, "other")

    @property
    def complete(self) -> bool:
        """A finish reason or the end mark came, and no error. A reply cut by the length limit is complete, a stream that merely stops is not."""
        return (self.finish_reason is not None or self.ended) and not self.errors

    def _compared(self) -> tuple[object, ...]:
        return (
            self.parts,
            self.finish_reason,
            self.finish_detail,
            self.usage,
            self.complete,
            self.errors,
            self.choices,
        )

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, Reply) else NotImplemented

    __repr__ = _short_repr


# ------------------------------------------------------------------------------------------------------------------ on file


@dataclass(frozen=True, slots=True)
class Interaction:
    """One exchange in a cassette.

    `test` is the pytest node id of the test that made it (None: any test may play it), `dialect` the wire dialect's name where it is a known stream,
    `assembled` what the assembler made of it when it was recorded, as plain values.
    """

    exchange: Exchange
    test: str | None = None
    dialect: str | None = None
    assembled: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Cassette:
    """The interactions of one file, in recorded order. `at` is an ISO 8601 UTC time, `by` the program that recorded it."""

    interactions: tuple[Interaction, ...] = ()
    at: str = ""
    by: str = ""

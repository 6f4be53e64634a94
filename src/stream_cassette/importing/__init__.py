"""Others' recordings as cassettes of ours: the table of their formats, which of them a file has, and the way from an exchange to an interaction."""

from __future__ import annotations

import email.utils
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from ..cassette import of_now, read_per_event, update
from ..decoding import KNOWN, Undecodable, codings, decoded
from ..errors import CassetteError
from ..framing import frames
from ..headers import separated
from ..model import COMPLETE, Cassette, Headers, Interaction
from ..recording import Recorder
from ..redact import Redaction, Scrubbing, scrub_value, summary
from ..yamltext import LARGEST
from . import cassetter, har, raw, vcr
from .entries import Entry, Facts, Kept, LeftOut, Source, in_utc
from .targets import is_respelled, names_in, sources, targets_of
from .values import value_in

__all__ = [
    "FORMATS",
    "Facts",
    "Format",
    "Imported",
    "LeftOut",
    "is_respelled",
    "names_in",
    "read",
    "save",
    "sources",
    "targets_of",
]

NO_TIMES = "boundaries and times are not known: one read an event, at 0 ms"
_ONE_TIME = (
    "boundaries are not known: one read an event, at 0 ms; but the last comes when the archive says that the body ended"
)
_STREAMED = ("text/event-stream", "application/vnd.amazon.eventstream", "application/x-ndjson")


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file: whose it is, whether a source is one, and its entries."""

    whose: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source], Iterator[Entry]]


FORMATS: Mapping[str, Format] = {
    "har": Format("HTTP archives of browsers and proxies", har.recognises, har.read),
    "cassetter": Format("cassettes of cassetter", cassetter.recognises, cassetter.read),
    "vcr": Format("cassettes of VCR.py and pytest-recording", vcr.recognises, vcr.read),
    "raw": Format("a response by itself, as curl prints it", raw.recognises, raw.read),
}
"""The formats by name, in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file gave: a `cassette`, perhaps with nothing in it; its `format`; what was `left_out`; and `remarks`, a line each, for a person."""

    cassette: Cassette
    format: str
    left_out: tuple[LeftOut, ...]
    remarks: tuple[str, ...]


@dataclass(slots=True)
class _Told:
    """What there is to say about a file."""

    remarks: list[str] = field(default_factory=list)
    redactions: list[Redaction] = field(default_factory=list)


def read(
    path: Path,
    *,
    format: str = "",
    facts: Facts = Facts(),  # noqa: B008 - frozen
    scrubbing: Scrubbing = Scrubbing(),  # noqa: B008 - frozen
    test: str | None = None,
) -> Imported:
    """The exchanges in a file as a recording would have stored them: scrubbed, without compression, and assembled; all of them of `test`.

    `format` is a name in `FORMATS`, or empty to recognise it. Raises `CassetteError` for a file that cannot be read or has none of these formats.
    """
    source = _source(path, facts, format)
    name = format or _recognised(source)
    if not FORMATS[name].recognises(source) and name != "raw":
        raise CassetteError(f"{_seen(source)} is none of the {FORMATS[name].whose}", where=source.name, mend=_HOW)
    found = list(FORMATS[name].read(source))
    kept = [each for each in found if isinstance(each, Kept)]
    told = _Told()
    interactions = [_interaction(each, scrubbing, test, told) for each in kept]
    times = [when for each in kept if (when := _when(each)) is not None]
    cassette = of_now(interactions)
    if times:
        cassette = replace(cassette, at=min(times).strftime("%Y-%m-%dT%H:%M:%SZ"))
    remarks = [_ONE_TIME if any(each.lasted_ms for each in kept) else NO_TIMES] if kept else []
    remarks += told.remarks + ([replaced] if (replaced := summary(told.redactions)) else [])
    left_out = [each for each in found if isinstance(each, LeftOut)]
    # What is told of a file may quote it.
    clean = partial(scrub_value, secrets=scrubbing.secrets)
    return Imported(
        cassette,
        name,
        tuple(LeftOut(clean(each.place), clean(each.why)) for each in left_out),
        tuple(map(clean, remarks)),
    )


def save(path: Path, cassette: Cassette, *, force: bool = False) -> None:
    """Writes the cassette to `path`, in one step and verified. `CassetteError` where there is one already, but for `force`."""

    def change(old: Cassette) -> Cassette:
        if old != Cassette() and not force:
            raise CassetteError("there is a cassette already", where=str(path), mend="--force writes over it")
        return cassette

    update(path, change)


# ------------------------------------------------------------------------------------------------------------------- the file

_HOW = f"say what it is: --format {' or '.join(FORMATS)} (raw: a response by itself, with --url)"


def _source(path: Path, facts: Facts, format: str) -> Source:
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= LARGEST else b""
    except OSError as error:
        raise CassetteError(
            f"cannot read the file: {error.strerror}", where=str(path), mend="name one that can be read"
        ) from error
    if size > LARGEST:
        raise CassetteError(f"a file has at most {LARGEST} bytes", where=str(path), mend="split it")
    value = None if format == "raw" else value_in(data, str(path), is_yaml=format in ("vcr", "cassetter"))
    return Source(str(path), data, value, facts)


def _recognised(source: Source) -> str:
    name = next((name for name, format in FORMATS.items() if format.recognises(source)), "")
    if name:
        return name
    if isinstance(source.value, dict) and "format" in source.value and "interactions" in source.value:
        raise CassetteError("it is a cassette of this package already", where=source.name, mend="use it as it is")
    raise CassetteError(f"{_seen(source)} is no recording that is known", where=source.name, mend=_HOW)


def _seen(source: Source) -> str:
    """What a file is, to say that it is nothing else."""
    match source.value:
        case {**fields} if fields:
            more = ", ..." if len(fields) > 5 else ""
            return f"a mapping with the keys {', '.join(map(repr, list(fields)[:5]))}{more}"
        case None if not source.data.strip():
            return "an empty file"
        case None:
            return f"what begins with {source.data[:40]!r}"
        case value:
            return f"a {type(value).__name__}"


# --------------------------------------------------------------------------------------------------------------- the exchange


def _interaction(kept: Kept, scrubbing: Scrubbing, test: str | None, told: _Told) -> Interaction:
    """The exchange, recorded as if it came now; `told` learns what there is to say."""
    headers, body, was = _plain(separated(kept.headers), kept.body)
    request = replace(kept.request, headers=separated(kept.request.headers))
    reads = [read.data for read in read_per_event(body)]
    # The headers come at 0, and so do all reads, as far as anybody knows.
    times = iter([*([0.0] * len(reads)), kept.lasted_ms / 1000])
    take = Recorder(request, lambda: next(times), scrubbing)
    take.start(kept.status, headers)
    for data in reads:
        take.read(data)
    take.end(COMPLETE)
    interaction = take.interaction(test)
    interaction = replace(interaction, exchange=replace(interaction.exchange, was=was))
    told.redactions += take.redactions
    told.remarks += [
        f"{kept.place}: {text}" for text in (kept.remark, take.problem, _unsound(interaction, take)) if text
    ]
    return interaction


def _unsound(interaction: Interaction, take: Recorder) -> str:
    """What makes a stream one to look at before it is relied on; empty for nothing."""
    exchange = interaction.exchange
    if interaction.dialect is None:
        kind = (exchange.header("content-type") or "").partition(";")[0].strip().lower()
        unknown = kind in _STREAMED and exchange.reads and not take.problem
        return "a stream of no known dialect, so it has no `assembled`" if unknown else ""
    reply = take.stream.reply
    if reply.finish_reason is None and not reply.ended and not reply.errors:
        return "neither a finish reason nor an end mark came: the stream may have been cut"
    return ""


def _plain(headers: Headers, body: bytes) -> tuple[Headers, bytes, str]:
    """Headers and body without compression, and its name. Some tools keep the header of a compression that they have taken off."""
    names = codings(", ".join(value for name, value in headers if name == "content-encoding"))
    if not names or not body:
        return headers, body, ""
    if not _is_plain(body):
        try:
            body = b"".join(data for _, data in decoded(names, [(0.0, body)], whole=True))
        except Undecodable:
            return headers, body, ""  # the recorder will say it
    kept = tuple(pair for pair in headers if pair[0] not in ("content-encoding", "content-length"))
    return kept, body, ", ".join(name for name in names if name in KNOWN)  # any other text may be anything


def _is_plain(body: bytes) -> bool:
    """Whether it is UTF-8, which no compressed data is, or a whole binary event stream."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return body[0] < 2 and all(frame.problem is None for frame in frames(body))
    return True


def _when(kept: Kept) -> datetime | None:
    """When it was recorded, so that its age is known: as the file says, or the server did."""
    if kept.at is not None:
        return kept.at
    said = next((value for name, value in kept.headers if name == "date"), "")
    try:
        return in_utc(email.utils.parsedate_to_datetime(said))
    except (TypeError, ValueError, OverflowError):
        return None

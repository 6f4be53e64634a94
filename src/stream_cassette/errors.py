"""Every error of this package. Each says what happened, where, and how to mend it (the exact flag or call)."""

from __future__ import annotations

from typing import Any

_UNDER_MEND = "\n         "


class _Explained(BaseException):
    """What, where and mend, joined into the one text that a person reads."""

    what: str
    where: str
    mend: str

    def __init__(self, what: str, *, where: str = "", mend: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.mend = what, where, mend

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.mend:
            # A command stands on a line of its own, so that it can be pasted.
            lines.append(f"  mend:  {self.mend.replace(chr(10), _UNDER_MEND)}")
        return "\n".join(lines)


class StreamCassetteError(_Explained, Exception):
    """The base of all errors of this package but `CassetteMiss`.

    `what`, `where` (a file and line, a request, a byte position) and `mend` (what to do about it) are plain text; `str()` joins them.
    """


class UnknownDialect(StreamCassetteError):
    """The source is no stream that a registered dialect recognises."""


class DialectError(StreamCassetteError):
    """What is to be registered is no dialect: it lacks a member, or its name is taken."""


class CannotSay(StreamCassetteError):
    """A reply, delta or event cannot be written in the wire dialect asked for."""


class NotApplicable(StreamCassetteError):
    """A mutator has nothing to act on in this stream, or works below the level of what is fed: a test with it could not fail."""


class LawBroken(AssertionError):
    """An assembler breaks the law of a mutation; the text has the mutators as code, the stream, what broke, and how to keep it."""


class _OfReply(StreamCassetteError):
    """`text` is what the reply said (never to be stored as an answer), `reply` the whole `Reply`."""

    def __init__(self, what: str, *, where: str = "", mend: str = "", text: str = "", reply: Any = None) -> None:
        super().__init__(what, where=where, mend=mend)
        self.text, self.reply = text, reply


class IncompleteReply(_OfReply):
    """A structured reply that is not whole: its stream broke or was cut, or the model refused. `text` is what came, `reply` the whole `Reply`."""


class InvalidReply(_OfReply):
    """A structured reply that is whole and not what it should be; `where` is the JSON path of what does not fit. `text` and `reply` as above."""


class CassetteError(StreamCassetteError):
    """A cassette file that cannot be read or written; `where` names file and line."""


class CassetteMissing(CassetteError):
    """A replay needs a cassette that does not exist; `mend` is the command that records it."""


class TapeError(StreamCassetteError):
    """The tape is used in a way that cannot work (two active tapes and no context, an unknown mode ...)."""


class RecordingTooShort(StreamCassetteError):
    """The reader wants more than the reader of the recording took: that one left early, the rest was never seen."""


class NothingIntercepted(StreamCassetteError):
    """A marked test in which no request went over the tape and the recording was not read."""


class Unplayed(StreamCassetteError):
    """Recorded interactions of the test that the code under test did not ask for."""


class AssembledDiffers(StreamCassetteError):
    """What the assembler makes of a recording today is not what the cassette says it made of it."""


class Drifted(StreamCassetteError):
    """What the provider streams now has another wire shape than the recording, or could not be compared; `what` has a line for each difference."""


class SnapshotError(StreamCassetteError):
    """A snapshot that is missing, cannot be read, or a value that cannot be stored as one."""


class MissingExtra(StreamCassetteError):
    """A feature needs a package that is not installed; `mend` names the extra that brings it."""


class CassetteMiss(_Explained, BaseException):
    """No recorded interaction answers the request.

    Not an `Exception`, like pytest's own outcomes: the SDKs catch every `Exception` of their transport, wait and try again, and so would turn
    a stale cassette into seconds of backoff and a connection error. Code under test that catches `BaseException` hides nothing either: the
    tape notes the first miss and the test fails with it.
    """


class LiveConnection(CassetteMiss):
    """A connection to the network, past every door of the tape, while it only replays; `what` names the client library."""

"""A tape behind the loopback server: any client in any language is answered from its cassette."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stream_cassette.errors import CassetteMiss, RecordingTooShort, StreamCassetteError, TapeError
from stream_cassette.model import Ending, Exchange, Headers, Read, Request
from stream_cassette.playing import Player
from stream_cassette.server import Server, Source, serve
from stream_cassette.tape import Tape

_STATUSES = {404: "NOT_FOUND", 502: "UNAVAILABLE"}  # in Google's words


@dataclass(frozen=True, slots=True)
class Served:
    """How a request was served: `reads` of the body went out, and `ended` says in words how it ended; `miss` has the whole text of a miss.

    An exchange that HTTP cannot carry was served as status 500 and no read of it.
    """

    request: Request
    status: int
    reads: int
    ended: str
    miss: str = ""


Told = Callable[[Served], None]


def _nobody(served: Served) -> None:
    pass


@contextmanager
def serve_tape(tape: Tape, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[Server]:
    """Answers requests on a port of `host` (0: a free one) from what `tape` may play, at its `timing`; see `answer`.

    What is said to the server from within this process is left alone by the tape, so that it is answered once.
    """
    with serve(lambda request: answer(tape, request), host=host, port=port) as server:
        tape.hosts = tape.hosts.also(server.url)
        yield server


def answer(tape: Tape, request: Request, told: Told = _nobody) -> Source | Exchange:
    """What `tape` answers a request that a server on loopback was asked: as if it was made to the host under which it is recorded.

    Each read goes out as one chunk, and the recorded ending follows. A client that leaves early is seen in `tape.responses` as `closed`, with as many
    reads as were sent until that was noticed: how many of them it took, a server cannot know; with `timing="instant"` that may be all, and then the
    response has `ended`. Where the recording is too short the connection is broken off. A miss is noted on the tape and answered with status 404, its
    text in the words of an error of every provider, and `x-should-retry: false`. So is a request that the tape would record. `told` hears of every
    request when it is over.
    """
    try:
        take = tape.open(tape.at_recorded_host(request))
    except CassetteMiss as miss:
        return _refused(miss, request, told)
    except StreamCassetteError as failure:
        told(_failed(request, failure))
        raise
    if isinstance(take, Player):
        return _Playing(take, request, told)
    error = TapeError(
        "a server on loopback replays; it does not know whom it should ask",
        where=str(tape.path),
        mend=record_command(tape.path, tape.test),
    )
    tape.note(error)
    return _refused(error, request, told)


def record_command(path: Path, test: str | None) -> str:
    """The command that adds to the cassette what is missing in it."""
    named = ["--test", test] if test else []
    words = ["stream-cassette", "record", "--upstream", "URL", "--mode", "new", "--to", str(path), *named]
    return shlex.join([*words, "--", "COMMAND"])


def _refused(error: CassetteMiss | TapeError, request: Request, told: Told) -> Exchange:
    said = refusal(request, 404, "cassette_miss", str(error))
    told(Served(request, said.status, 1, "miss", str(error)))
    return said


def refusal(request: Request, status: Literal[404, 502], kind: str, text: str) -> Exchange:
    """An answer that tells an error of ours. Providers differ in where the text of an error stands, and one object has it everywhere."""
    error = {"message": text, "type": kind, "code": status, "status": _STATUSES[status]}
    body = json.dumps({"type": "error", "message": text, "error": error}).encode()
    headers: Headers = (("content-type", "application/json"),)
    if status == 404:
        headers += (("x-should-retry", "false"),)
    return Exchange(request, status, headers, (Read(0, body),))


def in_words(failure: Exception) -> str:
    """A failure in a line, for a person to read: what is not ours may quote secrets."""
    return failure.what if isinstance(failure, StreamCassetteError) else type(failure).__name__


def _failed(request: Request, failure: Exception) -> Served:
    return Served(request, 500, 0, in_words(failure))


class _Playing:
    """A player as a source."""

    ready = None

    def __init__(self, player: Player, request: Request, told: Told) -> None:
        self._player = player
        self._request = request
        self._told = told
        self._ended = ""

    def head(self) -> tuple[int, Headers]:
        return self._player.exchange.status, self._player.exchange.headers

    def pause(self) -> float:
        return self._player.pause()

    def read(self) -> bytes | Ending:
        try:
            given = self._player.read()
        except RecordingTooShort:  # noted on the tape
            self._ended = "broken off: the recording is too short"
            return Ending("disconnected", "protocol")
        if isinstance(given, Ending):
            self._ended = f"{given.kind} ({given.error})" if given.error else given.kind
        return given

    @property
    def torn(self) -> bool:
        exchange = self._player.exchange
        return exchange.ending.error == "chunk" and self._player.response.reads == len(exchange.reads)

    def close(self, failure: Exception | None = None) -> None:
        self._player.close()
        response = self._player.response
        if failure is not None:
            self._told(_failed(self._request, failure))
        else:
            self._told(Served(self._request, response.status, response.reads, self._ended or "closed by the client"))

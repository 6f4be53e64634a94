"""`stream-cassette serve`"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from stream_cassette.model import Cassette, Exchange, Request
    from stream_cassette.server import Source
    from stream_cassette.serving import Served, Told
    from stream_cassette.tape import Tape

HELP = "replay a cassette over HTTP on loopback, for any client in any language"
EPILOG = """\
examples:
  stream-cassette serve cassettes/a.yaml --port 8080
  OPENAI_BASE_URL=http://127.0.0.1:8080/v1 node chat.mjs

  stream-cassette serve cassettes/a.yaml --loop --timing recorded
  stream-cassette serve cassettes/a.yaml --mutate 'InterleaveToolCalls(order=(0, 1))'

A request is looked up as if made to the host under which it is recorded. Each
recording is played once, as in a test; with --loop, for development, a request
whose recordings were all played starts the cassette over.

It serves until Ctrl-C.
exit status: 0 done, 1 a request had no recording, 2 an error.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cassette", type=Path, metavar="CASSETTE", help="the cassette")
    parser.add_argument("--port", type=_port, default=0, metavar="N", help="the port (default: a free one)")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="H", help="the address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--timing",
        default="instant",
        metavar="PACE",
        help="instant (default), recorded, or x0.1 for a tenth of the recorded times",
    )
    parser.add_argument(
        "--mutate",
        action="append",
        default=[],
        metavar="MUTATOR",
        help="change the last stream: a mutator as code, or the name of its class; may be given several times",
    )
    parser.add_argument(
        "--test", metavar="NODEID", help="play what this test recorded (default: the one test that recorded)"
    )
    parser.add_argument(
        "--loop", action="store_true", help="start over when a request has been played as often as recorded"
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def run(options: argparse.Namespace) -> int:
    from stream_cassette.mutate.parsing import parse
    from stream_cassette.server import serve
    from stream_cassette.serving import record_command
    from stream_cassette.tape import Tape

    from .choosing import cassette
    from .terminable import terminable

    found = cassette(options.cassette)
    test = _test(found, options)
    mutators = [parse(text) for text in options.mutate]
    record = record_command(options.cassette, test)
    if not options.loop:
        record += "\n(where it is recorded and was played: --loop starts over)"

    def tape() -> Tape:
        return Tape(options.cassette, test=test, timing=options.timing, mutate=mutators, record_command=record)

    replay = _Replay(tape, _tell, loop=options.loop)
    with terminable(), serve(replay, host=options.host, port=options.port) as server:
        try:
            print(f"replaying {options.cassette} at {server.url}")
            for each in found.interactions:
                if each.test in (None, test):
                    print(f"  {_asked(each.exchange.request)}")
            for mutator in replay.tape.mutators:
                print(f"mutated: {mutator!r}")
            print("until Ctrl-C", flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            print()
    return 1 if replay.missed else 0


def _test(found: Cassette, options: argparse.Namespace) -> str | None:
    """Whose recordings to play: those of the test that is named, else of the only one."""
    from stream_cassette.errors import StreamCassetteError

    tests = list(dict.fromkeys(each.test for each in found.interactions if each.test is not None))
    if options.test is not None and options.test in tests:
        return str(options.test)
    if options.test is None and len(tests) < 2:
        return tests[0] if tests else None
    what = "several tests recorded" if options.test is None else f"the test {options.test} recorded nothing"
    raise StreamCassetteError(
        f"{what} here", where=str(options.cassette), mend="\n".join(f"--test '{each}'" for each in tests) or "no --test"
    )


def _asked(request: Request) -> str:
    from stream_cassette.server import shown

    return f"{request.method} {urlsplit(shown(request.url)).path or '/'}"


def _tell(served: Served) -> None:
    reads = f"{served.reads} read{'s' * (served.reads != 1)}"
    said = [f"{_asked(served.request)} {served.status} {reads}, {served.ended}"]
    print("\n  ".join(said + served.miss.splitlines()), flush=True)


class _Replay:
    """Answers from one tape, and with `loop` from a new one as soon as that has nothing left for a request."""

    def __init__(self, make: Callable[[], Tape], told: Told, *, loop: bool) -> None:
        self.tape = make()
        self.missed = False
        self._make, self._told, self._loop = make, told, loop
        self._lock = threading.RLock()

    def __call__(self, request: Request) -> Source | Exchange:
        from stream_cassette.serving import answer

        misses: list[Served] = []
        with self._lock:
            given = answer(self.tape, request, lambda served: (misses.append if served.miss else self._tell)(served))
            if misses and self._loop and self.tape.responses:
                self.tape = self._make()
                return answer(self.tape, request, self._tell)
            for each in misses:
                self._tell(each)
        return given

    def _tell(self, served: Served) -> None:
        with self._lock:
            self.missed = self.missed or bool(served.miss)
            self._told(served)

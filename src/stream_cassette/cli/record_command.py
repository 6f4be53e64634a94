"""`stream-cassette record`"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from stream_cassette.proxy import Passed
    from stream_cassette.server import Server
    from stream_cassette.tape import Mode, Tape

HELP = "run any program, in any language, and record what it streams, through a proxy on loopback"
EPILOG = """\
examples:
  stream-cassette record --upstream https://api.openai.com/v1 --to cassettes/a.yaml -- node chat.mjs
  stream-cassette record --upstream https://api.anthropic.com --mode all -- python agent.py
  stream-cassette record --upstream http://127.0.0.1:11434 --to cassettes/local.yaml

The program finds the proxy's URL in its environment, with the path of the
upstream: in STREAM_CASSETTE_URL, and in what the SDKs of the upstream's
provider read. Where the upstream is of no known provider, all of these name it:
OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL, GROQ_BASE_URL,
CO_API_URL, OLLAMA_HOST, AZURE_OPENAI_ENDPOINT, AWS_ENDPOINT_URL_BEDROCK_RUNTIME.
A program that reads none of them can pass STREAM_CASSETTE_URL on.
Bedrock takes a bearer key only: an AWS signature is of the host it was made for.

Without a COMMAND it prints the URL and records until Ctrl-C. Ctrl-C ends the
COMMAND too; what was whole by then is saved.

exit status: that of COMMAND; else 0 done, 1 nothing was asked for or a request
had no recording, 2 an error.
"""

# By the host of the upstream: to tell a program's other keys to a provider that is not theirs would be a leak.
_PROVIDERS = {
    "api.openai.com": ("OPENAI_BASE_URL",),
    "openai.azure.com": ("AZURE_OPENAI_ENDPOINT",),
    "api.anthropic.com": ("ANTHROPIC_BASE_URL",),
    "generativelanguage.googleapis.com": ("GOOGLE_GEMINI_BASE_URL",),
    "aiplatform.googleapis.com": ("GOOGLE_VERTEX_BASE_URL",),
    "amazonaws.com": ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
    "api.cohere.com": ("CO_API_URL",),
    "api.groq.com": ("GROQ_BASE_URL", "OPENAI_BASE_URL"),
}
_ELSEWHERE = (
    "OPENAI_BASE_URL",
    "ANTHROPIC_BASE_URL",
    "GOOGLE_GEMINI_BASE_URL",
    "GROQ_BASE_URL",
    "CO_API_URL",
    "OLLAMA_HOST",
    "AZURE_OPENAI_ENDPOINT",
    "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
)
_GRACE = 2.0  # seconds that a program has to end by itself after Ctrl-C, which reached it too


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--upstream", required=True, metavar="URL", help="the base URL that the proxy stands for")
    parser.add_argument(
        "--to",
        type=Path,
        default=Path("cassettes/recorded.yaml"),
        metavar="CASSETTE",
        help="the file to record into (default: cassettes/recorded.yaml)",
    )
    parser.add_argument(
        "--mode",
        choices=("once", "new", "all"),
        default="once",
        help="once: only where nothing is recorded, else replay (default); new: add what is missing; all: record anew",
    )
    parser.add_argument("--test", metavar="NODEID", help="the test that the recording is for")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME",
        help="put the URL into this variable too; may be given several times",
    )
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="the program and its arguments, after --")


def run(options: argparse.Namespace) -> int:
    from stream_cassette.clients import use
    from stream_cassette.errors import CassetteMiss
    from stream_cassette.proxy import forwarding
    from stream_cassette.serving import record_command

    from .terminable import terminable

    progress = _Progress(live=not options.words and sys.stderr.isatty())
    # Where there is no file yet the modes are one, and this one keeps what is whole when it is cut short.
    mode: Mode = options.mode if options.to.exists() else "new"
    command = record_command(options.to, options.test)
    tape, status = None, 0
    try:
        with (
            terminable(),
            use(options.to, mode=mode, test=options.test, record_command=command) as tape,
            forwarding(options.upstream, told=progress) as (server, url),
        ):
            status = _under_record(options, server, url, tape)
    except CassetteMiss as miss:
        _say(str(miss))
        status = status or 1
    finally:
        if tape is not None and progress.asked:
            for line in _summary(tape):
                _say(line)
    if not progress.asked:
        _say("nothing was asked of the proxy, so nothing is recorded; does the program read its URL? (--env NAME)")
        status = status or 1
    return status


def _under_record(options: argparse.Namespace, server: Server, url: str, tape: Tape) -> int:
    """Runs the command, or waits for Ctrl-C; the exit status."""
    from stream_cassette.server import shown

    names = (*_names(options.upstream), "STREAM_CASSETTE_URL", *options.env)
    doing, whence = ("replaying", "from") if tape.replays_only else ("recording", "into")
    _say(f"{doing} {shown(options.upstream)} {whence} {options.to}: {', '.join(names)} = {shown(url)}")
    process = _started(options.words, dict.fromkeys(names, url)) if options.words else None
    try:
        if process is None:
            print(url, flush=True)
            threading.Event().wait()
        else:
            status = process.wait()
            server.settle()
            return status if status >= 0 else 128 - status
    except KeyboardInterrupt:
        # The program was interrupted too, and what it was reading is not whole. Other clients are not interrupted.
        if process is not None or not server.settle(0):
            tape.cut_short("interrupted", ended=True)
        if process is not None:
            _end(process)
            return 130
    return 0


def _names(upstream: str) -> Sequence[str]:
    host = urlsplit(upstream).hostname or ""
    known = (names for end, names in _PROVIDERS.items() if host == end or host.endswith((f".{end}", f"-{end}")))
    return next(known, _ELSEWHERE)


def _started(words: Sequence[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    from stream_cassette.errors import StreamCassetteError

    try:
        return subprocess.Popen(words, env={**os.environ, **variables})
    except OSError as error:
        raise StreamCassetteError(
            f"cannot run {words[0]}: {error.strerror}", mend="write the command and its arguments after --"
        ) from error


def _end(process: subprocess.Popen[bytes]) -> None:
    """Waits for the process to end, and makes it if it does not. A Ctrl-C on the terminal has reached it too."""
    for ends in (process.terminate, process.kill):
        try:
            process.wait(_GRACE)
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            ends()
    process.wait()


def _summary(tape: Tape) -> list[str]:
    if tape.saved:
        what = f"{tape.saved} exchange{'s' * (tape.saved != 1)} recorded"
        what += "" if tape.changed else ", which say what the file said before"
    elif tape.replays_only:
        what = "nothing recorded: the cassette answered (--mode all records anew, --mode new what is missing)"
    else:
        what = "nothing recorded"
    return [f"{tape.path}: {what}", *tape.remarks]


def _say(text: str) -> None:
    print(f"stream-cassette: {text}", file=sys.stderr, flush=True)


class _Progress:
    """A line for each request on standard error; where `live`, it is there while the request lasts."""

    def __init__(self, *, live: bool) -> None:
        self.asked = False
        """Whether there was a request."""
        self._live = live
        self._lock = threading.Lock()

    def __call__(self, passed: Passed) -> None:
        with self._lock:
            self.asked = True
            if self._live:
                sys.stderr.write("\r\x1b[K")
            if self._live and not passed.ended:
                # Cut, because a line that wraps cannot be written over.
                sys.stderr.write(_line(passed)[: shutil.get_terminal_size().columns - 1])
                sys.stderr.flush()
            elif passed.ended:
                _say(_line(passed))


def _line(passed: Passed) -> str:
    from stream_cassette.server import shown

    said = [f"{passed.request.method} {urlsplit(shown(passed.request.url)).path or '/'} {passed.status or '-'}"]
    if passed.events:
        said.append(f"{passed.events} event{'s' * (passed.events != 1)}")
    said.append(f"{passed.size} bytes")
    if passed.first_ms is not None:
        said.append(f"the first after {passed.first_ms} ms")
    return ", ".join([*said, *([passed.ended] if passed.ended else [])])

"""The doors where a tape meets an HTTP library, and `use`, which opens them for a block of code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Literal

from stream_cassette.active import active
from stream_cassette.clients import aiohttp, guard, httpx, urllib3
from stream_cassette.clients.doors import Door, opened
from stream_cassette.errors import TapeError
from stream_cassette.model import Exchange
from stream_cassette.mutate.items import Spec
from stream_cassette.recording import Clock
from stream_cassette.tape import Mode, Tape

DOORS: Mapping[str, Door] = {
    "aiohttp": aiohttp.door,
    "httpx": httpx.door,
    "httpx2": httpx.door,
    "urllib3": urllib3.door,
}
"""The door of every library that has one, by the name of its module."""


@contextmanager
def intercepted(tape: Tape) -> Iterator[Tape]:
    """Makes `tape` the active one and opens every door; at the end shuts them and closes (saves) the tape. Raises nothing that the tape noted."""
    guard.install()
    with ExitStack() as stack:
        stack.callback(tape.close)
        stack.enter_context(opened(DOORS))
        stack.enter_context(active(tape))
        yield tape


@contextmanager
def use(
    path: str | PathLike[str],
    *,
    mode: Mode = "none",
    test: str | None = None,
    clock: Clock = time.monotonic,
    record_command: str = "",
    ignore: Sequence[str] = (),
    keep_failures: bool = False,
    keep_headers: Sequence[str] = (),
    allow_hosts: Sequence[str] = (),
    allow_loopback: bool = False,
    unplayed: Literal["ignore", "error"] = "ignore",
    timing: str = "instant",
    secrets: Sequence[str] = (),
    scrub: Callable[[Exchange], Exchange | None] | None = None,
    mutate: Sequence[Spec] = (),
) -> Iterator[Tape]:
    """Replays (or, as `mode` says, records) the requests of a block of code with the cassette at `path`.

        with use("cassettes/weather.yaml", mode="once") as tape:
            answer = my_agent("Weather in Pune?")
        assert tape.reply.tool_calls[0].name == "get_weather"

    The arguments are those of `Tape`. At the end the first failure that the tape noted is raised, whatever the block made of it; then, if the block
    succeeded, `CassetteMissing` if there is no cassette to replay, `AssembledDiffers` if today's assembler contradicts it, `Drifted` if the mode is
    `compare` and the provider streams another shape and, with `unplayed="error"`, `Unplayed` if recorded interactions were not asked for. Where the block fails, a note to its error tells what was not kept
    of a recording (see `Tape.cut_short`).
    """
    __tracebackhide__ = True
    if unplayed not in ("ignore", "error"):
        raise TapeError(f"unplayed cannot be {unplayed!r}", where=str(path), mend="use one of ignore, error")
    tape = Tape(
        Path(path),
        mode=mode,
        test=test,
        clock=clock,
        record_command=record_command,
        ignore=ignore,
        keep_failures=keep_failures,
        keep_headers=keep_headers,
        allow_hosts=allow_hosts,
        allow_loopback=allow_loopback,
        timing=timing,
        secrets=secrets,
        scrub=scrub,
        mutate=mutate,
    )
    try:
        with intercepted(tape):
            try:
                yield tape
            except BaseException as error:
                ended = not isinstance(error, (KeyboardInterrupt, GeneratorExit))
                tape.cut_short(f"the block failed with {type(error).__name__}" if ended else "interrupted", ended=ended)
                raise
    except BaseException as original:
        if tape.not_kept:
            original.add_note(f"{tape.path}: {tape.not_kept}")
        if isinstance(original, (KeyboardInterrupt, SystemExit, GeneratorExit)) or tape.failure in (None, original):
            raise
        guard.shorten(tape.failure)
        raise tape.failure from original
    if tape.failure is not None:
        guard.shorten(tape.failure)
        raise tape.failure
    tape.check_found()
    tape.check_assembled()
    tape.check_drift()
    if unplayed == "error":
        tape.check_unplayed()

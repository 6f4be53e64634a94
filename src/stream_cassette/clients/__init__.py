"""The doors where a tape meets an HTTP library, and `use`, which opens them for a block of code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path

from stream_cassette.clients import httpx
from stream_cassette.tape import Clock, Mode, Tape

DOORS = (httpx.door,)
"""Context managers, one per HTTP library; each lets the active tape answer that library's requests while it is open."""


@contextmanager
def intercepted(tape: Tape) -> Iterator[Tape]:
    """Makes `tape` the active one and opens every door; at the end shuts them and closes (saves) the tape. Raises nothing that the tape noted."""
    with ExitStack() as stack:
        stack.callback(tape.close)
        for door in DOORS:
            stack.enter_context(door())
        tape.activate()
        stack.callback(tape.deactivate)
        yield tape


@contextmanager
def use(
    path: str | PathLike[str],
    *,
    mode: Mode = "none",
    test: str | None = None,
    clock: Clock = time.monotonic,
    record_command: str = "",
) -> Iterator[Tape]:
    """Replays (or, as `mode` says, records) the requests of a block of code with the cassette at `path`.

        with use("cassettes/weather.yaml", mode="once") as tape:
            answer = my_agent("Weather in Pune?")
        assert tape.reply.tool_calls[0].name == "get_weather"

    The arguments are those of `Tape`. At the end the first failure that the tape noted is raised, whatever the block made of it; then, if the block
    succeeded, `AssembledDiffers` if today's assembler contradicts the cassette.
    """
    tape = Tape(Path(path), mode=mode, test=test, clock=clock, record_command=record_command)
    try:
        with intercepted(tape):
            yield tape
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as original:
        if tape.failure is None or tape.failure is original:
            raise
        raise tape.failure from original
    if tape.failure is not None:
        raise tape.failure
    tape.check_assembled()

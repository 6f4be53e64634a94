"""Which tape a request belongs to: that of its context, and for a thread without one the only tape there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from stream_cassette.errors import TapeError
from stream_cassette.tape import Tape

ACTIVE: list[Tape] = []
"""The active tapes of the whole process, because a thread that the code under test starts has no context of ours."""


@dataclass(frozen=True, slots=True, eq=False)
class _Here:
    tape: Tape
    outer: _Here | None


_context: ContextVar[_Here | None] = ContextVar("stream_cassette_tape", default=None)


@contextmanager
def active(tape: Tape) -> Iterator[None]:
    """Requests of this context, and of threads that have no tape of their own, come to `tape` meanwhile. May end in another context and out of turn."""
    here = _Here(tape, _still(_context.get()))
    ACTIVE.append(tape)
    _context.set(here)
    try:
        yield
    finally:
        ACTIVE.remove(tape)
        if _context.get() is here:
            _context.set(here.outer)


def tapes_here() -> tuple[Tape, ...]:
    """The tape of this context, else every active one."""
    here = _still(_context.get())
    return tuple(ACTIVE) if here is None else (here.tape,)


def _still(here: _Here | None) -> _Here | None:
    """The innermost that is still active: a context that was copied while a tape was active, or left before its end, still names it afterwards."""
    while here is not None and here.tape not in ACTIVE:
        here = here.outer
    return here


def active_tape() -> Tape | None:
    """The tape of this context, else the only active one, else None.

    Raises `TapeError`, noted on every active tape, if there are several and none in this context: guessing could swap two tests' streams.
    """
    __tracebackhide__ = True
    tapes = tapes_here()
    if len(tapes) > 1:
        error = TapeError(
            f"{len(tapes)} tapes are active, and the request comes from a thread or task that belongs to none of them",
            where=" and ".join(str(each.path) for each in tapes),
            mend="run it in a copy of the context: threading.Thread(target=contextvars.copy_context().run, args=(function,))",
        )
        for each in tapes:
            each.note(error)
        raise error
    return tapes[0] if tapes else None

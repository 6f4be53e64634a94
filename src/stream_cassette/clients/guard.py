"""The guard behind the doors: while a tape only replays, a connection to the network is an error that names the client that makes it.

It sees what Python's own sockets do, which Python tells to audit hooks (https://docs.python.org/3/library/audit_events.html). What a library does in
C with sockets of its own, such as gRPC and curl, it cannot see.
"""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import os
import socket
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from stream_cassette.active import ACTIVE, tapes_here
from stream_cassette.errors import LiveConnection
from stream_cassette.hosts import is_address, is_link_local, is_loopback
from stream_cassette.tape import Tape

_CONNECTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_RESOLVES = frozenset({"socket.getaddrinfo", "socket.gethostbyname"})
_WATCHED = _CONNECTS | _RESOLVES
_FAMILIES = (socket.AF_INET, socket.AF_INET6)

ANSWERED = "httpx, httpx2, urllib3 2, requests, boto3, aiohttp, or an SDK on one of them"
"""The clients that have a door, as an error names them."""

_MEND = (
    f"use a client that the tape answers: {ANSWERED}; or, where it is meant to be live, allow_hosts=['...'] or, for this "
    "machine, allow_loopback=True"
)
_MEND_CREDENTIALS = (
    "it asks this machine for credentials, which a replay does not check: give it any, as boto3 in the environment "
    "AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x"
)

# Who is to blame, where several are on the stack: the outer ones first. The module of a frame begins with the name.
_CLIENTS = (
    ("openai._vendor.httpx_aiohttp", "openai's DefaultAioHttpClient, which rides on aiohttp"),
    ("httpx_aiohttp", "httpx on aiohttp (httpx_aiohttp)"),
    ("botocore", "boto3 (botocore)"),
    ("requests", "requests"),
    ("aiohttp", "aiohttp"),
    ("urllib3", "urllib3"),
    ("websockets", "websockets"),
    ("websocket", "websocket-client"),
    ("urllib.request", "urllib.request"),
    ("http.client", "http.client"),
)
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
_Spot = tuple[str, CodeType, int]
_SITE = ("site-packages", "dist-packages")


@functools.cache
def install() -> None:
    """Hangs the guard up, once for this process: an audit hook cannot be taken down. Without an active tape it costs one look at a set."""
    sys.addaudithook(_hook)


# The defaults are there because the hook is called until the very end, when the names of this module are gone.
def _hook(event: str, args: tuple[Any, ...], watched: frozenset[str] = _WATCHED, active: list[Tape] = ACTIVE) -> None:
    __tracebackhide__ = True
    if event in watched and active:
        _inspect(event, args)


# Else neither debuggers nor coverage see what happens in it.
_hook.__cantrace__ = True  # type: ignore[attr-defined]


def _inspect(event: str, args: tuple[Any, ...]) -> None:
    __tracebackhide__ = True
    tapes = tapes_here()
    if not tapes or not all(tape.replays_only for tape in tapes):
        return
    if event in _RESOLVES:
        where = _resolved(args[0])
        allowed = where is None or any(tape.hosts.allow_name(where) for tape in tapes)
    else:
        where, port = _connected(*args)
        allowed = where is None or any(tape.hosts.allow_address(where, port) for tape in tapes)
    if where is None or allowed or _is_socketpair():
        return
    target = where if event in _RESOLVES else f"{where} port {port}"
    error = _error(target, tapes, _MEND_CREDENTIALS if is_link_local(where) else _MEND)
    for tape in tapes:
        tape.note(error)
    if event in _CONNECTS:
        # Who opened it closes it after an OSError only, and the garbage collector would complain in some later test.
        args[0].close()
    raise error


def _resolved(host: str | bytes | None) -> str | None:
    """The name that somebody has to be asked for; None for what this machine knows by itself."""
    name = os.fsdecode(host) if host else ""
    known = not name or is_address(name) or is_loopback(name.lower()) or name.lower() == socket.gethostname().lower()
    return None if known else name


def _connected(sock: socket.socket, address: Any) -> tuple[str | None, int]:
    """The other end; None where that is not on a network (a Unix socket), or where the socket is connected already."""
    if sock.family not in _FAMILIES or not isinstance(address, tuple) or not address[0]:
        return None, 0
    return os.fsdecode(address[0]), int(address[1])


def _is_socketpair() -> bool:
    """Where there are no Unix sockets, `socket.socketpair` connects two over loopback: an event loop wakes itself so."""
    frame = sys._getframe()
    return any(_module(each) == "socket" and "socketpair" in each.f_code.co_name for each in _outwards(frame))


def _error(target: str, tapes: tuple[Tape, ...], mend: str) -> LiveConnection:
    client, place = _client()
    return LiveConnection(
        f"{client} goes to the network while the recording is replayed: {target}",
        where=f"{place}; {' and '.join(str(tape.path) for tape in tapes)}",
        mend=mend,
    )


# ------------------------------------------------------------------------------------------------------------- who it is


def _client() -> tuple[str, str]:
    """The client library, and the place in the user's own code, as far as the stack shows them."""
    seen = [_spot(frame) for frame in _outwards(sys._getframe())]
    place = next((spot for spot in seen if _is_own(spot)), None)
    # An event loop has names looked up in a thread, where nothing shows for whom.
    stack = seen if place else [*seen, *_in_loops()]
    place = place or next((spot for spot in stack if _is_own(spot)), None)
    where = f"{place[1].co_filename}:{place[2]}" if place else "the stack shows no code of yours"
    for name, shown in _CLIENTS:
        if any(module == name or module.startswith(f"{name}.") for module, _, _ in stack):
            return shown, where
    inner = itertools.takewhile(lambda spot: not _is_own(spot), stack)
    foreign = next((module.partition(".")[0] for module, code, _ in inner if _is_foreign(code.co_filename)), None)
    return foreign or "a socket", where


def _spot(frame: FrameType) -> _Spot:
    return _module(frame), frame.f_code, frame.f_lineno


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_foreign(file: str) -> bool:
    return any(name in file for name in _SITE) and not file.startswith(_OWN)


def _is_own(spot: _Spot) -> bool:
    file = spot[1].co_filename
    inside = any(name in file for name in _SITE) or file.startswith(("<", _OWN))
    return not inside and not os.path.realpath(file).startswith(_STDLIB)


def shorten(error: BaseException) -> None:
    """Ends the traceback with the last line of the user's own: what the libraries do below it is the same for every miss."""
    last, entry = None, error.__traceback__
    while entry is not None:
        if _is_own((_module(entry.tb_frame), entry.tb_frame.f_code, entry.tb_lineno)):
            last = entry
        entry = entry.tb_next
    if last is not None:
        last.tb_next = None


def _in_loops() -> Iterator[_Spot]:
    """What runs and what waits in every running event loop of asyncio, the innermost frame of each first."""
    asyncio: Any = sys.modules.get("asyncio")  # a replay without it need not load it
    for outermost in sys._current_frames().values() if asyncio else ():
        stack = list(_outwards(outermost))
        selves = [frame.f_locals.get("self") for frame in stack if frame.f_code.co_name == "run_forever"]
        for loop in [each for each in selves if isinstance(each, asyncio.AbstractEventLoop)]:
            yield from map(_spot, stack)
            for task in asyncio.all_tasks(loop):
                yield from reversed(list(_awaiting(task.get_coro())))


def _awaiting(waiting: Any) -> Iterator[_Spot]:
    while waiting is not None:
        kind = next((each for each in ("cr", "gi", "ag") if hasattr(waiting, f"{each}_frame")), None)
        if kind is None:
            # What `__await__` of a coroutine gives hides it.
            waiting = next(filter(inspect.iscoroutine, gc.get_referents(waiting)), None)
            continue
        if frame := getattr(waiting, f"{kind}_frame"):
            yield _spot(frame)
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")

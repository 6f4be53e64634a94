"""What the doors share: the patch that lets a tape in and goes away again, and what of a recording a client must not be told."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from stream_cassette.model import COMPLETE, Ending, Exchange

CLOSED = Ending("closed")

# One that its thread may take twice: an abandoned tape ends wherever the garbage collector strikes.
_LOCK = threading.RLock()

# The attribute of a patching function that holds its `_StandIn`; whoever wraps the function with functools.wraps copies it.
_MARK = "_stream_cassette_patch"
# That of a method that was patched, with its `_StandIn` for the next time: tests open and shut doors thousands of times in a run.
_KEPT = "_stream_cassette_stand_in"


# ------------------------------------------------------------------------------------------------------------------- the patch


@dataclass(frozen=True, slots=True)
class Patch:
    """The method `name` of `owner` is to give way to what `wrap(library, method)` makes of it."""

    library: Any
    owner: type
    name: str
    wrap: Callable[[Any, Callable[..., Any]], Callable[..., Any]]


Door = Callable[[Any], Sequence[Patch]]
"""What of a library, given as its module, is to be patched, so that the active tape answers its requests; without a tape they go their usual way."""


@dataclass(slots=True)
class _StandIn:
    """What stands in the place of a method, what it takes to undo that, and how many open doors still need it."""

    patch: Patch
    original: Callable[..., Any]
    function: Callable[..., Any]
    doors: int = 0


def _stand_in(patch: Patch, original: Callable[..., Any]) -> _StandIn:
    kept = getattr(original, _KEPT, None)
    # What wraps a method may show its attributes for its own, and even equal it.
    if isinstance(kept, _StandIn) and kept.original is original and kept.patch == patch:
        return kept
    made = _StandIn(patch, original, patch.wrap(patch.library, original))
    setattr(made.function, _MARK, made)
    with suppress(AttributeError, TypeError):  # not every callable takes attributes
        setattr(original, _KEPT, made)
    return made


def _put(patch: Patch) -> _StandIn:
    """Patches once for all blocks that overlap. The lock is held."""
    function = vars(patch.owner)[patch.name]
    standing = getattr(function, _MARK, None)
    if not isinstance(standing, _StandIn) or standing.function is not function:
        standing = _stand_in(patch, function)
    standing.doors += 1
    if vars(patch.owner)[patch.name] is not standing.function:
        setattr(patch.owner, patch.name, standing.function)
    return standing


def _take_away(standing: _StandIn) -> None:
    """The last of the blocks that overlap puts the method back. The lock is held."""
    owner, name = standing.patch.owner, standing.patch.name
    standing.doors -= 1
    # Somebody else may have patched over ours meanwhile. They will put ours back, which then does nothing, and the next door takes it up.
    if standing.doors == 0 and vars(owner).get(name) is standing.function:
        setattr(owner, name, standing.original)


# --------------------------------------------------------------------------------------------------------------- late imports


@contextmanager
def opened(doors: Mapping[str, Door]) -> Iterator[None]:
    """Opens the door of every library (by the name of its module): at once where it is loaded, else as soon as somebody imports it.

    Importing them all here would cost a test that uses one of them the time of the others.
    """
    waiting = _Waiting(doors)
    try:
        waiting.start()
        yield
    finally:
        waiting.stop()


def _loading(module: ModuleType) -> bool:
    """Whether another thread, or a caller of ours, is just importing it; the loader tells when it is done."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Waiting(MetaPathFinder):
    """Finds nothing itself: it has the others find a module that it waits for, and opens the door when that is loaded."""

    def __init__(self, doors: Mapping[str, Door]) -> None:
        self._doors = doors
        self._open: list[_StandIn] = []

    def start(self) -> None:
        with _LOCK:
            sys.meta_path.insert(0, self)
            for name, door in self._doors.items():
                if (module := sys.modules.get(name)) is not None and not _loading(module):
                    self._open += map(_put, door(module))

    def open(self, name: str, module: ModuleType) -> None:
        with _LOCK:
            # It stays in the table: a module that is loaded anew has new classes.
            if door := self._doors.get(name):
                self._open += map(_put, door(module))

    def stop(self) -> None:
        with _LOCK:
            self._doors = {}
            while self._open:
                _take_away(self._open.pop())
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._doors:
            return None
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(fullname, path, target) for finder in later)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(Loader):
    """Loads as the loader that it stands for, and tells when that is done."""

    def __init__(self, loader: Any, waiting: _Waiting) -> None:
        self._loader = loader
        self._waiting = waiting

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # of a copy in the making
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # What others ask a module's loader for is not ours to answer.
        assert module.__spec__ is not None  # it is being imported
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._waiting.open(module.__name__, module)


# ------------------------------------------------------------------------------------------------------------------ the headers


def headers_of(exchange: Exchange) -> list[tuple[str, str]]:
    """The response headers as a client may be told them: without a content length that cannot be true."""
    return [(name, value) for name, value in exchange.headers if name != "content-length" or _fits(exchange, value)]


def _fits(exchange: Exchange, length: str) -> bool:
    """Whether a content length can be true: a scrubbed or decompressed body has another one, an interrupted body is shorter."""
    if exchange.request.method == "HEAD" or exchange.status == 304:
        return True
    # int() refuses thousands of digits, and takes those of any script.
    promised, got = int(length) if re.fullmatch("[0-9]{1,18}", length) else -1, len(exchange.body)
    return promised == got if exchange.ending == COMPLETE else promised >= got

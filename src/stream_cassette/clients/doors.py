"""What the doors share: the patch that lets a tape in and goes away again, and what of a recording a client must not be told."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from stream_cassette.model import COMPLETE, Ending, Exchange

CLOSED = Ending("closed")

_LOCK = threading.Lock()

# The attribute of a patching function that holds its `_Patch`; whoever wraps the function with functools.wraps copies it.
_MARK = "_stream_cassette_patch"


# --------------------------------------------------------------------------------------------------------------- late imports

Door = Callable[[Any], AbstractContextManager[None]]
"""Lets the active tape answer the requests of a library, given as its module, while it is open."""


@contextmanager
def opened(doors: Mapping[str, Door]) -> Iterator[None]:
    """Opens the door of every library (by the name of its module): at once where it is loaded, else as soon as somebody imports it.

    Importing them all here would cost a test that uses one of them the time of the others.
    """
    with ExitStack() as stack:
        waiting = _Waiting(doors, stack)
        with _LOCK:
            sys.meta_path.insert(0, waiting)
        stack.callback(waiting.stop)
        for name in doors:
            if (module := sys.modules.get(name)) is not None and not _loading(module):
                waiting.open(name, module)
        yield


def _loading(module: ModuleType) -> bool:
    """Whether another thread, or a caller of ours, is just importing it; the loader tells when it is done."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Waiting(MetaPathFinder):
    """Finds nothing itself: it has the others find a module that it waits for, and opens the door when that is loaded."""

    def __init__(self, doors: Mapping[str, Door], stack: ExitStack) -> None:
        self._doors = dict(doors)
        self._stack = stack
        self._lock = threading.Lock()

    def open(self, name: str, module: ModuleType) -> None:
        with self._lock:
            # It stays in the table: a module that is loaded anew has new classes.
            if door := self._doors.get(name):
                self._stack.enter_context(door(module))

    def stop(self) -> None:
        with self._lock, _LOCK:
            self._doors.clear()
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


# ------------------------------------------------------------------------------------------------------------------- the patch


@dataclass(slots=True)
class _Patch:
    """What it takes to undo a patch: what stood there, and how many open doors still need it."""

    original: Callable[..., Any]
    function: Callable[..., Any]
    doors: int = 0


@contextmanager
def patched(owner: type, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Puts `wrap(method)` in the place of the method `name` of `owner`, once for all blocks that overlap; the last to end puts the method back."""
    with _LOCK:
        function = vars(owner)[name]
        patch: _Patch | None = getattr(function, _MARK, None)
        if patch is None or patch.function is not function:
            original, function = function, wrap(function)
            patch = _Patch(original, function)
            setattr(function, _MARK, patch)
            setattr(owner, name, function)
        patch.doors += 1
    try:
        yield
    finally:
        with _LOCK:
            patch.doors -= 1
            # Somebody else may have patched over ours meanwhile. They will put ours back, which then does nothing, and the next door takes it up.
            if patch.doors == 0 and vars(owner)[name] is function:
                setattr(owner, name, patch.original)


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

"""The door of a library opens when the library is imported, however that happens."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stream_cassette import Reply, synthesize
from stream_cassette.cassette import of_now, update
from stream_cassette.clients.doors import Patch, opened
from stream_cassette.model import Interaction, Request, TextPart

HEAD = """
import importlib, sys, threading
from pathlib import Path
from stream_cassette import use

URL = "http://provider.test/"
path = sys.argv[1]

def loaded():
    return sorted({"httpx", "httpx2", "urllib3", "aiohttp", "requests"}.intersection(sys.modules))

def ask():
    import httpx2
    return httpx2.get(URL).text
"""
CASES = {
    "nothing is imported by a tape": "with use(path) as tape: tape.reply; assert loaded() == [], loaded()",
    "imported inside": "with use(path): assert 'Low tide.' in ask()",
    "imported before": "import httpx2\nwith use(path): assert 'Low tide.' in ask()",
    "imported in a thread": """
with use(path):
    thread = threading.Thread(target=importlib.import_module, args=["httpx2"])
    thread.start(); thread.join()
    assert 'Low tide.' in ask()
""",
    "a part of it first": """
with use(path):
    from urllib3.connectionpool import HTTPConnectionPool
    assert b'Low tide.' in HTTPConnectionPool("provider.test").request("GET", "/").data
""",
    "two tapes open": """
with use(path):
    with use(path) as inner:
        assert 'Low tide.' in ask()
    assert 'Low tide.' in ask()
assert not hasattr(vars(sys.modules["httpx2"].HTTPTransport)["handle_request"], "__wrapped__")
""",
    "loaded anew": """
with use(path):
    import httpx2
    for name in [name for name in sys.modules if name.partition(".")[0] == "httpx2"]:
        del sys.modules[name]
    assert 'Low tide.' in ask()
""",
    "reloaded": """
import urllib3.connectionpool, urllib3
with use(path):
    importlib.reload(urllib3.connectionpool); importlib.reload(urllib3)
    assert b'Low tide.' in urllib3.PoolManager().request("GET", URL).data
""",
    "its loader is its own": """
with use(path):
    import httpx2
    assert type(httpx2.__spec__.loader).__module__ != "stream_cassette.clients.doors"
    assert type(httpx2.__loader__).__module__ != "stream_cassette.clients.doors"
    import importlib.resources
    assert importlib.resources.files("httpx2").joinpath("__init__.py").is_file()
""",
    "its loader can be copied": """
import copy
with use(path):
    loader = copy.copy(importlib.util.find_spec("httpx2").loader)
    assert loader.get_filename("httpx2").endswith("__init__.py")
    assert 'Low tide.' in ask()
""",
    "it is not there": """
class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name == "aiohttp": raise ImportError("not here")
with use(path):
    sys.meta_path.insert(1, Nowhere())
    try: import aiohttp
    except ImportError: pass
    else: raise AssertionError
    assert importlib.util.find_spec("nothing_at_all") is None
    assert 'Low tide.' in ask()
""",
    "afterwards nothing is left": """
before = list(sys.meta_path)
with use(path) as tape: tape.reply
assert sys.meta_path == before
import httpx2
assert not hasattr(vars(httpx2.HTTPTransport)["handle_request"], "__wrapped__")
""",
}


@pytest.mark.parametrize("code", CASES.values(), ids=CASES.keys())
def test_a_late_import(code: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    request = Request("GET", "http://provider.test/")
    said = synthesize(Reply((TextPart("Low tide."),), "stop", ended=True), "openai-chat", request=request)
    update(path, lambda _: of_now([Interaction(said.exchange, dialect="openai-chat")] * 2))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HEAD + code, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def remembering(library: Any) -> list[Patch]:
    OPENED.append(library.__name__)
    return []


OPENED: list[str] = []


def test_what_cannot_be_found_has_no_door() -> None:
    OPENED.clear()
    with opened({"no_such_module_at_all": remembering}), pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_at_all")
    assert OPENED == []


@pytest.mark.parametrize("ends_first", [False, True])
def test_a_tape_may_end_while_a_library_is_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_first: bool
) -> None:
    OPENED.clear()
    stack = ExitStack()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        "stream_cassette.clients.doors.ends", stack.close if ends_first else lambda: None, raising=False
    )
    (tmp_path / "slow_library.py").write_text("from stream_cassette.clients import doors\ndoors.ends()\n")
    with stack:
        stack.enter_context(opened({"slow_library": remembering}))
        importlib.import_module("slow_library")
        del sys.modules["slow_library"]
    assert ([] if ends_first else ["slow_library"]) == OPENED


# ------------------------------------------------------------------------------------------------------ beside other patches


class Library:
    """A library with one class, whose method says how it was reached."""

    def __init__(self) -> None:
        self.Transport = type("Transport", (), {"send": lambda transport: "sent"})

    def patch(self) -> Patch:
        return Patch(self, self.Transport, "send", _marked)

    def send(self) -> str:
        return self.Transport().send()


def _marked(library: Library, original: Callable[..., str]) -> Callable[..., str]:
    def send(transport: Any) -> str:
        return f"taken, {original(transport)}"

    return send


class Wrapper:
    """As wrapt makes them, which OpenTelemetry patches with: it shows what it wraps for itself, and equals it."""

    def __init__(self, name: str, wrapped: Callable[..., str]) -> None:
        self.__dict__.update(name=name, wrapped=wrapped)

    def __call__(self, transport: Any) -> str:
        return f"{self.name}, {self.wrapped(transport)}"

    def __get__(self, transport: Any, owner: type) -> Callable[[], str]:
        return lambda: self(transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.wrapped, name, value)

    def __eq__(self, other: object) -> bool:
        return self.wrapped == other

    def __hash__(self) -> int:
        return hash(self.wrapped)


class Closed:
    """Callable, but neither hashable nor open to attributes."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return True

    def __get__(self, transport: Any, owner: type) -> Callable[[], str]:
        return lambda: self(transport)

    def __call__(self, transport: Any) -> str:
        return "closed"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setitem(sys.modules, "a_library", made)
    return made


DOOR = {"a_library": lambda library: [library.patch()]}


def test_a_wrapper_that_equals_what_it_wraps_is_another_method(library: Library) -> None:
    original = vars(library.Transport)["send"]
    with opened(DOOR):
        assert library.send() == "taken, sent"
    for name in ("one", "two"):
        wrapper = Wrapper(name, original)
        library.Transport.send = wrapper
        for _ in range(2):
            with opened(DOOR):
                assert library.send() == f"taken, {name}, sent"
            assert vars(library.Transport)["send"] is wrapper
    library.Transport.send = original
    with opened(DOOR):
        assert library.send() == "taken, sent"
    assert vars(library.Transport)["send"] is original


def test_a_method_is_wrapped_once_for_all_tapes(library: Library) -> None:
    seen = []
    for _ in range(2):
        with opened(DOOR):
            seen.append(vars(library.Transport)["send"])
    assert seen[0] is seen[1]


def test_any_callable_may_stand_there(library: Library) -> None:
    library.Transport.send = closed = Closed()
    for _ in range(2):
        with opened(DOOR):
            assert library.send() == "taken, closed"
        assert vars(library.Transport)["send"] is closed


def test_a_method_that_goes_away_keeps_no_other_door_open(library: Library) -> None:
    other = Library()
    original = vars(library.Transport)["send"]
    door = {"a_library": lambda _: [library.patch(), other.patch()]}
    before = vars(other.Transport)["send"]
    with opened(door):
        del library.Transport.send
    assert vars(other.Transport)["send"] is before
    library.Transport.send = original
    with opened(door):
        assert (library.send(), other.send()) == ("taken, sent", "taken, sent")
    assert (library.send(), other.send()) == ("sent", "sent")


def test_an_abandoned_tape_may_end_while_another_opens(library: Library) -> None:
    abandoned = opened(DOOR)
    abandoned.__enter__()
    left = [abandoned]
    del abandoned

    def collecting(library: Library, original: Callable[..., str]) -> Callable[..., str]:
        left.clear()  # as the garbage collector may at any time
        return _marked(library, original)

    second = type("Second", (), {"send": lambda transport: "sent"})
    with opened({"a_library": lambda library: [library.patch(), Patch(library, second, "send", collecting)]}):
        assert library.send() == "taken, sent"
    assert library.send() == "sent"

"""The face to pytest: the marker, the fixtures, the options. Loads nothing but pytest until a test asks for a cassette."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .settings import Settings
    from .snapshot import Snapshot
    from .tape import Tape

_TAPE = pytest.StashKey["Tape"]()
_FAILED_WITH = pytest.StashKey[BaseException]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stream-cassette", "streamed LLM replies: record once, replay ever after")
    group.addoption(
        "--stream-record",
        choices=("none", "once", "new", "all"),
        help="none: replay only (default); once: record for a test that has no recording; new: record what is missing; all: record anew",
    )
    group.addoption("--stream-snapshot-update", action="store_true", help="store what the tests assembled as their snapshots")
    parser.addini("stream_cassette_dir", "folder of the cassettes, from the root directory", default="cassettes")
    parser.addini("stream_record", "the mode where --stream-record is not given", default="none")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "stream_cassette(name=None, *, mode=None): replay the test's HTTP requests from the cassette `name`, by default one of its own",
    )


@pytest.fixture
def stream_cassette_config() -> Mapping[str, Any]:
    """Settings for the tests that see this fixture: override it to return `dir` or `mode`."""
    return {}


@pytest.fixture
def stream_cassette(request: pytest.FixtureRequest, stream_cassette_config: Mapping[str, Any]) -> Iterator[Tape]:
    """The tape of this test: `.reply`, `.replies`, `.stream`, `.streams`, `.reads` show what was exchanged or is recorded."""
    from .clients import intercepted
    from .tape import Tape

    settings = _settings(request, stream_cassette_config)
    tape = Tape(settings.path, mode=settings.mode, test=request.node.nodeid, record_command=settings.record_command)
    request.node.stash[_TAPE] = tape
    with intercepted(tape):
        yield tape
    # What a thread or task noted after the test's own code had ended.
    if tape.failure is not None and request.node.stash.get(_FAILED_WITH, None) is not tape.failure:
        raise tape.failure


@pytest.fixture(autouse=True)
def _stream_cassette_by_marker(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("stream_cassette") is not None:
        request.getfixturevalue("stream_cassette")


@pytest.fixture
def stream_snapshot(request: pytest.FixtureRequest, stream_cassette_config: Mapping[str, Any]) -> Iterator[Snapshot]:
    """`assert answer == stream_snapshot` compares with what is stored for this test; each comparison has a snapshot of its own."""
    from .snapshot import Snapshot

    update = bool(request.config.getoption("--stream-snapshot-update"))
    settings = _settings(request, stream_cassette_config)
    snapshot = Snapshot(settings.snapshots, update=update, command=settings.snapshot_command)
    yield snapshot
    snapshot.close()


def _settings(request: pytest.FixtureRequest, configured: Mapping[str, Any]) -> Settings:
    from .settings import resolve

    config, marker = request.config, request.node.get_closest_marker("stream_cassette")
    return resolve(
        nodeid=request.node.nodeid,
        rootdir=config.rootpath,
        testpaths=[config.rootpath / path for path in config.getini("testpaths")],
        module=Path(request.node.path),
        option={"mode": config.getoption("--stream-record")},
        marker=(marker.args, marker.kwargs) if marker else ((), {}),
        fixture=configured,
        ini={"mode": config.getini("stream_record"), "dir": config.getini("stream_cassette_dir")},
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """The first failure that the tape noted is the test's failure, whatever the code under test made of it."""
    try:
        result = yield
    except (KeyboardInterrupt, SystemExit, pytest.exit.Exception):
        raise
    except BaseException as error:
        tape = item.stash.get(_TAPE, None)
        if tape is None or tape.failure is None:
            raise
        item.stash[_FAILED_WITH] = tape.failure
        if tape.failure is error:
            raise
        raise tape.failure from error
    if tape := item.stash.get(_TAPE, None):
        _judge(item, tape)
    return result


def _judge(item: pytest.Item, tape: Tape) -> None:
    if tape.failure is not None:
        item.stash[_FAILED_WITH] = tape.failure
        raise tape.failure
    if not tape.used:
        from .errors import NothingIntercepted

        raise NothingIntercepted(
            "the test made no request that the tape could see, and did not read its recording",
            where=item.nodeid,
            mend="use a client that rides on httpx or httpx2, read stream_cassette.reply or .reads, or take the marker off",
        )
    tape.check_assembled()


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    snapshots = sys.modules.get("stream_cassette.snapshot")
    if snapshots is None or op != "==":
        return None
    snapshot = next((side for side in (right, left) if isinstance(side, snapshots.Snapshot)), None)
    return None if snapshot is None else snapshot.explanation()

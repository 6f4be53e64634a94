"""The face to pytest: the marker, the fixtures, the options. Loads nothing but pytest until a test asks for a cassette."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from .model import Exchange
    from .settings import Settings
    from .snapshot import Snapshot
    from .tape import Tape

_TAPE = pytest.StashKey["Tape"]()
_FAILED_WITH = pytest.StashKey[BaseException]()
_UNPLAYED = pytest.StashKey[str]()
_REMARKS = pytest.StashKey[list[str]]()
_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stream-cassette", "streamed LLM replies: record once, replay ever after")
    group.addoption(
        "--stream-record",
        choices=("none", "once", "new", "all"),
        help="none: replay only (default); once: record for a test that has no recording; new: record what is missing; all: record anew",
    )
    group.addoption("--stream-snapshot-update", action="store_true", help="store what the tests assembled as their snapshots")
    group.addoption("--stream-assembler", metavar="PACKAGE:FUNCTION", help="collect cassettes (*.yaml): hold this assembler against each mutator's law")
    group.addoption("--stream-feed", choices=("bytes", "frames", "payloads", "client"), default="bytes", help="what the assembler takes (default: bytes)")
    group.addoption("--stream-levels", default="all", metavar="LEVELS", help="the mutators to collect, by level: wire,deltas,... (default: all)")
    group.addoption("--stream-orphans", action="store_true", help="list the cassettes and snapshots that no collected test owns")
    parser.addini("stream_cassette_dir", "folder of the cassettes, from the root directory", default="cassettes")
    parser.addini("stream_cassette_ignore", "JSON paths of a request body that do not count, one a line: messages[*].id", type="linelist")
    parser.addini("stream_cassette_secrets", "regular expressions of what must not reach a file, one a line, each maybe as `name: regex`", type="linelist")
    parser.addini("stream_cassette_allow_hosts", "hosts that are left alone, one a line: db.internal, 127.0.0.1:5432", type="linelist")
    parser.addini("stream_cassette_allow_loopback", "leave this machine alone: its servers are the test's own", type="bool", default=False)
    parser.addini("stream_cassette_keep_retries", "record failures too after which the client tried again with success", type="bool", default=False)
    parser.addini("stream_cassette_unplayed", "recordings that a test did not play: ignore, warn (at the end of the run) or error", default="warn")
    parser.addini("stream_cassette_max_age", "days after which the end of the run names a cassette as old", default="")
    parser.addini("stream_record", "the mode where --stream-record is not given", default="none")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from . import hooks

    pluginmanager.add_hookspecs(hooks)


def pytest_configure(config: pytest.Config) -> None:
    if assembler := config.getoption("--stream-assembler"):
        from .collecting import assembler_of

        assembler_of(assembler)
    if config.getoption("--stream-orphans"):
        from .orphans import Orphans

        config.pluginmanager.register(Orphans(config, lambda item: _settings(item, {})), "stream_cassette_orphans")
    config.addinivalue_line(
        "markers",
        "stream_cassette(name=None, *, mode=None, ignore=None, keep_retries=None, allow_hosts=None, allow_loopback=None, unplayed=None, secrets=None, mutate=None): replay the test's HTTP requests from the cassette `name`, by default one of its own",
    )


@pytest.fixture
def stream_cassette_config() -> Mapping[str, Any]:
    """Settings for the tests that see this fixture: override it to return `dir`, or what the marker takes but `name`."""
    return {}


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not parent.config.getoption("--stream-assembler") or file_path.suffix != ".yaml" or file_path.name.endswith(".snap.yaml"):
        return None
    from .collecting import CassetteFile

    return CassetteFile.from_parent(parent, path=file_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each mutator of a marker's `mutate=`."""
    marker = metafunc.definition.get_closest_marker("stream_cassette")
    if marker is not None and marker.kwargs.get("mutate"):
        from .mutate.items import items

        found = items(marker.kwargs["mutate"], metafunc.definition.nodeid)
        metafunc.parametrize("_stream_mutation", [spec for _, spec in found], indirect=True, ids=[name for name, _ in found])


@pytest.fixture
def _stream_mutation(request: pytest.FixtureRequest) -> Any:
    return getattr(request, "param", None)


@pytest.fixture
def stream_cassette(request: pytest.FixtureRequest, stream_cassette_config: Mapping[str, Any], _stream_mutation: Any) -> Iterator[Tape]:
    """The tape of this test: `.reply`, `.replies`, `.stream`, `.streams`, `.reads` show what was exchanged or is recorded.

    `.check(result)` holds what the code under test made of it against the law of the item's mutator.
    """
    from .clients import intercepted
    from .errors import NotApplicable
    from .tape import Tape

    settings = _settings(request.node, stream_cassette_config)
    # A snapshot that is stored now has the ids of now, so the recording must have them too.
    quiet = not request.config.getoption("--stream-snapshot-update")
    tape = Tape(settings.path, mode=settings.mode, test=settings.nodeid, record_command=settings.record_command, quiet=quiet, scrub=_last_hand(request.node), **settings.tape)
    if _stream_mutation is not None:
        try:
            tape.mutate([_stream_mutation])
        except NotApplicable as error:
            pytest.skip(f"not applicable: {error}")
    request.node.stash[_TAPE] = tape
    request.node.stash[_UNPLAYED] = settings.unplayed
    with intercepted(tape):
        yield tape
    # Items live to the end of the run; what a test exchanged need not.
    del request.node.stash[_TAPE]
    _remark(request.config, [*tape.remarks, *_old(tape, settings.max_age)])
    # What a thread or task noted after the test's own code had ended.
    if tape.failure is not None and request.node.stash.get(_FAILED_WITH, None) is not tape.failure:
        raise tape.failure


def _last_hand(item: pytest.Item) -> Callable[[Exchange], Exchange | None]:
    return lambda exchange: cast("Exchange | None", item.ihook.pytest_stream_cassette_scrub(exchange=exchange))


@pytest.fixture(autouse=True)
def _stream_cassette_by_marker(request: pytest.FixtureRequest, _stream_mutation: Any) -> None:
    if request.node.get_closest_marker("stream_cassette") is not None:
        request.getfixturevalue("stream_cassette")


@pytest.fixture
def stream_snapshot(request: pytest.FixtureRequest, stream_cassette_config: Mapping[str, Any]) -> Iterator[Snapshot]:
    """`assert answer == stream_snapshot` compares with what is stored for this test; each comparison has a snapshot of its own.

    `stream_snapshot(name=..., exclude_paths=[...], mask={...})` is the same for one comparison that is told more.
    """
    from .snapshot import Snapshot, SnapshotFile

    update = bool(request.config.getoption("--stream-snapshot-update"))
    settings = _settings(request.node, stream_cassette_config)
    file = SnapshotFile(settings.snapshots, update=update, command=settings.snapshot_command, secrets=settings.tape["secrets"])
    yield Snapshot(file)
    if unused := file.close(passed=request.node.stash.get(_PASSED, False)):
        _remark(request.config, [f"{file.path}: nothing was compared with {unused} of its snapshots; remove them: {file.command}"])


def _settings(item: pytest.Item, configured: Mapping[str, Any]) -> Settings:
    from .settings import resolve

    config, marker = item.config, item.get_closest_marker("stream_cassette")
    return resolve(
        nodeid=_nodeid(item),
        rootdir=config.rootpath,
        testpaths=[config.rootpath / path for path in config.getini("testpaths")],
        module=Path(item.path),
        option={"mode": config.getoption("--stream-record")},
        marker=(marker.args, marker.kwargs) if marker else ((), {}),
        fixture=configured,
        ini={"mode": config.getini("stream_record"), **{name: config.getini(f"stream_cassette_{name}") for name in _INI}},
    )


def _nodeid(item: pytest.Item) -> str:
    """The item's name as it is everywhere: xdist's loadgroup appends `@group` in its workers, where a recording belongs to the same test."""
    nodeid = _unmutated(item)
    if "@" in nodeid:
        groups = [str(mark.args[0] if mark.args else mark.kwargs.get("name", "default")) for mark in item.iter_markers("xdist_group")]
        for suffix in ("_".join(sorted(set(groups))), *groups):
            nodeid = nodeid.removesuffix(f"@{suffix}")
    return nodeid


def _unmutated(item: pytest.Item) -> str:
    """The name of the test without the mutator: all its items play what the test recorded."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or "_stream_mutation" not in callspec.params:
        return item.nodeid
    from .mutate.items import name_of

    head, bracket, ids = item.nodeid.partition("[")
    others = [each for each in callspec.id.split("-") if each]
    mutator = name_of(callspec.params["_stream_mutation"]).split("-")
    for start in range(len(others)):
        if others[start : start + len(mutator)] == mutator:
            others[start : start + len(mutator)] = []
            break
    return f"{head}[{'-'.join(others)}]" if others else head


_INI = ("dir", "ignore", "secrets", "allow_hosts", "allow_loopback", "keep_retries", "unplayed", "max_age")


def _old(tape: Tape, days: float | None) -> list[str]:
    from datetime import UTC, datetime, timedelta

    age = tape.age(datetime.now(UTC)) if days is not None else None
    if days is None or age is None or age <= timedelta(days=days):
        return []
    return [f"{tape.path}: recorded {age.days} days ago ({tape.recorded_at}), longer than stream_cassette_max_age = {days:g}; record it again"]


def _remark(config: pytest.Config, lines: list[str]) -> None:
    config.stash.setdefault(_REMARKS, []).extend(lines)


# Under pytest-xdist what the workers remark travels to the process that reports.


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["stream_cassette_remarks"] = session.config.stash.get(_REMARKS, list[str]())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _remark(node.config, getattr(node, "workeroutput", {}).get("stream_cassette_remarks", []))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("--stream-assembler"):
        from .collecting import summary

        terminalreporter.section("mutators")
        for line in summary(terminalreporter.stats):
            terminalreporter.line(line)
    remarks = config.stash.get(_REMARKS, list[str]())
    if remarks:
        terminalreporter.section("stream cassettes")
    for line in sorted(set(remarks)):
        terminalreporter.line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """The first failure that the tape noted is the test's failure, whatever the code under test made of it."""
    item.stash[_PASSED] = False  # a rerun has to pass anew
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
    item.stash[_PASSED] = True
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
    if item.stash[_UNPLAYED] == "error":
        tape.check_unplayed()
    elif item.stash[_UNPLAYED] == "warn":
        _remark(item.config, [f"{line}: not played by {item.nodeid}" for line in tape.unplayed])


def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Adds to pytest's words about a fixture of a wider scope what to do instead."""
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, pytest.fail.Exception) and "ScopeMismatch" in str(error.msg) and "stream_cassette" in str(error.msg):
        error.msg = (
            f"{error.msg}\n\nA cassette belongs to one test. For what a fixture of a wider scope requests:\n"
            "    with stream_cassette.use('cassettes/NAME.yaml', mode='once') as tape: ..."
        )


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    snapshots = sys.modules.get("stream_cassette.snapshot")
    if snapshots is None or op != "==":
        return None
    snapshot = next((side for side in (right, left) if isinstance(side, snapshots.Snapshot)), None)
    return None if snapshot is None else snapshot.explanation()

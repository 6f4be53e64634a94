"""The face to pytest: the marker, the fixtures, the options. Loads nothing but pytest until a test asks for a cassette."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from .model import Exchange
    from .server import Server
    from .settings import Settings
    from .snapshot import Snapshot
    from .tape import Tape

_TAPE = pytest.StashKey["Tape"]()
_FAILED_WITH = pytest.StashKey[BaseException]()
_UNPLAYED = pytest.StashKey[str]()
_REMARKS = pytest.StashKey[list[str]]()
_PASSED = pytest.StashKey[bool]()
_CUT_SHORT = pytest.StashKey[tuple[str, bool] | None]()
_WRITTEN = pytest.StashKey[list[tuple[str, str, int, bool]]]()

_MODES = ("none", "once", "new", "all", "compare")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stream-cassette", "streamed LLM replies: record once, replay ever after")
    group.addoption(
        "--stream-record",
        choices=_MODES,
        help="none: replay only (default); once: record for a test that has no recording; new: record what is missing; all: record anew; "
        "compare: ask the provider, write nothing, and fail where the wire shape is no longer the recorded one",
    )
    group.addoption(
        "--stream-timing",
        metavar="PACE",
        help="how fast recordings play: instant (default), recorded, or x0.1 for a tenth of the recorded times",
    )
    group.addoption(
        "--stream-snapshot-update", action="store_true", help="store what the tests assembled as their snapshots"
    )
    group.addoption(
        "--stream-assembler",
        metavar="PACKAGE:FUNCTION",
        help="collect cassettes (*.yaml): hold this assembler against each mutator's law",
    )
    group.addoption(
        "--stream-feed",
        choices=("bytes", "frames", "payloads", "client"),
        default="bytes",
        help="what the assembler takes (default: bytes)",
    )
    group.addoption(
        "--stream-levels",
        default="all",
        metavar="LEVELS",
        help="the mutators to collect, by level: wire,deltas,... (default: all)",
    )
    group.addoption(
        "--stream-fuzz",
        type=int,
        default=0,
        metavar="N",
        help="beside its mutators collect N items for each cassette in which Hypothesis draws them; pytest-xdist spreads them",
    )
    group.addoption(
        "--stream-orphans", action="store_true", help="list the cassettes and snapshots that no collected test owns"
    )
    parser.addini("stream_cassette_dir", "folder of the cassettes, from the root directory", default="cassettes")
    parser.addini(
        "stream_cassette_ignore",
        "JSON paths of a request body that do not count, one a line: messages[*].id",
        type="linelist",
    )
    parser.addini(
        "stream_cassette_secrets",
        "regular expressions of what must not reach a file, one a line, each maybe as `name: regex`",
        type="linelist",
    )
    parser.addini(
        "stream_cassette_allow_hosts",
        "hosts that are left alone, one a line: db.internal, 127.0.0.1:5432",
        type="linelist",
    )
    parser.addini(
        "stream_cassette_allow_loopback",
        "leave this machine alone: its servers are the test's own",
        type="bool",
        default=False,
    )
    parser.addini(
        "stream_cassette_keep_headers",
        "response headers that are recorded too, one a line: x-request-id",
        type="linelist",
    )
    parser.addini(
        "stream_cassette_keep_failures",
        "record too what the client tried again with success, and the answers 401 and 403",
        type="bool",
        default=False,
    )
    parser.addini("stream_cassette_timing", "how fast recordings play: instant, recorded, x0.1", default="instant")
    parser.addini(
        "stream_cassette_unplayed",
        "recordings that a test did not play: ignore, warn (at the end of the run) or error",
        default="warn",
    )
    parser.addini("stream_cassette_max_age", "days after which the end of the run names a cassette as old", default="")
    parser.addini("stream_record", "the mode where --stream-record is not given", default="none")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from . import hooks

    pluginmanager.add_hookspecs(hooks)


def pytest_configure(config: pytest.Config) -> None:
    for name, allowed in (("stream_record", _MODES), ("stream_cassette_unplayed", ("ignore", "warn", "error"))):
        if (value := config.getini(name)) not in allowed:
            raise pytest.UsageError(f"{name} cannot be {value!r}: use one of {', '.join(allowed)}")
    if assembler := config.getoption("--stream-assembler"):
        from .collecting import assembler_of

        assembler_of(assembler, config.rootpath)
    if config.getoption("--stream-orphans"):
        from .orphans import Orphans

        config.pluginmanager.register(Orphans(config, lambda item: _settings(item, {})), "stream_cassette_orphans")
    config.addinivalue_line(
        "markers",
        "stream_cassette(name=None, *, mode=None, ignore=None, keep_failures=None, keep_headers=None, allow_hosts=None, allow_loopback=None, timing=None, unplayed=None, secrets=None, mutate=None): replay the test's HTTP requests from the cassette `name`, by default one of its own",
    )


@pytest.fixture
def stream_cassette_config() -> Mapping[str, Any]:
    """Settings for the tests that see this fixture: override it to return `dir`, or what the marker takes but `name`."""
    return {}


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if (
        not parent.config.getoption("--stream-assembler")
        or file_path.suffix != ".yaml"
        or file_path.name.endswith(".snap.yaml")
    ):
        return None
    from .collecting import CassetteFile

    return CassetteFile.from_parent(parent, path=file_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each mutator of a marker's `mutate=`; a single one where every item would ask the provider."""
    markers = list(metafunc.definition.iter_markers("stream_cassette"))
    mutate = next((each.kwargs["mutate"] for each in markers if each.kwargs.get("mutate")), None)
    modes = [metafunc.config.getoption("--stream-record"), *(each.kwargs.get("mode") for each in markers)]
    mode = next((each for each in modes if each), metafunc.config.getini("stream_record"))
    if mutate is not None and mode not in ("all", "compare"):
        from .mutate.items import items

        found = items(mutate, metafunc.definition.nodeid)
        metafunc.parametrize(
            "_stream_mutation", [spec for _, spec in found], indirect=True, ids=[name for name, _ in found]
        )


@pytest.fixture
def _stream_mutation(request: pytest.FixtureRequest) -> Any:
    return getattr(request, "param", None)


@pytest.fixture
def stream_cassette(
    request: pytest.FixtureRequest, stream_cassette_config: Mapping[str, Any], _stream_mutation: Any
) -> Iterator[Tape]:
    """The tape of this test: `.reply`, `.replies`, `.stream`, `.streams`, `.reads` show what was exchanged or is recorded.

    `.check(result)` holds what the code under test made of it against the law of the item's mutator.
    """
    from .clients import intercepted

    __tracebackhide__ = True
    request.node.stash[_CUT_SHORT] = "the test did not come to run", False
    settings, tape = _opened(request.node, stream_cassette_config, _stream_mutation)
    request.node.stash[_TAPE] = tape
    request.node.stash[_UNPLAYED] = settings.unplayed
    with intercepted(tape):
        yield tape
        if cut_short := request.node.stash[_CUT_SHORT]:
            why, ended = cut_short
            tape.cut_short(why, ended=ended)
    # Items live to the end of the run; what a test exchanged need not.
    del request.node.stash[_TAPE]
    _remark(request.config, [*tape.remarks, *_old(tape, settings.max_age)])
    _wrote(request.config, tape.path, "exchange", tape.saved, tape.changed)
    # What a thread or task noted after the test's own code had ended.
    if tape.failure is not None and request.node.stash.get(_FAILED_WITH, None) is not tape.failure:
        raise _shown(tape.failure)


def _opened(item: pytest.Item, configured: Mapping[str, Any], mutation: Any) -> tuple[Settings, Tape]:
    from .errors import NotApplicable, StreamCassetteError
    from .tape import Tape

    __tracebackhide__ = True
    try:
        settings = _settings(item, configured)
        tape = Tape(
            settings.path,
            mode=settings.mode,
            test=settings.nodeid,
            record_command=settings.record_command,
            # A snapshot that is stored now has the ids of now, so the recording must have them too.
            quiet=not item.config.getoption("--stream-snapshot-update"),
            scrub=_last_hand(item),
            **settings.tape,
        )
        tape.mutate([] if mutation is None else [mutation])
    except NotApplicable as error:
        pytest.skip(f"not applicable: {error}")
    except StreamCassetteError as error:
        # It says what is wrong in the user's file or setting; where in this package that was noticed helps nobody.
        raise error.with_traceback(None) from None
    return settings, tape


def _last_hand(item: pytest.Item) -> Callable[[Exchange], Exchange | None]:
    return lambda exchange: cast("Exchange | None", item.ihook.pytest_stream_cassette_scrub(exchange=exchange))


@pytest.fixture(autouse=True)
def _stream_cassette_by_marker(request: pytest.FixtureRequest, _stream_mutation: Any) -> None:
    __tracebackhide__ = True
    if request.node.get_closest_marker("stream_cassette") is not None:
        request.getfixturevalue("stream_cassette")


@pytest.fixture
def stream_server(stream_cassette: Tape) -> Iterator[Server]:
    """A server on loopback that replays the test's cassette, with the item's mutator, for a subprocess or any client: `.url` is its base URL.

    It plays what the tape of the test plays, and a request that it cannot answer fails the test. It only replays: `stream-cassette record` records.
    """
    from .serving import serve_tape

    with serve_tape(stream_cassette) as server:
        yield server


@pytest.fixture
def stream_snapshot(request: pytest.FixtureRequest, stream_cassette_config: Mapping[str, Any]) -> Iterator[Snapshot]:
    """`assert answer == stream_snapshot` compares with what is stored for this test; each comparison has a snapshot of its own.

    `stream_snapshot(name=..., exclude_paths=[...], mask={...})` is the same for one comparison that is told more.
    """
    from .snapshot import Snapshot, SnapshotFile

    update = bool(request.config.getoption("--stream-snapshot-update"))
    settings = _settings(request.node, stream_cassette_config)
    file = SnapshotFile(
        settings.snapshots, update=update, command=settings.snapshot_command, secrets=settings.tape["secrets"]
    )
    yield Snapshot(file)
    if unused := file.close(passed=request.node.stash.get(_PASSED, False)):
        _remark(
            request.config,
            [f"{file.path}: nothing was compared with {unused} of its snapshots; remove them: {file.command}"],
        )
    _wrote(request.config, file.path, "snapshot", file.saved, True)


def _settings(item: pytest.Item, configured: Mapping[str, Any]) -> Settings:
    from .settings import resolve

    config = item.config
    return resolve(
        nodeid=_nodeid(item),
        rootdir=config.rootpath,
        testpaths=[config.rootpath / path for path in config.getini("testpaths")],
        module=Path(item.path),
        option={"mode": config.getoption("--stream-record"), "timing": config.getoption("--stream-timing")},
        markers=[(marker.args, marker.kwargs) for marker in item.iter_markers("stream_cassette")],
        fixture=configured,
        ini={
            "mode": config.getini("stream_record"),
            **{name: config.getini(f"stream_cassette_{name}") for name in _INI},
        },
    )


def _nodeid(item: pytest.Item) -> str:
    """The item's name as it is everywhere: xdist's loadgroup appends `@group` in its workers, where a recording belongs to the same test."""
    nodeid = _unmutated(item)
    if "@" in nodeid:
        groups = [
            str(mark.args[0] if mark.args else mark.kwargs.get("name", "default"))
            for mark in item.iter_markers("xdist_group")
        ]
        for suffix in ("_".join(sorted(set(groups))), *groups):
            nodeid = nodeid.removesuffix(f"@{suffix}")
    return nodeid


def _unmutated(item: pytest.Item) -> str:
    """The name of the test without the mutator: all its items play what the test recorded."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or "_stream_mutation" not in callspec.params:
        return item.nodeid
    from .mutate.items import name_of

    head = item.nodeid.partition("[")[0]
    mutator = name_of(callspec.params["_stream_mutation"])
    others = f"-{callspec.id}-".replace(f"-{mutator}-", "-", 1)[1:-1]
    return f"{head}[{others}]" if others else head


_INI = (
    "dir",
    "timing",
    "ignore",
    "secrets",
    "allow_hosts",
    "allow_loopback",
    "keep_failures",
    "keep_headers",
    "unplayed",
    "max_age",
)


def _old(tape: Tape, days: float | None) -> list[str]:
    from datetime import UTC, datetime, timedelta

    age = tape.age(datetime.now(UTC)) if days is not None else None
    if days is None or age is None or age <= timedelta(days=days):
        return []
    return [
        f"{tape.path}: recorded {age.days} days ago ({tape.recorded_at}), longer than stream_cassette_max_age = {days:g}; record it again"
    ]


def _remark(config: pytest.Config, lines: list[str]) -> None:
    config.stash.setdefault(_REMARKS, []).extend(lines)


def _wrote(config: pytest.Config, path: Path, what: str, count: int, changed: bool) -> None:
    shown = path.relative_to(config.rootpath) if path.is_relative_to(config.rootpath) else path
    if count:
        config.stash.setdefault(_WRITTEN, []).append((shown.as_posix(), what, count, changed))


def _told(written: list[tuple[str, str, int, bool]]) -> list[str]:
    """One line a file."""
    lines = []
    for path, what in dict.fromkeys((path, what) for path, what, _, _ in written):
        mine = [(count, changed) for at, kind, count, changed in written if (at, kind) == (path, what)]
        total = sum(count for count, _ in mine)
        verb = "recorded" if what == "exchange" else "stored"
        same = "" if any(changed for _, changed in mine) else ", the same as before"
        lines.append(f"{path}: {total} {what}{'s' * (total != 1)} {verb}{same}")
    return lines


# Under pytest-xdist what the workers tell travels to the process that reports.


@pytest.hookimpl(trylast=True)  # pytest tears down an interrupted test in this hook
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["stream_cassette_remarks"] = session.config.stash.get(_REMARKS, list[str]())
        session.config.workeroutput["stream_cassette_written"] = session.config.stash.get(_WRITTEN, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    _remark(node.config, output.get("stream_cassette_remarks", []))
    node.config.stash.setdefault(_WRITTEN, []).extend(map(tuple, output.get("stream_cassette_written", [])))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("--stream-assembler"):
        from .collecting import summary

        terminalreporter.section("mutators")
        for line in summary(terminalreporter.stats):
            terminalreporter.line(line)
    remarks = [*config.stash.get(_REMARKS, list[str]()), *_told(config.stash.get(_WRITTEN, []))]
    if remarks:
        terminalreporter.section("stream cassettes")
    for line in sorted(set(remarks)):
        terminalreporter.line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """The first failure that the tape noted is the test's failure, whatever the code under test made of it."""
    __tracebackhide__ = True
    item.stash[_PASSED] = False  # a rerun has to pass anew
    item.stash[_CUT_SHORT] = "the test failed", True
    try:
        result = yield
    except (KeyboardInterrupt, pytest.exit.Exception):
        item.stash[_CUT_SHORT] = "interrupted", False
        raise
    except SystemExit:
        raise
    except BaseException as error:
        tape = item.stash.get(_TAPE, None)
        if tape is None or tape.failure is None:
            raise
        item.stash[_FAILED_WITH] = tape.failure
        if tape.failure is not error:
            text = str(error).partition("\n")[0]
            tape.failure.add_note(f"  then:  {type(error).__name__}{': ' * bool(text)}{text}")
        raise _shown(tape.failure) from None
    if tape := item.stash.get(_TAPE, None):
        _judge(item, tape)
    # unittest keeps what a test raises for itself.
    if not getattr(item, "_excinfo", None):
        item.stash[_PASSED] = True
        item.stash[_CUT_SHORT] = None
    return result


def _shown(failure: BaseException) -> BaseException:
    """As it is to be shown: the user's own lines and the message, not what an SDK does below them."""
    from .clients.guard import shorten

    shorten(failure)
    return failure


def _judge(item: pytest.Item, tape: Tape) -> None:
    __tracebackhide__ = True
    if tape.failure is not None:
        item.stash[_FAILED_WITH] = tape.failure
        raise _shown(tape.failure)
    if not tape.used:
        from .clients.guard import ANSWERED
        from .errors import NothingIntercepted

        raise NothingIntercepted(
            "the test made no request that the tape could see, and did not read its recording",
            where=item.nodeid,
            mend=f"use a client that the tape answers ({ANSWERED}), read stream_cassette.reply or .reads, or take the marker off; what a fixture of a wider "
            "scope asks comes before the tape: with stream_cassette.use('cassettes/NAME.yaml', mode='once') there",
        )
    tape.check_assembled()
    tape.check_drift()
    if item.stash[_UNPLAYED] == "error":
        tape.check_unplayed()
    elif item.stash[_UNPLAYED] == "warn":
        _remark(item.config, [f"{line}: not played by {item.nodeid}" for line in tape.unplayed])


def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Adds to pytest's words about a fixture of a wider scope what to do instead."""
    error = call.excinfo.value if call.excinfo is not None else None
    if (
        isinstance(error, pytest.fail.Exception)
        and "ScopeMismatch" in str(error.msg)
        and "stream_cassette" in str(error.msg)
    ):
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

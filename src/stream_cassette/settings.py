"""Where a test's files lie and what mode it runs in: the one function that resolves option, marker, fixture and ini."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from .cassette import locate
from .errors import TapeError
from .tape import Mode

_LONGEST_NAME = 100  # of a file, before its ending; common file systems take 255 bytes


@dataclass(frozen=True, slots=True)
class Settings:
    """`nodeid` of the test, `path` of its cassette, `snapshots` beside it, the `mode`, and the commands that record them, for errors to name.

    `tape` is what else the tape is given, `unplayed` what is done about recordings that were not played, `max_age` in days.
    """

    nodeid: str
    path: Path
    snapshots: Path
    mode: Mode
    record_command: str
    snapshot_command: str
    tape: Mapping[str, Any]
    unplayed: str
    max_age: float | None


_LISTS = ("ignore", "allow_hosts", "keep_headers", "secrets")
_SWITCHES = ("keep_failures", "allow_loopback")
_UNPLAYED = ("ignore", "warn", "error")
_OF_TEST = ("mode", "timing", "unplayed", *_LISTS, *_SWITCHES)


def resolve(
    *,
    nodeid: str,
    rootdir: Path,
    testpaths: Sequence[Path],
    module: Path,
    option: Mapping[str, Any],
    markers: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    fixture: Any,
    ini: Mapping[str, Any],
) -> Settings:
    """The settings of one test: an option wins over the markers, the closest first, those over the fixture `stream_cassette_config`, that over ini.

    Raises `TapeError` for a mode or setting that does not exist, `CassetteError` for a name that leaves the cassette folder.
    """
    if not isinstance(fixture, Mapping):
        raise TapeError(
            f"the fixture stream_cassette_config gave {type(fixture).__name__}, not a mapping",
            where=nodeid,
            mend="return {'mode': 'once'} or the like",
        )
    marked = [_marked(args, kwargs, nodeid) for args, kwargs in markers]
    _known("the fixture stream_cassette_config", nodeid, fixture, ("dir", *_OF_TEST))
    layers = (option, *marked, fixture, ini)
    mode = _first(layers, "mode", "none")
    if mode not in get_args(Mode):
        raise TapeError(f"there is no mode {mode!r}", where=nodeid, mend=f"one of {', '.join(get_args(Mode))}")
    unplayed = str(_first(layers, "unplayed", "warn"))
    if unplayed not in _UNPLAYED:
        raise TapeError(f"unplayed cannot be {unplayed!r}", where=nodeid, mend=f"one of {', '.join(_UNPLAYED)}")
    folder = rootdir / str(fixture.get("dir") or ini["dir"])
    own = _own_name(nodeid, rootdir, testpaths, module)
    path = locate(folder, _first(marked, "name", own))
    run = f"pytest {shlex.quote(nodeid)}"
    record = f"{run} --stream-record=once"
    if path.exists():
        record = f"{run} --stream-record=all\n(--stream-record=new keeps what is recorded and adds what is missing)"
    return Settings(
        nodeid,
        path,
        locate(folder, f"{own}.snap"),
        cast(Mode, mode),
        record,
        f"{run} --stream-snapshot-update",
        _of_tape(layers),
        unplayed,
        _days(ini, nodeid),
    )


def _marked(args: Sequence[Any], kwargs: Mapping[str, Any], nodeid: str) -> Mapping[str, Any]:
    """What one marker says."""
    _known("the marker stream_cassette", nodeid, kwargs, ("name", "mutate", *_OF_TEST))
    names = [*args, *([kwargs["name"]] if "name" in kwargs else [])]
    if len(names) > 1:
        raise TapeError(
            f"the marker stream_cassette takes one name, not {len(names)}",
            where=nodeid,
            mend="mode is a keyword: mode='once'",
        )
    if names and not isinstance(names[0], str | None):
        raise TapeError(
            f"the name of a cassette is a string, not {names[0]!r}",
            where=nodeid,
            mend="such as 'openai/parallel_tools'",
        )
    return {**kwargs, "name": names[0]} if names else kwargs


def _of_tape(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    lists = {name: _first(layers, name, ()) for name in _LISTS}
    # All of them: what one layer knows to be secret is no less so where another knows more.
    lists["secrets"] = [pattern for layer in layers for pattern in _listed(layer.get("secrets") or ())]
    timing = str(_first(layers, "timing", "instant"))
    switches = {name: bool(_first(layers, name, False)) for name in _SWITCHES}
    return {name: _listed(value) for name, value in lists.items()} | switches | {"timing": timing}


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


def _first(layers: Sequence[Mapping[str, Any]], name: str, default: Any) -> Any:
    return next((layer[name] for layer in layers if layer.get(name) is not None), default)


def _days(ini: Mapping[str, Any], nodeid: str) -> float | None:
    text = str(ini.get("max_age") or "")
    try:
        return float(text) if text else None
    except ValueError:
        raise TapeError(
            f"stream_cassette_max_age cannot be {text!r}", where=nodeid, mend="write a number of days, such as 90"
        ) from None


def _known(what: str, nodeid: str, given: Mapping[str, Any], names: Sequence[str]) -> None:
    if strange := sorted(set(given) - set(names)):
        raise TapeError(
            f"{what} has no setting {', '.join(strange)}", where=nodeid, mend=f"it takes {', '.join(names)}"
        )


def _own_name(nodeid: str, rootdir: Path, testpaths: Sequence[Path], module: Path) -> str:
    """`<module under its test folder>/<test>`: two modules of one name in two folders do not meet."""
    # With several test folders each keeps its own name in the path.
    base = (
        next((path for path in testpaths if module.is_relative_to(path)), rootdir) if len(testpaths) == 1 else rootdir
    )
    folder = (module.relative_to(base) if module.is_relative_to(base) else Path(module.name)).with_suffix("")
    test, bracket, parameters = nodeid.partition("[")  # what stands in brackets may hold `::` of its own
    return f"{folder.as_posix()}/{file_name('.'.join(test.split('::')[1:]) + bracket + parameters)}"


def file_name(test: str) -> str:
    """A name for the test that every file system takes; a digest keeps apart what would otherwise become the same."""
    safe = re.sub(r"[^\w.\-\[\]=,+ ]", "-", test).strip(". ")
    if safe == test and len(safe.encode()) <= _LONGEST_NAME:
        return safe
    return f"{safe.encode()[: _LONGEST_NAME - 9].decode(errors='ignore')}-{hashlib.sha256(test.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"

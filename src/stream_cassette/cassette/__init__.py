"""Cassette format 1: YAML text ⇄ `Cassette`; loading, and a save that is locked, merging, verified and atomic."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PureWindowsPath

from ..errors import CassetteError, CassetteMissing
from ..files import locked, replace_file, resolved
from ..model import Cassette, Interaction
from .reading import CassetteWarning, loads, read_per_event
from .writing import FORMAT, chunks, dumps

__all__ = ["FORMAT", "CassetteWarning", "dumps", "load", "loads", "locate", "of_now", "read_per_event", "update"]


def locate(directory: Path, name: str) -> Path:
    """The file of the cassette `name` (`openai/parallel_tools`, with or without `.yaml`) inside `directory`; it need not exist.

    Raises `CassetteError` for a name that is empty, absolute, climbs with `..`, or leaves `directory` over a symbolic link.
    """
    parts = PureWindowsPath(name)  # knows both kinds of separators and drives: a name must mean the same everywhere
    bad = not parts.name or parts.anchor or ".." in parts.parts or name[-1] in "/\\" or "\0" in name
    path = directory / (name if name.endswith(".yaml") else f"{name}.yaml")
    if bad or not resolved(path).is_relative_to(resolved(directory)):
        raise CassetteError(
            f"{name!r} is no cassette inside the cassette directory",
            where=str(directory),
            mend="name it relative to that directory, such as 'openai/parallel_tools', or change stream_cassette_dir",
        )
    return path


def load(path: Path, *, like: Cassette | None = None) -> Cassette:
    """The cassette in the file `path`; `like` as for `loads`.

    Raises `CassetteMissing` where there is no file and `CassetteError`, with file and line, for anything that is not a sound cassette. Warns with
    `CassetteWarning` where a body was edited by hand and `reads` no longer fits it: that response then has one read per event, all at 0 ms.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a device may have no end, a pipe may wait
            raise CassetteError(
                "cannot read the cassette: it is no file", where=str(path), mend="name the file that was recorded"
            )
        with path.open("rb") as file:
            return loads(file, name=str(path), like=like)
    except FileNotFoundError:
        raise CassetteMissing(
            "there is no such cassette", where=str(path), mend="record it: pytest --stream-record=once"
        ) from None
    except OSError as error:
        raise CassetteError(
            f"cannot read the cassette: {error.strerror}",
            where=str(path),
            mend="see what stands in the way, or name another",
        ) from error


def of_now(interactions: Iterable[Interaction]) -> Cassette:
    """A cassette with these interactions, recorded now by this version."""
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Cassette(tuple(interactions), at=at, by=f"stream-cassette {version('pytest-stream-cassette')}")


def update(path: Path, change: Callable[[Cassette], Cassette]) -> Cassette:
    """Replaces the cassette in the file `path` by `change` of what the file holds now (an empty `Cassette` if there is none), and returns it.

    One process at a time does this for one file, so `change` sees what others wrote meanwhile: merge with it. What is about to be written is
    read back and compared first, and the file is replaced in one step: after any failure (`CassetteError`, or what `change` raises) the old
    file is intact. Where `change` returns the very cassette that it was given, nothing is written.
    """
    target = resolved(path)  # a symbolic link stays one
    with locked(target, path):
        try:
            old = load(path)
        except CassetteMissing:
            old = Cassette()
        new = change(old)
        if new is old:
            return old
        try:
            replace_file(target, chunks(new), lambda written: _verify(written, new, path))
        except OSError as error:
            raise CassetteError(
                f"cannot write the cassette: {error.strerror}", where=str(path), mend="nothing was changed; try again"
            ) from error
    return new


def _verify(written: Path, cassette: Cassette, path: Path) -> None:
    """Raises where the file that was written does not say the same as `cassette`."""
    what = "the cassette would not read back as it was recorded, so it was not written"
    mend = "please report this as a bug"
    try:
        again = load(written, like=cassette)
    except CassetteError as error:
        raise CassetteError(what, where=str(path), mend=mend) from error
    if again != cassette:
        raise CassetteError(what, where=str(path), mend=mend)

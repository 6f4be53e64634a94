"""Stored results and their differences: plain YAML that a person reviews, written only when asked."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SnapshotError
from .files import locked, replace_file
from .model import Reply
from .stream import assembled
from .yamltext import check_tree, dump, fields, items, number, read, value_of

if TYPE_CHECKING:
    from yaml.nodes import Node

FORMAT = 1

_AS_TEXT = (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID, pathlib.PurePath)


def plain(value: Any) -> Any:
    """`value` as JSON's kinds of values: a `Reply` as a cassette keeps it, models and dataclasses by their fields, sets sorted.

    Raises `SnapshotError`, naming the type, for a value that has no such form.
    """
    match value:
        case None | bool() | int() | float() | str() if not isinstance(value, enum.Enum):
            return value
        case enum.Enum():
            return plain(value.value)
        case Reply():
            return assembled(value)
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case set() | frozenset():
            return sorted((plain(inner) for inner in value), key=_canonical)
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case _ if isinstance(value, _AS_TEXT):
            return str(value)
        case _ if hasattr(value, "model_dump"):  # a pydantic model, as the SDKs' objects are
            return plain(value.model_dump(mode="json"))
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            raise SnapshotError(
                f"a {type(value).__qualname__} cannot be stored as a snapshot",
                mend="compare plain values, dataclasses, pydantic models or a Reply",
            )


class Snapshot:
    """Equal to what is stored at `path` for the same comparison of the test: the first `==` to the first value, and so on.

    With `update` every comparison holds, and `close()` stores what was compared. `command` is what an error tells the user to run.
    """

    def __init__(self, path: Path, *, update: bool, command: str) -> None:
        self._path, self._update, self._command = path, update, command
        self._stored = load(path) if path.exists() and not update else ()
        self._compared: list[Any] = []
        self._explanation: list[str] = []

    def __eq__(self, other: object) -> bool:
        value = plain(other)
        place = len(self._compared)
        self._compared.append(value)
        if self._update:
            return True
        if place >= len(self._stored):
            self._explanation = [f"there is no snapshot {place + 1} in {self._path}", f"store it: {self._command}"]
            return False
        stored = self._stored[place]
        if _canonical(stored) == _canonical(value):
            return True
        self._explanation = self._difference(place, stored, value)
        return False

    # A snapshot is compared, never looked up.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<snapshot {self._path.name}>"

    def explanation(self) -> list[str]:
        """Why the last comparison failed, as lines for a person."""
        return self._explanation

    def close(self) -> None:
        """Stores what was compared, where that was asked for."""
        if self._update and self._compared:
            save(self._path, self._compared)

    def _difference(self, place: int, stored: Any, value: Any) -> list[str]:
        from deepdiff import DeepDiff

        lines = str(DeepDiff(stored, value, verbose_level=2).pretty()).splitlines()
        return [f"not as stored in {self._path} (snapshot {place + 1}):", *lines, f"if the new value is right: {self._command}"]


def load(path: Path) -> tuple[Any, ...]:
    """The stored values, as plain values. Raises `CassetteError`, with file and line, where the file is no snapshot."""
    return read(path.read_bytes(), str(path), lambda root: _values(root, path))


def save(path: Path, values: list[Any]) -> None:
    """Stores plain values, in one step and read back before; raises `SnapshotError` for what the file could not give back."""
    text = dump({"format": FORMAT, "snapshots": values}, "")
    if _canonical(list(read(text.encode(), str(path), lambda root: _values(root, path)))) != _canonical(values):
        raise SnapshotError("the snapshot would not read back as it was compared, so it was not written", where=str(path))
    with locked(path.resolve(), path):
        replace_file(path.resolve(), text.encode())


def _values(root: Node | None, path: Path) -> tuple[Any, ...]:
    if root is None:
        raise SnapshotError("an empty file is no snapshot", where=str(path), mend="delete it and store it again")
    check_tree(root)
    found = fields(root, "a snapshot file", ("format", "snapshots"))
    number(found["format"], "format", 1, FORMAT)
    return tuple(value_of(item) for item in items(found["snapshots"], "snapshots"))


def _canonical(value: Any) -> str:
    """One text for one value: the order of keys says nothing, but True is not 1 and 1 is not 1.0."""
    return json.dumps(value, sort_keys=True)

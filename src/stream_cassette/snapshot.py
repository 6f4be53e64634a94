"""Stored results and their differences: plain YAML that a person reviews, written only when asked."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import difflib
import enum
import json
import pathlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import CassetteError, SnapshotError, StreamCassetteError
from .files import locked, replace_file, resolved
from .model import Reply
from .paths import GONE, Steps, changed, parse, written
from .redact import scrub_value, secrets_of
from .stream import assembled
from .yamltext import Fault, check_tree, dump, fields, items, number, read, shown, value_of

if TYPE_CHECKING:
    from yaml.nodes import Node

FORMAT = 1

_AS_TEXT = (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID, pathlib.PurePath)
_AGAIN = "delete the file and store it again: pytest --stream-snapshot-update"
_MOST_DIFFERENCES = 20
_MOST_CHARACTERS = 100


def plain(value: Any) -> Any:
    """`value` as JSON's kinds of values: a `Reply` as a cassette keeps it, models and dataclasses by their fields, sets sorted.

    Of an object of a provider's SDK what was sent is kept, not the fields that this version of the SDK knows besides.
    Raises `SnapshotError`, naming the type, for a value that has no such form.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise SnapshotError("a value is nested too deeply, or in a circle", mend="compare a part of it") from None


def _plain(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case int() | float() if not isinstance(value, enum.Enum):
            return (
                int(value) if isinstance(value, int) else float(value)
            )  # numpy's float is a float, but yaml knows none
        case str() if not isinstance(value, enum.Enum):
            return _text(value)
        case enum.Enum():
            return _plain(value.value)
        case Reply():
            return _plain(assembled(value))
        case Mapping():
            return _mapping(value)
        case tuple() if hasattr(value, "_asdict"):
            return _mapping(value._asdict())
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case set() | frozenset():
            return sorted((_plain(inner) for inner in value), key=_canonical)
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case _ if isinstance(value, _AS_TEXT):
            return str(value)
        case _ if hasattr(value, "model_dump"):
            return _plain(_model(value))
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            raise SnapshotError(
                f"a {type(value).__qualname__} cannot be stored as a snapshot",
                mend="compare plain values, dataclasses, pydantic models or a Reply",
            )


def _text(value: str) -> str:
    """Lone surrogates, which no file can hold, as JSON escapes them."""
    return value.encode("utf-8", "backslashreplace").decode()


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    named = {_text(str(key.value if isinstance(key, enum.Enum) else key)): plain(inner) for key, inner in value.items()}
    if len(named) != len(value):
        raise SnapshotError("a mapping has keys that are equal as text", mend="compare it with keys of one kind")
    return named


def _model(value: Any) -> Any:
    """The fields of a pydantic model, as the objects of the SDKs are."""
    if hasattr(value, "to_json_dict"):  # google-genai
        return value.to_json_dict()
    # The models of openai and anthropic, made by the same generator, keep apart what the provider sent and what has a default only.
    known = {"exclude_unset": True} if hasattr(value, "to_dict") else {}
    try:
        return value.model_dump(mode="json", warnings=False, **known)
    except ValueError:  # bytes that are no text
        return value.model_dump(warnings=False, **known)


class SnapshotFile:
    """What is stored for one test at `path`, and what the test compared with it.

    With `update` every comparison holds, and `close()` stores what was compared. `command` is what an error tells the user to run. Secrets, also
    those that the expressions `secrets` see, become stars before anything is compared, shown or stored.
    """

    def __init__(self, path: Path, *, update: bool, command: str, secrets: Iterable[str] = ()) -> None:
        self.path, self.update, self.command = path, update, command
        self._secrets = secrets_of(secrets)
        self.stored = _stored(path, lenient=update)
        self.compared: dict[str | int, Any] = {}
        """By name, or by position (from 1) where the comparison has none."""
        self.explanation: list[str] = []
        self.saved = 0
        """How many values `close` stored."""

    def compare(self, name: str | None, value: Any, excluded: Iterable[Steps]) -> bool:
        value = scrub_value(value, self._secrets)  # as a replay would give it, also where the test was just recorded
        place: str | int = 1 + sum(isinstance(key, int) for key in self.compared) if name is None else name
        if place in self.compared and _canonical(self.compared[place]) != _canonical(value):
            self.explanation = [f"the snapshot {place!r} is compared with two different values in this test"]
            return False
        self.compared[place] = value
        if self.update:
            return True
        if place not in self.stored:
            self.explanation = [f"there is no snapshot {place!r} in {self.path}", f"store it: {self.command}"]
            return False
        stored = _without(self.stored[place], excluded)
        if _canonical(stored) == _canonical(value):
            return True
        self.explanation = [
            f"not as stored in {self.path} (snapshot {place!r}):",
            *(f"  {line}" for line in differences(stored, value)),
            f"if the new value is right: {self.command}",
        ]
        return False

    def close(self, *, passed: bool) -> int:
        """The number of stored values that nothing was compared with; 0 if the test did not pass, since it may not have come that far.

        With `update`, stores what was compared; of the rest only what a test that did not pass may not have come to.
        """
        if not self.update:
            return len(self.stored.keys() - self.compared.keys()) if passed else 0
        values = dict(self.compared) if passed else {**self.stored, **self.compared}
        if values != self.stored or not self.path.exists():
            save(self.path, values)
            self.saved = len(values)
        return 0


class Snapshot:
    """Equal to what is stored for the same comparison of the test: the first `==` to the first value, and so on."""

    def __init__(
        self,
        file: SnapshotFile,
        *,
        name: str | None = None,
        excluded: tuple[Steps, ...] = (),
        masks: tuple[tuple[Steps, Any], ...] = (),
    ) -> None:
        self._file, self._name, self._excluded, self._masks = file, name, excluded, masks

    def __call__(
        self, *, name: str | None = None, exclude_paths: Iterable[str] = (), mask: Mapping[str, Any] | None = None
    ) -> Snapshot:
        """This snapshot for one comparison that is told more.

        `name` keeps its value under that name instead of its position. `exclude_paths` are neither stored nor compared: `usage`,
        `tool_calls[*].id`, `**.created`. `mask` maps such paths to what stands in their place: a text, a type (`<int>` stands for any int; another
        value stays as it is and so differs), or a function from the value to what is stored. Masks and paths add to those given before.
        """
        try:
            excluded = tuple(
                parse(path) for path in ([exclude_paths] if isinstance(exclude_paths, str) else exclude_paths)
            )
            masks = tuple((parse(path), by) for path, by in (mask or {}).items())
        except ValueError as error:
            raise SnapshotError(
                str(error), mend="such as 'usage.total_tokens', 'tool_calls[*].id', '**.created'"
            ) from None
        return Snapshot(self._file, name=name, excluded=self._excluded + excluded, masks=self._masks + masks)

    def __eq__(self, other: object) -> bool:
        value = _without(plain(other), self._excluded)
        for steps, by in self._masks:
            value = changed(value, steps, _mask(by))
        return self._file.compare(self._name, value, self._excluded)

    def __repr__(self) -> str:
        return f"<snapshot {self._file.path.name}>"

    def explanation(self) -> list[str]:
        """Why the last comparison failed, as lines for a person."""
        return self._file.explanation


def _without(value: Any, excluded: Iterable[Steps]) -> Any:
    for steps in excluded:
        value = changed(value, steps, lambda _: GONE)
    return None if value is GONE else value


def _mask(by: Any) -> Callable[[Any], Any]:
    if isinstance(by, type):
        return lambda value: f"<{by.__name__}>" if isinstance(value, by) else value
    return lambda value: plain(by(value) if callable(by) else by)


# ---------------------------------------------------------------------------------------------------------------- differences


def differences(stored: Any, value: Any) -> list[str]:
    """Where two plain values differ, a line each: `tool_calls[0].name: stored 'a', now 'b'`; of long texts the lines that differ."""
    from deepdiff import DeepDiff

    found = [level for levels in DeepDiff(stored, value, view="tree").values() for level in levels]
    found.sort(key=lambda level: [str(step).rjust(9, "0") for step in level.path(output_format="list")])
    lines = [line for level in found[:_MOST_DIFFERENCES] for line in _difference(level)]
    if len(found) > _MOST_DIFFERENCES:
        lines.append(f"and {len(found) - _MOST_DIFFERENCES} more")
    return lines or [f"stored {_shown(stored)}, now {_shown(value)}"]  # 0.0 and -0.0


def _difference(level: Any) -> Iterator[str]:
    from deepdiff.helper import NotPresent

    where, before, now = written(level.path(output_format="list")), level.t1, level.t2
    if isinstance(before, NotPresent):
        yield f"{where}: new, {_shown(now)}"
    elif isinstance(now, NotPresent):
        yield f"{where}: gone, it was {_shown(before)}"
    elif isinstance(before, str) and isinstance(now, str) and "\n" in before + now:
        yield f"{where}: stored (-), now (+)"
        for line in list(difflib.unified_diff(before.split("\n"), now.split("\n"), n=1, lineterm=""))[2:]:
            yield f"  {line}"
    else:
        characters = enumerate(zip(repr(before), repr(now), strict=False))
        parted = next((at for at, (one, other) in characters if one != other), 0)
        yield f"{where}: stored {_shown(before, parted)}, now {_shown(now, parted)}"


def _shown(value: Any, parted: int = 0) -> str:
    """The value on one line; where that is long, what stands around its character `parted`."""
    text = repr(value)
    start = max(parted - 30, 0) if len(text) > _MOST_CHARACTERS else 0
    end = start + _MOST_CHARACTERS
    return f"{'...' if start else ''}{text[start:end]}{'...' if len(text) > end else ''}"


# ----------------------------------------------------------------------------------------------------------------------- files


def load(path: Path) -> dict[str | int, Any]:
    """The stored values by name or position. Raises `CassetteError` or `SnapshotError`, with file and line, where the file is no snapshot."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SnapshotError(f"cannot read the snapshot: {error.strerror}", where=str(path)) from error
    return read(data, str(path), lambda root: _values(root, path), again=_AGAIN)


def _stored(path: Path, *, lenient: bool) -> dict[str | int, Any]:
    if not path.exists():
        return {}
    try:
        return load(path)
    except StreamCassetteError:
        if lenient:  # it is about to be stored anew
            return {}
        raise


def save(path: Path, values: Mapping[str | int, Any]) -> None:
    """Stores plain values, in one step and read back before, or deletes the file if there are none.

    Raises `SnapshotError` for what the file could not give back, `CassetteError` where it cannot be written.
    """
    target = resolved(path)
    ordered = [values[place] for place in sorted(key for key in values if isinstance(key, int))]
    named = {key: value for key, value in values.items() if isinstance(key, str)}
    data = dump({"format": FORMAT, "snapshots": ordered, **({"named": named} if named else {})}, "").encode()
    again = read(data, str(path), lambda root: _values(root, path))
    if _canonical(list(again.values())) != _canonical([*ordered, *named.values()]):
        raise SnapshotError(
            "the snapshot would not read back as it was compared, so it was not written", where=str(path)
        )
    try:
        with locked(target, path):
            if values:
                replace_file(target, [data])
            else:
                target.unlink(missing_ok=True)
    except OSError as error:
        raise CassetteError(
            f"cannot write the snapshot: {error.strerror}", where=str(path), mend="nothing was changed; try again"
        ) from error


def _values(root: Node | None, path: Path) -> dict[str | int, Any]:
    if root is None:
        raise SnapshotError("an empty file is no snapshot", where=str(path), mend=_AGAIN)
    check_tree(root)
    found = fields(root, "a snapshot file", ("format", "snapshots"), ("named",))
    number(found["format"], "format", 1, FORMAT)
    values: dict[str | int, Any] = dict(enumerate(map(value_of, items(found["snapshots"], "snapshots")), 1))
    if "named" in found:
        named = value_of(found["named"])
        if not isinstance(named, dict):
            raise Fault(f"named must be a mapping, not {shown(found['named'])}", found["named"])
        values.update(named)
    return values


def _canonical(value: Any) -> str:
    """One text for one value: the order of keys says nothing, but True is not 1 and 1 is not 1.0."""
    return json.dumps(value, sort_keys=True)

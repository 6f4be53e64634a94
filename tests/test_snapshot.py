"""Snapshots: what can be stored, what counts as equal, and how a difference reads."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given

from stream_cassette import Reply
from stream_cassette.errors import CassetteError, SnapshotError
from stream_cassette.model import TextPart
from stream_cassette.snapshot import Snapshot, load, plain, save
from strategies import json_values


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    tags: tuple[str, ...]


class Model(pydantic.BaseModel):
    name: str
    at: datetime.datetime


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        ("a", "a"),
        (Colour.RED, "red"),
        (Reply((TextPart("Hi"),), "stop"), {"text": "Hi", "finish_reason": "stop"}),
        ({1: (2, [3])}, {"1": [2, [3]]}),
        ({"b", "a"}, ["a", "b"]),
        (b"\xffa", "\\xffa"),
        (datetime.date(2026, 11, 30), "2026-11-30"),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (Point(1, ("t",)), {"x": 1, "tags": ["t"]}),
        (Model(name="n", at=datetime.datetime(2026, 1, 1)), {"name": "n", "at": "2026-01-01T00:00:00"}),
    ],
)
def test_plain(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


@pytest.mark.parametrize("value", [object(), Point, print])
def test_what_has_no_plain_form_is_refused_by_name(value: Any) -> None:
    with pytest.raises(SnapshotError, match=type(value).__qualname__):
        plain(value)


@given(value=json_values)
def test_what_is_stored_comes_back(value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.snap.yaml"
    save(path, [value, {"k": value}])
    assert load(path) == (value, {"k": value})


def test_each_comparison_has_its_own_place(tmp_path: Path) -> None:
    path = tmp_path / "t.snap.yaml"
    recording = Snapshot(path, update=True, command="pytest x")
    assert recording == "one"
    assert recording == {"b": 1, "a": 2}
    recording.close()
    again = Snapshot(path, update=False, command="pytest x")
    assert again == "one"
    assert again == {"a": 2, "b": 1}
    assert not (again == "three")
    assert again.explanation() == [f"there is no snapshot 3 in {path}", "store it: pytest x"]
    again.close()
    assert load(path) == ("one", {"b": 1, "a": 2})
    assert repr(again) == "<snapshot t.snap.yaml>"


@pytest.mark.parametrize(("stored", "value"), [(1, True), (1, 1.0), (0, None), ("1", 1), ([1], [1, 2])])
def test_values_of_another_kind_are_not_equal(stored: Any, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.snap.yaml"
    save(path, [stored])
    snapshot = Snapshot(path, update=False, command="pytest x")
    assert snapshot != value
    assert snapshot.explanation()[-1] == "if the new value is right: pytest x"


def test_nothing_compared_stores_nothing(tmp_path: Path) -> None:
    Snapshot(tmp_path / "t.snap.yaml", update=True, command="").close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty file"),
        ("a: 1", "has no key 'a'"),
        ("format: 9\nsnapshots: []", "format must be a whole number from 1 to 1"),
        ("format: 1\nsnapshots: {}", "must be a list"),
        ("format: 1\nsnapshots: [!!python/name:os.system '']", "tag"),
        ("format: [", "not YAML"),
    ],
)
def test_a_broken_file_is_an_error_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.snap.yaml"
    path.write_text(text)
    with pytest.raises((CassetteError, SnapshotError), match=words) as caught:
        load(path)
    assert str(path) in caught.value.where


def test_what_would_not_read_back_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_cassette.snapshot.dump", lambda value, pad: "format: 1\nsnapshots: []\n")
    with pytest.raises(SnapshotError, match="would not read back"):
        save(tmp_path / "t.snap.yaml", [1])
    assert list(tmp_path.iterdir()) == []

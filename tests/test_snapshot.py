"""Snapshots: what can be stored, what counts as equal, and how a difference reads."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import pathlib
import typing
import uuid
from pathlib import Path
from typing import Any

import anthropic
import google.genai
import openai
import pydantic
import pytest
from hypothesis import given

from strategies import json_values
from stream_cassette import Reply
from stream_cassette.errors import CassetteError, SnapshotError
from stream_cassette.model import TextPart
from stream_cassette.pytest_plugin import pytest_assertrepr_compare
from stream_cassette.snapshot import Snapshot, SnapshotFile, differences, load, plain, save


class Number(float):
    """As numpy's float64 is one."""


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    tags: tuple[str, ...]


class Pair(typing.NamedTuple):
    left: int
    right: str


class Model(pydantic.BaseModel):
    name: str
    at: datetime.datetime


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (Number(1.5), 1.5),
        ("a", "a"),
        (Colour.RED, "red"),
        (Reply((TextPart("Hi"),), "stop"), {"text": "Hi", "finish_reason": "stop"}),
        ({1: (2, [3])}, {"1": [2, [3]]}),
        ({Colour.RED: 1}, {"red": 1}),
        ({"b", "a"}, ["a", "b"]),
        (Pair(1, "b"), {"left": 1, "right": "b"}),
        ("half \ud83d", "half \\ud83d"),
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


def test_a_value_in_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(SnapshotError, match="in a circle"):
        plain(circle)


@pytest.mark.parametrize("value", [object(), Point, print])
def test_what_has_no_plain_form_is_refused_by_name(value: Any) -> None:
    with pytest.raises(SnapshotError, match=type(value).__qualname__):
        plain(value)


@given(value=json_values)
def test_what_is_stored_comes_back(value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.snap.yaml"
    save(path, {1: value, 2: {"k": value}, "name": value})
    assert load(path) == {1: value, 2: {"k": value}, "name": value}


def opened(path: Path, *, update: bool = False) -> SnapshotFile:
    return SnapshotFile(path, update=update, command="pytest x")


def test_each_comparison_has_its_own_place(tmp_path: Path) -> None:
    path = tmp_path / "t.snap.yaml"
    recording = opened(path, update=True)
    snapshot = Snapshot(recording)
    assert snapshot == "one"
    assert snapshot == {"b": 1, "a": 2}
    assert snapshot(name="last") == [1]
    recording.close(passed=True)
    again = opened(path)
    snapshot = Snapshot(again)
    assert snapshot == "one"
    assert snapshot(name="last") == [1]
    assert snapshot == {"a": 2, "b": 1}
    assert snapshot != "three"
    assert snapshot.explanation() == [f"there is no snapshot 3 in {path}", "store it: pytest x"]
    assert snapshot(name="lost") != 1
    assert snapshot.explanation() == [f"there is no snapshot 'lost' in {path}", "store it: pytest x"]
    assert again.close(passed=True) == 0
    assert load(path) == {1: "one", 2: {"b": 1, "a": 2}, "last": [1]}
    assert repr(snapshot) == "<snapshot t.snap.yaml>"


def test_one_name_is_one_value(tmp_path: Path) -> None:
    snapshot = Snapshot(opened(tmp_path / "t.snap.yaml", update=True))
    assert snapshot(name="a") == 1
    assert snapshot(name="a") == 1
    assert snapshot(name="a") != 2
    assert snapshot.explanation() == ["the snapshot 'a' is compared with two different values in this test"]


@pytest.mark.parametrize(("stored", "value"), [(1, True), (1, 1.0), (0, None), ("1", 1), ([1], [1, 2]), (0.0, -0.0)])
def test_values_of_another_kind_are_not_equal(stored: Any, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.snap.yaml"
    save(path, {1: stored})
    snapshot = Snapshot(opened(path))
    assert snapshot != value
    assert snapshot.explanation()[-1] == "if the new value is right: pytest x"


def test_nothing_compared_stores_nothing(tmp_path: Path) -> None:
    opened(tmp_path / "t.snap.yaml", update=True).close(passed=True)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_longer_compared_is_counted_and_an_update_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "t.snap.yaml"
    save(path, {1: "a", 2: "b", "n": "c"})
    looking = opened(path)
    assert Snapshot(looking) == "a"
    assert looking.close(passed=True) == 2
    assert looking.close(passed=False) == 0
    failing = opened(path, update=True)
    assert Snapshot(failing) == "A"
    failing.close(passed=False)
    assert load(path) == {1: "A", 2: "b", "n": "c"}
    passing = opened(path, update=True)
    assert Snapshot(passing) == "A"
    passing.close(passed=True)
    assert load(path) == {1: "A"}
    opened(path, update=True).close(passed=True)
    assert not path.exists()


def test_an_update_writes_over_a_broken_file_and_leaves_an_equal_one_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.snap.yaml"
    path.write_text("<<<<<<< HEAD\n")
    with pytest.raises(CassetteError, match="merge conflict is not resolved") as caught:
        opened(path)
    assert "--stream-snapshot-update" in caught.value.mend
    for _ in range(2):
        file = opened(path, update=True)
        assert Snapshot(file) == "a"
        file.close(passed=True)
        path.chmod(0o444)  # a second write would be refused
    assert load(path) == {1: "a"}
    file = opened(path, update=True)
    assert Snapshot(file) == "b"
    with pytest.raises(CassetteError, match="read-only"):
        file.close(passed=True)


VOLATILE = {"id": "c-1", "created": 17, "calls": [{"id": "a", "n": 1}, {"id": "b", "n": 2}], "deep": {"created": 18}}


def compare(path: Path, value: Any, *, update: bool = False, **told: Any) -> bool:
    file = opened(path, update=update)
    equal = Snapshot(file)(**told) == value
    file.close(passed=True)
    return equal


@pytest.mark.parametrize(
    ("told", "stored"),
    [
        ({"exclude_paths": ["id", "**.created"]}, {"calls": VOLATILE["calls"], "deep": {}}),
        ({"exclude_paths": "calls[*].id"}, VOLATILE | {"calls": [{"n": 1}, {"n": 2}]}),
        (
            {"exclude_paths": ["root['calls'][0]", '["deep"]["created"]', "no.such"]},
            VOLATILE | {"calls": [None, {"id": "b", "n": 2}], "deep": {}},
        ),
        ({"exclude_paths": ["$.deep.*"]}, VOLATILE | {"deep": {}}),
        ({"exclude_paths": ["**"]}, None),
        ({"mask": {"id": "<id>", "created": int}}, VOLATILE | {"id": "<id>", "created": "<int>"}),
        ({"mask": {"created": str}}, VOLATILE),
        ({"mask": {"id": lambda value: value[:2]}}, VOLATILE | {"id": "c-"}),
    ],
)
def test_what_is_volatile_is_left_out_or_masked(told: dict[str, Any], stored: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.snap.yaml"
    compare(path, VOLATILE, update=True, **told)
    assert load(path) == {1: stored}
    assert compare(path, VOLATILE, **told)


def test_an_excluded_path_may_be_stored_already(tmp_path: Path) -> None:
    save(tmp_path / "t.snap.yaml", {1: VOLATILE})
    assert compare(tmp_path / "t.snap.yaml", VOLATILE | {"id": "other"}, exclude_paths=["id"])
    assert not compare(tmp_path / "t.snap.yaml", VOLATILE | {"id": "other"}, exclude_paths=["created"])


@pytest.mark.parametrize("path", ["a..b", "[", "a[b]", "['a", ".", ""])
def test_what_is_no_path_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="is no path"):
        Snapshot(opened(tmp_path / "t.snap.yaml"))(exclude_paths=[path])


@pytest.mark.parametrize(
    ("stored", "value", "lines"),
    [
        ({"text": "Sunny."}, {"text": "Rainy."}, ["text: stored 'Sunny.', now 'Rainy.'"]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1.0}]}, ["a[0].b: stored 1, now 1.0"]),
        ({"a": 1}, {"a": 1, "odd key.": None}, ["['odd key.']: new, None"]),
        ([1, 2, 3], [1, 3], ["[1]: gone, it was 2"]),
        (1, "1", ["the value: stored 1, now '1'"]),
        (0.0, -0.0, ["stored 0.0, now -0.0"]),
        (
            {"t": "a\nb\nc\nd"},
            {"t": "a\nb\nC\nd"},
            ["t: stored (-), now (+)", "  @@ -2,3 +2,3 @@", "   b", "  -c", "  +C", "   d"],
        ),
        ("x" * 300 + "a", "x" * 300 + "b", ["the value: stored ..." + "x" * 30 + "a', now ..." + "x" * 30 + "b'"]),
        ("a" + "x" * 300, "b" + "x" * 300, ["the value: stored 'a" + "x" * 98 + "..., now 'b" + "x" * 98 + "..."]),
        ({str(n): n for n in range(30)}, {str(n): n + 1 for n in range(30)}, 21),
    ],
)
def test_how_a_difference_reads(stored: Any, value: Any, lines: list[str] | int) -> None:
    got = differences(stored, value)
    assert (len(got) if isinstance(lines, int) else got) == lines


def test_the_objects_of_the_sdks_are_stored_as_they_were_sent() -> None:
    chunk = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "Hi"}}],
    }
    assert plain(openai.types.chat.ChatCompletionChunk.construct(None, **chunk)) == chunk
    block = {"type": "text", "text": "Hi"}
    assert plain([anthropic.types.TextBlock.construct(None, **block)]) == [block]
    part = google.genai.types.Part(text="Hi")
    assert plain({"part": part}) == {"part": {"text": "Hi"}}


class Raw(pydantic.BaseModel):
    data: bytes


def test_a_model_with_bytes_that_are_no_text() -> None:
    assert plain(Raw(data=b"\xff")) == {"data": "\\xff"}


def test_keys_that_become_equal_are_refused() -> None:
    with pytest.raises(SnapshotError, match="equal as text"):
        plain({1: "a", "1": "b"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty file"),
        ("a: 1", "has no key 'a'"),
        ("format: 9\nsnapshots: []", "format must be a whole number from 1 to 1"),
        ("format: 1\nsnapshots: {}", "must be a list"),
        ("format: 1\nsnapshots: [!!python/name:os.system '']", "tag"),
        ("format: [", "not YAML"),
        ("format: 1\nsnapshots: []\nnamed: 1", "named must be a mapping"),
    ],
)
def test_a_broken_file_is_an_error_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.snap.yaml"
    path.write_text(text)
    with pytest.raises((CassetteError, SnapshotError), match=words) as caught:
        load(path)
    assert str(path) in caught.value.where


def test_a_folder_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="cannot read"):
        load(tmp_path)


def test_what_would_not_read_back_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_cassette.snapshot.dump", lambda value, pad: "format: 1\nsnapshots: []\n")
    with pytest.raises(SnapshotError, match="would not read back"):
        save(tmp_path / "t.snap.yaml", {1: 1})
    assert list(tmp_path.iterdir()) == []


def test_other_comparisons_are_left_to_pytest() -> None:
    assert pytest_assertrepr_compare("!=", {}, []) is None

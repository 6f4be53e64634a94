"""Views of JSON that is not whole, and repairs that say what they did."""

from __future__ import annotations

import builtins
import json
from typing import Any

import pytest
from hypothesis import given

from strategies import json_values
from stream_cassette.errors import MissingExtra
from stream_cassette.lenient import Repaired, partial, repair


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2', {"a": [1, 2]}),
        ('{"a": "x', {"a": "x"}),
        ('{"a": 1, "b', {"a": 1}),
        ("", None),
        ("tru", None),
        ("hello", None),
        ('"\ud83c', "?"),
    ],
)
def test_partial(text: str, value: Any) -> None:
    assert partial(text) == value


@given(value=json_values)
def test_a_partial_view_never_raises_and_ends_at_the_value(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    for at in range(len(text)):
        partial(text[:at])
    assert partial(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [('{"a": 1', {"a": 1}), ("{'a': True}", {"a": True}), ('{"a": 1,}', {"a": 1}), ('Sure! {"a": 1}', {"a": 1})],
)
def test_a_repair_says_what_it_did(text: str, value: Any) -> None:
    repaired = repair(text)
    assert repaired.value == value
    assert repaired.changes[0].startswith("not JSON: ")
    assert repaired.changes[-1] == f"read as {json.dumps(value, separators=(',', ':'))}"


def test_whole_json_needs_no_repair() -> None:
    assert repair('{"a": 1}') == Repaired({"a": 1}, ())
    assert repair('""') == Repaired("", ())
    with pytest.raises(ValueError, match="no JSON in 'hello'"):
        repair("hello")


def test_without_json_repair_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("json_repair"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r"pytest-stream-cassette\[arguments\]"):
        repair("{")

"""A cassette that stands still is read once for all tapes; none of them notices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from stream_cassette import Reply, ToolCall, Usage, synthesize, use
from stream_cassette.cassette import load, of_now, update
from stream_cassette.errors import AssembledDiffers, CassetteMiss
from stream_cassette.model import Interaction, Request
from stream_cassette.mutate import CutBeforeFinish
from stream_cassette.stream import assembled

REQUEST = Request(
    "POST", "https://provider.test/v1/chat/completions", (("content-type", "application/json"),), b'{"n":1}'
)
LONG_AGO = time.time() - 3600


def recorded(path: Path, city: str = "Pune", *, test: str | None = None) -> Path:
    call = ToolCall(0, id="a", name="tide", arguments_text=f'{{"city":"{city}","days":[1,2]}}')
    stream = synthesize(Reply((call,), "tool_calls", Usage(3, 4, 7), ended=True), "openai-chat", request=REQUEST)
    kept = Interaction(stream.exchange, test, "openai-chat", assembled(stream.reply))
    update(path, lambda _: of_now([kept]))
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def replayed(path: Path, **options: object) -> Reply:
    with use(path, **options) as tape:
        httpx2.post(REQUEST.url, content=REQUEST.body, headers=dict(REQUEST.headers))
        return tape.reply


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return recorded(tmp_path / "x.yaml")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read from now on."""
    seen: list[Path] = []

    def counted(path: Path) -> object:
        seen.append(path)
        return load(path)

    monkeypatch.setattr("stream_cassette.shelf.load", counted)
    return seen


def test_it_is_read_once(path: Path, loads: list[Path]) -> None:
    assert [replayed(path).tool_calls[0].arguments for _ in range(3)] == [{"city": "Pune", "days": [1, 2]}] * 3
    with use(path, mutate=[CutBeforeFinish()]) as tape:
        assert tape.reply.complete is False
    assert loads == [path]


def test_what_a_test_does_to_a_reply_no_other_meets(path: Path) -> None:
    first = replayed(path)
    assert first.tool_calls[0].arguments is not None
    first.tool_calls[0].arguments.pop("city")
    first.tool_calls[0].arguments["days"].append(9)
    assert first.usage is not None
    first.usage.raw["prompt_tokens"] = 99
    second = replayed(path)
    assert second.tool_calls[0].arguments == {"city": "Pune", "days": [1, 2]}
    assert second.usage is not None
    assert second.usage.raw["prompt_tokens"] == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda path: recorded(path, "Oban"),
        lambda path: path.write_bytes(path.read_bytes().replace(b"Pune", b"Oban")),
        lambda path: os.replace(recorded(path.with_name("y.yaml"), "Oban"), path),
    ],
    ids=["recorded anew", "written over", "another file in its place"],
)
def test_another_content_is_seen_whatever_the_times_say(path: Path, change: Callable[[Path], object]) -> None:
    assert replayed(path).tool_calls[0].arguments["city"] == "Pune"
    change(path)
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert replayed(path).tool_calls[0].arguments["city"] == "Oban"


def test_a_file_that_was_just_written_is_read_each_time(path: Path, loads: list[Path]) -> None:
    path.touch()
    replayed(path)
    replayed(path)
    assert loads == [path, path]


def test_a_large_file_is_not_kept(path: Path, loads: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_cassette.shelf._SMALL", 100)
    replayed(path)
    replayed(path)
    assert loads == [path, path]


def test_each_test_and_each_setting_has_its_own(tmp_path: Path) -> None:
    path = recorded(tmp_path / "x.yaml", test="t::a")
    assert replayed(path, test="t::a").tool_calls
    with pytest.raises(CassetteMiss, match="by another test: t::a"):
        replayed(path, test="t::b")
    with use(path, test="t::a", ignore=["n"]) as tape:
        httpx2.post(REQUEST.url, content=b'{"n":2}', headers=dict(REQUEST.headers))
    assert tape.reply.tool_calls
    with pytest.raises(CassetteMiss, match=r"body\.n: recorded 1, now 2"), use(path, test="t::a"):
        httpx2.post(REQUEST.url, content=b'{"n":2}', headers=dict(REQUEST.headers))


def test_what_no_longer_agrees_is_told_by_every_tape(path: Path) -> None:
    path.write_text(path.read_text().replace("tool_calls:\n", "tool_calls: []\n    text: hm\n    other:\n", 1))
    os.utime(path, (LONG_AGO, LONG_AGO))
    for _ in range(2):
        with pytest.raises(AssembledDiffers):
            replayed(path)

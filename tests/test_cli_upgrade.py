"""`stream-cassette upgrade`: files are brought up to date, told, and otherwise left alone."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_cassette.cassette import dumps, load, update
from stream_cassette.cli import main, upgrade_command
from stream_cassette.model import Cassette, Exchange, Interaction, Read
from stream_cassette.stream import assembled
from streams import CALLS, EVERY, REQUEST
from test_cli_show import documented

GOOD = Interaction(CALLS.exchange, "t", "openai-chat", assembled(CALLS.reply))
PAGE = Interaction(Exchange(REQUEST, 200, (("content-type", "text/html"),), (Read(0, b"<p>\n"),)))


def written(path: Path, *interactions: Interaction) -> Path:
    update(path, lambda _: Cassette(interactions, at="2026-11-30T00:00:00Z", by="stream-cassette 0.1.0"))
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    status = main(["upgrade", "--json", *arguments])
    found = json.loads(capsys.readouterr().out)
    assert documented(found, upgrade_command.EPILOG)
    return status, found


def test_a_file_that_needs_no_change_stays_byte_for_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.yaml", GOOD, PAGE)
    path.write_text("# by hand\n" + path.read_text().replace("ending: complete", "ending:   complete"))
    old, when = path.read_bytes(), path.stat().st_mtime_ns
    for extra in ([], ["--check"]):
        assert main(["upgrade", str(path), *extra]) == 0
        assert capsys.readouterr() == (f"{path}: format 1 is the newest; nothing to change\n", "")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (old, when)
    assert os.listdir(tmp_path) == ["a.yaml"]


CHANGES: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"assembled": {**assembled(CALLS.reply), "finish_reason": "stop"}},
        ["assembled.finish_reason: recorded 'stop', now 'tool_calls'"],
    ),
    ({"assembled": None}, ["assembled: added"]),
    ({"assembled": None, "dialect": None}, ["dialect: now openai-chat", "assembled: added"]),
    ({"dialect": None}, ["dialect: now openai-chat"]),
]


@pytest.mark.parametrize(("changes", "lines"), CHANGES)
def test_what_is_out_of_date(
    changes: dict[str, Any], lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "a.yaml", PAGE, replace(GOOD, **changes))
    old = path.read_bytes()
    assert main(["upgrade", "--check", str(path)]) == 1
    said = "".join(f"  interaction 2: {line}\n" for line in lines)
    assert capsys.readouterr().out == f"{path}: format 1 is the newest; would change:\n{said}"
    assert path.read_bytes() == old
    assert told(capsys, "--check", str(path)) == (
        1,
        [
            {
                "file": str(path),
                "format": 1,
                "changes": [f"interaction 2: {line}" for line in lines],
                "warnings": [],
                "error": None,
            }
        ],
    )
    assert main(["upgrade", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: format 1 is the newest; changed:\n{said}"
    assert load(path) == Cassette((PAGE, GOOD), at="2026-11-30T00:00:00Z", by="stream-cassette 0.1.0")
    assert dumps(load(path)) == path.read_text()
    assert told(capsys, "--check", str(path))[0] == 0


def test_a_body_edited_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same, other = written(tmp_path / "a.yaml", GOOD), written(tmp_path / "b.yaml", GOOD)
    same.write_text(same.read_text().replace('"model":"m-1"', '"model":"m-12"'))
    other.write_text(other.read_text().replace("please", "pleases", 1))
    old = same.read_bytes()
    assert main(["upgrade", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{same}: format 1 is the newest; nothing to change"
    assert lines[1].startswith(f"  warning: {same}, line ")
    assert lines[-1] == "  reads: one for each event, all at 0 ms, because the body was edited"
    assert same.read_bytes() == old
    assert main(["check", str(other)]) == 0
    assert len(load(other).interactions[0].exchange.reads) == len(CALLS.frames)


def test_what_cannot_be_upgraded_stops_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outdated = replace(GOOD, assembled={})
    texts = {"a.yaml": "format: 2\n", "b.yaml": "a: 1\n", "c.yaml": "", "e.snap.yaml": "x"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    path = written(tmp_path / "d.yaml", outdated)
    assert main(["upgrade", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert load(path).interactions == (GOOD,)
    assert out.startswith(f"{path}: format 1 is the newest; changed:\n")
    assert [line for line in err.splitlines() if line.startswith("stream-cassette upgrade: ")] == [
        "stream-cassette upgrade: the cassette has format 2, this version reads up to 1",
        "stream-cassette upgrade: not a cassette: a cassette has `format: 1`",
        "stream-cassette upgrade: the file is empty",
    ]
    assert "pip install --upgrade pytest-stream-cassette" in err
    status, found = told(capsys, str(tmp_path))
    assert status == 2
    assert [(each["format"], bool(each["error"])) for each in found] == [(None, True)] * 3 + [(1, False)]
    assert {name: (tmp_path / name).read_text() for name in texts} == texts


def test_a_read_only_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.yaml", replace(GOOD, assembled={}))
    path.chmod(0o444)
    old = path.read_bytes()
    assert main(["upgrade", "--check", str(path)]) == 1
    capsys.readouterr()
    assert main(["upgrade", str(path)]) == 2
    assert "cannot write the cassette: the file is read-only" in capsys.readouterr().err
    assert path.read_bytes() == old
    path.chmod(0o644)


def test_nothing_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, words in ((tmp_path, "there are no cassettes"), (tmp_path / "none", "there is no such file or folder")):
        assert main(["upgrade", str(path)]) == 2
        assert capsys.readouterr().err.startswith(f"stream-cassette upgrade: {words}")
    assert list(tmp_path.iterdir()) == []


def test_every_dialect_is_up_to_date_after_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = [Interaction(stream.exchange, None, name) for name, stream in EVERY.items()]
    path = written(tmp_path / "a.yaml", *bare)
    assert main(["upgrade", str(path)]) == 0
    assert capsys.readouterr().out.count("assembled: added") == len(EVERY)
    assert [each.assembled for each in load(path).interactions] == [assembled(each.reply) for each in EVERY.values()]
    assert main(["check", str(path)]) == 0

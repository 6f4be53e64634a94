"""`stream-cassette check`: cassettes that do not load, do not mean what they say, or hold secrets."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_cassette.cassette import load, update
from stream_cassette.cli import check_command, main
from stream_cassette.model import Cassette, Exchange, Interaction, Read
from stream_cassette.mutate import LEVELS, instances, mutate
from stream_cassette.stream import assembled
from streams import CALLS, EVERY, REQUEST
from test_cli_show import GOLDEN, documented, kept
from test_secrets import planted

ROOT = Path(__file__).parent.parent / "cassettes"


def problems(path: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[int | None, int | None, str, str]]:
    """What `check --json` finds in one file or folder."""
    status = main(["check", "--json", str(path)])
    found = json.loads(capsys.readouterr().out)
    assert status == (1 if found else 0)
    assert documented(found, check_command.EPILOG)
    return [(each["line"], each["interaction"], each["kind"], each["problem"]) for each in found]


def with_one(path: Path, **changes: Any) -> Path:
    """A cassette of the calls with something changed in its one interaction."""
    made = replace(Interaction(CALLS.exchange, "t", "openai-chat", assembled(CALLS.reply)), **changes)
    update(path, lambda _: Cassette((made,), at="x", by="y"))
    return path


def body(data: bytes, content_type: str) -> Exchange:
    return Exchange(REQUEST, 200, (("content-type", content_type),), (Read(0, data),))


def test_what_is_shipped_has_no_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(ROOT)]) == 0
    count = len(list(ROOT.rglob("*.yaml")))
    assert capsys.readouterr() == (f"cassettes checked: {count}, no problems\n", "")
    assert problems(ROOT, capsys) == []


@pytest.mark.parametrize("name", EVERY)
def test_mutated_streams_are_sound_cassettes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = EVERY[name]
    of_each_level = [found[len(found) // 2] for level in LEVELS if (found := instances(stream, level))]
    kept(tmp_path / "a.yaml", *(mutate(stream, [mutator]) for mutator in of_each_level))
    assert problems(tmp_path, capsys) == []


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", 1, "the file is empty"),
        ("a: 1\n", 1, "not a cassette: a cassette has `format: 1`"),
        ("format: 2\n", 1, "the cassette has format 2, this version reads up to 1"),
        ("format: 1\nfoo", 3, "not YAML: could not find expected ':'"),
        ("\0", 1, "not YAML: control characters are not allowed"),
    ],
)
def test_what_does_not_load(
    text: str, line: int, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert problems(path, capsys) == [(line, None, "file", problem)]
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().out == f"{path}:{line}: {problem}\ncassettes checked: 1, problems: 1, in files: 1\n"


@pytest.mark.parametrize(
    ("changes", "kind", "problem"),
    [
        ({"assembled": {"text": "else"}}, "assembled", "assembled.text: recorded 'else', now 'One moment"),
        ({"dialect": "cohere", "assembled": None}, "stream", "the file says cohere, the body looks like openai-chat"),
        (
            {"exchange": body(b'data: {"odd":1}\n\n', "text/event-stream"), "assembled": None},
            "stream",
            "nothing in it is openai-chat",
        ),
        (
            {
                "exchange": body(b'data: {"odd":1}\n\n', "text/event-stream; charset=utf-8"),
                "assembled": None,
                "dialect": None,
            },
            "stream",
            "it was sent as text/event-stream; charset=utf-8, and no dialect knows it",
        ),
    ],
)
def test_what_is_not_as_the_file_says(
    changes: dict[str, Any], kind: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = with_one(tmp_path / "a.yaml", **changes)
    found = problems(path, capsys)
    assert {(line, interaction, its_kind) for line, interaction, its_kind, _ in found} == {(None, 1, kind)}
    assert found[0][3].startswith(problem)
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path}: interaction 1: {problem}")


@pytest.mark.parametrize(
    "changes",
    [
        {"assembled": None},
        {"exchange": body(b"<html>\n", "text/html"), "assembled": None, "dialect": None},
        {"exchange": Exchange(REQUEST, 204, (), ()), "assembled": None, "dialect": None},
        {"exchange": Exchange(REQUEST, 200, (), ()), "assembled": None},
    ],
)
def test_what_is_no_problem(changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert problems(with_one(tmp_path / "a.yaml", **changes), capsys) == []


def test_a_body_edited_by_hand_and_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = with_one(tmp_path / "a, line 7: odd.yaml")
    secret = planted("openai project key").secret
    text = path.read_text().replace("please", secret, 1)
    path.write_text(text)
    line = text[: text.index(secret)].count("\n") + 1
    reads = text[: text.index("    reads:")].count("\n") + 1
    found = problems(path, capsys)
    assert [(at, interaction, kind) for at, interaction, kind, _ in found] == [
        (reads, None, "reads"),
        (None, 1, "assembled"),
        (line, None, "secret"),
    ]
    assert found[0][3].startswith("the body has ")
    assert found[2][3] == "a secret: openai key"
    main(["check", str(path)])
    assert capsys.readouterr().out.splitlines()[2] == f"{path}:{line}: a secret: openai key"


def test_a_broken_file_may_hold_a_secret_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"format: 1\n- {planted('openai project key').secret}\n")
    assert [kind for _, _, kind, _ in problems(path, capsys)] == ["file", "secret"]


def test_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "empty").mkdir()
    with_one(tmp_path / "deep" / "a.yaml")
    for name in ("a.snap.yaml", "notes.txt", ".hidden.yaml"):
        (tmp_path / "deep" / name).write_text("no cassette\n")
    (tmp_path / "broken").write_text("no cassette\n")
    deep, broken = tmp_path / "deep", tmp_path / "broken"
    assert main(["check", str(tmp_path), str(deep), str(deep / "a.yaml")]) == 0
    assert capsys.readouterr().out == "cassettes checked: 1, no problems\n"
    assert main(["check", str(deep), str(broken)]) == 1
    assert "cassettes checked: 2, problems: 1, in files: 1\n" in capsys.readouterr().out
    assert main(["check", str(deep / "a.snap.yaml")]) == 0
    assert capsys.readouterr().out == "cassettes checked: 0, no problems\n"
    for path, words in ((tmp_path / "empty", "there are no cassettes"), (tmp_path / "none", "there is no such file")):
        assert main(["check", str(path)]) == 2
        assert capsys.readouterr().err.startswith(f"stream-cassette check: {words}")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no mkfifo")
def test_a_pipe_is_no_cassette_and_nobody_waits_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert problems(tmp_path, capsys) == [(None, None, "file", "cannot read the cassette: it is no file")]


def test_a_file_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = with_one(tmp_path / "a.yaml")

    def refused(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)  # whoever is root may read everything
    monkeypatch.setattr(Path, "read_bytes", refused)
    assert problems(path, capsys) == [(None, None, "file", "cannot read the cassette: Permission denied")]


def test_the_golden_file_is_no_stream_of_today(capsys: pytest.CaptureFixture[str]) -> None:
    found = problems(GOLDEN, capsys)
    assert {interaction for _, interaction, _, _ in found} == {1, 2, 3}
    assert len(load(GOLDEN).interactions) > 3

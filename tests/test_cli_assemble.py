"""`stream-cassette assemble`: what a stream means, for a person and as JSON, of cassettes and raw bodies."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from stream_cassette import Stream
from stream_cassette.cassette import load, update
from stream_cassette.cli import assemble_command, main
from stream_cassette.model import Cassette, End, Exchange, Finish, Interaction, Key, Read, Refusal, Text
from stream_cassette.mutate import CutInsideArguments, ErrorEvent, Truncate, mutate
from streams import CALLS, EVERY, REQUEST, chat
from test_cli_show import CASSETTES, documented, kept


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def test_the_reply_of_a_cassette(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assemble", str(kept(tmp_path / "a.yaml", CALLS))]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "openai-chat: complete",
        "text",
        "  One moment, 漢字 please.\\u2028",
        "tool calls",
        '  tide_times({"harbour":{"name":"Oban"}})  call_a',
        '  moon_phase({"on":{"day":4},"x":1})  call_b',
        "finish reason tool_calls, that is tool_calls",
        "usage input_tokens=12, output_tokens=30, total_tokens=42",
    ]
    assert err == ""


def test_what_is_not_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = mutate(CALLS, [CutInsideArguments(1, 3)])
    assert main(["assemble", str(kept(tmp_path / "a.yaml", cut))]) == 1
    out = capsys.readouterr().out
    assert out.startswith("openai-chat: NOT COMPLETE\n")
    assert (
        'incomplete tool calls\n  tide_times({"harbour":{"name":"Oban"}})  call_a\n    must not run: no finish' in out
    )
    assert '  moon_phase({"o)  call_b\n    must not run: no finish reason\n' in out
    failed = mutate(CALLS, [ErrorEvent("overloaded")])
    assert main(["assemble", str(kept(tmp_path / "b.yaml", failed))]) == 1
    assert "error overloaded_error: Overloaded\n" in capsys.readouterr().out
    limited = mutate(CALLS, [Truncate(3)])
    assert main(["assemble", str(kept(tmp_path / "c.yaml", limited))]) == 0
    assert "finish reason length, that is length" in capsys.readouterr().out


@pytest.mark.parametrize("path", CASSETTES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_json_is_what_the_cassette_keeps(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assemble", "--json", str(path)]) == 0
    found = said(capsys)
    (interaction,) = load(path).interactions
    reply = Stream(interaction.exchange).reply
    assert found == {
        **(interaction.assembled or {}),
        "dialect": path.parent.name,
        "complete": True,
        "stop": reply.stop,
        "warnings": list(reply.warnings),
    }
    assert documented({**found, "tool_calls": []}, assemble_command.EPILOG)


def test_several_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = chat(Text(Key(0), "a"), Refusal(Key(1), "no"), Finish(Key(0), "stop"), Finish(Key(1), "stop"), End())
    half = chat(Text(Key(0), "a"), Text(Key(1), "b"), Finish(Key(0), "stop"))
    path = kept(tmp_path / "a.yaml", whole, half)
    assert main(["assemble", "--interaction", "1", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "openai-chat: complete",
        "choice 1 of 2",
        "text",
        "  a",
        "finish reason stop, that is stop",
        "choice 2 of 2",
        "refusal",
        "  no",
        "finish reason stop, that is stop",
    ]
    assert main(["assemble", "--json", str(path)]) == 1
    found = said(capsys)
    assert found["text"] == "a"
    assert [(choice["text"], choice["complete"]) for choice in found["choices"]] == [("a", True), ("b", False)]


def test_parts_that_are_carried_and_second_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "web_search_call", "id": "w"}},
        {
            "type": "response.incomplete",
            "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []},
        },
    ]
    body = tmp_path / "body.txt"
    body.write_text("".join(f"data: {json.dumps(event)}\n\n" for event in events))
    assert main(["assemble", str(body)]) == 0
    out = capsys.readouterr().out
    assert "not interpreted web_search_call, 1 pieces\n" in out
    assert "finish reason incomplete (max_output_tokens), that is length\n" in out


def test_the_last_stream_is_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    page = Interaction(Exchange(REQUEST, 200, (("content-type", "text/html"),), (Read(0, b"<p>\n\n"),)))
    streams = [Interaction(EVERY[name].exchange, None, name) for name in ("gemini", "cohere")]
    update(path, lambda _: Cassette((*streams, page), at="x", by="y"))
    assert main(["assemble", "--json", str(path)]) == 0
    assert said(capsys)["dialect"] == "cohere"
    assert main(["assemble", "--json", "--interaction", "1", str(path)]) == 0
    assert said(capsys)["dialect"] == "gemini"
    assert main(["assemble", "--interaction", "3", str(path)]) == 2
    assert "--dialect with one of openai-chat, " in capsys.readouterr().err
    assert main(["assemble", "--json", "--interaction", "1", "--dialect", "cohere", str(path)]) == 1
    assert said(capsys)["dialect"] == "cohere"
    update(path, lambda old: Cassette(old.interactions[2:], at="x", by="y"))
    assert main(["assemble", str(path)]) == 2
    assert f"the cassette has no stream\n  where: {path}\n  mend:  see what it has: stream-cassette show {path}" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("name", EVERY)
def test_raw_bodies(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = tmp_path / "body"
    body.write_bytes(EVERY[name].body)
    assert main(["assemble", "--json", "--dialect", name, str(body)]) == 0
    found = said(capsys)
    assert found.pop("dialect") == name
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(EVERY[name].body)))
    assert main(["assemble", "--json", "-"]) == 0
    again = said(capsys)
    assert again.pop("dialect")
    assert again == found


@pytest.mark.parametrize("lead", [b"", b"\xef\xbb\xbf", b"# kept by hand\n\n---\n"])
def test_a_cassette_is_known_by_its_first_line(
    lead: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = lead + CASSETTES[0].read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["assemble", "--json", "-"]) == 0
    assert said(capsys)["dialect"] == CASSETTES[0].parent.name


ODD = [
    ("empty", b"", 1, "nothing was said: NOT COMPLETE"),
    ("empty.yaml", b"", 2, "the file is empty"),
    ("other.yml", b"a: 1\n", 2, "not a cassette"),
    ("other", b"a: 1\n", 2, "no known dialect of a streamed reply"),
    ("newer", b"format: 2\n", 2, "the cassette has format 2, this version reads up to 1"),
    ("page", b"data: <html>\n\n", 2, "no known dialect of a streamed reply"),
    ("cut", CALLS.body[:-20], 1, "NOT COMPLETE"),
    ("nul", b"\0" * 40, 1, "error wire:"),
]


@pytest.mark.parametrize(("name", "data", "status", "words"), ODD, ids=[name for name, *_ in ODD])
def test_odd_files(
    name: str, data: bytes, status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(data)
    assert main(["assemble", str(tmp_path / name)]) == status
    assert words in "".join(capsys.readouterr())


def test_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = tmp_path / "body"
    body.write_bytes(CALLS.body)
    for arguments, words in (
        ([str(tmp_path)], "cannot read the file: Is a directory"),
        ([str(tmp_path / "none")], "cannot read the file: No such file or directory"),
        ([str(body), "--interaction", "1"], "a raw body has no interactions"),
        ([str(body), "--dialect", "klingon"], "there is no dialect 'klingon'"),
    ):
        assert main(["assemble", *arguments]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"stream-cassette assemble: {words}")
        assert "\n  mend:  " in err


@pytest.mark.skipif(sys.platform == "win32", reason="there is no mkfifo")
def test_a_body_may_come_through_a_pipe_with_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(CALLS.body), daemon=True)
    writer.start()
    assert main(["assemble", "--json", str(pipe)]) == 0
    writer.join(10)
    assert said(capsys)["usage"]["total_tokens"] == 42


def test_warnings_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = chat(Text(Key(), "a"), Finish(Key(), "stop"))
    path = kept(tmp_path / "a.yaml", Stream(stream.exchange, "openai-chat"))
    assert main(["assemble", str(path)]) == 0
    shown = capsys.readouterr().out
    assert main(["assemble", "--json", str(path)]) == 0
    found = said(capsys)
    assert found["warnings"]
    assert all(f"warning: {warning}" in shown for warning in found["warnings"])

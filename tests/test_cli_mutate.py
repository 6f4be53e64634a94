"""`stream-cassette mutate`: cassettes with mutated streams, what applies, and what is refused."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from stream_cassette import Stream, assemble
from stream_cassette.cassette import load, loads, update
from stream_cassette.cli import main, mutate_command
from stream_cassette.model import Cassette, Exchange, Interaction, Read
from stream_cassette.mutate import LEVELS, CutBeforeFinish, InterleaveToolCalls, OneByteReads, instances, mutate
from stream_cassette.mutate.parsing import parse
from stream_cassette.stream import assembled
from streams import CALLS, EVERY, REQUEST
from test_cli_show import documented, kept


def made(capsys: pytest.CaptureFixture[str]) -> tuple[Cassette, str]:
    out, err = capsys.readouterr()
    return loads(out, name="what was printed"), err


@pytest.mark.parametrize(
    ("texts", "code", "law"),
    [
        (["InterleaveToolCalls(order=(0, 1))"], "InterleaveToolCalls(order=(0, 1))", "everything the same"),
        (["OneByteReads"], "OneByteReads()", "everything the same"),
        (["OneByteReads", "CutBeforeFinish()"], "OneByteReads(), CutBeforeFinish()", "text prefix, reasoning prefix, "),
        (["loss"], "DropUsage()", "usage none"),
        (["Ping(every=2)", "wire"], "Ping(every=2), OneRead()", "everything the same"),
        (["CutInsideArguments(7, 1000)"], "CutInsideArguments(call=1, at=10)", "text prefix, "),
    ],
)
def test_a_mutated_stream_on_standard_output(
    texts: list[str], code: str, law: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kept(tmp_path / "a.yaml", CALLS)
    assert main(["mutate", str(path), *texts]) == 0
    cassette, err = made(capsys)
    assert err.startswith(f"{code}\nlaw: {law}")
    (interaction,) = cassette.interactions
    assert interaction.exchange != CALLS.exchange
    assert (interaction.test, interaction.dialect) == ("tests/test_a.py::test_b", "openai-chat")
    assert interaction.assembled == assembled(Stream(interaction.exchange, "openai-chat").reply)
    assert (cassette.at, cassette.by) == ("2026-11-30T00:00:00Z", "stream-cassette 0.1.0")


def test_the_same_as_the_library_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path / "a.yaml", CALLS)
    assert main(["mutate", str(path), "InterleaveToolCalls((0, 1))", "OneByteReads"]) == 0
    (interaction,) = made(capsys)[0].interactions
    assert interaction.exchange == mutate(CALLS, [InterleaveToolCalls((0, 1)), OneByteReads()]).exchange


def test_the_other_interactions_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path / "a.yaml", EVERY["gemini"], CALLS, EVERY["cohere"])
    before = load(path).interactions
    assert main(["mutate", str(path), "--interaction", "2", "HttpError(429, 2, 1)", "CutBeforeFinish()"]) == 0
    first, *tries, mutated, last = made(capsys)[0].interactions
    assert (first, last) == (before[0], before[2])
    assert [(each.exchange.status, each.exchange.header("retry-after"), each.test) for each in tries] == [
        (429, "1", "tests/test_a.py::test_b")
    ] * 2
    assert mutated.exchange == mutate(CALLS, [CutBeforeFinish()]).exchange
    assert main(["mutate", str(path), "--interaction", "4", "OneRead"]) == 2
    assert "--interaction 1 to 3" in capsys.readouterr().err


def test_an_output_file_is_not_replaced_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = kept(tmp_path / "a.yaml", CALLS), tmp_path / "new" / "b.yaml"
    assert main(["mutate", str(path), "OneRead", "-o", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert len(load(out).interactions[0].exchange.reads) == 1
    old = out.read_bytes()
    assert main(["mutate", str(path), "CutBeforeFinish", "-o", str(out)]) == 2
    assert f"it exists already\n  where: {out}\n  mend:  choose another name, or --force" in capsys.readouterr().err
    assert out.read_bytes() == old
    assert main(["mutate", str(path), "CutBeforeFinish", "-o", str(out), "--force"]) == 0
    assert not assemble(Stream(load(out).interactions[0].exchange)).complete
    other = tmp_path / "notes.txt"
    other.write_text("notes\n")
    assert main(["mutate", str(path), "OneRead", "-o", str(other), "--force"]) == 2
    assert main(["mutate", str(path), "OneRead", "-o", str(tmp_path)]) == 2
    assert other.read_text() == "notes\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.yaml", "new", "notes.txt"]


def test_a_file_that_comes_meanwhile_is_not_replaced_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stream_cassette import files

    path, out = kept(tmp_path / "a.yaml", CALLS), tmp_path / "b.yaml"
    locked = files.locked

    def late(target: Path, named: Path) -> object:
        out.write_bytes(path.read_bytes())
        return locked(target, named)

    monkeypatch.setattr("stream_cassette.cassette.locked", late)
    assert main(["mutate", str(path), "OneRead", "-o", str(out)]) == 2
    assert "it exists already" in capsys.readouterr().err
    assert out.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["openai-chat", "bedrock-converse"])
def test_what_applies(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path / "a.yaml", EVERY[name])
    assert main(["mutate", str(path), "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    stream = Stream(load(path).interactions[0].exchange, name)
    assert [each["mutator"] for each in listed] == [repr(each) for each in instances(stream)]
    assert all(repr(parse(each["mutator"])) == each["mutator"] for each in listed)
    assert documented(listed, mutate_command.EPILOG)
    assert all(level in mutate_command.EPILOG for level in LEVELS)
    assert main(["mutate", str(path), "--list"]) == 0
    out = capsys.readouterr().out
    assert "wire: everything the same\n  Rechunk(cuts=(64, " in out
    assert "\nfault: everything the same\n  HttpError(" in out
    assert sum(line.startswith("  ") for line in out.splitlines()) == len(listed)


def test_where_little_applies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    empty = Interaction(Exchange(REQUEST, 200, (), ()))
    html = Interaction(Exchange(REQUEST, 200, (), (Read(0, b"data: <p>\n\n"),)))
    update(path, lambda _: Cassette((empty, html), at="x", by="y"))
    for arguments, status, words in (
        (["--list"], 2, "the cassette has no stream"),
        (["--interaction", "2", "--list"], 2, "no known dialect of a streamed reply"),
        (["--interaction", "1", "OneRead"], 2, "the body is empty"),
        (["--interaction", "1", "wire"], 2, "no mutator of the level 'wire' applies to the stream"),
    ):
        assert main(["mutate", str(path), *arguments]) == status
        assert capsys.readouterr().err.startswith(f"stream-cassette mutate: {words}")
    assert main(["mutate", str(path), "--interaction", "1", "--list"]) == 0
    assert capsys.readouterr().out.count("\n  HttpError(") == 2  # which needs no body


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give mutators, or --list"),
        (["OneRead", "--list"], "give mutators, or --list"),
        (["OneRead", "--json"], "give mutators, or --list"),
        (["OneReed"], "there is no mutator 'OneReed'"),
        (["__import__('os').getcwd()"], "not a mutator"),
        (["Ping('x')"], "not a mutator: every cannot be 'x'"),
        (["DropUsage", "MoveUsage('first')"], "there is no usage"),
        (["DropDone", "DropDone"], "no frame says the end and nothing else"),
    ],
)
def test_what_it_cannot_do(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mutate", str(kept(tmp_path / "a.yaml", CALLS)), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"stream-cassette mutate: {words}")


def test_one_command_feeds_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kept(tmp_path / "a.yaml", CALLS)
    assert main(["mutate", str(path), "CutBeforeFinish"]) == 0
    piped = capsys.readouterr().out.encode()
    for command, status in (("show", 0), ("assemble", 1)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
        assert main([command, "-"]) == status
        assert "Finish" not in capsys.readouterr().out

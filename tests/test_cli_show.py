"""`stream-cassette show`: the timeline of a stream, in words, in columns and as JSON; and what all commands do with a terminal."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from costs import calls_in
from stream_cassette import Stream, cli
from stream_cassette.cassette import load, update
from stream_cassette.cli import main, show_command
from stream_cassette.cli.terminal import Terminal, clean, fitted, progress, terminal
from stream_cassette.lanes import Lane
from stream_cassette.model import (
    Arguments,
    ArgumentsAt,
    Cassette,
    Delta,
    End,
    Ending,
    Exchange,
    Finish,
    Interaction,
    Keepalive,
    Key,
    Opaque,
    PartEnd,
    PartStart,
    Read,
    Reasoning,
    Refusal,
    Request,
    Signature,
    Start,
    StreamError,
    Text,
    ToolCallStart,
    Unknown,
    UsageUpdate,
    Whole,
)
from stream_cassette.mutate import InterleaveToolCalls, OneByteReads, Rechunk, mutate
from stream_cassette.stream import assembled
from stream_cassette.timeline import arrivals, events, lines, names, plain, words
from streams import CALLS, EVERY, REQUEST, A, B, K, chat

CASSETTES = sorted((Path(__file__).parent.parent / "cassettes").rglob("*.yaml"))
GOLDEN = Path(__file__).parent / "data" / "cassette_format_1.yaml"


def kept(path: Path, *streams: Stream, test: str | None = "tests/test_a.py::test_b", **changes: Any) -> Path:
    """A cassette of these streams."""
    made = [
        replace(Interaction(each.exchange, test, each.dialect, assembled(each.reply)), **changes) for each in streams
    ]
    update(path, lambda _: Cassette(tuple(made), at="2026-11-30T00:00:00Z", by="stream-cassette 0.1.0"))
    return path


def unknown(body: bytes, content_type: str = "text/html") -> Interaction:
    reads = (Read(3, body),) if body else ()
    return Interaction(Exchange(REQUEST, 502, (("content-type", content_type),), reads))


def drawn(stream: Stream, width: int = 80) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines(stream, width)]


# ------------------------------------------------------------------------------------------------------------------- in words

WORDS: list[tuple[Delta, str]] = [
    (Start(K, "assistant", "r-1", "m-1"), "Start assistant m-1 r-1"),
    (Start(), "Start"),
    (PartStart(A, "text"), "PartStart text"),
    (Text(K, "Hel\n"), r"Text 'Hel\n'"),
    (Reasoning(K, "so"), "Reasoning 'so'"),
    (Signature(K, "c2ln"), "Signature 'c2ln'"),
    (Refusal(K, "no"), "Refusal 'no'"),
    (ToolCallStart(A, "function", "get_weather"), "ToolCallStart get_weather #0"),
    (ToolCallStart(Key(0, id="call_a"), "custom", ""), "ToolCallStart call_a custom"),
    (Arguments(A, '{"ci'), "Arguments '{\"ci'"),
    (ArgumentsAt(A, "$.city", "Pu", more=True), "Arguments $.city = 'Pu' ..."),
    (ArgumentsAt(A, "$.n", 4), "Arguments $.n = 4"),
    (Whole(A, "arguments", "{}"), "Whole arguments '{}'"),
    (PartEnd(B), "PartEnd #1"),
    (PartEnd(K), "PartEnd"),
    (Opaque(A, "citation", {"é": 1}), 'Opaque citation {"é": 1}'),
    (Finish(K, "stop"), "Finish stop"),
    (Finish(K, "incomplete", detail="max_output_tokens"), "Finish incomplete (max_output_tokens)"),
    (UsageUpdate({"output_tokens": 3, "input_tokens": 12}, {}), "Usage in=12 out=3"),
    (
        UsageUpdate({"cached_tokens": 1, "reasoning_tokens": 2, "total_tokens": 3}, {}),
        "Usage total=3 cached=1 reasoning=2",
    ),
    (StreamError("overloaded_error", "Overloaded"), "Error overloaded_error: Overloaded"),
    (End(), "End"),
    (Keepalive(), "keep-alive"),
    (Unknown("odd", [1]), "Unknown odd [1]"),
]


@pytest.mark.parametrize(("delta", "said"), WORDS, ids=lambda value: value if isinstance(value, str) else "")
def test_what_a_delta_says(delta: Delta, said: str) -> None:
    assert words(delta) == said
    json.dumps(plain(delta, None))


def test_every_delta_has_words() -> None:
    assert {type(delta) for delta, _ in WORDS} == set(get_args(Delta))


def test_a_delta_as_json_has_it() -> None:
    started = ToolCallStart(Key(0, 1, "call_b"), "function", "f")
    assert plain(started, Lane(0, "call", 3)) == {
        "type": "ToolCallStart",
        "lane": 3,
        "key": {"choice": 0, "index": 1, "id": "call_b"},
        "kind": "function",
        "name": "f",
        "own_end": False,
    }
    assert plain(End(), None) == {"type": "End", "lane": None, "key": {}}


# ------------------------------------------------------------------------------------------------------------------ in columns


def test_interleaved_calls_are_columns() -> None:
    assert drawn(mutate(CALLS, [InterleaveToolCalls((0, 1))]), 80) == [
        "      0      153   - Start assistant m-1 r-1",
        "     10      166   -           Text 'One moment, 漢字 '",
        "     20      157   -           Text 'please.\\u2028'",
        "     30      241   -                     ToolCallStart tide_times #0 call_a",
        "     40      241   -                     |         ToolCallStart moon_phase #1 call_b",
        "     50      202   -                     Arguments '{\"harbour\":'",
        '     60      205   -                     |         Arguments \'{"on":{"day"\'',
        '     70      209   -                     Arguments \'{"name":"Oban"}}\'',
        "     80      201   -                               Arguments ':4},\"x\":1}'",
        "     90      143   - Finish tool_calls",
        "    100      162   - Usage in=12 out=30 total=42",
        "    110       14   - End",
    ]


def test_where_reads_end() -> None:
    """Inside a character, inside an event, at the end of one, and several before one is whole."""
    at = CALLS.body.index("漢".encode())
    first = len(CALLS.frames[0].raw)
    cut = mutate(CALLS, [Rechunk((first, at + 1, at + 2, at + 3, at + 4))])
    found = [(each.reads, len(each.events), each.inside, each.split) for each in arrivals(cut)]
    assert found == [(1, 1, "", 0), (5, len(CALLS.frames) - 1, "", 3)]
    shown = drawn(cut)
    assert "in 5 reads, 3 of them to inside a character" in shown[1]
    stop = mutate(CALLS, [Rechunk((at + 1,))])
    assert [(each.reads, each.inside) for each in arrivals(stop)] == [(1, "character"), (1, "")]
    assert drawn(stop)[0].startswith(f"     10 {at + 1:8}!  - Start")
    assert drawn(mutate(CALLS, [Rechunk((first + 7,))]))[0].startswith(f"     10 {first + 7:8}~  - Start")


@pytest.mark.parametrize("name", EVERY)
def test_the_reads_and_events_are_all_there(name: str) -> None:
    stream = mutate(EVERY[name], [OneByteReads()])
    found = list(arrivals(stream))
    assert sum(each.reads for each in found) == sum(each.size for each in found) == len(stream.body)
    assert [event.frame for each in found for event in each.events] == list(stream.frames)
    assert tuple(delta for each in found for event in each.events for delta in event.deltas) == stream.deltas
    assert any(each.split for each in found) == (name not in ("bedrock-converse", "bedrock-invoke"))


def test_what_every_event_repeats_is_told_once() -> None:
    frames = [
        b'data: {"id":"r","model":"m","choices":[{"index":0,"text":"%s"}]}\n\n' % text for text in (b"a", b"b", b"")
    ]
    stream = Stream(Exchange(REQUEST, 200, (), tuple(Read(0, frame) for frame in frames)), "openai-completions")
    assert [line[19:] for line in drawn(stream)] == [
        "- Start assistant m r",
        "              Text 'a'",
        "-             Text 'b'",
        "- Start assistant m r",  # all that the last one says
    ]


def test_comments_damage_and_events_that_say_nothing() -> None:
    body = b': OPENROUTER\n\nevent: odd\ndata: {"type":"content_block_delta"}\n\n\ndata: {"type":"message_start","mess'
    stream = Stream(Exchange(REQUEST, 200, (), (Read(1, body),)), "anthropic")
    assert [line[19:60] for line in drawn(stream)] == [
        "- comment ': OPENROUTER'",
        "- a blank line",
        "-             Opaque unknown {}",
        "- a blank line",
        "- Error wire:truncated: the body ends ins",
        "  damage: the body ends inside this event",
    ]
    recorded = load(CASSETTES[0].parent.parent / "openai-responses" / "tools.yaml").interactions[0]
    (silent,) = [line for line in drawn(Stream(recorded.exchange)) if "- event" in line]
    assert silent[19:].startswith('- event response.reasoning_summary_part.added \'{"type":"response.reas')


def test_more_lanes_than_columns_share_them() -> None:
    starts = [ToolCallStart(Key(0, number, f"c{number}"), "function", f"f{number}") for number in range(30)]
    stream = chat(*starts, *(Arguments(start.key, "{}") for start in starts), Finish(K, "tool_calls"))
    columns = {}
    for width in (10, 60, 200):
        shown = drawn(stream, width)
        assert len(shown) == 30 + 2 * 30 + 1
        columns[width] = len({line.index("ToolCallStart") for line in shown if "ToolCallStart" in line})
        assert max(len(line) for line in shown) < max(width, 60)
    assert columns == {10: 3, 60: 6, 200: 30}
    assert list(names(events(stream)).values()) == [f"call f{number}" for number in range(30)]


def test_lanes_of_several_choices_say_so() -> None:
    stream = chat(Text(Key(0), "a"), Text(Key(1), "b"), Finish(Key(0), "stop"), Finish(Key(1), "stop"))
    assert list(names(events(stream)).values()) == ["text of choice 0", "text of choice 1"]


def test_a_long_stream_takes_calls_in_proportion() -> None:
    def cost(count: int) -> int:
        stream = chat(*(Text(K, "word ") for _ in range(count)), Finish(K, "stop"))
        _ = stream.reply
        return calls_in(lambda: drawn(mutate(stream, [Rechunk(tuple(range(0, len(stream.body), 100)))])))

    assert cost(800) < 5 * cost(200)


# ----------------------------------------------------------------------------------------------------------------- the command


@pytest.fixture(autouse=True)
def _a_pipe_of_the_usual_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def test_the_head_of_an_interaction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path / "a.yaml", CALLS)
    assert main(["show", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:7] == [
        "interaction 1: tests/test_a.py::test_b",
        "  POST https://api.example.com/v1/chat/completions",
        "  200 openai-chat, complete",
        f"  {len(CALLS.body)} bytes in 12 reads, 110 ms; first content at 10 ms",
        "  assembled agrees",
        "  lanes: 0 text, 1 call tide_times, 2 call moon_phase",
        "     ms    bytes   ~ ends inside an event, ! a character",
    ]
    assert out.splitlines()[7:] == drawn(CALLS, 120)
    assert err == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"assembled": None}, None),
        (
            {"assembled": {"text": "else"}},
            "  assembled differs from today's:\n    assembled.text: recorded 'else', now ",
        ),
        ({"test": None}, "interaction 1: of no test\n"),
    ],
)
def test_what_assembled_says(
    changes: dict[str, Any], said: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    made = replace(Interaction(CALLS.exchange, "t", "openai-chat", assembled(CALLS.reply)), **changes)
    update(path, lambda _: Cassette((made,), at="x", by="y"))
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert said in out if said else "assembled" not in out


def test_bodies_that_are_no_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    html = unknown(b"<html>\n")
    bare = Interaction(Exchange(Request("GET", "https://example.org/"), 204, (), (), Ending("closed"), "gzip"))
    died = Interaction(Exchange(REQUEST, 200, (), (), Ending("disconnected", "read")))
    stalled = Interaction(Exchange(REQUEST, 200, (), (), Ending("stalled")))
    update(path, lambda _: Cassette((html, bare, died, stalled), at="x", by="y"))
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "  502 no known stream (text/html), complete\n  7 bytes in 1 read, 3 ms\n" in out
    assert "bytes '<html>'" in out
    assert "  204 no known stream (no content type), closed, was gzip\n  0 bytes in 0 reads, 0 ms\n" in out
    assert "disconnected read\n" in out
    for words_of_it in ("the reader left before the end", "the connection died", "until the read timeout struck"):
        assert words_of_it in out


def test_many_lanes_have_a_short_legend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    starts = [ToolCallStart(Key(0, number, f"c{number}"), "function", "f") for number in range(50)]
    path = kept(tmp_path / "a.yaml", chat(*starts, Finish(K, "tool_calls")))
    assert main(["show", str(path), "--width", "60"]) == 0
    out = capsys.readouterr().out
    assert "39 call f, and 10 more" in out.replace("\n ", "")
    assert "; no content\n" in out


def test_one_interaction_or_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path / "a.yaml", CALLS, EVERY["gemini"])
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert ("interaction 1: " in out, "\n\ninteraction 2: " in out) == (True, True)
    assert main(["show", str(path), "--interaction", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("interaction 2: ")
    assert " gemini, " in out
    for number in ("0", "3", "-1"):
        assert main(["show", str(path), "--interaction", number]) == 2
        assert f"there is no interaction {number}\n  where: {path}\n  mend:  --interaction 1 to 2\n" in (
            capsys.readouterr().err
        )


def test_a_cassette_without_interactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("format: 1\nrecorded: {at: x, by: y}\ninteractions: []\n")
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().out == "the cassette has no interactions\n"
    assert main(["show", str(path), "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert main(["show", str(path), "--interaction", "1"]) == 2
    assert "this has none" in capsys.readouterr().err


def test_a_cassette_over_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for data, status in ((CASSETTES[0].read_bytes(), 0), (b"", 2), (b"\xff\0", 2)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert main(["show", "-"]) == status
    assert "where: standard input, line 1" in capsys.readouterr().err


def test_a_body_edited_by_hand_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path / "a.yaml", CALLS)
    path.write_text(path.read_text().replace("please", "pleases"))
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().err.startswith(f"warning: {path}, line ")


def test_json_of_the_golden_file_and_of_a_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path / "a.yaml", CALLS)
    assert main(["show", "--json", str(path)]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert {name: said[name] for name in ("interaction", "dialect", "ending", "error", "reads", "duration_ms")} == {
        "interaction": 1,
        "dialect": "openai-chat",
        "ending": "complete",
        "error": None,
        "reads": 12,
        "duration_ms": 110,
    }
    assert (said["first_token_ms"], said["gaps_ms"]) == (CALLS.first_token_ms, list(CALLS.gaps_ms))
    assert said["assembled"] == "agrees"
    assert [lane["name"] for lane in said["lanes"]] == ["text", "call tide_times", "call moon_phase"]
    says = [each for arrival in said["timeline"] for event in arrival["events"] for each in event["says"]]
    assert [each["type"] for each in says] == [type(delta).__name__ for delta in CALLS.deltas]
    assert "".join(each["text"] for each in says if each["lane"] == 1 and each["type"] == "Arguments") == (
        '{"harbour":{"name":"Oban"}}'
    )
    assert documented(said, show_command.EPILOG)
    assert main(["show", "--json", str(GOLDEN)]) == 0
    golden = json.loads(capsys.readouterr().out)
    assert [each["dialect"] for each in golden] == [each.dialect for each in load(GOLDEN).interactions]
    assert {each["assembled"] for each in golden} == {"differs", None, "agrees"}


def documented(value: Any, text: str) -> bool:
    """Whether the help names every key of a JSON value, except inside of what the wire said."""
    match value:
        case dict():
            return all(key in text and (key == "says" or documented(inner, text)) for key, inner in value.items())
        case list():
            return all(documented(inner, text) for inner in value)
        case _:
            return True


@pytest.mark.parametrize("path", CASSETTES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_fits_any_width(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for width in (24, 60, 200):
        assert main(["show", str(path), "--width", str(width)]) == 0
        for line in capsys.readouterr().out.splitlines():
            assert cells(line) <= width, line


def cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


# ---------------------------------------------------------------------------------------------------------------- the terminal


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Tty:
    """Standard output as a terminal of 60 columns; to be called in the test, because pytest puts its own there when that begins."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    made = Tty()
    monkeypatch.setattr(sys, "stdout", made)
    return made


def test_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    tty = a_terminal(monkeypatch)
    assert main(["show", str(CASSETTES[0])]) == 0
    coloured = tty.getvalue()
    assert "\x1b[36m" in coloured
    plain_text = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert "\x1b" not in plain_text
    assert all(cells(line) <= 60 for line in plain_text.splitlines())


def without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)


@pytest.mark.parametrize(
    ("arguments", "change"),
    [
        ([], lambda monkeypatch: monkeypatch.setenv("NO_COLOR", "1")),
        ([], without_rich),
        ([], lambda monkeypatch: monkeypatch.setenv("TERM", "dumb")),
        (["--json"], lambda monkeypatch: None),
    ],
)
def test_no_colours(
    arguments: list[str], change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tty = a_terminal(monkeypatch)
    change(monkeypatch)
    assert main(["show", str(CASSETTES[0]), *arguments]) == 0
    assert tty.getvalue()
    assert "\x1b" not in tty.getvalue()


def test_what_a_dialect_does_not_know_is_dim() -> None:
    (line,) = lines(Stream(Exchange(REQUEST, 200, (), (Read(0, b'data: {"odd":1}\n\n'),)), "openai-chat"), 80)
    assert line[-1] == ('Unknown message {"odd": 1}', "dim")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_in_a_real_terminal_and_over_pipes() -> None:
    import fcntl
    import pty
    import struct
    import termios

    code = f"import sys; from stream_cassette.cli import main; sys.exit(main(['show', {str(CASSETTES[0])!r}]))"
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "NO_COLOR"):
        environment.pop(name, None)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    with subprocess.Popen([sys.executable, "-c", code], stdout=slave, env=environment) as process:
        os.close(slave)
        with os.fdopen(master, "rb", buffering=0) as screen:
            shown = b""
            try:
                while piece := screen.read(65536):
                    shown += piece
            except OSError:  # how Linux says that nobody writes to it any more
                pass
    assert process.returncode == 0
    text = shown.decode()
    assert "\x1b[36m" in text
    assert max(cells(line) for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()) <= 60
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True, text=True)
    assert "\x1b" not in piped.stdout
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as closed:
        assert closed.stdout is not None
        assert closed.stderr is not None
        closed.stdout.close()
        assert closed.stderr.read() == b""
    assert closed.returncode == 1


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 5, "short"),
        ("longer", 5, "lo..."),
        ("東京東京", 8, "東京東京"),
        ("東京東京", 7, "東京..."),
        ("東京東京", 6, "東..."),
        ("e\u0301" * 5, 5, "e\u0301" * 5),
        ("\x1b[31m\x07", 30, r"\x1b[31m\x07"),
        ("a\ud800\u202e", 30, r"a\ud800\u202e"),
        ("x" * 1000, 10, "xxxxxxx..."),
        ("e" + "\u0301" * 1000, 10, "e" + "\u0301" * 39 + "..."),
        ("", 5, ""),
        ("abc", 2, "..."),
    ],
)
def test_a_line_is_cut_to_its_width(text: str, width: int, shown: str) -> None:
    assert "".join(each for each, _ in fitted([(text, "")], width)) == shown


def test_styles_stay_with_their_pieces() -> None:
    assert fitted([("ab", "red"), ("cdefgh", "blue"), ("ij", "")], 7) == [
        ("ab", "red"),
        ("cd", "blue"),
        ("", ""),
        ("...", "dim"),
    ]


def test_nothing_of_a_file_controls_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;evil\x07\x1b[2J"
    stream = chat(Start(K, evil, evil, evil), ToolCallStart(A, "function", evil), Text(K, evil), Finish(K, evil))
    path = kept(tmp_path / "a.yaml", stream, test=f"t{evil}")
    for command in (["show"], ["assemble"], ["check"], ["upgrade"], ["mutate", "--list"]):
        main([*command, str(path)])
        out, err = capsys.readouterr()
        assert out
        assert not re.search("[\x00-\x09\x0b-\x1f]", out + err), command


def test_a_locale_without_the_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["show", str(CASSETTES[0])]) == 0
    assert b"\\U0001f30a" in raw.getvalue()


def test_texts_with_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(10, None).text("one\n\nthree, which is long\r", indent="  ")
    assert capsys.readouterr().out == "  one\n\n  three, which is long\\r\n"
    assert clean("plain") == "plain"


def deep(levels: int) -> Stream:
    """A chunk with a value that is nested so deeply."""
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}],"x":%s}\n\n' % (b"[" * levels + b"]" * levels)
    finish = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    return Stream(Exchange(REQUEST, 200, (), (Read(0, chunk), Read(1, finish))), "openai-chat")


def test_what_is_nested_deeply_is_shown_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path / "a.yaml", deep(500))
    for command in (["show"], ["show", "--json"], ["assemble"], ["check"], ["upgrade"], ["mutate", "--list"]):
        assert main([*command, str(path)]) == 0
        assert capsys.readouterr().out
    assert main(["mutate", str(path), "Quirk('index-all-zero')"]) == 2
    assert capsys.readouterr().err == "stream-cassette mutate: a JSON value is nested too deeply\n"


def test_the_width_of_what_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "__stdout__", io.StringIO())
    assert terminal().width == 120
    assert terminal(33).width == 33


def test_progress_shows_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for error, quiet, shows in ((Tty(), False, True), (Tty(), True, False), (io.StringIO(), False, False)):
        monkeypatch.setattr(sys, "stderr", error)
        assert list(progress([1, 2, 3], "counting", quiet=quiet)) == [1, 2, 3]
        assert ("counting" in error.getvalue()) == shows


# -------------------------------------------------------------------------------------------------------------------- the help


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_in_one_style(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    out = capsys.readouterr().out
    assert re.search(r"\nexamples?:\n  \S", out)
    assert "stream-cassette" in out.partition("\nexample")[2]
    assert re.search(r"\nexit status: .*\b0 ", out)
    assert ("--json prints" in out) == ("--json" in out.partition("\n\n")[0])
    with pytest.raises(SystemExit):
        main(["--help"])
    assert re.search(rf"\n    {name}\s", capsys.readouterr().out)

"""The command: what it prints, where, and its exit status."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from stream_cassette import Reply, ToolCall, Usage, synthesize
from stream_cassette.cassette import load, update
from stream_cassette.cli import demo_command, main
from stream_cassette.model import Cassette, Exchange, Interaction, Read, Request
from stream_cassette.stream import assembled
from stream_cassette.textconv import lines

GOLDEN = Path(__file__).parent / "data" / "cassette_format_1.yaml"


def recorded(path: Path, *, call_id: str, created: int, at_ms: int, city: str = "Pune") -> Path:
    """A recording whose ids and times are those of one day."""
    arguments = f'{{"city":"{city}"}}'
    reply = Reply(
        (ToolCall(0, id=call_id, name="get_weather", arguments_text=arguments, arguments={"city": city}),),
        "tool_calls",
        Usage(12, 3, 15),
        ended=True,
    )
    request = Request(
        "POST",
        "https://example.org/v1/chat/completions",
        (("content-type", "application/json"),),
        b'{"model":"m","tool_call_id":"%s"}' % call_id.encode(),
    )
    stream = synthesize(reply, "openai-chat", request=request)
    reads = tuple(
        Read(
            at_ms,
            read.data.replace(
                b'"choices"', b'"created":%d,"system_fingerprint":"fp_%d","choices"' % (created, created)
            ),
        )
        for read in stream.exchange.reads
    )
    exchange = Exchange(request, 200, stream.exchange.headers, reads)
    update(
        path,
        lambda _: Cassette(
            (Interaction(exchange, "tests/test_a.py::test_b", "openai-chat", assembled(stream.reply)),),
            at=f"2026-11-{created:02}T00:00:00Z",
        ),
    )
    return path


def test_what_is_new_with_every_recording_makes_no_difference(tmp_path: Path) -> None:
    one = list(lines(recorded(tmp_path / "a.yaml", call_id="call_1", created=11, at_ms=5)))
    other = list(lines(recorded(tmp_path / "b.yaml", call_id="call_2", created=12, at_ms=900)))
    assert one == other
    third = list(lines(recorded(tmp_path / "c.yaml", call_id="call_3", created=13, at_ms=7, city="Delhi")))
    different = [(a, b) for a, b in zip(one, third, strict=True) if a != b]
    assert different
    assert all("Pune" in a and "Delhi" in b for a, b in different)


def test_how_a_cassette_reads(tmp_path: Path) -> None:
    text = "\n".join(lines(recorded(tmp_path / "a.yaml", call_id="call_1", created=11, at_ms=5)))
    assert text.startswith(
        "interaction 1: tests/test_a.py::test_b\n  request: POST https://example.org/v1/chat/completions\n"
    )
    assert "tool_call_id: <id 1>" in text
    assert '"system_fingerprint": "<fingerprint>"' in text
    assert '"created": "<time>"' in text
    assert '"id": "<id 1>"' in text
    assert "\n  response: 200, openai-chat, complete\n" in text
    assert text.count("  event: ") == text.count("[DONE]") + text.count('"choices"')
    assert "\n  assembled:\n" in text


def test_every_kind_of_body_reads_somehow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["textconv", str(GOLDEN)]) == 0
    out, err = capsys.readouterr()
    assert out.count("interaction ") == len(load(GOLDEN).interactions)
    assert "of no test" in out
    assert "disconnected protocol" in out
    assert err == ""


@pytest.mark.parametrize(
    "text", ["", "<<<<<<< HEAD\nformat: 1\n=======\nformat: 1\n>>>>>>> b\n", "just text\n", "format: 9\n"]
)
def test_what_is_no_cassette_is_printed_as_it_is(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert main(["textconv", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == text
    assert err.startswith("stream-cassette textconv: ")


def test_a_body_edited_by_hand_is_no_reason_to_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path / "a.yaml", call_id="c", created=11, at_ms=5)
    path.write_text(path.read_text().replace("get_weather", "get_the_weather"))
    assert main(["textconv", str(path)]) == 0
    assert "get_the_weather" in capsys.readouterr().out


def test_no_file_and_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["textconv", str(tmp_path / "none.yaml")]) == 2
    assert "there is no such cassette" in capsys.readouterr().err
    assert main(["textconv", str(tmp_path)]) == 0
    assert "cannot read the cassette" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["--help"], 0), (["--version"], 0), (["textconv", "--help"], 0), (["nothing"], 2), (["textconv"], 2)],
)
def test_help_and_usage(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == status
    out, err = capsys.readouterr()
    assert bool(out) == (status == 0)
    assert bool(err) == (status != 0)


def test_without_a_command_it_says_what_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(command in err for command in ("demo", "textconv", "scan"))


def test_who_interrupts_is_told_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_command, "run", interrupted)
    assert main(["demo"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def demo_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    hypothesis.settings.load_profile("project")


def test_the_demo(demo_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    said = capsys.readouterr().out
    assert "(--keep DIR leaves it in DIR)" in said
    assert list(demo_in.iterdir()) == []
    # What the loop does, and the least that breaks it.
    assert "| def naive(reads" in said
    assert said.count("BROKEN") == 3
    assert "again:   fuzz.check(assembler, stream, [Rechunk(cuts=(7,))], feed='bytes')" in said


def test_the_demo_may_leave_its_cassette(demo_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["demo", "--keep", str(demo_in / "kept")]) == 0
        assert f"saved {demo_in / 'kept' / 'demo.yaml'}" in capsys.readouterr().out.replace("\n", "")
    assert len(load(demo_in / "kept" / "demo.yaml").interactions) == 1


def test_the_demo_names_what_it_lacks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["demo"]) == 2
    assert "pip install 'pytest-stream-cassette[demo]'" in capsys.readouterr().err


def test_git_shows_a_diff_of_what_was_said(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    git("init", "-q")
    git(
        "config",
        "diff.cassette.textconv",
        f"{sys.executable} -c 'import sys; from stream_cassette.cli import main; sys.exit(main([\"textconv\", *sys.argv[1:]]))'",
    )
    (tmp_path / ".gitattributes").write_text("*.yaml diff=cassette\n")
    path = recorded(tmp_path / "a.yaml", call_id="call_1", created=11, at_ms=5)
    git("add", ".")
    git("commit", "-qm", "one")
    recorded(path, call_id="call_2", created=12, at_ms=6)
    assert git("diff") == ""
    recorded(path, call_id="call_3", created=13, at_ms=7, city="Delhi")
    assert "Delhi" in git("diff")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    cassette = Path(__file__).parent.parent / "cassettes" / "openai-chat" / "tools.yaml"
    code = f"import sys; from stream_cassette.cli import main; sys.exit(main(['textconv', {str(cassette)!r}]))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_disk_that_is_full_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "import sys; from stream_cassette.cli import main; sys.exit(main())", "check", str(GOLDEN), "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "stream-cassette check: No space left on device\n")

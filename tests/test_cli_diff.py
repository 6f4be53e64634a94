"""`stream-cassette diff`: what is compared with what, what is printed, and the exit status."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_cassette import Stream
from stream_cassette.cassette import update
from stream_cassette.cli import diff_command, main
from stream_cassette.cli.diff_command import partners
from stream_cassette.model import Cassette, Ending, Interaction, Read, Request
from stream_cassette.mutate import DropUsage, Refragment, UnknownEvents, mutate
from stream_cassette.stream import assembled
from streams import CALLS, EVERY, REQUEST
from test_cli_show import documented

URL = "https://api.example.com/v1/chat/completions"


def ask(number: int, url: str = URL, method: str = "POST") -> Request:
    return Request(method, url, (("content-type", "application/json"),), json.dumps({"n": number}).encode())


def asked(request: Request, stream: Stream = CALLS) -> Stream:
    return replace(stream, exchange=replace(stream.exchange, request=request))


def kept(path: Path, *streams: Stream) -> str:
    made = tuple(Interaction(each.exchange, "t", each.dialect, assembled(each.reply)) for each in streams)
    update(path, lambda _: Cassette(made, at="2026-11-30T00:00:00Z", by="stream-cassette 0.1.0"))
    return str(path)


CUT = mutate(CALLS, [Refragment(0, (1, 2, 3))])
LESS = mutate(CALLS, [DropUsage()])

PARTNERS: dict[str, tuple[Sequence[Request], Sequence[Request], list[tuple[int, int]]]] = {
    "equal ones": ([ask(1), ask(2)], [ask(2), ask(1)], [(0, 1), (1, 0)]),
    "equal ones again and again, in order": ([ask(1)] * 3, [ask(1)] * 2, [(0, 0), (1, 1)]),
    "another host and port": ([ask(1)], [ask(1, "http://127.0.0.1:8000/v1/chat/completions")], [(0, 0)]),
    "the others by position": ([ask(1), ask(2), ask(3)], [ask(8), ask(3), ask(9)], [(0, 0), (1, 2), (2, 1)]),
    "another path is another request": ([ask(1), ask(1, URL + "/x")], [ask(1, URL + "/x"), ask(1)], [(0, 1), (1, 0)]),
    "another method too": ([ask(1), ask(1, method="PUT")], [ask(1, method="PUT"), ask(1)], [(0, 1), (1, 0)]),
    "key order says nothing": (
        [ask(1), replace(REQUEST, body=b'{"a":1,"b":2}')],
        [replace(REQUEST, body=b'{"b":2, "a":1}'), ask(1)],
        [(0, 1), (1, 0)],
    ),
    "none": ([ask(1)], [], []),
}


@pytest.mark.parametrize("case", PARTNERS)
def test_which_requests_belong_together(case: str) -> None:
    recorded, now, expected = PARTNERS[case]
    assert partners(recorded, now) == expected


def test_two_recordings_of_one_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = kept(tmp_path / "a.yaml", CALLS), kept(tmp_path / "b.yaml", CUT)
    assert main(["diff", one, other]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"interaction 1: POST {URL}",
        "  the wire shape is the same",
        "  the reply is the same",
    ]


def test_what_drifted_and_what_was_said_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = kept(tmp_path / "a.yaml", asked(ask(1)), asked(ask(2)), asked(ask(3)), asked(ask(5)))
    other = kept(tmp_path / "b.yaml", asked(ask(2), LESS), asked(ask(1), CUT), asked(ask(4)))
    assert main(["diff", one, other]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"interactions 1 and 2: POST {URL}",
        "  the wire shape is the same",
        "  the reply is the same",
        f"interactions 2 and 1: POST {URL}",
        "  shape: events: field usage went (object)",
        "  reply.usage: recorded {'input_tokens': 12, 'output_tokens': 30, 'total_tokens': 42..., now nothing",
        f"interaction 3: POST {URL}",
        "  another request: body.n: recorded 3, now 4",
        "  the wire shape is the same",
        "  the reply is the same",
        f"{one}: interaction 4 has no partner: POST {URL}",
    ]
    assert main(["diff", other, one]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"{one}: interaction 4 has no partner: POST {URL}"


def test_a_recording_that_its_client_left_early_has_the_same_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = replace(CALLS.exchange, reads=(Read(0, CALLS.body[:30]),), ending=Ending("closed"))
    one, other = kept(tmp_path / "a.yaml", CALLS), str(tmp_path / "b.yaml")
    update(Path(other), lambda _: Cassette((Interaction(begun, "t"),), at="2026-11-30T00:00:00Z", by="x"))
    for order in ([one, other], [other, one]):
        assert main(["diff", *order]) == 0
        assert "  the wire shape is the same\n" in capsys.readouterr().out


def test_it_is_told_to_programs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = kept(tmp_path / "a.yaml", asked(ask(1)), asked(ask(2)), asked(ask(3)))
    other = kept(tmp_path / "b.yaml", asked(ask(2), LESS), asked(ask(9)))
    assert main(["diff", one, other, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert documented(found, diff_command.EPILOG)
    usage = "reply.usage: recorded {'input_tokens': 12, 'output_tokens': 30, 'total_tokens': 42..., now nothing"
    same: dict[str, Any] = {"method": "POST", "url": URL}
    assert found == {
        "drifted": True,
        "pairs": [
            {"recorded": 1, "now": 2, **same, "request": ["body.n: recorded 1, now 9"], "shape": [], "assembled": []},
            {
                "recorded": 2,
                "now": 1,
                **same,
                "request": [],
                "shape": ["events: field usage went (object)"],
                "assembled": [usage],
            },
        ],
        "without_partner": {"recorded": [3], "now": []},
    }


def test_one_interaction_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = kept(tmp_path / "a.yaml", asked(ask(1)), asked(ask(2)), asked(ask(3)))
    other = kept(tmp_path / "b.yaml", asked(ask(2), LESS), asked(ask(1)))
    assert main(["diff", one, other, "--interaction", "1"]) == 0
    assert capsys.readouterr().out.startswith("interactions 1 and 2: ")
    assert main(["diff", one, other, "--interaction", "2", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(pair["recorded"], pair["now"]) for pair in found["pairs"]] == [(2, 1)]
    assert found["without_partner"] == {"recorded": [], "now": []}


def test_nothing_to_compare_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, none = kept(tmp_path / "a.yaml", CALLS, CALLS), kept(tmp_path / "none.yaml")
    for arguments, word in (
        ([one, none], "no interaction has a partner"),
        ([none, one], "no interaction has a partner"),
        ([one, kept(tmp_path / "b.yaml", CALLS), "--interaction", "2"], "no interaction has a partner"),
        ([one, one, "--interaction", "3"], "there is no interaction 3"),
        ([one, str(tmp_path / "missing.yaml")], "there is no such cassette"),
    ):
        assert main(["diff", *arguments]) == 2
        printed = capsys.readouterr()
        assert (printed.out, word in printed.err) == ("", True), printed.err


def test_a_dialect_against_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = kept(tmp_path / "a.yaml", EVERY["anthropic"]), kept(tmp_path / "b.yaml", EVERY["openai-chat"])
    assert main(["diff", one, other]) == 1
    assert "  shape: dialect: recorded anthropic, now openai-chat\n" in capsys.readouterr().out


def test_colours_are_for_terminals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kept(tmp_path / "a.yaml", CALLS)
    other = kept(tmp_path / "b.yaml", mutate(CALLS, [UnknownEvents(2)]))
    assert main(["diff", one, other]) == 1
    plain = capsys.readouterr().out
    assert "shape: event weather_report came" in plain
    assert "\x1b" not in plain

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(["diff", one, other]) == 1
    assert "\x1b[31m" in screen.getvalue()
    assert re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()) == plain


def test_it_runs_as_a_command_and_reads_a_pipe(tmp_path: Path) -> None:
    one, other = kept(tmp_path / "a.yaml", CALLS), kept(tmp_path / "b.yaml", LESS)
    code = "import sys; from stream_cassette.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "diff", "-", other]
    done = subprocess.run(command, input=Path(one).read_bytes(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert b"shape: events: field usage went (object)" in done.stdout

"""The commands that serve a cassette and record a program: what they print, what the program finds, how they end."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from stream_cassette import Reply, synthesize
from stream_cassette.cassette import load, update
from stream_cassette.cli import main, record_command
from stream_cassette.model import COMPLETE, Cassette, Ending, Exchange, Interaction, Read, Request, TextPart
from stream_cassette.server import Server, serve

ASK = b'{"model": "m", "stream": true}'
OPENAI = "https://api.openai.com/v1/chat/completions"
CHAT = synthesize(
    Reply((TextPart("Low tide."),), "stop", ended=True), "openai-chat", request=Request("POST", OPENAI, (), ASK)
).exchange
OURS = "import sys; from stream_cassette.cli import main; raise SystemExit(main())"


def cassette(path: Path, *owners: str | None, body: bytes = ASK) -> Path:
    request = Request("POST", OPENAI, (), body)
    exchanges = [Exchange(request, 200, CHAT.headers, CHAT.reads) for _ in owners]
    found = [Interaction(each, test) for each, test in zip(exchanges, owners, strict=True)]
    update(path, lambda _: Cassette(tuple(found), "2026-11-30T00:00:00Z", "x"))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


@contextmanager
def running(*arguments: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", OURS, *map(str, arguments)],
        stdout=subprocess.PIPE,
        **{"stderr": subprocess.PIPE, "text": True, **options},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def stopped(process: subprocess.Popen[str], how: signal.Signals) -> tuple[int, str, str]:
    """Exit status and what was printed and not yet read."""
    process.send_signal(how)
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err or ""


# ----------------------------------------------------------------------------------------------------------------------- serve


@contextmanager
def served(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """`stream-cassette serve`, its URL, and what it printed before it serves."""
    with running("serve", *arguments) as process:
        assert process.stdout is not None
        lines = []
        while not lines or lines[-1] != "until Ctrl-C":
            line = process.stdout.readline()
            assert line, process.communicate()
            lines.append(line.rstrip("\n"))
        yield process, lines[0].rpartition(" ")[2], lines


def ask(url: str, body: bytes = ASK) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", content=body)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_serving(path: Path, how: signal.Signals) -> None:
    with served(cassette(path, None)) as (process, url, lines):
        assert lines == [f"replaying {path} at {url}", "  POST /v1/chat/completions", "until Ctrl-C"]
        assert ask(url).content == CHAT.body
        status, out, err = stopped(process, how)
    assert (status, out, err) == (0, f"POST /v1/chat/completions 200 {len(CHAT.reads)} reads, complete\n\n", "")


def test_serving_a_miss_is_told_and_is_the_exit_status(path: Path) -> None:
    with served(cassette(path, "t")) as (process, url, _):
        assert ask(url).status_code == 200
        assert [ask(url).status_code, ask(url, b"{}").status_code] == [404, 404]
        status, out, _ = stopped(process, signal.SIGINT)
    assert status == 1
    assert out.splitlines()[1:4] == [
        "POST /v1/chat/completions 404 1 read, miss",
        f"  no recorded interaction answers POST {OPENAI}",
        "    an equal request is recorded once and was played as often already",
    ]
    assert f"stream-cassette record --upstream URL --mode new --to {path} --test t -- COMMAND" in out
    assert "--loop starts over" in out


def test_serving_on_and_on(path: Path) -> None:
    with served(cassette(path, None, None), "--loop", "--mutate", "OneByteReads", "--timing", "x0.1") as (
        process,
        url,
        lines,
    ):
        assert lines[-2:] == ["mutated: OneByteReads()", "until Ctrl-C"]
        assert [ask(url).content for _ in range(5)] == [CHAT.body] * 5
        assert ask(url, b"{}").status_code == 404
        status, out, _ = stopped(process, signal.SIGINT)
    assert status == 1
    told = [line for line in out.splitlines() if line.startswith("POST")]
    reads = [len(CHAT.reads), len(CHAT.body)]
    assert told[:-1] == [
        f"POST /v1/chat/completions 200 {count} reads, complete" for count in [*reads, *reads, reads[0]]
    ]
    assert told[-1] == "POST /v1/chat/completions 404 1 read, miss"
    assert "--loop" not in out


def test_a_miss_of_the_first_request_is_one_even_if_it_would_start_over(path: Path) -> None:
    with served(cassette(path, None), "--loop") as (process, url, _):
        assert ask(url, b"{}").status_code == 404
        assert stopped(process, signal.SIGINT)[0] == 1


def test_serving_what_one_test_of_several_recorded(path: Path) -> None:
    cassette(path, "a", "b", None)
    with served(path, "--test", "b") as (process, url, lines):
        assert len(lines) == 4
        assert [ask(url).status_code for _ in range(3)] == [200, 200, 404]
        assert stopped(process, signal.SIGINT)[0] == 1


@pytest.mark.parametrize(
    ("owners", "arguments", "words"),
    [
        (["a", "b"], [], ["several tests recorded here", "--test 'a'\n         --test 'b'"]),
        (["a"], ["--test", "z"], ["the test z recorded nothing here", "--test 'a'"]),
        ([None], ["--test", "z"], ["the test z recorded nothing here", "no --test"]),
        ([None], ["--mutate", "Pong(1)"], ["there is no mutator 'Pong'"]),
        ([None], ["--timing", "fast"], ["timing cannot be 'fast'"]),
        ([None], ["--host", "256.0.0.1"], ["cannot listen on 256.0.0.1 port 0: ", "name another host or port"]),
        ([], [], []),
    ],
)
def test_what_cannot_be_served(
    path: Path, owners: list[str | None], arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = cassette(path, *owners) if owners else path
    assert main(["serve", str(file), *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("stream-cassette serve: ")
    assert [word for word in words if word not in err] == []


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_port_that_is_none(path: Path, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", str(path), f"--port={port}"])
    assert f"{port!r} is no port" in capsys.readouterr().err


def test_a_port_of_ones_own(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served(cassette(path, None), "--port", port) as (process, url, _):
        assert url == f"http://127.0.0.1:{port}"
        assert stopped(process, signal.SIGTERM)[0] == 0


KEY = "sk-proj-" + "Ab1" * 16


def test_serving_tells_no_secrets(path: Path) -> None:
    url = f"https://u:s3cret@api.example.com/{KEY}/x"
    with served(cassette(path, None)) as (process, base, _):
        said = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        for target in (f"/v1/{KEY}/x?key={KEY}", url):
            assert b"HTTP/1.1 404 " in told_raw(base, said % target.encode())
        status, out, err = stopped(process, signal.SIGINT)
    assert status == 1
    lines = [line for line in out.splitlines() if line.endswith(" 404 1 read, miss")]
    assert [line.startswith(f"POST {start}/REDACTED") for line, start in zip(lines, ("/v1", ""), strict=True)] == [
        True,
        True,
    ]
    assert [secret for secret in (KEY, "s3cret") if secret in out + err] == []


def told_raw(base: str, said: bytes) -> bytes:
    host, port = base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(said)
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_what_is_listed_of_a_cassette_is_told_without_secrets(path: Path) -> None:
    text = cassette(path, None).read_text()
    path.write_text(text.replace("/v1/chat/completions", f"/{KEY}/chat"))
    with served(path) as (process, _, lines):
        assert lines[1].startswith("  POST /REDACTED")
        assert lines[1].endswith("/chat")
        assert stopped(process, signal.SIGINT)[0] == 0


def test_a_client_that_takes_serve_for_a_proxy(path: Path) -> None:
    with served(cassette(path, None)) as (process, url, _):
        said = b"CONNECT api.openai.com:443 HTTP/1.1\r\nHost: api.openai.com\r\nConnection: close\r\n\r\n"
        assert f"give the client {url} as its base URL".encode() in told_raw(url, said)
        assert ask(url).content == CHAT.body
        assert stopped(process, signal.SIGINT)[0] == 0


def test_serving_what_http_cannot_carry(path: Path) -> None:
    text = cassette(path, None).read_text()
    path.write_text(text.replace("status: 200", "status: 100"))
    with served(path) as (process, url, _):
        response = ask(url)
        status, out, err = stopped(process, signal.SIGINT)
    assert (response.status_code, status) == (500, 2)
    line = next(line for line in out.splitlines() if line.startswith("POST /v1/chat/completions 500 0 reads, "))
    what = line.partition(", ")[2]
    assert "status" in what
    assert "100" in what
    assert err.startswith(f"stream-cassette serve: {what}\n  where: ")
    assert response.text.startswith(f"TapeError: {what}\n")


# ---------------------------------------------------------------------------------------------------------------------- record


AGENT = """
import os, sys, urllib.request
url = os.environ[sys.argv[1]] + "/chat/completions"
print(urllib.request.urlopen(url, sys.argv[2].encode()).read().decode())
raise SystemExit(int(sys.argv[3]))
"""


def agent(body: bytes = ASK, status: int = 0) -> list[str]:
    return ["--", sys.executable, "-c", AGENT, "OPENAI_BASE_URL", body.decode(), str(status)]


@pytest.fixture
def upstream() -> Iterator[Server]:
    with serve(lambda request: CHAT, paced=False) as server:
        yield server


def test_a_program_is_recorded(path: Path, upstream: Server, capfd: pytest.CaptureFixture[str]) -> None:
    names = [*record_command._ELSEWHERE, "STREAM_CASSETTE_URL", "MY_URL", "MY_OTHER"]
    same = f"import os; assert len({{os.environ[name] for name in {names}}}) == 1; {AGENT}"
    arguments = ["record", "--upstream", f"{upstream.url}/v1", "--to", str(path), "--test", "t"]
    words = ["--", sys.executable, "-c", same, "MY_URL", ASK.decode(), "0"]
    assert main([*arguments, "--env", "MY_URL", "--env", "MY_OTHER", *words]) == 0
    out, err = capfd.readouterr()
    assert "Low" in out
    first, second, third = err.splitlines()
    assert first.startswith(f"stream-cassette: recording {upstream.url}/v1 into {path}: ")
    assert second.startswith(
        f"stream-cassette: POST /v1/chat/completions 200, {len(CHAT.reads)} events, {len(CHAT.body)} bytes, the first after "
    )
    assert second.endswith(" ms, complete")
    assert third == f"stream-cassette: {path}: 1 exchange recorded"
    (recorded,) = load(path).interactions
    assert (recorded.test, recorded.exchange.request.url) == ("t", f"{upstream.url}/v1/chat/completions")


def test_recording_tells_no_secrets(path: Path, upstream: Server, capfd: pytest.CaptureFixture[str]) -> None:
    base = f"{upstream.url.replace('//', '//u:s3cret@')}/{KEY}/v1?key={KEY}"
    assert main(["record", "--upstream", base, "--to", str(path), *agent()]) == 0
    err = capfd.readouterr().err
    assert len(load(path).interactions) == 1
    assert upstream.requests[0].url == f"{upstream.url}/{KEY}/v1/chat/completions"
    assert [secret for secret in (KEY, "s3cret") if secret in err + path.read_text()] == []
    first, second, *_ = err.splitlines()
    assert first.startswith(f"stream-cassette: recording {upstream.url}/REDACTED")
    assert second.startswith("stream-cassette: POST /REDACTED")


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("https://api.openai.com/v1", ("OPENAI_BASE_URL",)),
        ("https://API.ANTHROPIC.COM", ("ANTHROPIC_BASE_URL",)),
        ("https://europe-west4-aiplatform.googleapis.com", ("GOOGLE_VERTEX_BASE_URL",)),
        ("https://bedrock-runtime.us-east-1.amazonaws.com", ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",)),
        ("https://notapi.openai.com.example.org", record_command._ELSEWHERE),
        ("https://myapi.openai.com", record_command._ELSEWHERE),
        ("nonsense", record_command._ELSEWHERE),
    ],
)
def test_only_what_the_providers_own_sdks_read_names_it(url: str, names: tuple[str, ...]) -> None:
    assert record_command._names(url) == names


@pytest.mark.parametrize("status", [0, 3])
def test_the_exit_status_is_that_of_the_program_and_what_it_said_is_kept(
    path: Path, upstream: Server, status: int
) -> None:
    arguments = ["record", "--upstream", f"{upstream.url}/v1", "--to", str(path)]
    assert main([*arguments, *agent(status=status)]) == status
    assert len(load(path).interactions) == 1


def test_a_program_that_dies_of_a_signal(path: Path, upstream: Server) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert main(["record", "--upstream", upstream.url, "--to", str(path), "--", sys.executable, "-c", code]) == 137


def test_modes(path: Path, upstream: Server, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["record", "--upstream", f"{upstream.url}/v1", "--to", str(path)]
    told = []
    for mode, body in (("once", ASK), ("once", ASK), ("new", ASK), ("new", b'{"b": 1}'), ("all", ASK)):
        assert main([*arguments, "--mode", mode, *agent(body=body)]) == 0
        told.append(capfd.readouterr().err.splitlines()[-1].partition(f"{path}: ")[2])
    assert told == [
        "1 exchange recorded",
        "nothing recorded: the cassette answered (--mode all records anew, --mode new what is missing)",
        "nothing recorded",
        "1 exchange recorded",
        "1 exchange recorded",
    ]
    assert len(upstream.requests) == 3
    assert main([*arguments, "--mode", "all", *agent()]) == 0
    assert capfd.readouterr().err.endswith("1 exchange recorded, which say what the file said before\n")


def test_a_request_without_a_recording_where_the_cassette_answers(
    path: Path, upstream: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["record", "--upstream", f"{upstream.url}/v1", "--to", str(path)]
    assert main([*arguments, *agent()]) == 0
    code = "import os, urllib.request as u\ntry: u.urlopen(os.environ['STREAM_CASSETTE_URL'] + '/x', b'')\nexcept OSError: pass"
    quiet = ["--", sys.executable, "-c", code]
    assert main([*arguments, *quiet]) == 1
    err = capfd.readouterr().err
    assert f"stream-cassette: no recorded interaction answers POST {upstream.url}/v1/x" in err
    assert f"--mode new --to {path} -- COMMAND" in err


def test_a_program_that_asks_nothing(path: Path, upstream: Server, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["record", "--upstream", upstream.url, "--to", str(path), "--", sys.executable, "-c"]
    assert main([*arguments, "pass"]) == 1
    assert "nothing was asked of the proxy" in capfd.readouterr().err
    assert main([*arguments, "raise SystemExit(4)"]) == 4
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--upstream", "api.openai.com", "--", "true"], "'api.openai.com' is no base URL"),
        (["--upstream", "http://127.0.0.1:1", "--", "no-such-program"], "cannot run no-such-program: No such file"),
    ],
)
def test_what_cannot_be_recorded(
    path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", "--to", str(path), *arguments]) == 2
    assert words in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------------- until Ctrl-C


STRUCK = f"""
import os, signal, sys

class Strikes:
    def find_spec(self, name, path=None, target=None):
        if name == struck:
            os.kill(os.getpid(), signal.SIGINT)

struck = sys.argv.pop(1)
sys.meta_path.insert(0, Strikes())
{OURS}
"""


@pytest.mark.parametrize(
    "module",
    [
        "argparse",
        "importlib.metadata",
        "stream_cassette.cli.demo_command",
        "stream_cassette.cli.textconv_command",
        "stream_cassette.cli.choosing",
        "stream_cassette.mutate.parsing",
        "stream_cassette.tape",
        "h11",
    ],
)
def test_ctrl_c_while_modules_load(path: Path, module: str) -> None:
    words = [sys.executable, "-c", STRUCK, module, "serve", str(cassette(path, None))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@contextmanager
def proxy(path: Path, url: str, *arguments: str, **options: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with running("record", "--upstream", f"{url}/v1", "--to", path, *arguments, **options) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_without_a_program_it_records_until_ctrl_c(path: Path, upstream: Server, how: signal.Signals) -> None:
    with proxy(path, upstream.url) as (process, url):
        assert httpx.post(f"{url}/chat/completions", content=ASK).content == CHAT.body
        status, _, err = stopped(process, how)
    assert status == 0
    assert err.splitlines()[-1] == f"stream-cassette: {path}: 1 exchange recorded"
    assert len(load(path).interactions) == 1


def test_ctrl_c_before_anything_is_asked(path: Path, upstream: Server) -> None:
    with proxy(path, upstream.url) as (process, _):
        status, _, err = stopped(process, signal.SIGINT)
    assert status == 1
    assert "nothing was asked of the proxy" in err.splitlines()[-1]
    assert not path.exists()


def test_on_a_terminal_a_line_lives(path: Path, upstream: Server) -> None:
    ours, theirs = pty.openpty()
    with proxy(path, upstream.url, stderr=theirs) as (process, url):
        os.close(theirs)
        assert httpx.post(f"{url}/chat/completions", content=ASK).content == CHAT.body
        assert stopped(process, signal.SIGINT)[0] == 0
    text = b""
    try:
        while data := os.read(ours, 65536):
            text += data
    except OSError:  # what the other end of a terminal that was closed gives on Linux
        pass
    os.close(ours)
    lines = text.decode().split("\r\x1b[K")
    assert lines[1].startswith("POST /v1/chat/completions 200, 0 bytes")
    assert lines[2].startswith(f"POST /v1/chat/completions 200, 1 event, {len(CHAT.reads[0].data)} bytes")
    assert len(lines) == 1 + 1 + len(CHAT.reads) + 1
    assert lines[-1].startswith(f"stream-cassette: POST /v1/chat/completions 200, {len(CHAT.reads)} events")


class Reads(tuple[Read, ...]):
    """Reads of which the last never comes before the test ends."""

    gate: threading.Event

    def __iter__(self) -> Iterator[Read]:
        yield Read(0, b"data: 1\n\n")
        assert self.gate.wait(20)


@pytest.fixture
def slow() -> Iterator[Server]:
    """Answers what asks for `wait` with a stream that does not come to its end."""
    reads = Reads()
    reads.gate = threading.Event()
    endless = Exchange(CHAT.request, 200, CHAT.headers, reads, Ending("stalled"))
    with serve(lambda request: endless if b"wait" in request.body else CHAT, paced=False) as server:
        yield server
        reads.gate.set()


WAITS = """
import os, urllib.request as u
url = os.environ["STREAM_CASSETTE_URL"] + "/chat/completions"
u.urlopen(url, b"{}").read()
print("asked", flush=True)
response = u.urlopen(url, b'{"wait": 1}')
response.read(9)
print("reading", flush=True)
import time; time.sleep(60)
"""


def test_ctrl_c_ends_the_program_and_keeps_what_is_whole(path: Path, slow: Server) -> None:
    with proxy(path, slow.url, "--", sys.executable, "-c", WAITS, start_new_session=True) as (process, first):
        assert first == "asked"
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert f"stream-cassette: {path}: 1 exchange recorded" in err
    assert f"{path}: 1 of 2 exchanges not kept: interrupted" in err
    (kept,) = load(path).interactions
    assert (kept.exchange.request.body, kept.exchange.ending) == (b"{}", COMPLETE)


def test_ctrl_c_while_a_client_reads(path: Path, slow: Server) -> None:
    with proxy(path, slow.url) as (process, url):
        assert httpx.post(f"{url}/chat/completions", content=b"{}").content == CHAT.body
        with httpx.stream("POST", f"{url}/chat/completions", content=b"wait") as response:
            reads = response.iter_raw()
            assert next(reads) == b"data: 1\n\n"
            status, _, err = stopped(process, signal.SIGINT)
    assert status == 0
    assert f"{path}: 1 of 2 exchanges not kept: interrupted" in err
    assert [each.exchange.ending for each in load(path).interactions] == [COMPLETE]


@pytest.mark.parametrize(
    ("code", "signals"),
    [
        ("import time; time.sleep(60)", -signal.SIGTERM),
        (
            "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)",
            -signal.SIGKILL,
        ),
        ("", 0),
    ],
    ids=["terminated", "killed", "by itself"],
)
def test_a_program_that_does_not_end_by_itself_is_made_to(
    code: str, signals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_command, "_GRACE", 0.3 if code else 20)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    if "print" in code:
        process.stdout.readline()
    record_command._end(process)
    assert process.returncode == signals
    process.stdout.close()

"""What recording costs the client while it reads, and how much memory a long body takes. The provider is a process of its own on loopback."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import bodies
import httpx2
from cassettes import ASK, folder
from measuring import OURS, Row, Run, Runs, Target, race

from stream_cassette import use

# Answers every request with the file, in chunks of the given sizes, as fast as they are taken.
_PROVIDER = """
import json, re, socket, sys
path, sizes, times = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
body, pieces, at = open(path, "rb").read(), [], 0
for size in sizes:
    pieces.append(b"%x\\r\\n%b\\r\\n" % (size, body[at : at + size]))
    at += size
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
head = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nConnection: close\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
while True:
    client, _ = listener.accept()
    asked = b""
    while not (said := re.search(b"content-length: ([0-9]+).*?\\r\\n\\r\\n", asked, re.I | re.S)) or len(asked) < said.end() + int(said[1]):
        asked += client.recv(65536)  # what is left unread would reset the connection
    client.sendall(head)
    try:
        for _ in range(0 if b"/small" in asked else times):
            for at in range(0, len(pieces), 40):
                client.sendall(b"".join(pieces[at : at + 40]))
        client.sendall(b"0\\r\\n\\r\\n")
    except OSError:
        pass
    client.close()
"""


@contextmanager
def provider(pieces: Sequence[bytes], times: int = 1) -> Iterator[str]:
    """The URL of one that sends the pieces, `times` over, a chunk each."""
    path = folder() / "body"
    path.write_bytes(b"".join(pieces))
    command = [sys.executable, "-c", _PROVIDER, str(path), json.dumps([len(piece) for piece in pieces]), str(times)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# ------------------------------------------------------------------------------------------------------------------- overhead


def reading(url: str, *, record: bool) -> Run:
    """The reads of one response; the request before and the saving after are not timed."""

    def before() -> tuple[ExitStack, httpx2.Response]:
        stack = ExitStack()
        if record:
            stack.enter_context(use(folder() / "overhead.yaml", mode="all"))
        client = stack.enter_context(httpx2.Client())
        return stack, stack.enter_context(client.stream("POST", url, json=ASK))

    def call(prepared: tuple[ExitStack, httpx2.Response]) -> None:
        for _ in prepared[1].iter_raw():
            pass

    return Run(call, before, lambda prepared: prepared[0].close())


def overhead() -> Mapping[str, float]:
    pieces = bodies.stream("openai-chat", bodies.MEGABYTE)
    with provider(pieces) as url:
        runs: Runs = {"not recording": reading(url, record=False), OURS: reading(url, record=True)}
        return {name: seconds / len(pieces) for name, seconds in race(runs, 15).items()}


# --------------------------------------------------------------------------------------------------------------------- memory

# How far the peak rises over what the process had before, in units of the body.
_PEAK = """
import json, re, sys
import filelock, httpx2
from stream_cassette import use
path, url, mode = sys.argv[1:]
def peak():
    with open("/proc/self/status") as status:  # resource's ru_maxrss begins with what the parent process had
        return int(re.search("VmHWM:\\s+([0-9]+) kB", status.read())[1]) * 1024
httpx2.post(url + "/small")
before, size = peak(), 0
with use(path, mode=mode):
    with httpx2.stream("POST", url) as response:
        for data in response.iter_raw():
            size += len(data)
print(json.dumps([size, peak() - before]))
"""
LONG = 200


@functools.cache
def peaks() -> Mapping[str, Mapping[str, float]]:
    """Megabytes, by mode: a body of `LONG` megabytes recorded, then replayed, each in a process of its own."""
    pieces = bodies.cut(bodies.body("openai-chat", bodies.MEGABYTE), 65536)
    found = {}
    with provider(pieces, LONG) as url:
        for mode in ("all", "none"):
            command = [sys.executable, "-c", _PEAK, str(folder() / "long.yaml"), url, mode]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            size, risen = json.loads(done.stdout)
            assert size > LONG * bodies.MEGABYTE * 0.95
            found[mode] = {OURS: risen / 1e6, "the body": size / 1e6}
    return found


ROWS: Sequence[Row] = (
    Row(
        "the client's time per read while recording, 1 MB, one event a read",
        overhead,
        (Target("not recording", 1.05),),
        unit="us a read",
        scale=1e6,
    ),
    *(
        Row(
            f"peak memory while {doing} {LONG} MB",
            lambda mode=mode: peaks()[mode],
            (Target("the body", most),),
            unit="MB",
            scale=1,
        )
        for doing, mode, most in (("recording", "all", 2.5), ("replaying", "none", 2.0))
    ),
)

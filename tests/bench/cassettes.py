"""Cassettes: loading, saving and replaying them, against vcrpy and cassetter on recordings of the same exchange, each made by its own tool."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import bodies
import cassetter
import httpx2
import vcr
from measuring import OURS, Row, Run, Runs, Target, contest, run
from vcr.persisters.filesystem import FilesystemPersister
from vcr.serializers import yamlserializer

from stream_cassette import cassette, serve, use
from stream_cassette.model import Cassette

ASK: Mapping[str, Any] = {"model": "gpt-5-mini", "stream": True, "messages": [{"role": "user", "content": "Weather?"}]}
SIZE = 1_200_000


@dataclass(frozen=True, slots=True)
class Tool:
    """How a tool opens its cassette at a path, to record or to replay only."""

    records: Callable[[str], AbstractContextManager[Any]]
    replays: Callable[[str], AbstractContextManager[Any]]


TOOLS = {
    OURS: Tool(lambda path: use(path, mode="all"), use),
    "vcrpy": Tool(
        lambda path: vcr.use_cassette(path, record_mode="all"), lambda path: vcr.use_cassette(path, record_mode="none")
    ),
    "cassetter": Tool(
        lambda path: cassetter.use_cassette(path, record_mode="all"),
        lambda path: cassetter.use_cassette(path, record_mode="none"),
    ),
}


def drain(client: httpx2.Client, url: str) -> int:
    """Makes the request and takes the response read by read; not raw, because cassetter gives a response that was read already."""
    with client.stream("POST", url, json=ASK) as response:
        return sum(len(data) for data in response.iter_bytes())


@dataclass(frozen=True, slots=True)
class Recorded:
    """The same exchange in every tool's cassette: `reads` as the server sent them, `path` by tool, and the URL that was asked."""

    url: str
    reads: Sequence[bytes]
    paths: Mapping[str, str]


@cache
def folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="stream-cassette-bench-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@cache
def recorded(size: int) -> Recorded:
    """A chat of some `size` bytes, recorded by every tool from a server on loopback, one event a read."""
    exchange = bodies.exchange("openai-chat", bodies.stream("openai-chat", size), gap_ms=0)
    paths = {name: str(folder() / f"{name}-{size}.yaml") for name in TOOLS}
    with serve(lambda request: exchange) as server:
        url = f"{server.url}/v1/chat/completions"
        for name, tool in TOOLS.items():
            with tool.records(paths[name]), httpx2.Client() as client:
                got = drain(client, url)
            assert got == len(exchange.body), f"{name} recorded {got} bytes"
    reads = [read.data for read in cassette.load(Path(paths[OURS])).interactions[0].exchange.reads]
    return Recorded(url, reads, paths)


def mock(reads: Sequence[bytes]) -> httpx2.Client:
    """What a replay costs at least: a transport of httpx2's own that has the same reads."""
    headers = {"content-type": "text/event-stream"}
    return httpx2.Client(
        transport=httpx2.MockTransport(lambda request: httpx2.Response(200, headers=headers, content=iter(reads)))
    )


# ------------------------------------------------------------------------------------------------------------ loading, saving


def loading(size: int) -> Runs:
    made = recorded(size)
    return {
        OURS: run(lambda: cassette.load(Path(made.paths[OURS]))),
        "vcrpy": run(lambda: FilesystemPersister.load_cassette(made.paths["vcrpy"], yamlserializer)),
        "cassetter": run(lambda: cassetter._core.Cassette.load(made.paths["cassetter"])),
    }


def saving(size: int) -> Runs:
    """Ours with its lock, the look at what the file holds, the verification, fsync and rename; vcrpy's writes the file."""
    made = recorded(size)
    mine = cassette.load(Path(made.paths[OURS]))
    requests, responses = FilesystemPersister.load_cassette(made.paths["vcrpy"], yamlserializer)
    theirs = {"requests": requests, "responses": responses}

    def fresh() -> Path:
        path = folder() / "saved.yaml"
        path.unlink(missing_ok=True)
        return path

    return {
        OURS: Run(lambda path: cassette.update(path, lambda old: Cassette(mine.interactions)), fresh),
        "vcrpy": Run(lambda path: FilesystemPersister.save_cassette(path, theirs, yamlserializer), fresh),
    }


# ------------------------------------------------------------------------------------------------------------------- replaying


def opened(context: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    context.__enter__()
    return context


def replaying(size: int) -> Runs:
    """The request and its response alone; opening and closing the cassette is not timed."""
    made = recorded(size)
    client, bare = httpx2.Client(), mock(made.reads)

    def replay(name: str) -> Run:
        return Run(
            lambda _: drain(client, made.url),
            lambda: opened(TOOLS[name].replays(made.paths[name])),
            lambda context: context.__exit__(None, None, None),
        )

    return {"MockTransport": run(lambda: drain(bare, made.url)), **{name: replay(name) for name in TOOLS}}


def whole(size: int, times: int, *, anew: bool) -> Runs:
    """As tests do it: the cassette opened, one request made, the cassette closed, `times` times over; the client is the same every time.

    `anew`: each time another file, that nobody has read before.
    """
    made = recorded(size)
    client, bare = httpx2.Client(), mock(made.reads)

    def replay(name: str) -> Run:
        def before() -> list[str]:
            return copies(Path(made.paths[name]), times) if anew else [made.paths[name]] * times

        def several(paths: list[str]) -> None:
            for path in paths:
                with TOOLS[name].replays(path):
                    drain(client, made.url)

        return Run(several, before)

    return {
        "MockTransport": run(lambda: [drain(bare, made.url) for _ in range(times)]),
        **{name: replay(name) for name in TOOLS},
    }


def copies(path: Path, count: int) -> list[str]:
    fresh = Path(tempfile.mkdtemp(dir=folder()))
    return [shutil.copy(path, fresh / f"{number}.yaml") for number in range(count)]


AHEAD = (Target("vcrpy", 0.999), Target("cassetter", 0.999))

ROWS: Sequence[Row] = (
    contest(
        "load a cassette of 1.2 MB", lambda: loading(SIZE), (Target("vcrpy", 1.7), Target("vcrpy", 0.999)), rounds=9
    ),
    contest(
        "save a cassette of 1.2 MB",
        lambda: saving(SIZE),
        (Target("vcrpy", 2.0),),
        rounds=9,
        note="ours verified, locked and synced",
    ),
    contest("replay 1.2 MB, one event a read", lambda: replaying(SIZE), (Target("MockTransport", 1.5),), rounds=9),
    contest(
        "open, replay and close, 1.2 MB",
        lambda: whole(SIZE, 1, anew=True),
        rounds=7,
        note="ours holds `assembled` against today's assembler",
    ),
    contest(
        "open, replay and close, the same 1 kB 1,000 times",
        lambda: whole(1_500, 1_000, anew=False),
        (Target("MockTransport", 3.0), *AHEAD),
        rounds=3,
        note="ours keeps what it read of an unchanged file",
    ),
    contest("open, replay and close, 1,000 files of 1 kB", lambda: whole(1_500, 1_000, anew=True), AHEAD, rounds=3),
)

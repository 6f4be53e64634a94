"""`stream-cassette demo`: the product in half a minute, on loopback, without a key or a network."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .assembler import assemble
from .clients import use
from .dialects import dialect
from .errors import MissingExtra
from .model import Arguments, Delta, End, Exchange, Finish, Key, Read, Request, Start, Text, ToolCallStart, UsageUpdate
from .server import serve
from .stream import Stream

if TYPE_CHECKING:
    from rich.console import Console

_PAUSE_MS = 25
_PROMPT = {"model": "demo-1", "stream": True, "messages": [{"role": "user", "content": "Weather in Pune and 東京?"}]}


def run(directory: Path) -> int:
    """Records, replays, assembles and breaks one stream, leaving its cassette in `directory`. 0, or 1 if anything was not as promised."""
    try:
        import httpx2  # noqa: F401
        from rich.console import Console
    except ImportError as error:
        raise MissingExtra(f"the demo needs {error.name}", mend="pip install 'pytest-stream-cassette[demo]'") from error
    out = Console(highlight=False, soft_wrap=True)
    path = directory / "demo.yaml"

    out.print("[bold]1. Record[/bold]  A live provider on loopback streams two parallel tool calls; httpx2 reads them through the tape.")
    with serve(lambda request: live(request)) as provider, use(path, mode="once") as tape:
        recorded = _ask(provider.url, out)
        stream = tape.stream
    out.print(f"   saved {path} ({path.stat().st_size} bytes), which a person can read:\n")
    out.print("\n".join(f"   | {line[:110]}" for line in path.read_text("utf-8").splitlines()[12:24]), markup=False, style="dim")

    out.print("\n[bold]2. Replay[/bold]  The provider is gone. The same client asks again, and the cassette answers.")
    with use(path) as tape:
        replayed = _ask(provider.url, None)
        reply = tape.reply
    same = replayed == recorded
    out.print(f"   {len(replayed)} reads, {'byte for byte and boundary by boundary the same' if same else 'NOT THE SAME'}")

    out.print("\n[bold]3. Assemble[/bold]  The reference assembler says what those reads mean.")
    for call in reply.tool_calls:
        out.print(f"   {call.name}({call.arguments})", markup=False)
    out.print(f"   finish_reason={reply.finish_reason!r} usage={reply.usage} complete={reply.complete}", markup=False)

    out.print("\n[bold]4. Mutate[/bold]  The same reply, said otherwise, against the loop that everybody writes first.")
    verdicts = [_compare(name, mutated, reply_of=naive, out=out) for name, mutated in _mutations(stream)]
    out.print("\n   [bold]A test with one well-behaved stream passes. Production sends the others.[/bold]")
    return 0 if same and verdicts == [True, False, False] else 1


def _ask(url: str, out: Console | None) -> list[bytes]:
    import httpx2

    began, reads = time.monotonic(), []
    with httpx2.stream("POST", f"{url}/v1/chat/completions", json=_PROMPT) as response:
        for data in response.iter_raw():
            reads.append(data)
            if out and len(reads) in (1, 4, 8, 12):
                out.print(f"   read {len(reads):2} after {(time.monotonic() - began) * 1000:4.0f} ms: {data[-60:]!r}", markup=False, style="dim")
    return reads


# --------------------------------------------------------------------------------------------------------------- the provider


def live(request: Request) -> Exchange:
    """A reply with two tool calls whose arguments come interleaved, paced, each read cutting where the network likes."""
    k, a, b = Key(), Key(0, 0), Key(0, 1)
    deltas: list[Delta] = [
        Start(k, "assistant", "chatcmpl-demo", "demo-1"),
        Text(k, "I look "),
        Text(k, "it up."),
        ToolCallStart(replace(a, id="call_a"), "function", "get_weather"),
        ToolCallStart(replace(b, id="call_b"), "function", "get_weather"),
        Arguments(a, '{"city":'),
        Arguments(b, '{"city":"東'),
        Arguments(a, '"Pu'),
        Arguments(b, '京"}'),
        Arguments(a, 'ne"}'),
        Finish(k, "tool_calls"),
        UsageUpdate({"input_tokens": 21, "output_tokens": 34, "total_tokens": 55}, {}),
        End(),
    ]
    return _exchange(request, deltas, cut=lambda body: _cut(body, 211))


def _exchange(request: Request, deltas: Sequence[Delta], cut: Callable[[bytes], Iterable[bytes]]) -> Exchange:
    body = b"".join(frame.raw for frame in dialect("openai-chat").write(deltas))
    reads = tuple(Read(number * _PAUSE_MS, data) for number, data in enumerate(cut(body)))
    return Exchange(request, 200, (("content-type", "text/event-stream; charset=utf-8"),), reads)


def _cut(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


# ---------------------------------------------------------------------------------------------------------------- the mutants


def _mutations(stream: Stream) -> list[tuple[str, Exchange]]:
    """The recorded reply tidied up (one event a read, one call after the other), re-chunked, and re-fragmented."""
    request = stream.exchange.request
    tidy = sorted(stream.deltas, key=_tidiness)

    def per_event(body: bytes) -> list[bytes]:
        return [event + b"\n\n" for event in body.split(b"\n\n")[:-1]]

    return [
        ("one event a read, one call after the other", _exchange(request, tidy, per_event)),
        ("the same, re-chunked: reads of 64 bytes", _exchange(request, tidy, lambda body: _cut(body, 64))),
        ("the same, fragments interleaved as recorded", _exchange(request, stream.deltas, per_event)),
    ]


def _tidiness(delta: Delta) -> tuple[int, int]:
    if isinstance(delta, ToolCallStart | Arguments):
        return 1, delta.key.index or 0
    return (0 if isinstance(delta, Start | Text) else 2), 0


def naive(reads: Iterable[bytes]) -> list[tuple[str, str]]:
    """The textbook loop: a read holds whole lines, and an argument fragment belongs to the call seen last."""
    calls: list[tuple[str, str]] = []
    for read in reads:
        for line in read.decode().split("\n"):
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                for entry in choice["delta"].get("tool_calls", []):
                    name = entry["function"].get("name")
                    if name:
                        calls.append((name, ""))
                    last, so_far = calls[-1]
                    calls[-1] = (last, so_far + entry["function"].get("arguments", ""))
    return calls


def _compare(name: str, exchange: Exchange, reply_of: Callable[[Iterable[bytes]], Any], out: Console) -> bool:
    reads = [read.data for read in exchange.reads]
    expected = [(call.name, call.arguments_text) for call in assemble(reads).tool_calls]
    try:
        got = reply_of(reads)
    except Exception as error:  # whatever the loop under test does with it
        got = f"{type(error).__name__}: {error}"
    verdict = got == expected
    out.print(f"   {'[green]ok    [/green]' if verdict else '[red]BROKEN[/red]'} {name}")
    if not verdict:
        out.print(f"          expected {expected}\n          got      {got}"[:500], markup=False, style="dim")
    return verdict

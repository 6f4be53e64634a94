"""`stream-cassette demo`: the product in half a minute, on loopback, without a key or a network."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .clients import use
from .dialects import dialect
from .errors import LawBroken, MissingExtra
from .fuzz import check
from .model import Arguments, Delta, End, Exchange, Finish, Key, Read, Request, Start, Text, ToolCallStart, UsageUpdate
from .mutate import InterleaveToolCalls, Mutator, ReadPerFrame, Rechunk, Refragment
from .server import serve
from .stream import Stream

if TYPE_CHECKING:
    from rich.console import Console

_PAUSE_MS = 25
_READ = 211  # bytes
_PROMPT = {"model": "demo-1", "stream": True, "messages": [{"role": "user", "content": "Weather in Pune and 東京?"}]}


def run(directory: Path, *, kept: bool = True) -> int:
    """Records, replays, assembles and breaks one stream, leaving its cassette in `directory`, of which `kept` says whether the user will find it.

    0, or 1 if anything was not as promised.
    """
    try:
        import httpx2  # noqa: F401
        from rich.console import Console
    except ImportError as error:
        raise MissingExtra(f"the demo needs {error.name}", mend="pip install 'pytest-stream-cassette[demo]'") from error
    out = Console(highlight=False, soft_wrap=True)
    path = directory / "demo.yaml"

    out.print(
        "[bold]1. Record[/bold]  A live provider on loopback streams two tool calls; httpx2 reads them through the tape."
    )
    with serve(lambda request: live(request)) as provider, use(path, mode="all") as tape:
        recorded = _ask(provider.url, out)
    where = f"saved {path}" if kept else "a cassette, which a person can read (--keep DIR leaves it in DIR)"
    out.print(f"   {where}; {path.stat().st_size} bytes:\n")
    out.print(_quoted(path.read_text("utf-8").splitlines()[12:24]), markup=False, style="dim")

    out.print("\n[bold]2. Replay[/bold]  The provider is gone. The same client asks again, and the cassette answers.")
    with use(path) as tape:
        replayed = _ask(provider.url, None)
        stream, reply = tape.stream, tape.reply
    same = replayed == recorded
    told = "byte for byte and boundary by boundary the same" if same else "NOT THE SAME"
    out.print(f"   {len(replayed)} reads, {told}")

    out.print("\n[bold]3. Assemble[/bold]  The reference assembler says what those reads mean.")
    for call in reply.tool_calls:
        out.print(f"   {call.name}({call.arguments})", markup=False)
    out.print(f"   finish_reason={reply.finish_reason!r} usage={reply.usage} complete={reply.complete}", markup=False)

    out.print("\n[bold]4. Mutate[/bold]  The same reply, said otherwise, against the loop that everybody writes:\n")
    out.print(_quoted(inspect.getsource(naive).splitlines()), markup=False, style="dim")
    verdicts = _judged(ReadPerFrame().apply(stream), out)
    out.print("\n   [bold]A test with one well-behaved stream passes. Production sends the others.[/bold]")
    return 0 if same and verdicts == [True, True, False, False, False] else 1


def _quoted(lines: Sequence[str]) -> str:
    return "\n".join(f"   | {line[:110]}" for line in lines)


def _ask(url: str, out: Console | None) -> list[bytes]:
    import httpx2

    began, reads = time.monotonic(), []
    with httpx2.stream("POST", f"{url}/v1/chat/completions", json=_PROMPT) as response:
        for data in response.iter_raw():
            reads.append(data)
            if out and len(reads) in (1, 4, 8, 12):
                at = (time.monotonic() - began) * 1000
                out.print(f"   read {len(reads):2} after {at:4.0f} ms: {data[-60:]!r}", markup=False, style="dim")
    return reads


def live(request: Request) -> Exchange:
    """A reply with two tool calls, paced, each read cutting where the network likes."""
    k, a, b = Key(), Key(0, 0), Key(0, 1)
    deltas: list[Delta] = [
        Start(k, "assistant", "chatcmpl-demo", "demo-1"),
        Text(k, "I look "),
        Text(k, "it up."),
        ToolCallStart(replace(a, id="call_a"), "function", "get_weather"),
        *(Arguments(a, text) for text in ('{"city":', '"Pu', 'ne"}')),
        ToolCallStart(replace(b, id="call_b"), "function", "get_weather"),
        *(Arguments(b, text) for text in ('{"city":"東', '京"}')),
        Finish(k, "tool_calls"),
        UsageUpdate({"input_tokens": 21, "output_tokens": 34, "total_tokens": 55}, {}),
        End(),
    ]
    body = b"".join(frame.raw for frame in dialect("openai-chat").write(deltas))
    starts = range(0, len(body), _READ)
    reads = tuple(Read(number * _PAUSE_MS, body[at : at + _READ]) for number, at in enumerate(starts))
    return Exchange(request, 200, (("content-type", "text/event-stream; charset=utf-8"),), reads)


def naive(reads: Iterable[bytes]) -> list[list[str]]:
    """The textbook loop: a read holds whole lines, and a fragment belongs to the call that was seen last."""
    calls: list[list[str]] = []
    for line in [line for read in reads for line in read.split(b"\n") if line.startswith(b"data: {")]:
        for choice in json.loads(line[6:])["choices"]:
            for piece in choice["delta"].get("tool_calls", []):
                if piece["function"].get("name"):
                    calls.append([piece["function"]["name"], ""])
                calls[-1][1] += piece["function"].get("arguments", "")
    return calls


def _judged(stream: Stream, out: Console) -> list[bool]:
    """Whether the naive loop makes of each mutated stream what it makes of `stream`."""
    from hypothesis import settings

    mutations: list[tuple[str, Sequence[Mutator]]] = [
        ("the fragments of the text cut anew", [Refragment(0, (2, 5))]),
        ("reads of 64 bytes", [Rechunk(tuple(range(64, len(stream.body), 64)))]),
        ("the fragments of the two calls taking turns", [InterleaveToolCalls((0, 1))]),
    ]
    calls = [[call.name, call.arguments_text] for call in stream.reply.tool_calls]
    verdicts = [naive(read.data for read in stream.exchange.reads) == calls]
    out.print(f"\n   {_WORDS[verdicts[0]]} one event a read, one call after the other")
    verdicts += [_holds(stream, mutators, out, what) for what, mutators in mutations]
    settings.register_profile("demo", derandomize=True, database=None, deadline=None, max_examples=30)
    settings.load_profile("demo")
    verdicts.append(_holds(stream, None, out, "the smallest cut that Hypothesis can find"))
    return verdicts


_WORDS = {True: "[green]ok    [/green]", False: "[red]BROKEN[/red]"}


def _holds(stream: Stream, mutators: Sequence[Mutator] | None, out: Console, what: str) -> bool:
    try:
        check(naive, stream, mutators, levels=["wire"])
    except LawBroken as broken:
        out.print(f"   {_WORDS[False]} {what}")
        starts = ("  broken:",) if mutators else ("  broken:", "  again:")
        told = [line for line in str(broken).splitlines() if line.startswith(starts)]
        out.print("\n".join(f"        {line[:140]}" for line in told), markup=False, style="dim")
        return False
    out.print(f"   {_WORDS[True]} {what}")
    return True

"""The scoreboard as text, as the document `RESULTS.md`, and as plain values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from scoreboard.assemblers import PEERS
from scoreboard.judging import Fault, Judged, cells, unfair
from stream_cassette.dialects.spelling import EVENT_STREAM
from stream_cassette.mutate import LEVELS

_OUTCOMES = ("obeyed", "broken", "crashed", "idle")


@dataclass(frozen=True, slots=True)
class Board:
    """Everything that a run found, in the order of the peers."""

    judged: tuple[Judged, ...]
    faults: tuple[Fault, ...]

    @property
    def fair(self) -> list[Fault]:
        return [fault for fault in self.faults if not unfair(fault)]

    def of(self, peer: str) -> list[Fault]:
        return [fault for fault in self.fair if fault.peer == peer]


def rows(board: Board) -> list[list[str]]:
    """Peer, version, a cell for each level, and the number of distinct faults; the header first."""
    out = [["assembler", "version", *LEVELS, "faults"]]
    for judged in board.judged:
        counts = cells(judged)
        out.append(
            [
                judged.peer,
                judged.version,
                *(_cell(counts.get(level, {})) for level in LEVELS),
                str(len(board.of(judged.peer))),
            ]
        )
    return out


def _cell(counts: dict[str, int]) -> str:
    return "/".join(str(counts.get(outcome, 0)) for outcome in _OUTCOMES) if counts.keys() - {"idle"} else "-"


_OF_EVENTS = {"ByteOrderMark", "quirk done-without-brackets", *(f"quirk {name}" for name in EVENT_STREAM)}
"""What breaks in the reading of events, which several assemblers leave to one client."""


def counted(board: Board) -> str:
    """How many faults, whatever one counts."""
    fair = board.fair
    pairs = {(fault.peer, fault.name) for fault in fair}
    roots = {(PEERS[peer].client if name in _OF_EVENTS else peer, name) for peer, name in pairs}
    names = {name for _, name in pairs}
    return (
        f"{len(fair)} distinct faults (assembler, mutator or quirk, and what broke), by {len(names)} mutators and quirks; "
        f"{len(roots)} where each mutator counts once for an assembler, and what several inherit from the openai client's reading of events once for all"
    )


_LEGEND = "Each cell: instances that obeyed / broke their law / raised / had nothing to act on."


def text(board: Board) -> str:
    """The table, then each fault with its smallest example."""
    table = rows(board)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    lines += ["", _LEGEND, f"{counted(board)}."]
    for fault in board.faults:
        reason = unfair(fault)
        lines += ["", f"== {fault.peer}: {fault.name}: {fault.kind} ({fault.times} times)", f"   {_clip(fault.said)}"]
        lines += [f"   unfair: {reason}"] if reason else []
        shown = re.sub(r"(?m)^  (again|keep it):.*\n?", "", fault.told).splitlines()[1:]
        lines += [*(f"   {line}" for line in shown), f"   again: {fault.again}"]
    for judged in board.judged:
        lines += [f"\n-- {judged.peer} is not judged by {stream}: {why}" for stream, why in judged.skipped.items()]
    return "\n".join(lines)


_WHERE = """\
The lines, with the requirements installed, `PYTHONPATH=tests`, and after these imports:

```python
from dataclasses import replace
from quirk_streams import RICH, STREAMS, TEXT
from scoreboard.assemblers import PEERS
from stream_cassette.fuzz import check, stream_of
from stream_cassette.mutate import *
from stream_cassette.stream import synthesize
from streams import CALLS
```
"""


def markdown(board: Board) -> str:
    """The document `RESULTS.md`."""
    when = f"{date.today():%B %Y}"
    head, *body = rows(board)
    lines = [
        "# What released assemblers make of mutated streams",
        "",
        f"{when}, by `python tests/scoreboard --markdown`. {_LEGEND}",
        "No expected value is used: each assembler is compared with itself on the stream as it was recorded, by the law of the mutator.",
        "",
        *_table(head, body),
        "",
        f"{counted(board)}.",
    ]
    for judged in board.judged:
        faults = board.of(judged.peer)
        lines += ["", f"## {judged.peer} {judged.version}: {len(faults)}", ""]
        lines += [f"- **{fault.name}**, {fault.kind}: {_code(fault.said)}" for fault in faults]
    lines += ["", "## Broken laws that are no faults", ""]
    reasons = [[fault.peer, fault.name, fault.kind, str(unfair(fault))] for fault in board.faults if unfair(fault)]
    lines += _table(["assembler", "mutator", "broke", "why it is unfair"], reasons)
    lines += ["", "## Streams that an assembler is not judged by", ""]
    lines += [
        "It reads these otherwise than the reference before anything is changed, so that a comparison with itself says nothing.",
        "",
    ]
    skipped = [[each.peer, f"`{stream}`", _code(why)] for each in board.judged for stream, why in each.skipped.items()]
    lines += _table(["assembler", "stream", "why"], skipped)
    lines += ["", "## To repeat", "", _WHERE]
    lines += ["```text", *(fault.again for fault in board.fair), "```"]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def _clip(words: str, most: int = 170) -> str:
    """One line that any terminal and file can hold."""
    line = "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in " ".join(words.split()))
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _code(words: str) -> str:
    return f"`{_clip(words).replace('`', chr(39)).replace('|', '/')}`"


def plain(board: Board) -> dict[str, Any]:
    """Everything as plain values, for JSON."""
    return {
        "assemblers": [
            {"name": each.peer, "version": each.version, "levels": cells(each), "not_judged_by": dict(each.skipped)}
            for each in board.judged
        ],
        "faults": [
            {
                "assembler": fault.peer,
                "mutator": fault.name,
                "broke": fault.kind,
                "level": fault.level,
                "times": fault.times,
                "said": fault.said,
                "again": fault.again,
                "unfair": unfair(fault),
            }
            for fault in board.faults
        ],
    }

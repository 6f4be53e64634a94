"""`python tests/bench/plots.py FOLDER`: what the work costs by the size of the stream, ours and the peers', as pictures and as text."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import assembling
import bodies
import cassettes
import decoding
from measuring import OURS, Runs, race

Lines = Mapping[str, Sequence[tuple[int, float]]]
"""By contestant the points: bytes of the stream, and seconds."""


@dataclass(frozen=True, slots=True)
class Plot:
    name: str
    title: str
    runs: Callable[[int], Runs]
    sizes: Sequence[int]


def _sizes(*thousands: int) -> tuple[int, ...]:
    return tuple(1000 * each for each in thousands)


PLOTS = (
    Plot(
        "decoding",
        "events of a stream decoded, 16 KiB reads",
        lambda size: decoding.runs(bodies.cut(bodies.body("openai-chat", size), 16384)),
        _sizes(10, 30, 100, 300, 1000, 3000, 10000),
    ),
    Plot(
        "assembling-openai",
        "bytes to reply, OpenAI chat, 16 KiB reads",
        lambda size: (
            assembling.helpers("openai-chat", size, assembling.OPENAI)
            | {"jiter per event": assembling.whole(bodies.body("openai-chat", size))["jiter per event"]}
        ),
        _sizes(10, 30, 100, 300, 1000, 3000),
    ),
    Plot(
        "assembling-anthropic",
        "bytes to reply, Anthropic, 16 KiB reads",
        lambda size: (
            assembling.helpers("anthropic", size, {"anthropic helper": assembling.anthropic_helper})
            | {"jiter per event": assembling.whole(bodies.body("anthropic", size))["jiter per event"]}
        ),
        _sizes(10, 30, 100, 300, 1000, 3000),
    ),
    Plot("loading", "a cassette loaded", cassettes.loading, _sizes(10, 30, 100, 300, 1000, 3000, 10000)),
    Plot(
        "replaying",
        "a cassette opened, replayed and closed, a new file each time, one event a read",
        lambda size: cassettes.whole(size, 1, anew=True),
        _sizes(10, 30, 100, 300, 1000, 3000),
    ),
)


def measured(plot: Plot) -> Lines:
    lines: dict[str, list[tuple[int, float]]] = {}
    for size in plot.sizes:
        for name, seconds in race(plot.runs(size), 3).items():
            lines.setdefault(name, []).append((size, seconds))
    return lines


def slope(points: Sequence[tuple[int, float]]) -> float:
    """The power of the size that the time grows by over the last factor of ten: 1 is linear, 2 quadratic."""
    size, seconds = points[-1]
    at, before = next((each for each in reversed(points) if each[0] * 10 <= size), points[0])
    return math.log(seconds / before) / math.log(size / at)


def as_text(plot: Plot, lines: Lines, width: int = 72, height: int = 18) -> str:
    """Both axes are logarithmic; where several contestants meet, the last one is seen."""
    sizes = [math.log10(size) for size in plot.sizes]
    times = [math.log10(seconds) for points in lines.values() for _, seconds in points]
    low, high = math.floor(min(times)), math.ceil(max(times))
    grid = [[" "] * width for _ in range(height)]
    others = (name for name in lines if name != OURS)
    marks = {OURS: "*", **dict(zip(others, "abcdefgh", strict=False))}
    for name, points in sorted(lines.items(), key=lambda item: item[0] == OURS):
        for size, seconds in points:
            column = round((math.log10(size) - sizes[0]) / (sizes[-1] - sizes[0]) * (width - 1))
            row = round((high - math.log10(seconds)) / (high - low) * (height - 1))
            grid[row][column] = marks[name]
    legend = "  ".join(f"{marks[name]} {name} (size^{slope(points):.2f})" for name, points in lines.items())
    rows = [
        f"{_time(10**high) if at == 0 else _time(10**low) if at == height - 1 else '':>8} |{''.join(row)}"
        for at, row in enumerate(grid)
    ]
    foot = f"{'':8} +{'-' * width}\n{'':9} {_bytes(plot.sizes[0])}{_bytes(plot.sizes[-1]):>{width - len(_bytes(plot.sizes[0]))}}"
    return "\n".join([plot.title, *rows, foot, legend])


def _time(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:g} us"


def _bytes(size: int) -> str:
    return f"{size / 1e6:g} MB" if size >= 1e6 else f"{size / 1e3:g} kB"


def as_picture(plot: Plot, lines: Lines, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for name, points in lines.items():
        thick = name == OURS
        axes.loglog(
            *zip(*points, strict=True),
            marker="o",
            markersize=4,
            linewidth=2.5 if thick else 1.2,
            label=f"{name} (size^{slope(points):.2f})",
            zorder=3 if thick else 2,
        )
    axes.set_title(plot.title)
    axes.set_xlabel("bytes of the stream")
    axes.set_ylabel("seconds of processor time")
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main(folder: Path, words: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for plot in PLOTS:
        if words and not any(word in plot.name for word in words):
            continue
        lines = measured(plot)
        print(as_text(plot, lines), end="\n\n", flush=True)
        as_picture(plot, lines, folder / f"{plot.name}.png")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python tests/bench/plots.py FOLDER [WORD ...]")
    main(Path(sys.argv[1]), sys.argv[2:])

"""What a command knows of the terminal: how wide it is, whether colours show on it, and how to tell that long work is under way.

rich, an optional extra, has the colours and the progress bar; without it, in a pipe, and with NO_COLOR set, everything is said without them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
Pieces = Sequence[tuple[str, str]]

PIPE = 120
"""The columns of what is no terminal."""

_DOTS = "..."


@dataclass(frozen=True, slots=True)
class Terminal:
    """Standard output, `width` columns wide; `console` is rich's where colours show."""

    width: int
    console: Console | None

    def line(self, *pieces: str | tuple[str, str]) -> None:
        """Prints one line, cut to the width: texts, or pairs of a text and its style as rich has it (`bold red`)."""
        self._print(fitted([(piece, "") if isinstance(piece, str) else piece for piece in pieces], self.width))

    def text(self, text: str, style: str = "", indent: str = "") -> None:
        """Prints a text with all its lines, which may be longer than the terminal is wide."""
        for line in text.split("\n"):
            self._print([(indent + clean(line), style)] if line else [])

    def _print(self, pieces: Pieces) -> None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        sayable = [(text.encode(encoding, "backslashreplace").decode(encoding), style) for text, style in pieces]
        if self.console is None:
            print("".join(text for text, _ in sayable))
            return
        from rich.text import Text

        self.console.print(Text.assemble(*sayable), soft_wrap=True)


def terminal(width: int | None = None) -> Terminal:
    """Standard output as it is; `width` if the user asked for one."""
    columns = width or shutil.get_terminal_size((PIPE, 24)).columns
    return Terminal(columns, _console(sys.stdout))


def _console(file: TextIO) -> Console | None:
    if not file.isatty() or os.environ.get("NO_COLOR"):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=file, highlight=False, markup=False, emoji=False)


def progress(items: Sequence[T], what: str, *, quiet: bool = False) -> Iterable[T]:
    """The items one after the other, with a bar on standard error while they last, where that is a terminal; `quiet`: never."""
    if quiet or len(items) < 2 or (console := _console(sys.stderr)) is None:
        return items
    from rich.progress import track

    return track(items, what, console=console, transient=True)


def print_json(value: Any) -> None:
    """The value as JSON, in ASCII whatever the locale."""
    print(json.dumps(value, indent=2))


# ---------------------------------------------------------------------------------------------------------------------- text


def clean(text: str) -> str:
    """The text without what would move the cursor or change colours: a file may come from anywhere."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def fitted(pieces: Pieces, width: int) -> list[tuple[str, str]]:
    """The pieces, clean, as far as they fit into `width` columns, with dots in the place of the rest."""
    most = 4 * width  # characters; more do not fit unless nearly all of them are combining ones
    shown = [(clean(text[:most]), style) for text, style in pieces]
    whole = "".join(text for text, _ in shown)
    if _fits(whole, width) == len(whole) and all(len(text) <= most for text, _ in pieces):
        return shown
    keep = _fits(whole, width - len(_DOTS))
    out = []
    for text, style in shown:
        out.append((text[:keep], style))
        keep = max(0, keep - len(text))
    return [*out, (_DOTS, "dim")]


def _fits(text: str, width: int) -> int:
    """How many characters of the text fit into `width` columns."""
    if text.isascii():
        return max(0, min(len(text), width))
    for place, each in enumerate(text):
        if unicodedata.combining(each) or unicodedata.category(each) in ("Mn", "Me", "Cf"):
            continue
        width -= 2 if unicodedata.east_asian_width(each) in "WF" else 1
        if width < 0:
            return place
    return len(text)

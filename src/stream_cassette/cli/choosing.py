"""What the commands are given: which files, which cassette, which of its interactions; and what today's assembler makes of one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from stream_cassette.cassette import CassetteWarning, load, loads
from stream_cassette.errors import StreamCassetteError
from stream_cassette.matching import value_differences
from stream_cassette.model import Cassette, Interaction
from stream_cassette.recording import is_stream
from stream_cassette.scan import files_of
from stream_cassette.stream import Stream, assembled

T = TypeVar("T")

STDIN = Path("-")


def read(path: Path) -> bytes:
    """What is in the file, or comes over a pipe; `-` is standard input. `StreamCassetteError` where that cannot be read."""
    if path == STDIN:
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise StreamCassetteError(
            f"cannot read the file: {error.strerror}", where=str(path), mend="name another, or - for standard input"
        ) from error


def name_of(path: Path) -> str:
    """How errors call it."""
    return "standard input" if path == STDIN else str(path)


def cassette(path: Path) -> Cassette:
    """The cassette in the file, or from standard input (`-`). What `load` warns of is told on standard error."""
    given = read(path) if path == STDIN else None
    return _telling(lambda: load(path) if given is None else loads(given, name=name_of(path)))


def cassette_of(data: bytes, path: Path) -> Cassette | None:
    """The cassette that `data`, read from `path`, is; None for anything else. Errors and warnings are those of `cassette`."""
    if path.suffix not in (".yaml", ".yml") and not _looks_like_one(data):
        return None
    return _telling(lambda: loads(data, name=name_of(path)))


def _looks_like_one(data: bytes) -> bool:
    """Whether the first line that says anything is one with which a cassette may begin; a streamed body never begins so."""
    head = data[: 1 << 16].removeprefix(b"\xef\xbb\xbf").splitlines()
    first = next((line for line in head if line.strip() and not line.startswith((b"#", b"%", b"---"))), b"")
    return first.startswith((b"format:", b"recorded:", b"interactions:"))


def warned(call: Callable[[], T]) -> tuple[T, list[str]]:
    """What `call` returns, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CassetteWarning)
        result = call()
    return result, [str(each.message) for each in caught]


def _telling(call: Callable[[], T]) -> T:
    result, told = warned(call)
    for text in told:
        print(f"warning: {text}", file=sys.stderr)
    return result


def cassettes_in(paths: Sequence[Path]) -> list[Path]:
    """The files named, and the `*.yaml` in the folders named, each once; no snapshots, which stand beside cassettes.

    `StreamCassetteError` for a path that does not exist, and where folders have no cassette: to have looked at nothing is no success.
    """
    named = [file for path in paths for file in files_of([path]) if file.suffix == ".yaml" or not path.is_dir()]
    found = [file for file in dict.fromkeys(named) if not file.name.endswith(".snap.yaml")]
    if not found and any(path.is_dir() for path in paths):
        raise StreamCassetteError(
            "there are no cassettes",
            where=", ".join(map(str, paths)),
            mend="name a folder with *.yaml files, or a file",
        )
    return found


# ---------------------------------------------------------------------------------------------------------- one interaction


def place_of(found: Cassette, number: int | None, name: str) -> int:
    """The place, from 0, of the `number`th interaction, from 1; without a number of the last that is a stream. `name` is what errors call the file."""
    count = len(found.interactions)
    if number is not None:
        if 1 <= number <= count:
            return number - 1
        raise StreamCassetteError(
            f"there is no interaction {number}",
            where=name,
            mend=f"--interaction 1 to {count}" if count else "name a cassette that has one: this has none",
        )
    streams = [place for place, each in enumerate(found.interactions) if each.dialect is not None]
    if not streams:
        raise StreamCassetteError(
            "the cassette has no stream", where=name, mend=f"see what it has: stream-cassette show {name}"
        )
    return streams[-1]


def contradictions(interaction: Interaction) -> list[str]:
    """Where today's assembler makes something else of it than its `assembled`, if it has that, says; a line each."""
    if interaction.assembled is None:
        return []
    stream = Stream(interaction.exchange, interaction.dialect)
    now = assembled(stream.reply) if is_stream(stream) else {}
    return value_differences("assembled", dict(interaction.assembled), now)


def renewed(interaction: Interaction) -> Interaction:
    """The interaction with the dialect and the `assembled` that it would be recorded with today; itself where it has them."""
    stream = Stream(interaction.exchange, interaction.dialect)
    if not is_stream(stream):
        return interaction
    if interaction.dialect is not None and interaction.assembled is not None and not contradictions(interaction):
        return interaction
    return replace(interaction, dialect=stream.spoken, assembled=assembled(stream.reply))


def dialect_of(stream: Stream) -> str | None:
    """The dialect it speaks; None for what is no known stream."""
    return stream.spoken if is_stream(stream) else None

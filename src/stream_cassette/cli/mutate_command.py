"""`stream-cassette mutate`"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stream_cassette.model import Cassette
    from stream_cassette.mutate import Mutator
    from stream_cassette.stream import Stream

HELP = "write a cassette with a mutated stream, and say which law its reply must obey"
EPILOG = """\
examples:
  stream-cassette mutate cassettes/a.yaml --list
  stream-cassette mutate cassettes/a.yaml 'InterleaveToolCalls(order=(0, 1))' -o cassettes/b.yaml
  stream-cassette mutate cassettes/a.yaml OneByteReads CutBeforeFinish | stream-cassette show -

A MUTATOR is code, or the name of a class or level (wire, framing, deltas,
loss, cut, limit, fault, damage, quirk), which stands for the middle one of
those that apply. Several act one after the other. The law goes to standard
error. Other interactions of the cassette stay; an HttpError comes before.

--list --json prints a list of {level, mutator, law}, the mutator as code.

exit status: 0 written, 2 an error: it does not apply, OUT exists ...
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="CASSETTE", help="the cassette; - is standard input")
    mutators = parser.add_argument("mutators", nargs="+", metavar="MUTATOR", help="what to do, as code or by name")
    # With `*` argparse would take none of them where an option stands between them and the file.
    mutators.required, mutators.default = False, []
    parser.add_argument(
        "--interaction", type=int, metavar="N", help="the Nth interaction, from 1 (default: the last stream)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="the new cassette (default: standard output)")
    parser.add_argument("--force", action="store_true", help="replace OUT where it is a cassette already")
    parser.add_argument("--list", action="store_true", help="print what applies to the stream, each with its law")
    parser.add_argument("--json", action="store_true", help="with --list: print JSON, see below")


def run(options: argparse.Namespace) -> int:
    import sys

    from stream_cassette.cassette import dumps
    from stream_cassette.errors import StreamCassetteError
    from stream_cassette.mutate import law_of
    from stream_cassette.stream import Stream

    from .choosing import cassette, name_of, place_of

    if bool(options.mutators) == options.list or (options.json and not options.list):
        raise StreamCassetteError(
            "give mutators, or --list to see which apply, which alone has --json",
            mend="stream-cassette mutate CASSETTE --list",
        )
    found = cassette(options.file)
    place = place_of(found, options.interaction, name_of(options.file))
    chosen = found.interactions[place]
    stream = Stream(chosen.exchange, chosen.dialect)
    if options.list:
        _list(stream, options.json)
        return 0
    mutators = _settled(options.mutators, stream)
    written = _mutated(found, place, stream, mutators)
    if options.output is not None:
        _save(options.output, written, force=options.force)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(dumps(written).encode())
    print(f"{', '.join(map(repr, mutators))}\nlaw: {law_of(mutators)}", file=sys.stderr)
    return 0


def _settled(texts: Iterable[str], stream: Stream) -> list[Mutator]:
    """The mutators that are meant, each for the stream as the ones before it leave it."""
    from stream_cassette.errors import NotApplicable
    from stream_cassette.mutate import LEVELS, instances
    from stream_cassette.mutate.items import settled
    from stream_cassette.mutate.parsing import parse

    found: list[Mutator] = []
    for text in texts:
        if text in LEVELS:
            choices = instances(stream, text)
            if not choices:
                raise NotApplicable(f"no mutator of the level {text!r} applies to the stream")
            mutator = choices[len(choices) // 2]
        else:
            mutator = settled(parse(text), stream)
        found.append(mutator.resolve(stream))
        stream = mutator.apply(stream)
    return found


def _mutated(found: Cassette, place: int, stream: Stream, mutators: Sequence[Mutator]) -> Cassette:
    from dataclasses import replace

    from stream_cassette.model import Interaction
    from stream_cassette.mutate import answers

    from .choosing import renewed

    test = found.interactions[place].test
    *failures, mutated = answers(stream, mutators)
    new = [renewed(Interaction(failure, test)) for failure in failures]
    new.append(renewed(Interaction(mutated, test, stream.spoken)))
    return replace(found, interactions=(*found.interactions[:place], *new, *found.interactions[place + 1 :]))


def _save(out: Path, written: Cassette, *, force: bool) -> None:
    from stream_cassette.cassette import update
    from stream_cassette.errors import StreamCassetteError

    def replaced(_: Cassette | None) -> Cassette:
        if out.exists() and not force:
            raise StreamCassetteError("it exists already", where=str(out), mend="choose another name, or --force")
        return written

    replaced(None)  # what stands there may be no cassette
    update(out, replaced)


def _list(stream: Stream, as_json: bool) -> None:
    from stream_cassette.mutate import instances

    from .terminal import print_json, terminal

    found = instances(stream)
    if as_json:
        print_json([{"level": each.level, "mutator": repr(each), "law": str(each.law)} for each in found])
        return
    out = terminal()
    for level, law in dict.fromkeys((each.level, str(each.law)) for each in found):
        out.line((f"{level}: ", "bold"), law)
        for each in found:
            if (each.level, str(each.law)) == (level, law):
                out.line(f"  {each!r}")

"""The cassettes in `cassettes/`: each is a test without code of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_cassette import Stream, assemble, use
from stream_cassette.cassette import dumps, load
from stream_cassette.dialects import DIALECTS
from stream_cassette.mutate import instances, law_of, mutate
from stream_cassette.mutate.laws import Outcome, broken
from stream_cassette.stream import assembled

ROOT = Path(__file__).parent.parent / "cassettes"
CASSETTES = sorted(ROOT.rglob("*.yaml"))
each = pytest.mark.parametrize("path", CASSETTES, ids=lambda path: str(path.relative_to(ROOT).with_suffix("")))


def test_every_dialect_has_one() -> None:
    assert {path.parent.name for path in CASSETTES} == {dialect.name for dialect in DIALECTS}


@each
def test_it_says_what_it_is_and_reads_as_it_was_assembled(path: Path) -> None:
    cassette = load(path)
    assert dumps(cassette) == path.read_text("utf-8")
    for interaction in cassette.interactions:
        assert interaction.dialect == path.parent.name
        assert Stream(interaction.exchange).spoken == path.parent.name
        assert assembled(assemble([read.data for read in interaction.exchange.reads])) == interaction.assembled
    with use(path) as tape:
        assert tape.reply.complete


@each
def test_every_mutator_obeys_its_law_on_it(path: Path) -> None:
    (interaction,) = load(path).interactions
    stream = Stream(interaction.exchange, interaction.dialect)
    for mutator in instances(stream):
        mutated = mutate(stream, [mutator])
        assert broken(law_of([mutator]), Outcome(stream.reply), Outcome(assemble(mutated)), mutated.reply) == [], (
            mutator
        )

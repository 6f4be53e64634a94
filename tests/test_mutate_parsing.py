"""Mutators from text: what prints as code is read back, and what is no mutator says so."""

from __future__ import annotations

import pytest

from stream_cassette.errors import TapeError
from stream_cassette.mutate import MUTATORS, HttpError, InterleaveToolCalls, Mutator, OneByteReads, instances
from stream_cassette.mutate.parsing import parse
from streams import EVERY


@pytest.mark.parametrize("name", EVERY)
def test_every_mutator_that_prints_as_code_is_read_back(name: str) -> None:
    found = instances(EVERY[name], "all")
    assert [parse(repr(each)) for each in found] == found


@pytest.mark.parametrize("kind", MUTATORS, ids=lambda kind: kind.__name__)
def test_a_name_is_the_class(kind: type[Mutator]) -> None:
    assert parse(kind.__name__) is kind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  OneByteReads( ) ", OneByteReads()),
        ("InterleaveToolCalls((0,1))", InterleaveToolCalls((0, 1))),
        ("HttpError(429, retry_after=1)", HttpError(429, 1, 1)),
        ("HttpError(retry_after=None)", HttpError()),
    ],
)
def test_what_is_read(text: str, expected: Mutator) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "what", "mend"),
    [
        ("", "no Python expression", "write it as code"),
        ("Ping(", "no Python expression", "write it as code"),
        ("Ping(\0)", "no Python expression", "write it as code"),
        ("1 + 1", "neither the call of a mutator nor its name", "write it as code"),
        ("os.system('true')", "neither the call", "write it as code"),
        ("Pong(1)", "there is no mutator 'Pong'", "Ping"),
        ("qqqqqqqq", "there is no mutator 'qqqqqqqq'", "OneByteReads"),
        ("Mutator()", "there is no mutator 'Mutator'", "stream_cassette.mutate has all"),
        ("Ping(print(1))", "malformed node", "Ping(every: int)"),
        ("Ping(*[1])", "malformed node", "Ping(every: int)"),
        ("Ping(**{'every': 1})", "unexpected keyword argument 'None'", "Ping(every: int)"),
        ("Ping(1, 2)", "positional arguments", "Ping(every: int)"),
        ("Stall()", "missing 1 required", "Stall(after: int)"),
        ("Ping('x')", "every cannot be 'x'", "Ping(every: int)"),
        ("Ping(True)", "every cannot be True", "Ping(every: int)"),
        ("Rechunk([1])", "cuts cannot be [1]", "Rechunk(cuts: tuple[int, ...])"),
        ("Rechunk((1, 'a'))", "cuts cannot be (1, 'a')", "Rechunk(cuts"),
        ("MoveUsage('end')", "to cannot be 'end'", "MoveUsage(to: Literal"),
        ("HttpError(retry_after='1')", "retry_after cannot be '1'", "retry_after: int | None"),
    ],
)
def test_what_is_no_mutator(text: str, what: str, mend: str) -> None:
    with pytest.raises(TapeError) as caught:
        parse(text)
    assert what in caught.value.what
    assert mend in caught.value.mend
    assert caught.value.where == text

"""How long the work takes that grows with the stream: each on a stream and on one of four times its size, to be compared as a ratio.

By hand: `pip install -e '.[test,bench]'`, then `pytest -n0 tests/bench/bench_speed.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stream_cassette import Reply, extract, synthesize
from stream_cassette.cassette import dumps
from stream_cassette.model import Cassette, Finish, Interaction, Key, Text, TextPart
from stream_cassette.redact import Secrets
from stream_cassette.redact.glance import suspects
from stream_cassette.scan import scan

SIZES = (2_000, 8_000)


def chunks(count: int) -> str:
    (first, *_) = synthesize(Reply((TextPart("word "),), "stop", ended=True), "openai-chat").frames[1:]
    return first.raw.decode() * count


@pytest.mark.parametrize("size", SIZES)
def test_the_search_for_secrets_in_a_clean_body(benchmark: Any, size: int) -> None:
    text = chunks(size)
    assert benchmark(lambda: suspects((text,), Secrets())) is None


@pytest.mark.parametrize("size", SIZES)
def test_the_scan_of_a_file(benchmark: Any, size: int, tmp_path: Path) -> None:
    exchange = synthesize(Reply((TextPart("word " * size),), "stop", ended=True), "openai-chat").exchange
    path = tmp_path / "x.yaml"
    path.write_text(dumps(Cassette((Interaction(exchange, "openai-chat"),))))
    assert benchmark(lambda: list(scan(path))) == []


@pytest.mark.parametrize("size", SIZES)
def test_the_views_of_a_reply_as_it_comes(benchmark: Any, size: int) -> None:
    deltas = [Text(Key(), '{"a": "'), *[Text(Key(), "word ")] * size, Text(Key(), '"}'), Finish(Key(), "stop")]
    value = benchmark(lambda: extract(deltas, {"type": "object"}, on_partial=lambda view: None))
    assert value == {"a": "word " * size}

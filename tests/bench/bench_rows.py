"""The rows of the table one by one: `pytest -n0 tests/bench/bench_rows.py -k WORD`. pytest-benchmark times ours; figures and ratios of all are in `extra_info`."""

from __future__ import annotations

from typing import Any

import pytest
from measuring import OURS, Row
from rows import ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(benchmark: Any, row: Row) -> None:
    figures = row.measure()
    benchmark.extra_info |= {name: figure * row.scale for name, figure in figures.items()} | {"unit": row.unit}
    benchmark.extra_info |= {f"ratio to {target.of}": target.ratio(figures) for target in row.targets}
    if row.runs is None:
        benchmark.pedantic(row.measure, rounds=1)
        return
    ours = row.runs()[OURS]
    benchmark.pedantic(
        ours.call, setup=lambda: ((ours.before(),), {}), teardown=lambda prepared: ours.after(prepared), rounds=3
    )

"""`python tests/bench [WORD ...]`: the table of all rows, or of those whose names hold one of the words. Needs `pip install -e '.[bench]'`.

`--profile` shows instead where the time of ours goes, of the rows that are races.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats

from measuring import OURS, Row
from rows import ROWS
from table import told


def profile(row: Row) -> None:
    assert row.runs is not None
    ours = row.runs()[OURS]
    prepared = ours.before()
    profiler = cProfile.Profile()
    profiler.runcall(ours.call, prepared)
    ours.after(prepared)
    print(row.name)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(18)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args()
    for row in ROWS:
        if asked.words and not any(word.lower() in row.name.lower() for word in asked.words):
            continue
        if not asked.profile:
            print("\n".join(told(row, row.measure())), flush=True)
        elif row.runs is not None:
            profile(row)


if __name__ == "__main__":
    main()

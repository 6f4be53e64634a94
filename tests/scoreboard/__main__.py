"""`python tests/scoreboard`: what released assemblers make of mutated streams. Its peers: `pip install -r tests/scoreboard/requirements.txt`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scoreboard.assemblers import PEERS
from scoreboard.judging import Fault, Judged, distinct, judge, shrunk
from scoreboard.report import Board, markdown, plain, text

PROCESSES = 2


def one(name: str, fast: bool) -> tuple[Judged, list[Fault]]:
    """One peer, in a process of its own, whose noise nobody wants."""
    warnings.simplefilter("ignore")
    logging.disable()
    judged = judge(PEERS[name], search=not fast)
    faults = distinct(judged.verdicts)
    return judged, faults if fast else [shrunk(fault) for fault in faults]


def run(names: list[str], fast: bool) -> Board:
    with ProcessPoolExecutor(PROCESSES) as pool:
        found = list(pool.map(one, names, [fast] * len(names)))
    return Board(tuple(judged for judged, _ in found), tuple(fault for _, faults in found for fault in faults))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python tests/scoreboard", description=__doc__)
    parser.add_argument("--only", action="append", choices=PEERS, metavar="ASSEMBLER", help=", ".join(PEERS))
    parser.add_argument("--fast", action="store_true", help="mutators as they stand: no search, no shrinking")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--markdown", action="store_true", help="print RESULTS.md")
    how.add_argument("--json", action="store_true", help="print everything as plain values")
    asked = parser.parse_args()
    names = asked.only or list(PEERS)
    for name in [name for name in names if PEERS[name].version is None]:
        print(f"{name} is left out: {PEERS[name].distribution} is not installed", file=sys.stderr)
        names.remove(name)
    board = run(names, asked.fast)
    if asked.json:
        print(json.dumps(plain(board), indent=1))
    else:
        sys.stdout.write(markdown(board) if asked.markdown else text(board) + "\n")


if __name__ == "__main__":
    main()

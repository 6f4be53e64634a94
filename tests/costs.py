"""What a piece of work costs in steps rather than in seconds, so that a test of it holds on any machine."""

from __future__ import annotations

import sys
from collections.abc import Callable


def calls_in(action: Callable[[], object]) -> int:
    """How many calls and returns, of Python and of C, `action` takes: what it costs, the same on every machine."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls

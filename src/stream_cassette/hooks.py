"""The hooks that a conftest or plugin may implement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .model import Exchange


@pytest.hookspec(firstresult=True)
def pytest_stream_cassette_scrub(exchange: Exchange) -> Exchange | None:
    """The last hand on a recorded exchange before the file, after every known secret was replaced.

    Return the exchange, changed with `dataclasses.replace`, or None to leave it to others; the nearest conftest is asked first, the first exchange
    given back is stored. Every request is shown before it is matched as well, as an exchange with the status 0 and neither headers nor reads of a
    response, so that what is changed in requests is changed on both sides.
    """

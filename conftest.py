"""Test support that every test may use: the corpus of captured streams where there is one, and how Hypothesis runs here."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["pytester"]

# Machines that run tests are busy and noisy: no example fails for being slow. CI draws the same examples every time.
hypothesis.settings.register_profile(
    "project",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    print_blob=True,
)
hypothesis.settings.load_profile("project")


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left_open() -> Iterator[None]:
    """A socket or file that a module leaves open fails that module, not whichever test runs when the garbage is collected."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of captured streams named by STREAM_CASSETTE_CORPUS; tests that need it are skipped without it."""
    folder = os.environ.get("STREAM_CASSETTE_CORPUS")
    if not folder or not Path(folder, "index.json").exists():
        pytest.skip("STREAM_CASSETTE_CORPUS does not name a folder of captured streams")
    return Path(folder)

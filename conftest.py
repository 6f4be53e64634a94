"""Test support that every test may use: the data folder, and the corpus of captured streams where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of captured streams named by STREAM_CASSETTE_CORPUS; tests that need it are skipped without it."""
    folder = os.environ.get("STREAM_CASSETTE_CORPUS")
    if not folder or not Path(folder, "index.json").exists():
        pytest.skip("STREAM_CASSETTE_CORPUS does not name a folder of captured streams")
    return Path(folder)

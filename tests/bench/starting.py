"""What the plugin costs a run of pytest: one without a marker, and the first marked test. Each run is a process of its own."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import bodies
from measuring import OURS, Row, Target

from stream_cassette.fuzz import save

ROUNDS = 60
HEAVY = ("hypothesis", "deepdiff", "yaml", "jiter", "filelock", "httpx2", "asyncio")
"""What a run without a marker is not to load; the first two not even a marked test."""

# Of the bare runs: for any `-p` pytest looks through the metadata of all that is installed.
_EMPTY = "plugin_of_nothing"
_PLAIN = "def test(): pass\n"
_CLIENT = """
import httpx2, json
def ask(client):
    with client.stream("POST", "https://api.openai.com/v1/chat/completions", json={"stream": True}) as response:
        assert sum(map(len, response.iter_bytes())) > 1000
"""
_MOCKED = f"""{_CLIENT}
def test():
    httpx2.Client()  # loads what a real transport needs
    reads = [b"x" * 250] * 5
    ask(httpx2.Client(transport=httpx2.MockTransport(lambda request: httpx2.Response(200, content=iter(reads)))))
"""
_MARKED = f"""{_CLIENT}
import pytest
@pytest.mark.stream_cassette
def test():
    ask(httpx2.Client())
"""
_CONFTEST = """
import json, os, sys
def pytest_sessionfinish():
    if path := os.environ.get("LOADED"):
        with open(path, "w") as file:
            json.dump(sorted(sys.modules), file)
"""


# Starting Python and loading pytest takes longer, and varies by more, than what is to be seen. So all runs are forks of one process that has done that.
_FORKS = """
import json, math, os, sys, time
import pytest
runs, rounds = json.loads(sys.argv[1]), int(sys.argv[2])
best = dict.fromkeys(runs, math.inf)
for number in range(rounds):
    for name in list(runs)[::-1 if number % 2 else 1]:
        receive, send = os.pipe()
        if not os.fork():
            os.dup2(os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            began = time.process_time()
            failed = pytest.main(["-q", "-p", "no:cacheprovider", *runs[name]])
            os.write(send, str(time.process_time() - began).encode())
            os._exit(failed)
        os.close(send)
        if os.wait()[1]:
            sys.exit(open("said.txt").read())
        best[name] = min(best[name], float(os.read(receive, 99)))
        os.close(receive)
print(json.dumps(best))
"""


@functools.cache
def project() -> Path:
    """A folder with three test files that pytest runs one of at a time; deleted when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="stream-cassette-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / f"{_EMPTY}.py").write_text("")
    for name, text in (("plain", _PLAIN), ("mocked", _MOCKED), ("marked", _MARKED)):
        (folder / f"test_{name}.py").write_text(text)
    save(folder / "cassettes" / "test_marked" / "test.yaml", bodies.recorded("openai-chat", 1_500))
    return folder


def arguments(name: str, plugins: Sequence[str]) -> list[str]:
    return [*(part for plugin in plugins for part in ("-p", plugin)), f"test_{name}.py"]


def started(*command: str, **more: str) -> str:
    """What a Python process in the project's folder prints, where pytest loads no plugin that is not asked for."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more}
    # What was compiled once is found compiled from then on, whatever is set where this runs; but not beside the sources.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(project() / "compiled")
    done = subprocess.run(
        [sys.executable, *command], cwd=project(), env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def loaded(name: str, plugins: Sequence[str]) -> set[str]:
    """The modules that a run has loaded at its end."""
    found = project() / "loaded.json"
    started("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments(name, plugins), LOADED=str(found))
    return set(json.loads(found.read_text()))


OUR_PLUGIN = "stream_cassette.pytest_plugin"


def beyond(bare: list[str], others: Mapping[str, list[str]]) -> dict[str, float]:
    """Seconds of processor time that each run takes beyond the bare one."""
    best = json.loads(started("-c", _FORKS, json.dumps({"bare": bare, **others}), str(ROUNDS)))
    return {name: best[name] - best["bare"] for name in others} | {"the bare run itself": best["bare"]}


def loading() -> Mapping[str, float]:
    heavy = {module.partition(".")[0] for module in loaded("plain", [OUR_PLUGIN]) - loaded("plain", [_EMPTY])}
    assert not heavy & set(HEAVY), f"the plugin loads {sorted(heavy & set(HEAVY))}"
    peers = {
        "pytest-recording": "pytest_recording.plugin",
        "syrupy": "syrupy",
        "inline-snapshot": "inline_snapshot.pytest_plugin",
        "cassetter": "cassetter.pytest_plugin",
    }
    runs = {name: arguments("plain", [plugin]) for name, plugin in {OURS: OUR_PLUGIN, **peers}.items()}
    return {**beyond(arguments("plain", [_EMPTY]), runs), "the budget": 0.005}


def first_marked() -> Mapping[str, float]:
    heavy = loaded("marked", [OUR_PLUGIN])
    assert not heavy & {"hypothesis", "deepdiff"}, "a replay loads hypothesis or deepdiff"
    return beyond(arguments("mocked", [_EMPTY]), {OURS: arguments("marked", [OUR_PLUGIN])})


ROWS: Sequence[Row] = (
    Row(
        "plugin load beyond bare pytest, no marker used",
        loading,
        (Target("the budget", 1),),
        note="loads nothing heavy",
    ),
    Row(
        "first marked test of a run beyond the same client on a MockTransport",
        first_marked,
        note="replay; loads neither hypothesis nor deepdiff",
    ),
)

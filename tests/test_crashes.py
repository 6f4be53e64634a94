"""Processes killed while they record and save, full disks, read-only places, clocks that go back: the cassette is the old one or the new one."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stream_cassette import Reply, serve, synthesize, use
from stream_cassette.cassette import load, update
from stream_cassette.errors import CassetteError
from stream_cassette.files import leftovers, replace_file
from stream_cassette.model import Cassette, Exchange, Interaction, Read, Request, TextPart
from stream_cassette.snapshot import save

ROUNDS = 200

# Forks a process that saves for as long as it lives, kills it, looks at the file, and so on. Every file that is ever written has two interactions
# with one body, of a size that takes some writing.
NURSERY = """
import itertools, json, os, random, signal, sys, time
from pathlib import Path
from stream_cassette.cassette import load, update
from stream_cassette.files import leftovers
from stream_cassette.model import Cassette, Exchange, Interaction, Read, Request
import filelock

path, rounds = Path(sys.argv[1]), int(sys.argv[2])
chance = random.Random(7)

def body(number):
    return b"data: %d\\n\\n" % number * 500

def victim(first):
    for number in itertools.count(first):
        one = Interaction(Exchange(Request("GET", "https://example.org/"), 200, (), (Read(0, body(number)),)), str(number))
        update(path, lambda old: Cassette((one, one)))

littered, seen = 0, set()
for number in range(rounds):
    child = os.fork()
    if child == 0:
        victim(number * 1000)
    time.sleep(chance.uniform(0.001, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    littered += bool(leftovers(path.parent))
    if path.exists():
        one, other = load(path).interactions
        assert one == other and one.exchange.body == body(int(one.test)), "a torn file"
        seen.add(one.test)
print(json.dumps({"littered": littered, "files": len(seen)}))
"""


def test_a_process_killed_while_it_saves_leaves_an_old_or_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    done = subprocess.run(
        [sys.executable, "-c", NURSERY, str(path), str(ROUNDS)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["littered"] > 0, "no round struck in the middle of a save"
    assert told["files"] > 1
    # Whoever saves next sweeps up, and the lock of the dead keeps nobody out.
    update(path, lambda old: Cassette(old.interactions[:1]))
    assert os.listdir(tmp_path) == ["x.yaml"]


RECORDER = """
import os, sys
import httpx2
from stream_cassette import use

with use(sys.argv[1], mode="new") as tape:
    with httpx2.stream("GET", sys.argv[2]) as response:
        for data in response.iter_raw():
            print("read", flush=True)
"""


def test_a_process_killed_while_it_records_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    update(
        path,
        lambda _: Cassette(
            (Interaction(Exchange(Request("GET", "https://example.org/"), 200, (), (Read(0, b"old"),))),)
        ),
    )
    before = path.read_bytes()
    reads = tuple(Read(at * 20, b"data: x\n\n") for at in range(500))
    with serve(lambda request: Exchange(request, 200, (("content-type", "text/event-stream"),), reads)) as provider:
        for after in (1, 5, 20):
            victim = subprocess.Popen([sys.executable, "-c", RECORDER, str(path), provider.url], stdout=subprocess.PIPE)
            assert victim.stdout is not None
            with victim.stdout as told:
                for _ in range(after):
                    assert told.readline() == b"read\n"
                victim.kill()
            victim.wait()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.yaml"]


def test_what_others_left_for_other_files_stays(tmp_path: Path) -> None:
    others = [".y.yaml.0123456789ab.tmp", ".x.yaml.tmp", ".x.yaml.0123456789AB.tmp", "x.yaml.0123456789ab.tmp"]
    for name in [*others, ".x.yaml.0123456789ab.tmp"]:
        (tmp_path / name).touch()
    (tmp_path / ".x.yaml.ba9876543210.tmp").mkdir()  # cannot be swept, which is no reason not to save
    update(tmp_path / "x.yaml", lambda old: Cassette())
    assert sorted(os.listdir(tmp_path)) == sorted([*others, ".x.yaml.ba9876543210.tmp", "x.yaml"])


# ------------------------------------------------------------------------------------------------------------------- full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kilobytes, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting a file system takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def big(size: int) -> Cassette:
    return Cassette((Interaction(Exchange(Request("GET", "https://example.org/"), 200, (), (Read(0, b"x" * size),))),))


def test_a_full_disk(small_disk: Path) -> None:
    path = small_disk / "x.yaml"
    update(path, lambda _: big(100_000))
    before = path.read_bytes()
    for size in (170_000, 200_000, 1_000_000):
        with pytest.raises(CassetteError, match="cannot write the cassette: No space left on device") as caught:
            update(path, lambda _, size=size: big(size))
        assert (caught.value.where, caught.value.mend) == (str(path), "nothing was changed; try again")
        assert path.read_bytes() == before
        assert os.listdir(small_disk) == ["x.yaml"]
    with pytest.raises(CassetteError, match="cannot write the snapshot: No space left"):
        save(small_disk / "x.snap.yaml", {1: "x" * 1_000_000})
    assert os.listdir(small_disk) == ["x.yaml"]
    update(path, lambda _: big(50_000))
    assert load(path) == big(50_000)


def test_a_read_only_file_system(small_disk: Path) -> None:
    path = small_disk / "x.yaml"
    update(path, lambda _: big(10))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert load(path) == big(10)
    with pytest.raises(CassetteError, match="cannot write the cassette: Read-only file system"):
        update(path, lambda _: big(20))
    with pytest.raises(CassetteError, match="cannot write the cassette: Read-only file system"):
        update(small_disk / "new" / "x.yaml", lambda _: big(20))
    assert os.listdir(small_disk) == ["x.yaml"]


CALLS = [
    "os.listdir",
    "os.open",
    "os.fsync",
    "os.replace",
    "os.stat",
    "shutil.copymode",
    "pathlib.Path.open",
    "pathlib.Path.mkdir",
]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", CALLS)
def test_every_call_of_a_save_may_fail(call: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first time that the save makes the call on, or from the second: either all is as before, or the save is done."""
    path = tmp_path / "x.yaml"
    update(path, lambda _: big(10))
    for healthy in range(3):
        before = path.read_bytes()
        calls = 0

        def failing(*args: Any, real: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > healthy:  # noqa: B023
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        owner, name = call.rpartition(".")[0], call.rpartition(".")[2]
        home: Any = {"os": os, "shutil": sys.modules["shutil"], "pathlib.Path": Path}[owner]
        real = getattr(home, name)
        with monkeypatch.context() as patch:
            patch.setattr(
                home, name, lambda *args, real=real, failing=failing, **kwargs: failing(*args, real=real, **kwargs)
            )
            try:
                replace_file(path, [b"a", b"b"])
            except OSError as error:
                assert error.errno == code  # noqa: PT017
        assert path.read_bytes() in (before, b"ab")
        assert leftovers(tmp_path) == []
        assert os.listdir(tmp_path) == ["x.yaml"]


# ------------------------------------------------------------------------------------------------------------- read-only places


def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    update(path, lambda _: big(10))
    path.chmod(0o444)
    with pytest.raises(CassetteError, match="cannot write the cassette: the file is read-only") as caught:
        update(path, lambda _: big(20))
    assert caught.value.where == str(path)
    assert load(path) == big(10)
    assert os.listdir(tmp_path) == ["x.yaml"]


READ_ONLY = """
import os, sys
from pathlib import Path
folder = Path(sys.argv[1])
import filelock
from stream_cassette.cassette import load, update
from stream_cassette.model import Cassette
if os.getuid() == 0:  # to whom permissions are nothing
    os.setuid(65534)
for path in (folder / "x.yaml", folder / "new" / "x.yaml"):
    try:
        update(path, lambda old: Cassette())
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
print(len(load(folder / "x.yaml").interactions))
"""


def test_a_read_only_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cassettes"
    update(folder / "x.yaml", lambda _: big(10))
    for each in (folder, *folder.parents):
        if Path(tempfile.gettempdir()).resolve() in each.resolve().parents:
            each.chmod(0o755)
    folder.chmod(0o555)
    locks = tmp_path / "locks"
    locks.mkdir()
    locks.chmod(0o777)
    command = [sys.executable, "-c", READ_ONLY, str(folder)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "TMPDIR": str(locks)}
        )
        assert done.stdout.splitlines() == ["CassetteError cannot write the cassette: Permission denied"] * 2 + ["1"], (
            done.stderr
        )
        assert os.listdir(folder) == ["x.yaml"]
    finally:
        folder.chmod(0o755)


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(CassetteError, match=r"cannot (read|write) the cassette: (Not a directory|File exists)"):
        update(tmp_path / "a" / "x.yaml", lambda _: big(10))


# ---------------------------------------------------------------------------------------------------------------------- clocks


def test_a_clock_that_steps_back_while_a_stream_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    steps = iter([100.0, 100.5, 3.0, 100.7, 90.0, *[0.0] * 50])
    reply = Reply((TextPart("one two three four"),), "stop", ended=True)
    with serve(lambda request: synthesize(reply, "openai-chat", request=request).exchange) as provider:
        with use(path, mode="once", clock=lambda: next(steps)):
            live = httpx2.post(provider.url, json={"stream": True}).content
        (interaction,) = load(path).interactions
        times = [read.at_ms for read in interaction.exchange.reads]
        assert times == sorted(times)
        assert times[0] >= 0
        with warnings.catch_warnings(), use(path) as tape:
            assert httpx2.post(provider.url, json={"stream": True}).content == live
            assert tape.reply == reply

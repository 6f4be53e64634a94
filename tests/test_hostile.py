"""Files that nobody recorded: each is an error with file and line, or the tolerant reading that is promised; and none is expensive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from stream_cassette import literals
from stream_cassette.cassette import CassetteWarning, chunks, dumps, load, loads, locate, writing
from stream_cassette.errors import CassetteError, CassetteMissing
from stream_cassette.literals import without_literals
from stream_cassette.model import Cassette, Exchange, Interaction, Read, Request

GOLDEN = Path(__file__).parent / "data" / "cassette_format_1.yaml"
GET = Request("GET", "https://example.org/")


def taped(*reads: bytes) -> Cassette:
    return Cassette((Interaction(Exchange(GET, 200, (), tuple(Read(0, data) for data in reads))),))


# ------------------------------------------------------------------------------------------------------------- damaged somehow


def tolerant(data: bytes) -> Cassette | CassetteError:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CassetteWarning)
        try:
            return loads(data, name="x.yaml")
        except CassetteError as caught:
            error = caught
    assert error.where.startswith("x.yaml, line ")
    assert error.mend
    return error


def test_a_file_truncated_anywhere() -> None:
    data = GOLDEN.read_bytes()
    whole = load(GOLDEN)
    errors = 0
    for length in range(len(data)):
        got = tolerant(data[:length])
        if isinstance(got, CassetteError):
            errors += 1
        else:  # a text that ends early may still be one; what came before is not changed by that
            before = len(got.interactions) - 1
            assert got.interactions[:before] == whole.interactions[:before]
    assert errors > len(data) * 0.7


@pytest.mark.parametrize(
    "put", [b"\x00", b"\xff", b"\xed\xa0\xbd", b"\xc0\xaf", b"\xfe\xff", "\u2028".encode(), b"\t", b"\r", b"\x1b[2J"]
)
def test_a_byte_that_does_not_belong_there(put: bytes) -> None:
    data = GOLDEN.read_bytes()
    for at in range(0, len(data), 7):
        tolerant(data[:at] + put + data[at + 1 :])


@pytest.mark.parametrize("line", range(0, 120, 3))
def test_a_merge_conflict_anywhere(line: int) -> None:
    lines = GOLDEN.read_text("utf-8").splitlines()
    at = line % len(lines)
    lines[at:at] = ["<<<<<<< HEAD", "=======", lines[at], ">>>>>>> theirs"]
    got = tolerant("\n".join(lines).encode())
    assert isinstance(got, CassetteError)
    assert got.what == "a merge conflict is not resolved"
    assert got.where == f"x.yaml, line {at + 1}"


def test_conflict_marks_inside_a_body_are_no_conflict() -> None:
    cassette = taped(b"<<<<<<< HEAD\n=======\n>>>>>>> theirs\n")
    assert loads(dumps(cassette), name="x") == cassette


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding(encoding: str) -> None:
    got = tolerant(GOLDEN.read_text("utf-8").encode(encoding))
    assert isinstance(got, CassetteError) or got == load(GOLDEN)  # yaml reads UTF-16 with its mark


def test_a_byte_order_mark_says_nothing() -> None:
    assert tolerant(b"\xef\xbb\xbf" + GOLDEN.read_bytes()) == load(GOLDEN)


@pytest.mark.skipif(os.name == "nt", reason="symbolic links and pipes as POSIX has them")
def test_links(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "lost.yaml").symlink_to("nowhere.yaml")
    (tmp_path / "good.yaml").symlink_to(GOLDEN)
    with pytest.raises(CassetteError, match="cannot read the cassette: Too many levels"):
        load(tmp_path / "loop.yaml")
    with pytest.raises(CassetteMissing):
        load(tmp_path / "lost.yaml")
    assert load(tmp_path / "good.yaml") == load(GOLDEN)
    with pytest.raises(CassetteError, match="is no cassette inside"):
        locate(tmp_path, "good")
    assert locate(tmp_path, "loop") == tmp_path / "loop.yaml"  # it leads nowhere, so not outside either


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="devices as Unix has them")
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_a_device_is_no_cassette(device: str) -> None:
    with pytest.raises(CassetteError):
        load(Path(device))


# ----------------------------------------------------------------------------------------------------------------- expensive

# Each is made in the process that reads it, under a limit of its memory. Between the two lines of a document stands what is multiplied.
CASES = {
    "aliases by the million": ("a: &a [x]\\nb: [", "*a, ", 1_000_000, "]", "an alias"),
    "aliases of aliases": (
        "a0: &a0 [x]\\n" + "\\n".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(40)),
        "",
        0,
        "",
        "an alias",
    ),
    "values by the million": ("a: [", "1, ", 1_500_000, "]", "more than 1000000 values"),
    "keys by the million": ("a: {", "? b : c, ", 1_000_000, "}", "more than 100000 values"),
    "tags by the million": ("a: [", "!x y, ", 1_000_000, "]", "more than 100000 values"),
    "brackets by the million": ("a: ", "[", 3_000_000, "", "not YAML"),
    "a list in a list in a list": ("a: ", "- ", 100_000, "x", "not YAML"),
    "a number of a million digits": ("a: ", "9", 3_000_000, "", "has no key"),
    "a key of a megabyte": ("", "k", 3_000_000, ": 1", "not YAML"),
    "comments by the million": ("", "# x\\n", 1_000_000, "", "lacks"),
    "documents by the million": ("", "---\\n", 1_000_000, "", "not YAML"),
}

ENTRY = """
import json, resource, sys, time, warnings
from stream_cassette import yamltext
from stream_cassette.cassette import loads
from stream_cassette.errors import CassetteError
cases = json.loads(sys.stdin.read())
resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))
warnings.simplefilter("ignore")
for name, (before, many, times, after, _) in cases.items():
    data = (f"format: 1\\n{before}".replace("\\\\n", "\\n").encode() + many.replace("\\\\n", "\\n").encode() * times + after.encode() + b"\\n")
    began = time.perf_counter()
    yamltext.MOST_NODES = 1_000_000 if name == "values by the million" else 100_000
    try:
        loads(data, name="x.yaml")
        said = "loaded"
    except CassetteError as error:
        said = str(error)
    del data
    print(json.dumps([name, said, time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024]), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux keeps them")
def test_a_file_that_wants_more_than_it_is_worth_is_refused_in_bounded_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENTRY], input=json.dumps(CASES), capture_output=True, text=True, timeout=120, check=False
    )
    told = {
        name: (said, seconds, megabytes) for name, said, seconds, megabytes in map(json.loads, done.stdout.splitlines())
    }
    assert done.returncode == 0, done.stderr
    for name, (*_, words) in CASES.items():
        said, seconds, _ = told[name]
        assert words in said, (name, said[:300])
        assert "x.yaml, line" in said, (name, said[:300])
        assert seconds < 30, name
    assert max(megabytes for _, _, megabytes in told.values()) < 1200


READS = ["0:1 " * 2_000_000, "0:9999999999 " * 3]


@pytest.mark.parametrize("reads", READS, ids=["absurdly many", "absurdly big"])
def test_reads_that_do_not_fit_the_body(reads: str) -> None:
    text = dumps(taped(b"data: a\n\ndata: b\n\n")).replace("reads: 0:18", f"reads: {reads}")
    with pytest.warns(CassetteWarning, match="the body has 18 bytes, `reads` has (more|29999999997)"):
        found = loads(text, name="x.yaml")
    assert [read.data for read in found.interactions[0].exchange.reads] == [b"data: a\n\n", b"data: b\n\n"]


# ---------------------------------------------------------------------------------------- literals, which are read past yaml

BLOCK = "interactions: []\n" + "x:\n    body: |2+\n      a\n\n      b\n"


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        (BLOCK, True),
        (BLOCK.replace("|2+", "|2-"), True),
        (BLOCK + "  # a comment\n", True),
        (BLOCK + "\n\n\ny: 1\n", True),
        (BLOCK + "   \ny: 1\n", False),  # a blank line of yaml's that is none of ours
        (BLOCK.rstrip("\n"), False),  # no end of the last line
        (BLOCK.replace("      b", "      \x85b"), False),
        (BLOCK.replace("\n", "\r\n"), False),
        (
            BLOCK.replace("      a\n", "     a\n"),
            True,
        ),  # nothing but what is deep enough is a line of it; yaml says what it thinks of the rest
        ('x: "y\n    body: |2+\n      a\n"\n', False),  # in quotes
        ("x: >\n    a\n    body: |2+\n      a\n", False),  # in another block
        ("# y:\n#\n    body: |2+\n      a\n", True),
    ],
)
def test_a_literal_is_read_past_yaml_only_where_yaml_agrees(
    text: str, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    from stream_cassette import yamltext

    def values(root: object) -> object:
        return None if root is None else yamltext.value_of(root)  # type: ignore[arg-type]

    composed: list[bytes] = []
    real = yamltext._compose
    monkeypatch.setattr(yamltext, "_compose", lambda data: composed.append(data) or real(data))  # type: ignore[func-returns-value]

    def result() -> object:
        try:
            return yamltext.read(text.encode(), "x", values)
        except CassetteError as error:
            return str(error)

    mine = result()
    assert (text.encode() not in composed) == (cut and not isinstance(mine, str))
    monkeypatch.setattr(yamltext, "without_literals", lambda file: (b"", {}))
    assert mine == result()
    assert without_literals(io.BytesIO(b"")) == (b"", {})


def test_a_long_body_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 64
    monkeypatch.setattr(literals, "PIECE", size)
    monkeypatch.setattr(writing, "PIECE", size)
    line = b"x" * (size + 5) + "é\n".encode()
    for body in (
        line,
        b"a\n" + line * 2 + b"\n\n",
        line[:-1],
        b"\n\n\n",
        "é".encode() * size,
        b"a\r\n" * size,
        b"\r\n" * 3,
        b"a\rb",
    ):
        for reads in (
            (body,),
            (body[:1], body[1:-1], body[-1:]),
            tuple(body[at : at + size - 1] for at in range(0, len(body), size - 1)),
        ):
            cassette = taped(*filter(None, reads))
            assert loads(b"".join(chunks(cassette)), name="x") == cassette


# ----------------------------------------------------------------------------------------------------------------- a big body

MEGABYTES = 200

BIG = """
import json, os, resource, subprocess, sys, time
import filelock, httpx2
from stream_cassette import use
path, url, mode = sys.argv[1:]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
httpx2.get(url + "/small")
before, began, size, total = peak(), time.perf_counter(), 0, 0
with use(path, mode=mode) as tape:
    with httpx2.stream("GET", url) as response:
        for data in response.iter_raw():
            size += len(data)
            total ^= hash(data)
print(json.dumps([size, (peak() - before) / size, time.perf_counter() - began]))
"""

SAVING = """
import json, resource, sys, time
from pathlib import Path
import filelock
from stream_cassette.cassette import update
from stream_cassette.model import Cassette, Exchange, Interaction, Read, Request
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, began = peak(), time.perf_counter()
reads = tuple(Read(number, b"".join(b'{"number":%d,"text":"%s"}\\n' % (number, b"lorem ipsum " * 20) for _ in range(250))) for number in range(3000))
size = sum(len(read.data) for read in reads)
update(Path(sys.argv[1]), lambda old: Cassette((Interaction(Exchange(Request("GET", sys.argv[2]), 200, (), reads)),)))
print(json.dumps([size, (peak() - before) / size, time.perf_counter() - began]))
"""

PROVIDER = """
import socket, sys
piece = b"".join(b'{"number":%d,"text":"%s"}\\n' % (number, b"lorem ipsum " * 20) for number in range(1000))
count = int(sys.argv[1]) * 1_000_000 // len(piece)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    client, _ = listener.accept()
    small = b"/small" in client.recv(65536)
    head = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/x-ndjson\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n"
    client.sendall(head % (0 if small else count * len(piece)))
    for _ in range(0 if small else count):
        client.sendall(piece)
    client.close()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory as Linux counts it")
def test_a_body_of_200_megabytes_is_recorded_and_replayed_in_bounded_memory(tmp_path: Path) -> None:
    provider = subprocess.Popen([sys.executable, "-c", PROVIDER, str(MEGABYTES)], stdout=subprocess.PIPE)
    try:
        assert provider.stdout is not None
        url = f"http://127.0.0.1:{int(provider.stdout.readline())}"

        def run(mode: str, script: str = BIG, name: str = "x.yaml") -> list[float]:
            done = subprocess.run(
                [sys.executable, "-c", script, str(tmp_path / name), url, mode],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        size, recording, _ = run("once")
        again, replaying, _ = run("none")
        _, saving, _ = run("", SAVING, "y.yaml")
    finally:
        provider.kill()
        provider.wait()
        if provider.stdout is not None:
            provider.stdout.close()
    assert size == again > 195_000_000
    assert saving < 2.5  # the body itself, what is read back to be compared with it, and a little
    assert replaying < 2.0
    assert recording < 9  # the search for secrets looks at the body as a whole

"""Files that nobody recorded: each is an error with file and line, or the tolerant reading that is promised; and none is expensive."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from yaml.nodes import Node

from stream_cassette import literals
from stream_cassette.cassette import CassetteWarning, chunks, dumps, load, loads, locate, reading, writing
from stream_cassette.errors import CassetteError, CassetteMissing
from stream_cassette.framing import eventstream
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

LINE = "QUJD" * 20
CODED = f"x:\n    - base64: '{LINE}\n        {LINE}\n        QUI='\n"
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
        (CODED, True),
        (CODED.replace(f"        {LINE}\n", ""), True),  # two lines
        (CODED.replace(f"        {LINE}\n", f"        {LINE}\n" * 3) + "  # a comment\n", True),
        (CODED + CODED[CODED.index("    -") :], True),
        (CODED.replace(f"        {LINE}\n", "        QUJD\n"), False),
        (CODED.replace(f"        {LINE}\n", f"       {LINE}\n"), False),
        (CODED.replace("QUI=", "QUJ="), False),  # another spelling of the same
        (CODED.replace("QUI=", "QUI"), False),
        (CODED.rstrip("\n"), False),
        (CODED.rstrip("'\n"), False),
        (f"x: |\n    - base64: '{LINE}\n        {LINE}\n        QUI='\n", False),
        (f"x:\n    - base64: '{LINE}\n\n        QUI='\n", False),
    ],
)
def test_a_literal_is_read_past_yaml_only_where_yaml_agrees(
    text: str, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stream_cassette import yamltext

    def values(root: object) -> object:
        return None if root is None else yamltext.value_of(root)

    composed: list[bytes] = []
    real = yamltext._compose
    monkeypatch.setattr(yamltext, "_compose", lambda data: composed.append(data) or real(data))

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


@pytest.mark.parametrize("size", [1, 2, 7, 1 << 16])
@pytest.mark.parametrize("rest", ["", " ", "   ", "     ", "  x\n", "   \n", "a: 1\n", "a: |\n  b\n"])
@pytest.mark.parametrize("body", ["", "\n", "      a\n", "      a\n\n      b\n", "\n\n       \n"])
def test_a_literal_ends_with_the_last_line_that_belongs_to_it(
    body: str, rest: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(literals, "PIECE", size)
    file = io.BytesIO(f"{body}{rest}".encode())
    found = literals.Literal(file, b" " * 6, True)
    assert found.sound
    assert str(found) == body.replace("      ", "")
    assert found.outline == b"\n" * body.count("\n")
    assert file.read() == rest.encode()


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


def test_frames_by_the_thousand_that_are_no_text_take_no_item_each(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = [eventstream.encode([], b'{"a":%d}' % number).raw for number in range(1200)]
    for body, items in (
        (odd, 1001),  # each of the first thousand, and the rest
        (odd[:1000], 1000),
        ([b"data: %d\n\n" % number for number in range(1500)], 0),
        ([b"data: \xff\n\n", b"data: a\n\n"] * 1100, 1001),
    ):
        cassette = taped(*body)
        text = dumps(cassette)
        assert text.count("    - base64: ") == items
        assert loads(text, name="x") == cassette
    monkeypatch.setattr(writing, "PIECE", 50_000)
    assert dumps(taped(*odd * 8)).count("    - base64: ") > 1000 + (8 * 1200 - 1000) * len(odd[0]) // 50_000
    monkeypatch.setattr(writing, "PIECE", len(odd[-1]))
    assert dumps(taped(*odd)).count("    - base64: ") == 1200


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"".join(chunks(taped(b"data: x\n\n" * 50_000))))
    real = reading._times_and_sizes

    def shrink(node: Node, length: int) -> object:
        path.write_bytes(path.read_bytes()[:200_000])
        return real(node, length)

    monkeypatch.setattr(reading, "_times_and_sizes", shrink)
    with pytest.raises(CassetteError, match="the file changed while it was read"):
        load(path)


def test_base64_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.yaml"
    text = b"".join(chunks(taped(bytes(range(256)) * 2_000)))
    path.write_bytes(text)
    real = reading._times_and_sizes

    def spoil(node: Node, most: int) -> object:
        path.write_bytes(text[:200_000] + b"*" * 1_001 + text[201_001:])
        return real(node, most)

    monkeypatch.setattr(reading, "_times_and_sizes", spoil)
    with pytest.raises(CassetteError, match="the file changed while it was read"):
        load(path)


def test_what_is_known_already_is_not_kept_twice() -> None:
    cassette = taped(b"data: a\n\n", b"data: b\n\n")
    text = dumps(cassette)
    again = loads(text, name="x", like=cassette)
    assert again == cassette
    for mine, known in zip(again.interactions[0].exchange.reads, cassette.interactions[0].exchange.reads, strict=True):
        assert mine is known
    for other in (taped(b"data: a\n\n", b"data: c\n\n"), taped(b"data: a\n\n"), Cassette()):
        assert loads(text, name="x", like=other) == cassette


# ----------------------------------------------------------------------------------------------------------------- a big body

BIG = """
import json, sys
import filelock, httpx2
from stream_cassette import use
path, url, mode = sys.argv[1:]
httpx2.get(url.rpartition("/")[0] + "/small")
before, size = peak(), 0
with use(path, mode=mode) as tape:
    with httpx2.stream("GET", url) as response:
        for data in response.iter_raw():
            size += len(data)
print(json.dumps([size, (peak() - before) / size]))
"""

SMALL_READS = """
import json, sys
from pathlib import Path
import filelock
from stream_cassette.model import COMPLETE, Request
from stream_cassette.tape import Tape
tape = Tape(Path(sys.argv[1]), mode="all")
before, size = peak(), 0
take = tape.open(Request("GET", "https://example.org/"))
take.start(200, (("content-type", "text/event-stream"),))
for number in range(60_000):
    word = sys.argv[2] if number == 30_000 else f"word {number % 1000} "
    data = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}],"created":1764511511,"obfuscation":"%s"}\\n\\n' % (word.encode(), b"x" * 200)
    size += len(data)
    take.read(data)
take.end(COMPLETE)
tape.close()
print(json.dumps([size, (peak() - before) / size]))
"""

PROVIDER = """
import socket, sys
from stream_cassette import Reply, synthesize
from stream_cassette.model import TextPart
megabytes = int(sys.argv[1])
def events(dialect):
    streams = [synthesize(Reply((TextPart(f"word {number} "),), "stop", ended=True), dialect) for number in range(500)]
    return b"".join(frame.raw for stream in streams for frame in stream.frames if '"word' in str(frame.data))
PIECES = {
    "lines": b"".join(b'{"number":%d,"text":"%s"}\\n' % (number, b"lorem ipsum " * 20) for number in range(1000)),
    "openai-chat": events("openai-chat"),
    "bedrock-converse": events("bedrock-converse"),
    "small": b"",
}
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    client, _ = listener.accept()
    piece = PIECES[client.recv(65536).split()[1].decode().strip("/")]
    count = megabytes * 1_000_000 // len(piece) if piece else 0
    client.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % (count * len(piece)))
    for _ in range(count):
        client.sendall(piece)
    client.close()
"""


# The system's own figure for a process begins with that of the one that started it, whose memory it had until it was another program.
PEAK = """
def peak():
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def measured(script: str, *arguments: object) -> tuple[int, float]:
    """The size of a body, and the peak of memory beyond what the process had before, in sizes of the body."""
    command = [sys.executable, "-c", PEAK + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    size, peak = json.loads(done.stdout)
    return size, peak


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory as Linux counts it")
def test_a_long_body_is_recorded_and_replayed_in_bounded_memory(tmp_path: Path) -> None:
    provider = subprocess.Popen([sys.executable, "-c", PROVIDER, "20"], stdout=subprocess.PIPE)
    try:
        assert provider.stdout is not None
        url = f"http://127.0.0.1:{int(provider.stdout.readline())}"
        told = {}
        for name in ("lines", "openai-chat", "bedrock-converse"):
            path = tmp_path / f"{name}.yaml"
            size, recording = measured(BIG, path, f"{url}/{name}", "once")
            again, replaying = measured(BIG, path, f"{url}/{name}", "none")
            assert size == again > 19_000_000
            told[name] = recording, replaying
    finally:
        provider.kill()
        provider.wait()
        if provider.stdout is not None:
            provider.stdout.close()
    # The body itself, 10 MB of modules, and the pieces of the reply; what searches, writes and reads it back takes it piece by piece.
    for name, (recording, replaying) in told.items():
        assert recording < (2.0 if name == "lines" else 2.4), told
        assert replaying < (1.7 if name == "lines" else 2.0), told


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory as Linux counts it")
@pytest.mark.parametrize("said", ["no secret", "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"])
def test_a_body_in_small_reads_is_recorded_in_bounded_memory(said: str, tmp_path: Path) -> None:
    _, recording = measured(SMALL_READS, tmp_path / "x.yaml", said)
    assert recording < 2.5  # a read of 300 bytes takes 150 more
    assert said in (tmp_path / "x.yaml").read_text("utf-8") or said.startswith("sk-")

"""`stream-cassette scan`: secrets in files that others made, by file, line and kind."""

from __future__ import annotations

import base64
import errno
import gzip
import json
import os
import zlib
from pathlib import Path

import pytest
import yaml

from costs import calls_in
from stream_cassette.cassette import dumps
from stream_cassette.cli import main
from stream_cassette.errors import StreamCassetteError
from stream_cassette.framing import eventstream
from stream_cassette.model import Cassette, Exchange, FrameHeader, Interaction, Read
from stream_cassette.redact import scrub, secrets_of
from stream_cassette.scan import files_of, scan
from test_secrets import KINDS, answered, chunk, planted, texts

KEY = planted("openai project key").secret


def found(tmp_path: Path, text: str | bytes, name: str = "x.yaml", **options: object) -> list[tuple[int, str]]:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    findings = scan(path, **options)
    assert all(finding.file == str(path) for finding in findings)
    return [(finding.line, finding.kind) for finding in findings]


def line_of(text: str, needle: str) -> int:
    return text[: text.index(needle)].count("\n") + 1


def vcr(
    headers: dict[str, list[str]] | None = None,
    asked: object = "",
    said: object = "",
    url: str = "https://api.example.org/v1",
) -> str:
    """A cassette as VCR.py writes it."""
    request = {"body": asked, "headers": {"accept": ["*/*"], **(headers or {})}, "method": "POST", "uri": url}
    response = {
        "body": {"string": said},
        "headers": {"content-type": ["text/event-stream"]},
        "status": {"code": 200, "message": "OK"},
    }
    return yaml.dump({"interactions": [{"request": request, "response": response}], "version": 1})


# ------------------------------------------------------------------------------------------------------------- cassettes of VCR


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_of_any_kind_anywhere_in_a_cassette_of_vcr(kind: str, tmp_path: Path) -> None:
    it = planted(kind)
    stream = texts(it, 5)
    for cassette in (
        vcr(asked=json.dumps({"messages": [{"content": f"Use {it.carrier}"}]})),
        vcr(asked=json.dumps({"messages": [{"content": f"Use {it.carrier}"}]}).encode()),
        vcr(said=texts(it, 10_000).decode()),
        vcr(said=stream.decode()),
        vcr(said=stream),
        vcr(said=stream + b"\xff\xfe"),  # no text: YAML's binary
        vcr(said=gzip.compress(stream)),
        vcr(said=zlib.compress(stream)),
    ):
        hits = found(tmp_path, cassette)
        assert hits
        assert not [form for form in it.forms if form in repr(hits)]
    assert found(tmp_path, json.dumps(yaml.safe_load(vcr(said=stream.decode())), indent=2), "x.json")


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"authorization": ["anything at all"]}, "header authorization"),
        ({"Authorization": ["opaque"]}, "header Authorization"),
        ({"X-Api-Key": ["opaque"]}, "header X-Api-Key"),
        ({"api-key": ["opaque"]}, "header api-key"),
        ({"x-goog-api-key": ["opaque"]}, "header x-goog-api-key"),
        ({"cookie": ["a=b"]}, "header cookie"),
        ({"set-cookie": ["a=b; Path=/"]}, "header set-cookie"),
        ({"openai-organization": ["acme"]}, "header openai-organization"),
        ({"X-Amz-Security-Token": ["opaque"]}, "header X-Amz-Security-Token"),
    ],
)
def test_headers_by_their_name(headers: dict[str, list[str]], kind: str, tmp_path: Path) -> None:
    text = vcr(headers)
    assert found(tmp_path, text) == [(line_of(text, next(iter(headers.values()))[0]), kind)]
    as_json = json.dumps(yaml.safe_load(text), indent=1)
    assert found(tmp_path, as_json, "x.json") == [(line_of(as_json, next(iter(headers.values()))[0]), kind)]
    archive = json.dumps({"log": {"headers": [{"name": name, "value": value} for name, (value,) in headers.items()]}})
    assert found(tmp_path, archive, "x.har") == [(1, kind)]


@pytest.mark.parametrize(
    "value", ["", "REDACTED", "***", "Bearer **********************", "DUMMY", "<token>", "$TOKEN", "filtered"]
)
def test_headers_that_were_filtered(value: str, tmp_path: Path) -> None:
    assert found(tmp_path, vcr({"authorization": [value]})) == []


def test_fields_by_their_name(tmp_path: Path) -> None:
    assert found(tmp_path, "a:\n  client_secret: tops3cret\n  password: string\n  access_token: ab\n") == [
        (2, "field client_secret")
    ]
    assert found(tmp_path, '{"n": [1,\n {"password": "tops3cret"}]}', "x.json") == [(2, "password")]
    assert found(tmp_path, '{"dbPassword":\n\n"tops3cret"}', "x.json") == [(3, "password")]
    assert found(tmp_path, '{"password": [\n"tops3cret", "x"]}', "x.json") == [(2, "password")]


def test_lines(tmp_path: Path) -> None:
    assert found(tmp_path, f"a: 1\n# {KEY}\nb: 2\n") == [(2, "openai key")]
    assert found(tmp_path, f"a: |\n  x\n  {KEY}\n") == [(3, "openai key")]
    cut = [f'a: "x\\\n  {KEY[:60]}\\\n', f'  {KEY[60:]}"\n']
    assert found(tmp_path, "".join(["- 1\n- ", *cut]))
    stream = "".join(
        f"    data: {json.dumps({'choices': [{'delta': {'content': KEY[at : at + 9]}}]})}\n\n"
        for at in range(0, len(KEY), 9)
    )
    assert found(tmp_path, f"- 1\n- body:\n  - 2\n- string: |\n{stream}") == [(5, "openai key")]
    assert found(tmp_path, stream.replace("    data", "data"), "x.sse") == [(1, "openai key")]


def test_broken_and_odd_files(tmp_path: Path) -> None:
    assert found(tmp_path, f"a: [\n{KEY}") == [(2, "openai key")]
    assert found(tmp_path, f"{{\n{KEY}", "x.json") == [(2, "openai key")]
    assert found(tmp_path, b"\xff\xfe\x00" + KEY.encode(), "x.bin") == [(1, "openai key")]
    assert found(tmp_path, b"\xef\xbb\xbf" + json.dumps({"a": KEY}).encode(), "x.json") == [(1, "openai key")]
    assert found(tmp_path, "[" * 100_000, "x.json") == []
    assert found(tmp_path, "") == []
    assert found(tmp_path, f"a: &x [{KEY}]\nb: [*x, *x]\n? [1, 2]\n: 3\n") == [(1, "openai key")]
    assert found(tmp_path, 'a: "AAAAAAAAAAAAAAAAAAAAA"\n') == []  # nearly base64
    assert found(tmp_path, "a: customer-17\n", secrets=secrets_of(["customer: customer-\\d+"])) == [(1, "customer")]


# ---------------------------------------------------------------------------------------------------------- cassettes of ours


def test_cassettes_of_ours(tmp_path: Path) -> None:
    it = planted("github token")
    for body in (texts(it, 4), texts(it, 4) + b"\x00\xff", texts(it, 4).replace(b"\n", b"\r\n") + b"\x01\r\n"):
        exchange = answered(body)
        assert [kind for _, kind in found(tmp_path, dumps(Cassette((Interaction(exchange),))))] == ["github token"]
        assert found(tmp_path, dumps(Cassette((Interaction(scrub(exchange)),)))) == []


def test_binary_bodies_of_ours(tmp_path: Path) -> None:
    headers = [FrameHeader(":event-type", "contentBlockDelta"), FrameHeader(":message-type", "event")]
    payloads = [{"contentBlockIndex": 0, "delta": {"text": KEY[at : at + 20]}} for at in range(0, len(KEY), 20)]
    chunks = [
        {
            "bytes": base64.b64encode(
                json.dumps(
                    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", **payload["delta"]}}
                ).encode()
            ).decode()
        }
        for payload in payloads
    ]
    for said in (payloads, chunks):
        reads = tuple(Read(0, eventstream.encode(headers, json.dumps(payload).encode()).raw) for payload in said)
        exchange = Exchange(answered(b"").request, 200, (), reads)
        assert [kind for _, kind in found(tmp_path, dumps(Cassette((Interaction(exchange),))))] == ["openai key"]
        assert found(tmp_path, dumps(Cassette((Interaction(scrub(exchange)),)))) == []


def test_snapshots_of_ours(tmp_path: Path) -> None:
    assert found(tmp_path, f"format: 1\nsnapshots:\n- text: Use {KEY}.\n", "x.snap.yaml") == [(3, "openai key")]


# -------------------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "a/x.yaml": f"a: {KEY}\n",
        "a/b/y.txt": "nothing\n",
        "z.yaml": "a: customer-17\n",
        ".git/x": KEY,
        "__pycache__/x": KEY,
        ".env": KEY,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(folder), str(folder / "z.yaml")]) == 1
    assert (
        capsys.readouterr().out
        == f"{folder / 'a' / 'x.yaml'}:1: openai key\nfiles scanned: 3, secrets: 1, in files: 1\n"
    )
    assert main(["scan", str(folder / "z.yaml"), str(folder / "a" / "b")]) == 0
    assert capsys.readouterr().out == "files scanned: 2, no secrets\n"
    assert main(["scan", str(folder / "z.yaml"), "--secret", r"customer: customer-\d+", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == [{"file": str(folder / "z.yaml"), "line": 1, "kind": "customer"}]
    assert main(["scan", str(folder / ".env")]) == 1
    assert KEY not in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["nowhere"], [".", "--secret", "("]])
def test_what_the_command_cannot_do(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["scan", *arguments]) == 2
    assert capsys.readouterr().err.startswith("stream-cassette scan: ")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.mkdir()
    with pytest.raises(StreamCassetteError, match="cannot read the file"):
        scan(path)
    assert list(files_of([path])) == []


def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refused(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)  # whoever is root may read everything
    with pytest.raises(StreamCassetteError, match=r"cannot read the folder: Permission denied\n  where: .*closed"):
        list(files_of([tmp_path]))


def test_large_files_take_calls_in_proportion(tmp_path: Path) -> None:
    def cost(copies: int) -> int:
        text = vcr(said=b"".join([chunk({"content": " word "}) for _ in range(200)]).decode()).replace(
            "version: 1\n", ""
        )
        path = tmp_path / "x.yaml"
        path.write_text("interactions:\n" + text.replace("interactions:\n", "") * copies + f"- {KEY}\n" * copies)
        assert len(scan(path)) == copies
        return calls_in(lambda: scan(path))

    assert cost(40) < 5 * cost(10)


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "x.yaml")
    (tmp_path / "y.yaml").write_text("nothing")
    assert main(["scan", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "files scanned: 1, no secrets\n"

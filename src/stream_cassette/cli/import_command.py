"""`stream-cassette import`"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream_cassette.errors import StreamCassetteError

if TYPE_CHECKING:
    from stream_cassette.importing import Facts
    from stream_cassette.redact import Scrubbing

HELP = "turn recordings of VCR.py, pytest-recording and cassetter, HTTP archives and what curl prints into cassettes"
EPILOG = """\
examples:
  stream-cassette import tests/cassettes --to cassettes
  pytest --collect-only -q | stream-cassette import tests/cassettes --to cassettes --tests -
  stream-cassette import chat.har --to cassettes/chat.yaml
  curl -iN https://... -d @ask.json > got.txt
  stream-cassette import got.txt --to cassettes --url https://... --request-body ask.json

Secrets are replaced and headers left out as in a recording. Any test may play what is imported, unless --test names one.
--json prints a list of {file, format, to, interactions, left_out: [{place, why}], remarks, error}.

exit status: 0 all imported, 1 something was left out, 2 an error
"""

_RESPELLED = """\
some names may stand for tests that are named otherwise: pytest-recording writes - for much. If pytest misses cassettes, delete these and
import once more: pytest --collect-only -q | stream-cassette import ... --tests -"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="a recording, or a folder with some, whose tree is kept"
    )
    parser.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="DIR_OR_FILE",
        help="the folder for the cassettes; for one PATH also a *.yaml",
    )
    parser.add_argument("--format", choices=("vcr", "cassetter", "har", "raw"), default="", help="what each PATH is")
    parser.add_argument(
        "--tests",
        type=Path,
        metavar="FILE",
        help="the tests as `pytest --collect-only -q` lists them, to name their cassettes after them; - for standard input",
    )
    parser.add_argument("--test", metavar="NODEID", help="the test that alone may play it")
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="REGEX",
        help="also replace this; may be given as `name: regex`, and several times",
    )
    parser.add_argument("--force", action="store_true", help="write over cassettes that are there already")
    parser.add_argument("--json", action="store_true", help="print a list, a file each")
    raw = parser.add_argument_group("what a response by itself does not say")
    raw.add_argument("--url", default="", help="what was asked for")
    raw.add_argument("--method", default="POST", help="and how (default: POST)")
    raw.add_argument("--request-body", type=Path, metavar="FILE", help="and with what")
    raw.add_argument("--status", type=int, metavar="NUMBER", help="its status (default: as the file says, else 200)")
    raw.add_argument("--content-type", default="", metavar="TYPE", help="its content type (default: as its body looks)")


def run(options: argparse.Namespace) -> int:
    from stream_cassette.cli.terminal import print_json, progress
    from stream_cassette.importing import is_respelled, sources
    from stream_cassette.redact import Scrubbing, secrets_of

    scrubbing = Scrubbing(secrets_of(options.secret, "--secret"))
    facts = _facts(options)
    found = sources(options.paths, any_ending=options.format == "raw")
    if not found:
        raise StreamCassetteError(
            "no recordings there",
            where=", ".join(map(str, options.paths)),
            mend="name files, or folders that have some",
        )
    plan = _plan(options, found)
    done = [_imported(file, target, options, facts, scrubbing) for file, target in progress(plan, "importing")]
    if options.json:
        print_json(done)
    else:
        for each in done:
            _tell(each)
        _sum(done)
        if options.tests is None and any(is_respelled(below) for _, below in found):
            print(_RESPELLED)
    if any(each["error"] for each in done):
        return 2
    return 1 if any(each["left_out"] for each in done) else 0


def _facts(options: argparse.Namespace) -> Facts:
    from stream_cassette.importing import Facts

    body = b""
    if options.request_body is not None:
        try:
            body = options.request_body.read_bytes()
        except OSError as error:
            raise StreamCassetteError(
                f"cannot read the file: {error.strerror}", where=str(options.request_body), mend="name an existing one"
            ) from error
    return Facts(options.url, options.method, body, options.status, options.content_type)


def _plan(options: argparse.Namespace, found: list[tuple[Path, Any]]) -> list[tuple[Path, Path]]:
    """Each file and its target. Nothing is written where two would have the same, or one would be lost."""
    from stream_cassette.cli.choosing import read
    from stream_cassette.importing import names_in, targets_of

    one = options.to.suffix in (".yaml", ".yml") and not options.to.is_dir()
    if one and (len(options.paths) > 1 or options.paths[0].is_dir()):
        raise StreamCassetteError("one file cannot hold several", where=str(options.to), mend="name a folder: --to DIR")
    names = names_in(read(options.tests).decode(errors="replace").splitlines() if options.tests else ())
    plan = [
        (file, target)
        for file, below in found
        for target in ([options.to] if one else targets_of(options.to, below, names))
    ]
    taken: dict[Path, Path] = {file.resolve(): file for file, _ in plan}
    for file, target in plan:
        other = taken.setdefault(target.resolve(), file)
        if other is not file or file.resolve() == target.resolve():
            raise StreamCassetteError(
                f"the cassette of {file} would take the place of that of {other}"
                if other.resolve() != target.resolve()
                else f"the cassette of {file} would be written over {other}, which is to be imported",
                where=str(target),
                mend="import them one after the other, to different places",
            )
    return plan


def _imported(
    file: Path, target: Path, options: argparse.Namespace, facts: Facts, scrubbing: Scrubbing
) -> dict[str, Any]:
    """What became of one file, as `--json` prints it."""
    from stream_cassette.importing import read, save

    told: dict[str, Any] = {"file": str(file), "format": options.format, "to": None, "interactions": 0}
    told |= {"left_out": [], "remarks": [], "error": None}
    try:
        imported = read(file, format=options.format, facts=facts, scrubbing=scrubbing, test=options.test)
        told |= {"format": imported.format, "remarks": list(imported.remarks)}
        told["left_out"] = [{"place": each.place, "why": each.why} for each in imported.left_out]
        if imported.cassette.interactions:
            save(target, imported.cassette, force=options.force)
            told |= {"to": str(target), "interactions": len(imported.cassette.interactions)}
    except StreamCassetteError as error:
        told["error"] = str(error)
    return told


def _tell(told: dict[str, Any]) -> None:
    from stream_cassette.cli.terminal import terminal

    out = terminal()
    if told["error"]:
        print(f"stream-cassette import: {told['error']}", file=sys.stderr)
        return
    count = told["interactions"]
    became = f"{told['to']}: {count} exchange{'s' * (count != 1)}" if count else "nothing to import"
    out.text(f"{told['file']} ({told['format']}) -> {became}")
    for remark in told["remarks"]:
        out.text(f"  {remark}")
    for each in told["left_out"]:
        out.text(f"  left out: {each['place']}: {each['why']}")


def _sum(done: list[dict[str, Any]]) -> None:
    written = sum(each["to"] is not None for each in done)
    exchanges, left = (
        sum(counts) for counts in zip(*((each["interactions"], len(each["left_out"])) for each in done), strict=True)
    )
    failed = sum(each["error"] is not None for each in done)
    print(
        f"cassettes written: {written}, exchanges: {exchanges}, left out: {left}"
        + (f", errors: {failed}" if failed else "")
    )

"""`Cassette` → YAML text. Bodies and the outline are written here, small values by yaml's emitter."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from .. import framing
from ..errors import CassetteError
from ..literals import UNSAFE, Safety
from ..model import Cassette, Exchange, Headers, Interaction, Read, Request
from ..yamltext import DEEPEST_JSON, WIDTH, Block, dump, fits_yaml, literal

FORMAT = 1
"""The format that `dumps` writes and the newest that `loads` reads."""

PIECE = 1 << 20  # bytes of a block, and of an item of base64 after too many odd frames
_WRAPPED = re.compile(rf"(.{{1,{WIDTH - 11}}})(?: |\Z)")  # 11: the columns of `    reads: `
_FILLED_LINE = re.compile(rb"\n(?!\n|\Z)")  # the start of each line that is not blank
_BASE64_LINE = re.compile(r".{1,80}")
_MOST_ODD = 1000  # frames with an item each: nobody reads more of them, and each item costs a reader memory
_PLAIN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z|[a-z]+(?:-[a-z]+)+ [0-9][0-9a-z.+]*")


def dumps(cassette: Cassette) -> str:
    """The text of the cassette's file. Raises `CassetteError` for what no file can hold: a name with lone surrogates, values that are not JSON."""
    return b"".join(chunks(cassette)).decode()


def chunks(cassette: Cassette) -> Iterator[bytes]:
    """What `dumps` gives, as UTF-8 and in pieces, so that a long body is nowhere in memory a second time."""
    yield f"format: {FORMAT}\n{_recorded(cassette)}interactions:{'' if cassette.interactions else ' []'}\n".encode()
    for interaction in cassette.interactions:
        yield from _interaction(interaction)


def _recorded(cassette: Cassette) -> str:
    at, by = cassette.at, cassette.by
    if _PLAIN.fullmatch(at) and _PLAIN.fullmatch(by):
        return f"recorded: {{at: {at}, by: {by}}}\n"  # yaml would put the time in quotes
    return dump({"recorded": {"at": at, "by": by}}, "")


def _interaction(interaction: Interaction) -> Iterator[bytes]:
    exchange = interaction.exchange
    text = "" if interaction.test is None else dump({"test": interaction.test}, "  ")
    text += f"  request:\n{_request_text(exchange.request)}  response:\n{_response_text(exchange, interaction.dialect)}"
    yield f"- {text[2:]}".encode()
    yield from _response_body(exchange.reads)
    if interaction.assembled is not None:
        yield dump({"assembled": _assembled_value(interaction.assembled)}, "  ").encode()


def _request_text(request: Request) -> str:
    value = {"method": request.method, "url": request.url, "headers": _header_value(request.headers)}
    return dump(value, "    ") + (_request_body(request.body) if request.body else "")


def _request_body(body: bytes) -> str:
    value = _canonical_json(body)
    if value is not None and fits_yaml(value, DEEPEST_JSON):
        return dump({"json": Block(value) if isinstance(value, dict) else value}, "    ")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        if value is not None and json_bytes(json.loads(text := json.dumps(value))) == body:
            return dump({"json_text": text}, "    ")
        return f"    base64: {''.join(_base64(body, '      '))}"
    return dump({"text": text}, "    ") if UNSAFE.search(text) else f"    text: {literal(text, '      ')}"


def _canonical_json(body: bytes) -> Any:
    """The JSON object or array that `json_bytes` turns into exactly this body, or None."""
    try:
        value = json.loads(body.decode(errors="surrogatepass"))
        return value if isinstance(value, dict | list) and json_bytes(value) == body else None
    except (ValueError, RecursionError):
        return None


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _assembled_value(assembled: Mapping[str, Any]) -> dict[str, Any]:
    value = dict(assembled)
    if tuple(value) not in [("json_text",), ("base64",)] and fits_yaml(value, DEEPEST_JSON):
        return Block(value)
    try:
        if json.loads(text := json.dumps(value)) == value:
            return {"json_text": text}
        # The two halves of one character, joined from two fragments: JSON's escapes would make them one.
        if json.loads((raw := json_bytes(value)).decode(errors="surrogatepass")) == value:
            return {"base64": base64.b64encode(raw).decode()}
    except (TypeError, ValueError, RecursionError) as error:
        raise CassetteError(f"a value is not JSON, so no cassette can hold it: {error}") from error
    raise CassetteError("a value is not JSON, so no cassette can hold it: a tuple, NaN, or a key that is no string")


def _header_value(headers: Headers) -> object:
    grouped: dict[str, list[str]] = {}
    for name, value in headers:
        grouped.setdefault(name, []).append(value)
    if tuple((name, value) for name, values in grouped.items() for value in values) != headers:
        return [list(pair) for pair in headers]  # other fields stand between those of one name
    return {name: values[0] if len(values) == 1 else values for name, values in grouped.items()}


def _response_text(exchange: Exchange, dialect: str | None) -> str:
    value: dict[str, object] = {"status": exchange.status, "headers": _header_value(exchange.headers)}
    if dialect is not None:
        value["dialect"] = dialect
    value["ending"] = exchange.ending.kind
    if exchange.ending.error:
        value["error"] = exchange.ending.error
    if exchange.was:
        value["was"] = exchange.was
    reads = " ".join([f"{read.at_ms}:{len(read.data)}" for read in exchange.reads])
    wrapped = "\n      ".join(_WRAPPED.findall(reads)) or "''"
    return f"{dump(value, '    ')}    reads: {wrapped}\n"


def _response_body(reads: Sequence[Read]) -> Iterator[bytes]:
    if not reads:
        yield b"    body: ''\n"
        return
    crlf = _all_crlf(reads)
    if crlf:
        yield b"    newline: crlf\n"
    safety = Safety()
    if all(safety.passes(block) for block in _blocks(reads, crlf)) and safety.passes(b"", final=True):
        yield from _literal(_blocks(reads, crlf), ended=reads[-1].data.endswith(b"\n"))
        return
    yield b"    body:\n"
    for piece in _pieces(reads, crlf):
        yield piece.encode()


def _blocks(reads: Sequence[Read], crlf: bool) -> Iterator[bytes]:
    """The body in pieces of a usual size, line ends as LF where `crlf`."""
    waiting: list[bytes] = []
    size = 0
    for read in reads:
        waiting.append(read.data)
        size += len(read.data)
        if size >= PIECE and not read.data.endswith(b"\r"):
            yield _joined(waiting, crlf)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting, crlf)


def _joined(parts: list[bytes], crlf: bool) -> bytes:
    return b"".join(parts).replace(b"\r\n", b"\n") if crlf else b"".join(parts)


def _all_crlf(reads: Sequence[Read]) -> bool:
    if not any(b"\r" in read.data for read in reads):  # the usual case, and to count takes several times as long
        return False
    counts = [(block.count(b"\r\n"), block.count(b"\n"), block.count(b"\r")) for block in _blocks(reads, False)]
    pairs, line_feeds, returns = map(sum, zip(*counts, strict=True))
    return 0 < pairs == line_feeds == returns


def _literal(blocks: Iterator[bytes], *, ended: bool) -> Iterator[bytes]:
    """`literal` of a body that comes in blocks; `ended` says whether its last line has an end."""
    yield b"    body: |2+\n" if ended else b"    body: |2-\n"
    fresh = True
    for block in blocks:
        yield (b"      " if fresh and not block.startswith(b"\n") else b"") + _FILLED_LINE.sub(b"\n      ", block)
        fresh = block.endswith(b"\n")
    if not ended:
        yield b"\n"


def _even(raw: bytes) -> bool:
    """Whether every line end, if there are any, is CRLF."""
    return raw.count(b"\r\n") == raw.count(b"\n") == raw.count(b"\r")


def _piece_text(raw: bytes, crlf: bool) -> str | None:
    """The bytes as text, line ends as LF where `crlf`; None where that has no way back."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if not crlf:
        return text
    return text.replace("\r\n", "\n") if _even(raw) else None


def _pieces(reads: Sequence[Read], crlf: bool) -> Iterator[str]:
    """One item per odd frame and one per run of safe frames between them; after many odd ones the rest in base64."""
    safe: list[str] = []
    odd = 0
    decoder = framing.framed(read.data for read in reads)
    for frame in decoder:
        if odd == _MOST_ODD:
            yield from _safe_piece(safe)
            yield from _rest(chain((frame.raw,), (each.raw for each in decoder)))
            return
        text = _piece_text(frame.raw, crlf)
        if text is not None and not UNSAFE.search(text):
            safe.append(text)
            continue
        yield from _safe_piece(safe)
        safe = []
        odd += 1
        if text is None:
            yield from _base64_piece(frame.raw)
        else:
            yield f"    - {dump({'text': text}, '      ')[6:]}"
    yield from _safe_piece(safe)


def _rest(raw: Iterable[bytes]) -> Iterator[str]:
    waiting = bytearray()
    for each in raw:
        waiting += each
        if len(waiting) >= PIECE:
            yield from _base64_piece(bytes(waiting))
            waiting.clear()
    if waiting:
        yield from _base64_piece(bytes(waiting))


def _base64_piece(raw: bytes) -> Iterator[str]:
    yield "    - base64: "
    yield from _base64(raw, "        ")


def _safe_piece(texts: Sequence[str]) -> Iterator[str]:
    if text := "".join(texts):
        yield f"    - text: {literal(text, '        ')}"


def _base64(raw: bytes, pad: str) -> Iterator[str]:
    size = 60 * 1024  # of lines with 80 characters
    for at in range(0, len(raw), size):
        lines = _BASE64_LINE.findall(base64.b64encode(raw[at : at + size]).decode())
        yield ("'" if at == 0 else f"\n{pad}") + f"\n{pad}".join(lines)
    yield "'\n"

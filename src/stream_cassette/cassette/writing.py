"""`Cassette` → YAML text. Bodies and the outline are written here, small values by yaml's emitter."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import framing
from ..errors import CassetteError
from ..model import Cassette, Exchange, Headers, Interaction, Request
from ..yamltext import DEEPEST_JSON, UNSAFE, WIDTH, Block, dump, fits_yaml, literal

FORMAT = 1
"""The format that `dumps` writes and the newest that `loads` reads."""

_WRAPPED = re.compile(rf"(.{{1,{WIDTH - 11}}})(?: |\Z)")  # 11: the columns of `    reads: `
_BASE64_LINE = re.compile(r".{1,80}")
_PLAIN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z|[a-z]+(?:-[a-z]+)+ [0-9][0-9a-z.+]*")


def dumps(cassette: Cassette) -> str:
    """The text of the cassette's file. Raises `CassetteError` for what no file can hold: a name with lone surrogates, values that are not JSON."""
    head = f"format: {FORMAT}\n{_recorded(cassette)}"
    if not cassette.interactions:
        return f"{head}interactions: []\n"
    return f"{head}interactions:\n{''.join(map(_interaction_text, cassette.interactions))}"


def _recorded(cassette: Cassette) -> str:
    at, by = cassette.at, cassette.by
    if _PLAIN.fullmatch(at) and _PLAIN.fullmatch(by):
        return f"recorded: {{at: {at}, by: {by}}}\n"  # yaml would put the time in quotes
    return dump({"recorded": {"at": at, "by": by}}, "")


def _interaction_text(interaction: Interaction) -> str:
    exchange = interaction.exchange
    text = "" if interaction.test is None else dump({"test": interaction.test}, "  ")
    text += f"  request:\n{_request_text(exchange.request)}  response:\n{_response_text(exchange, interaction.dialect)}"
    if interaction.assembled is not None:
        text += dump({"assembled": _assembled_value(interaction.assembled)}, "  ")
    return f"- {text[2:]}"


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
        return f"    base64: {_base64(body, '      ')}"
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
    reads = " ".join([f"{read.at_ms}:{len(read.data)}" for read in exchange.reads])
    wrapped = "\n      ".join(_WRAPPED.findall(reads)) or "''"
    return f"{dump(value, '    ')}    reads: {wrapped}\n{_response_body(exchange.body)}"


def _response_body(body: bytes) -> str:
    if not body:
        return "    body: ''\n"
    crlf = b"\n" in body and _even(body)
    newline = "    newline: crlf\n" if crlf else ""
    text = _piece_text(body, crlf)
    if text is not None and not UNSAFE.search(text):
        return f"{newline}    body: {literal(text, '      ')}"
    return f"{newline}    body:\n{''.join(_pieces(body, crlf))}"


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


def _pieces(body: bytes, crlf: bool) -> Iterator[str]:
    """One item per odd frame and one per run of safe frames between them."""
    safe: list[str] = []
    for frame in framing.frames(body):
        text = _piece_text(frame.raw, crlf)
        if text is not None and not UNSAFE.search(text):
            safe.append(text)
            continue
        yield from _safe_piece(safe)
        safe = []
        odd = f"base64: {_base64(frame.raw, '        ')}" if text is None else dump({"text": text}, "      ")[6:]
        yield f"    - {odd}"
    yield from _safe_piece(safe)


def _safe_piece(texts: Sequence[str]) -> Iterator[str]:
    if text := "".join(texts):
        yield f"    - text: {literal(text, '        ')}"


def _base64(raw: bytes, pad: str) -> str:
    lines = _BASE64_LINE.findall(base64.b64encode(raw).decode())
    return "'" + f"\n{pad}".join(lines) + "'\n"

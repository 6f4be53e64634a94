"""`Cassette` → YAML text. Bodies and the outline are written here, small values by yaml's emitter."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from yaml.nodes import Node

from .. import framing
from ..errors import CassetteError
from ..model import Cassette, Exchange, Headers, Interaction, Request

try:
    from yaml import CSafeDumper as _YamlDumper
except ImportError:  # PyYAML without libyaml: the same files, slower
    from yaml import SafeDumper as _YamlDumper  # type: ignore[assignment]

FORMAT = 1
"""The format that `dumps` writes and the newest that `loads` reads."""

JSON_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)\Z|-?\.inf\Z|\.nan\Z")

_DEEPEST_JSON = 64  # levels of a JSON value written as YAML; deeper ones are written as JSON text
_WIDEST_INT = 10_000  # bits, well below the digits that Python converts
_WIDTH = 100  # columns

# No place in a YAML literal, or invisible in one: a parser refuses it, takes it for a line end, or an editor loses it.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
# What goes into a literal of yaml's emitter; libyaml ends the whole document after one with blank lines at its end.
_PARAGRAPHS = re.compile(r"[^ \n](?s:.*[^\n])?\n?")
_PRIVATE = range(0xE000, 0xF900)
_OWN_PRIVATE = re.compile("[\ue000-\uf8ff]")
_ESCAPED = re.compile(r"\\U([0-9A-F]{8})")
_FILLED_LINE = re.compile(r"\n(?!\n|\Z)")  # the start of each line that is not blank
_WRAPPED = re.compile(rf"(.{{1,{_WIDTH - 11}}})(?: |\Z)")  # 11: the columns of `    reads: `
_BASE64_LINE = re.compile(r".{1,80}")
_PLAIN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z|[a-z]+(?:-[a-z]+)+ [0-9][0-9a-z.+]*")


class _Block(dict[str, Any]):
    """A mapping that is written with one line per key even where all values are short."""


class _Dumper(_YamlDumper):
    stand_ins: Mapping[int, int]

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def block(self, data: _Block) -> Node:
        return self.represent_mapping("tag:yaml.org,2002:map", data, flow_style=False)

    def text(self, data: str) -> Node:
        style = None
        data = data.translate(self.stand_ins) if self.stand_ins else data
        if "\n" in data or _UNSAFE.search(data):
            style = "|" if _PARAGRAPHS.fullmatch(data) and not _UNSAFE.search(data) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


# YAML 1.1's resolvers decide what must be quoted, so that other tools read our strings as strings too. Two differences: dates need no quotes
# here, and what JSON takes for a number (1e5) does.
_Dumper.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in pairs if not tag.endswith(":timestamp")]
    for first, pairs in _YamlDumper.yaml_implicit_resolvers.items()
}
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", JSON_FLOAT, list("-0123456789."))
_Dumper.add_representer(_Block, _Dumper.block)
_Dumper.add_representer(str, _Dumper.text)


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
    return _yaml({"recorded": {"at": at, "by": by}}, "")


def _interaction_text(interaction: Interaction) -> str:
    exchange = interaction.exchange
    text = "" if interaction.test is None else _yaml({"test": interaction.test}, "  ")
    text += f"  request:\n{_request_text(exchange.request)}  response:\n{_response_text(exchange, interaction.dialect)}"
    if interaction.assembled is not None:
        text += _yaml({"assembled": _assembled_value(interaction.assembled)}, "  ")
    return f"- {text[2:]}"


def _request_text(request: Request) -> str:
    value = {"method": request.method, "url": request.url, "headers": _header_value(request.headers)}
    return _yaml(value, "    ") + (_request_body(request.body) if request.body else "")


def _request_body(body: bytes) -> str:
    value = _canonical_json(body)
    if value is not None and _fits_yaml(value, _DEEPEST_JSON):
        return _yaml({"json": _Block(value) if isinstance(value, dict) else value}, "    ")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        if value is not None and json_bytes(json.loads(text := json.dumps(value))) == body:
            return _yaml({"json_text": text}, "    ")
        return f"    base64: {_base64(body, '      ')}"
    return _yaml({"text": text}, "    ") if _UNSAFE.search(text) else f"    text: {_literal(text, '      ')}"


def _canonical_json(body: bytes) -> Any:
    """The JSON object or array that `json_bytes` turns into exactly this body, or None."""
    try:
        value = json.loads(body.decode(errors="surrogatepass"))
        return value if isinstance(value, dict | list) and json_bytes(value) == body else None
    except (ValueError, RecursionError):
        return None


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _fits_yaml(value: Any, room: int) -> bool:
    """Whether YAML can carry the value: JSON, no lone surrogates, not nested deeper than `room`."""
    kind = type(value)
    if kind is str:
        return not _SURROGATE.search(value)
    if kind is dict:
        return room > 0 and all(
            type(k) is str and _fits_yaml(k, 0) and _fits_yaml(v, room - 1) for k, v in value.items()
        )
    if kind is list:
        return room > 0 and all(_fits_yaml(item, room - 1) for item in value)
    if kind is int:
        return bool(value.bit_length() < _WIDEST_INT)
    return value is None or kind is bool or (kind is float and not math.isnan(value))


def _assembled_value(assembled: Mapping[str, Any]) -> dict[str, Any]:
    value = dict(assembled)
    if tuple(value) not in [("json_text",), ("base64",)] and _fits_yaml(value, _DEEPEST_JSON):
        return _Block(value)
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
    return f"{_yaml(value, '    ')}    reads: {wrapped}\n{_response_body(exchange.body)}"


def _response_body(body: bytes) -> str:
    if not body:
        return "    body: ''\n"
    crlf = b"\n" in body and _even(body)
    newline = "    newline: crlf\n" if crlf else ""
    text = _piece_text(body, crlf)
    if text is not None and not _UNSAFE.search(text):
        return f"{newline}    body: {_literal(text, '      ')}"
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
        if text is not None and not _UNSAFE.search(text):
            safe.append(text)
            continue
        yield from _safe_piece(safe)
        safe = []
        odd = f"base64: {_base64(frame.raw, '        ')}" if text is None else _yaml({"text": text}, "      ")[6:]
        yield f"    - {odd}"
    yield from _safe_piece(safe)


def _safe_piece(texts: Sequence[str]) -> Iterator[str]:
    if text := "".join(texts):
        yield f"    - text: {_literal(text, '        ')}"


def _literal(text: str, pad: str) -> str:
    """A literal block of a text without unsafe characters, `pad` being two columns more than its key's.

    `+` keeps the final line ends, `-` says that there is none.
    """
    filled = _indented(f"\n{text}", pad)
    return f"|2+{filled}" if text.endswith("\n") else f"|2-{filled}\n"


def _indented(text: str, pad: str) -> str:
    return _FILLED_LINE.sub(f"\n{pad}", text)


def _base64(raw: bytes, pad: str) -> str:
    lines = _BASE64_LINE.findall(base64.b64encode(raw).decode())
    return "'" + f"\n{pad}".join(lines) + "'\n"


def _yaml(value: Mapping[str, object], pad: str) -> str:
    """Block YAML of a mapping, every line behind `pad`; mappings and lists of nothing but short values stand on one line."""
    text = _emitted(value, {})
    # libyaml's emitter escapes emoji. Where it did, it is shown private characters in their place, if the text has none of its own.
    astral = {code for code in (int(digits, 16) for digits in _ESCAPED.findall(text)) if code <= sys.maxunicode}
    if astral and len(astral) <= len(_PRIVATE) and not _OWN_PRIVATE.search(text):
        private = dict(zip(sorted(astral), _PRIVATE, strict=False))
        text = _emitted(value, private).translate({stand_in: code for code, stand_in in private.items()})
    return _indented(f"\n{text}", pad)[1:]


def _emitted(value: Mapping[str, object], stand_ins: Mapping[int, int]) -> str:
    out = io.StringIO()
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": _WIDTH, "default_flow_style": None}
    dumper = _Dumper(out, **options)
    dumper.stand_ins = stand_ins
    try:
        dumper.open()
        dumper.represent(_Block(value))
        dumper.close()
    except UnicodeEncodeError as error:
        raise CassetteError(f"a text with lone surrogates cannot be written: {error.object[:80]!r}") from error
    finally:
        dumper.dispose()
    return out.getvalue()

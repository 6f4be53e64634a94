"""`stream-cassette scan`: secrets in files that others made. Cassettes of this package and of VCR are read as such, any other file as text."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .errors import StreamCassetteError
from .redact import (
    NO_MORE,
    Secrets,
    is_harmless,
    is_replaced,
    is_secret_field,
    is_secret_header,
    scrub_body,
    strings_in,
)
from .yamltext import Fault, Loader

_SKIPPED = frozenset(("__pycache__", "node_modules"))
_SHORTEST_NAMED = 6
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{16,}=*\s*")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A secret in a file: `kind` says what, `line` (from 1) where it stands or where the value begins that holds it. Never the secret."""

    file: str
    line: int
    kind: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}"


def files_of(paths: Iterable[Path]) -> Iterator[Path]:
    """The files named, and those in the folders named, but for hidden ones. `StreamCassetteError` for a path that does not exist or cannot be read."""
    for path in paths:
        if path.is_dir():
            for folder, folders, names in os.walk(path, onerror=_refuse):
                folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
                yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))
        elif path.exists():
            yield path
        else:
            raise StreamCassetteError("there is no such file or folder", where=str(path), mend="name an existing one")


def _refuse(error: OSError) -> None:
    """`os.walk` would leave out what it cannot read, as if nothing were in it."""
    raise StreamCassetteError(f"cannot read the folder: {error.strerror}", where=str(error.filename)) from error


def scan(path: Path, secrets: Secrets = NO_MORE) -> list[Finding]:
    """The secrets in a file, by line. `StreamCassetteError` where it cannot be read. Time is linear in its size."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StreamCassetteError(f"cannot read the file: {error.strerror}", where=str(path)) from error
    return sorted({Finding(str(path), line, kind) for line, kind in _found(data, path.suffix.lower(), secrets)})


def _found(data: bytes, suffix: str, secrets: Secrets) -> list[tuple[int, str]]:
    found = [(each.line + 1, each.kind) for each in scrub_body(data, secrets)[1]]
    for value in _values(data, suffix):
        name, inside = _by_name(value), _in_value(value, secrets)
        if name or inside:
            # What stands there in plain sight was found with its own line.
            known = {kind for line, kind in found if value.line <= line <= value.last}
            found += [(line, kind) for line, kind in inside if kind not in known]
            found += [(value.line, name)] if name and not known and not inside else []
    return found


def _values(data: bytes, suffix: str) -> list[_Value]:
    """The texts in a structured file; none where it is broken."""
    try:
        if suffix in (".yaml", ".yml"):
            return list(_yaml_values(_root(data), _Place(), set()))
        if suffix in (".json", ".har"):
            return list(_json_values(data.decode("utf-8-sig")))
    except (yaml.YAMLError, Fault, RecursionError, ValueError):
        pass
    return []


# --------------------------------------------------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: the names on the way to it."""

    names: tuple[str, ...] = ()

    def under(self, name: str) -> _Place:
        return _Place((*self.names[-3:], name))

    @property
    def name(self) -> str:
        return self.names[-1] if self.names else ""

    @property
    def is_header(self) -> bool:
        return len(self.names) > 1 and self.names[-2].lower() == "headers"


@dataclass(frozen=True, slots=True)
class _Value:
    """A text in a file, from `line` to `last`. `text_line` is the line of its first character where its lines are those of the file, else 0."""

    text: str
    place: _Place
    line: int
    last: int
    text_line: int = 0


def _root(data: bytes) -> Node | None:
    loader = Loader(data)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _yaml_values(node: Node | None, place: _Place, seen: set[int]) -> Iterator[_Value]:
    if node is None or id(node) in seen:
        return  # an alias
    seen.add(id(node))
    line, last = node.start_mark.line + 1, node.end_mark.line + 1
    match node:
        case ScalarNode():
            is_literal = node.style == "|" and not node.tag.endswith(":binary")
            yield _Value(node.value, place, line, last, line + 1 if is_literal else 0)
        case SequenceNode():
            if pieces := _pieces(node):
                yield _Value(pieces, place, line, last)
            for item in node.value:
                yield from _yaml_values(item, place, seen)
        case _:
            for key, value in node.value:
                yield from _yaml_values(value, place.under(str(key.value)), seen)


def _pieces(node: SequenceNode) -> str:
    """A body of ours in pieces, put together; as base64, because a binary one is no text. Empty for any other list."""
    parts: list[bytes] = []
    for item in node.value:
        match item:
            case MappingNode(value=[(ScalarNode(value="text"), ScalarNode(value=str(text)))]):
                parts.append(text.encode("utf-8", "surrogatepass"))
            case MappingNode(value=[(ScalarNode(value="base64"), ScalarNode(value=str(text)))]):
                parts.append(_unpacked(text) or b"")
            case _:
                return ""
    return base64.b64encode(b"".join(parts)).decode()


def _json_values(text: str) -> Iterator[_Value]:
    """The texts of a JSON document, with their lines: strings come in the same order when it is parsed."""
    places = list(_walk(json.loads(text, object_pairs_hook=_Pairs), _Place()))
    strings = strings_in(text)
    line, done = 1, 0
    for (value, place), (start, end) in zip(places, strings, strict=False):
        line += text.count("\n", done, start)
        done = start
        if place is not None:
            yield _Value(value, place, line, line + text.count("\n", start, end))


class _Pairs(list[tuple[str, Any]]):
    """A JSON object, with keys that are there twice."""


def _walk(value: Any, place: _Place) -> Iterator[tuple[str, _Place | None]]:
    """Every string in order; keys without a place."""
    match value:
        case str():
            yield value, place
        case _Pairs():
            fields = dict(value)
            for key, inner in value:
                yield key, None
                # HTTP archives list headers as {name: ..., value: ...}.
                named = key == "value" and isinstance(fields.get("name"), str)
                yield from _walk(inner, place.under(fields["name"]) if named else place.under(key))
        case list():
            for inner in value:
                yield from _walk(inner, place)


# --------------------------------------------------------------------------------------------------------------- in one value


def _by_name(value: _Value) -> str:
    """What makes the value a secret whatever it looks like; empty where nothing does."""
    name, text = value.place.name, value.text
    secret = text.rpartition(" ")[2]  # behind the name of a scheme
    if not text or is_replaced(secret) or is_harmless(text) or is_harmless(secret):
        return ""
    if value.place.is_header:
        return f"header {name}" if is_secret_header(name) else ""
    return f"field {name}" if is_secret_field(name) and len(text) >= _SHORTEST_NAMED else ""


def _in_value(value: _Value, secrets: Secrets) -> list[tuple[int, str]]:
    said = scrub_body(value.text.encode("utf-8", "surrogatepass"), secrets)[1]
    found = [(value.text_line + each.line if value.text_line else value.line, each.kind) for each in said]
    inner = _unpacked(value.text)
    return found + ([(value.line, each.kind) for each in scrub_body(inner, secrets)[1]] if inner else [])


def _unpacked(text: str) -> bytes | None:
    """What base64 holds, and that without its compression; None for what is no base64."""
    if not _BASE64.fullmatch(text):
        return None
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        return None
    for decompress in (gzip.decompress, zlib.decompress):
        with suppress(OSError, EOFError, zlib.error):
            return decompress(data)
    return data

"""Others' YAML, TOML and JSON as plain values. Nothing in a file can make an object, run code, or grow beyond what it takes to write it out."""

from __future__ import annotations

import base64
import tomllib
from typing import Any

from yaml.nodes import MappingNode, Node, SequenceNode

from .. import jsontext, yamltext
from ..errors import CassetteError
from ..yamltext import Fault, value_of

_PLAIN = frozenset(("str", "int", "float", "bool", "null"))
_YAML = "tag:yaml.org,2002:"
_TEXTS = frozenset(f"{_YAML}{name}" for name in ("str", "python/str", "python/unicode"))
_BINARY = f"{_YAML}binary"
_LISTS = frozenset(("list", f"{_YAML}python/tuple"))
# What VCR writes for request bodies that were files or iterators: the key whose first item is what they held.
_WRAPPED = {
    f"{_YAML}python/object/new:_io.BytesIO": "state",
    f"{_YAML}python/object/apply:builtins.iter": "args",
}
_OPENING = b"interactions:"  # of a cassette of VCR, which need not have an ending
_BEGUN = object()


def value_in(data: bytes, name: str, *, is_yaml: bool = False) -> Any:
    """The plain value of a YAML or TOML file, by the ending of its `name` or its first word, or of what is JSON; None for anything else.

    `is_yaml`: what has no such ending is YAML, unless it is JSON. `!!binary` is bytes. Raises `CassetteError` for a YAML or TOML file that is broken or holds more than data.
    """
    ending = name.lower().rpartition(".")[2]
    if ending in ("yaml", "yml"):
        return _yaml(data, name)
    if ending == "toml":
        try:
            return tomllib.loads(data.decode())
        except (ValueError, RecursionError) as error:
            raise CassetteError(f"not TOML: {error}", where=name, mend="restore it and try again") from None
    text = data.removeprefix(b"\xef\xbb\xbf")
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            return jsontext.parse(text)
        except ValueError:
            return None  # maybe a JSON value a line
    return _yaml(data, name) if is_yaml or data.startswith(_OPENING) else None


def _yaml(data: bytes, name: str) -> Any:
    return yamltext.read(data, name, lambda root: root and _value(root, {}), again="restore it and try again")


def _value(node: Node, seen: dict[int, Any]) -> Any:
    """An alias gives the very value that it stands for, not a copy."""
    known = seen.setdefault(id(node), _BEGUN)
    if known is not _BEGUN:
        return known
    value = _collection(node, seen) if isinstance(node, MappingNode | SequenceNode) else _scalar(node)
    seen[id(node)] = value
    return value


def _collection(node: Node, seen: dict[int, Any]) -> Any:
    children = [part for each in node.value for part in (each if isinstance(node, MappingNode) else [each])]
    if any(seen.get(id(child)) is _BEGUN for child in children):
        raise Fault("an alias (*) stands within what it names", node)
    if node.tag in _LISTS and isinstance(node, SequenceNode):
        return [_value(item, seen) for item in node.value]
    if node.tag == "mapping":
        return {str(key.value): _value(value, seen) for key, value in node.value}
    if node.tag in _WRAPPED:
        held = {str(key.value): _value(value, seen) for key, value in node.value}.get(_WRAPPED[node.tag])
        return held[0] if isinstance(held, list) and held else b""
    raise _unknown(node)


def _scalar(node: Node) -> Any:
    if node.tag in _PLAIN:
        value = value_of(node)
        return value if value is None or isinstance(value, int | float) else str(value)
    if node.tag in _TEXTS:
        return str(node.value)
    if node.tag == _BINARY:
        try:
            return base64.b64decode("".join(node.value.split()), validate=True)
        except ValueError as error:
            raise Fault(f"not base64: {error}", node) from None
    raise _unknown(node)


def _unknown(node: Node) -> Fault:
    return Fault(
        f"the tag {node.tag} makes an object of Python, and an import makes none",
        node,
        "if VCR before 1.0 wrote the file: python -m vcr.migration FILE, and import it then",
    )

"""Record a streamed LLM reply once, replay it byte for byte, and check what your code assembles from it.

Names are imported when they are first used, so that pytest can load the plugin without loading the toolkit.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .assembler import Assembler, aassemble, assemble
    from .clients import use
    from .dialects import register_dialect
    from .extraction import Partial, aextract, extract
    from .model import Reply, ToolCall, Usage
    from .server import serve
    from .stream import Stream, synthesize, transcode
    from .tape import Tape
    from .usage import estimate_usage

__all__ = [
    "Assembler",
    "Partial",
    "Reply",
    "Stream",
    "Tape",
    "ToolCall",
    "Usage",
    "aassemble",
    "aextract",
    "assemble",
    "estimate_usage",
    "extract",
    "register_dialect",
    "serve",
    "synthesize",
    "transcode",
    "use",
]

_HOME = {
    "Assembler": "assembler",
    "Partial": "extraction",
    "Reply": "model",
    "Stream": "stream",
    "Tape": "tape",
    "ToolCall": "model",
    "Usage": "model",
    "aassemble": "assembler",
    "aextract": "extraction",
    "assemble": "assembler",
    "estimate_usage": "usage",
    "extract": "extraction",
    "register_dialect": "dialects",
    "serve": "server",
    "synthesize": "stream",
    "transcode": "stream",
    "use": "clients",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pytest-stream-cassette")
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

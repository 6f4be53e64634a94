"""Record a streamed LLM reply once, replay it byte for byte, and check what your code assembles from it.

Names are imported when they are first used, so that pytest can load the plugin without loading the toolkit.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .assembler import Assembler, aassemble, assemble
    from .clients import use
    from .model import Reply, ToolCall, Usage
    from .server import serve
    from .stream import Stream, synthesize
    from .tape import Tape

__all__ = [
    "Assembler",
    "Reply",
    "Stream",
    "Tape",
    "ToolCall",
    "Usage",
    "aassemble",
    "assemble",
    "serve",
    "synthesize",
    "use",
]

_HOME = {
    "Assembler": "assembler",
    "Reply": "model",
    "Stream": "stream",
    "Tape": "tape",
    "ToolCall": "model",
    "Usage": "model",
    "aassemble": "assembler",
    "assemble": "assembler",
    "serve": "server",
    "synthesize": "stream",
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

"""The table of wire dialects, and which of them a payload speaks."""

from __future__ import annotations

from contextlib import ExitStack

from ..errors import DialectError, UnknownDialect
from .anthropic import Anthropic
from .base import Dialect, Hint, problem_of
from .bedrock_converse import BedrockConverse
from .bedrock_invoke import BedrockInvoke
from .cohere import Cohere
from .gemini import Gemini
from .gemini_interactions import GeminiInteractions
from .ollama import Ollama
from .openai_chat import OpenAIChat
from .openai_completions import OpenAICompletions
from .openai_responses import OpenAIResponses
from .tool_events import ToolEvents

DIALECTS: tuple[Dialect, ...] = (
    OpenAIChat(),
    OpenAIResponses(),
    OpenAICompletions(),
    Anthropic(),
    Gemini(),
    GeminiInteractions(),
    BedrockConverse(),
    BedrockInvoke(),
    Cohere(),
    Ollama(),
    ToolEvents(),
)
"""The built-in dialects; `dialects()` gives those that were registered too."""


# The one piece of state that this package keeps at module level: what users registered, the newest first.
_registered: list[Dialect] = []


def dialects() -> tuple[Dialect, ...]:
    """Every dialect: those that were registered, the newest first, then the built-in ones."""
    return (*_registered, *DIALECTS)


def dialect(name: str) -> Dialect:
    """The dialect called `name`. `UnknownDialect` lists the known names."""
    for each in dialects():
        if each.name == name:
            return each
    raise UnknownDialect(
        f"there is no dialect {name!r}",
        mend=f"one of {', '.join(each.name for each in dialects())}, or register_dialect(...) your own",
    )


def detect(hint: Hint) -> Dialect | None:
    """The dialect that is surest of the payload, or None where none knows it. Among equals one that was registered wins."""
    best: Dialect | None = None
    most = 0
    for each in dialects():
        if (sure := each.recognise(hint)) > most:
            best, most = each, sure
    return best


def register_dialect(dialect: Dialect) -> ExitStack:
    """Add a dialect of your own: it is recognised, assembled, synthesised, transcoded, recorded and mutated like the built-in ones.

    `dialect` has every member of `dialects.base.Dialect`; `DialectError` names the first that is missing or odd, or a name that is taken. It stays
    until the process ends, or until what is returned is closed or left: `with register_dialect(...):` in a test.
    """
    if problem := problem_of(dialect):
        raise DialectError(
            f"{dialect!r} is no dialect: {problem}",
            mend="stream_cassette.dialects.base.Dialect says what each member is",
        )
    if any(each.name == dialect.name for each in dialects()):
        raise DialectError(
            f"there is a dialect {dialect.name!r} already",
            mend="choose another name, or close what register_dialect(...) returned for the other one",
        )
    _registered.insert(0, dialect)
    registration = ExitStack()
    registration.callback(_registered.remove, dialect)
    return registration

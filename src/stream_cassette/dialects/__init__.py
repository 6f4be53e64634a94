"""The table of wire dialects, and which of them a payload speaks."""

from __future__ import annotations

from ..errors import UnknownDialect
from .anthropic import Anthropic
from .base import Dialect, Hint
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


def dialect(name: str) -> Dialect:
    """The dialect called `name`. `UnknownDialect` lists the known names."""
    for each in DIALECTS:
        if each.name == name:
            return each
    raise UnknownDialect(f"there is no dialect {name!r}", mend=f"one of {', '.join(each.name for each in DIALECTS)}")


def detect(hint: Hint) -> Dialect | None:
    """The dialect that is surest of the payload, or None where none knows it."""
    best = max(DIALECTS, key=lambda each: each.recognise(hint))
    return best if best.recognise(hint) > 0 else None

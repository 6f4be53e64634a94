"""How real servers spell OpenAI's legacy text completions otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from .base import Spelling
from .openai_chat_quirks import CHUNKS
from .openai_chunks import choices_of, each_choice, finishes
from .spelling import EVENT_STREAM, Payload, data_after_done, on_payloads


def _no_text_at_end(choice: Payload) -> None:
    if choice.get("finish_reason") and choice.get("text") == "":
        del choice["text"]


def _no_logprobs(choice: Payload) -> None:
    if "logprobs" in choice and choice["logprobs"] is None:
        del choice["logprobs"]


def _finish_apart(payloads: list[Payload]) -> list[list[Payload]]:
    """The finish reason in a chunk with an empty text."""
    out = []
    for payload in payloads:
        choices = choices_of(payload)
        if finishes(payload) and len(choices) == 1 and choices[0].get("text"):
            first = {name: value for name, value in payload.items() if name != "usage"}
            out.append([{**first, "choices": [{**choices[0], "finish_reason": None}]}, payload])
            choices[0]["text"] = ""
        else:
            out.append([payload])
    return out


_OTHERS = ("x-groq-usage", "object-missing")  # these name a chat stream

QUIRKS: Mapping[str, Spelling] = {
    **{name: spelling for name, spelling in CHUNKS.items() if name not in _OTHERS},
    "text-missing-at-end": Spelling("some finish without `text`; KeyError", each_choice(_no_text_at_end)),
    "logprobs-missing": Spelling("most servers leave out `logprobs: null`; KeyError", each_choice(_no_logprobs)),
    "finish-apart": Spelling(
        "vLLM sends the finish reason with an empty text; readers take it for an empty answer",
        on_payloads(_finish_apart),
    ),
    "data-after-done": data_after_done(
        lambda frame: frame.data == "[DONE]", lambda payload: any(choice.get("text") for choice in choices_of(payload))
    ),
    **EVENT_STREAM,
}

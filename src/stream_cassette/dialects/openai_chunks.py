"""Looks at and changes of OpenAI's chunks, for the quirks of those who send them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import as_dict, as_list
from .spelling import Payload, Rewrite, each, on_payloads

_OWN = ("choices", "usage", "x_groq", "error")


def choices_of(payload: Payload) -> list[Payload]:
    return [choice for choice in as_list(payload.get("choices")) if isinstance(choice, dict)]


def said_by(payload: Payload) -> set[str]:
    """The fields with a value in the deltas of a chunk."""
    deltas = [as_dict(choice.get("delta")) for choice in choices_of(payload)]
    return {name for delta in deltas for name, value in delta.items() if value}


def says_nothing(payload: Payload) -> bool:
    """Is it a chunk in which no choice says anything?"""
    choices = choices_of(payload)
    ends = any(choice.get("finish_reason") or choice.get("message") for choice in choices)
    return bool(choices) and not said_by(payload) and not ends and not any(payload.get(name) for name in _OWN[1:])


def finishes(payload: Payload) -> bool:
    return any(choice.get("finish_reason") for choice in choices_of(payload))


def beside(payload: Payload, **fields: Any) -> Payload:
    """Another chunk of the same response."""
    return {**{name: value for name, value in payload.items() if name not in _OWN}, **fields}


def opened(payload: Payload, choice: Payload, delta: Payload) -> Payload:
    """Another chunk, in which `choice` says `delta`."""
    return beside(payload, choices=[{**choice, "delta": delta, "finish_reason": None}])


def each_choice(change: Callable[[Payload], None]) -> Rewrite:
    def all_of_them(payload: Payload) -> None:
        for choice in choices_of(payload):
            change(choice)

    return each(all_of_them)


def each_delta(change: Callable[[Payload], None]) -> Rewrite:
    def its_delta(choice: Payload) -> None:
        if isinstance(choice.get("delta"), dict):
            change(choice["delta"])

    return each_choice(its_delta)


def each_chunk(change: Callable[[Payload], None]) -> Rewrite:
    """Of every payload that is a chunk."""
    return each(lambda payload: change(payload) if "choices" in payload else None)


def behind(wanted: Callable[[Payload], bool], new: Callable[[Payload], Payload], *, first: bool = False) -> Rewrite:
    """Puts a new chunk behind every one that is wanted, or behind the first alone."""

    def change(payloads: list[Payload]) -> list[list[Payload]]:
        places = [at for at, payload in enumerate(payloads) if wanted(payload)][: 1 if first else None]
        return [[payload, *([new(payload)] if at in places else [])] for at, payload in enumerate(payloads)]

    return on_payloads(change)

"""What must be true of the reply to a mutated stream: a law is a claim for each aspect, and composing mutators weakens it aspect by aspect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, Literal, Protocol

from .. import jsontext
from ..model import Reply

# Each aspect's claims, strongest first. The law of a composition makes, for each aspect, the weaker of the two claims.
_CLAIMS: Mapping[str, tuple[str, ...]] = {
    "text": ("same", "prefix", "any"),
    "reasoning": ("same", "prefix", "any"),
    "calls": ("same", "subset", "no_more_than_reference"),
    "finish": ("same", "limited", "any"),
    "usage": ("same", "none", "any"),
    "complete": ("same", "not_clean", "any"),
    "other": ("same", "any"),
}


@dataclass(frozen=True, slots=True)
class Law:
    """One claim for each aspect of the reply, against what the same assembler makes of the original stream.

    `text`, `reasoning`: the same, or a prefix. `calls` (those that may run): the same, a subset, or none that the reference assembler does not release
    from the same bytes. `finish`: the same reason, or `limited` (stop is length). `usage`: the same, or `none`. `complete`: the same, or `not_clean`
    (an error, not complete, or an exception). `other`: whatever else an assembler returns, as content that it carries on. `any` claims nothing. An exception obeys every law whose `complete` is not `same`.
    """

    text: Literal["same", "prefix", "any"] = "same"
    reasoning: Literal["same", "prefix", "any"] = "same"
    calls: Literal["same", "subset", "no_more_than_reference"] = "same"
    finish: Literal["same", "limited", "any"] = "same"
    usage: Literal["same", "none", "any"] = "same"
    complete: Literal["same", "not_clean", "any"] = "same"
    other: Literal["same", "any"] = "same"

    def __and__(self, other: Law) -> Law:
        """The law of both mutators, one after the other."""
        weaker = {
            name: max(getattr(self, name), getattr(other, name), key=claims.index) for name, claims in _CLAIMS.items()
        }
        return Law(**weaker)

    @property
    def all_the_same(self) -> bool:
        """Then whatever an assembler returns must be equal to what it returns for the original."""
        return self == SAME

    @property
    def asks_reference(self) -> bool:
        """Does it compare with what the reference assembler makes of the same bytes?"""
        return self.calls == "no_more_than_reference"

    def __str__(self) -> str:
        if self.all_the_same:
            return "everything the same"
        weaker = [
            f"{each.name} {getattr(self, each.name)}" for each in fields(self) if getattr(self, each.name) != "same"
        ]
        return ", ".join(weaker).replace("_", " ")


class HasLaw(Protocol):
    @property
    def law(self) -> Law: ...


SAME = Law()
CUT = Law(text="prefix", reasoning="prefix", calls="subset", finish="any", usage="any", complete="not_clean")
LIMITED = Law(text="prefix", reasoning="prefix", calls="subset", finish="limited", usage="any", complete="any")
DAMAGED = Law(calls="no_more_than_reference", complete="any")


def law_of(mutators: Iterable[HasLaw]) -> Law:
    """What holds after all of them."""
    return reduce(lambda law, each: law & each.law, mutators, SAME)


# ------------------------------------------------------------------------------------------------------------------ the check

View = Callable[[Any], Any]
"""From what an assembler returns to something with (some of) the fields `text reasoning tool_calls finish_reason usage complete errors`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an assembler did with one stream: the value it returned, or the exception it raised."""

    value: Any = None
    error: BaseException | None = None

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}" if self.error else repr(self.value)


def broken(law: Law, before: Outcome, after: Outcome, reference: Reply | None, view: View | None = None) -> list[str]:
    """What of `law` does not hold, in words; empty where it does.

    `before` and `after`: the outcome for the original and the mutated stream. `reference`: what the reference assembler makes of the mutated one;
    None will do unless `law.asks_reference`.
    Where everything must be the same the values are compared as they are; else field by field, as far as the value has them.
    """
    if after.error is not None:
        return [f"raised {after}"] if law.complete == "same" else []
    if law.all_the_same and view is None:
        return [] if before.value == after.value else [f"expected {before}, got {after}"]
    old, new = _Fields(before.value, view), _Fields(after.value, view)
    found = [
        *_text(law.text, "text", old, new),
        *_text(law.reasoning, "reasoning", old, new),
        *_calls(law.calls, old, new, reference),
        *_finish(law.finish, old, new),
        *_usage(law.usage, old, new),
        *_complete(law.complete, old, new),
    ]
    return found


def comparable(value: Any, view: View | None = None) -> bool:
    """Has the value any field that a law speaks of?"""
    seen = _Fields(value, view)
    return any(seen.get(name) is not _MISSING for name in ("text", "tool_calls", "finish_reason", "usage", "complete"))


_MISSING = object()


class _Fields:
    """The fields of a value as far as it has them: of a mapping by key, of anything else by attribute; a mere string is the text."""

    def __init__(self, value: Any, view: View | None) -> None:
        self._value = view(value) if view else {"text": value} if isinstance(value, str) else value

    def get(self, name: str) -> Any:
        if isinstance(self._value, Mapping):
            return self._value.get(name, _MISSING)
        return getattr(self._value, name, _MISSING)

    def both(self, name: str, other: _Fields) -> tuple[Any, Any] | None:
        pair = self.get(name), other.get(name)
        return None if _MISSING in pair else pair


def _text(claim: str, name: str, old: _Fields, new: _Fields) -> list[str]:
    pair = old.both(name, new)
    if pair is None or claim == "any":
        return []
    before, after = pair[0] or "", pair[1] or ""
    if claim == "same":
        return [] if before == after else [f"{name}: expected {before!r}, got {after!r}"]
    return [] if _units(before).startswith(_units(after)) else [f"{name}: {after!r} is no prefix of {before!r}"]


def _units(text: str) -> bytes:
    """In UTF-16, of which a stream may be cut inside a character that it spells as two escapes."""
    return text.encode("utf-16-le", "surrogatepass")


def _calls(claim: str, old: _Fields, new: _Fields, reference: Reply | None) -> list[str]:
    pair = old.both("tool_calls", new)
    if pair is None:
        return []
    before, after = list(pair[0] or ()), list(pair[1] or ())
    if claim == "same":
        alike = len(before) == len(after) and all(map(_same_call, before, after))
        return [] if alike else [f"tool_calls: expected {before!r}, got {after!r}"]
    released = reference.tool_calls if reference else ()
    allowed = [_identity(call) for call in (before if claim == "subset" else released)]
    extra = [call for call in after if _identity(call) not in allowed]
    why = (
        "is not among those of the whole reply"
        if claim == "subset"
        else "may not run: the reference does not release it from these bytes"
    )
    return [f"tool_calls: {call!r} {why}" for call in extra]


def _same_call(one: Any, other: Any) -> bool:
    if type(one) is type(other):
        return bool(one == other)
    ids = _field(one, "id"), _field(other, "id")
    return _identity(one) == _identity(other) and (None in ids or ids[0] == ids[1])


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _identity(call: Any) -> Any:
    """Name and arguments of a call, however the assembler under test represents it."""
    if isinstance(call, tuple) and len(call) == 2:
        return call[0], _parsed(call[1])
    if (function := _field(call, "function")) is not None:
        return _identity(function)
    return _field(call, "name"), _parsed(_field(call, "arguments_text") or _field(call, "arguments"))


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return jsontext.parse(arguments) if arguments else {}
    except ValueError:
        return arguments


def _finish(claim: str, old: _Fields, new: _Fields) -> list[str]:
    if claim == "limited":
        stop = new.get("stop")
        return [] if stop in (_MISSING, "length") else [f"stop: expected 'length', got {stop!r}"]
    pair = old.both("finish_reason", new)
    if claim == "any" or pair is None or pair[0] == pair[1]:
        return []
    return [f"finish_reason: expected {pair[0]!r}, got {pair[1]!r}"]


def _usage(claim: str, old: _Fields, new: _Fields) -> list[str]:
    pair = old.both("usage", new)
    if claim == "any" or pair is None:
        return []
    if claim == "none":
        return [f"usage: none was sent, got {pair[1]!r}"] if pair[1] else []
    alike = pair[0] == pair[1] if type(pair[0]) is type(pair[1]) else _counts(pair[0]) == _counts(pair[1])
    return [] if alike else [f"usage: expected {pair[0]!r}, got {pair[1]!r}"]


def _counts(usage: Any) -> tuple[Any, Any]:
    """Input and output tokens, under the names of any SDK."""
    names = ("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")
    input_tokens, output_tokens = (
        next((count for name in either if (count := _field(usage, name)) is not None), None) for either in names
    )
    return input_tokens, output_tokens


def _complete(claim: str, old: _Fields, new: _Fields) -> list[str]:
    pair = old.both("complete", new)
    if claim == "any" or pair is None:
        return []
    if claim == "same":
        return [] if bool(pair[0]) == bool(pair[1]) else [f"complete: expected {pair[0]!r}, got {pair[1]!r}"]
    errors = new.get("errors")
    return ["a clean success of a stream that broke"] if pair[1] and (errors is _MISSING or not errors) else []

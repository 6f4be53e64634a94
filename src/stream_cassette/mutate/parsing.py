"""Mutators from text, as a command line has them: calls of our own classes with literal arguments. Nothing is evaluated."""

from __future__ import annotations

import ast
import difflib
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..errors import TapeError
from . import MUTATORS
from .base import Mutator
from .items import Spec


def parse(text: str) -> Spec:
    """The mutator that `text` makes (`InterleaveToolCalls(order=(0, 1))`), or the class that it names (`OneByteReads`, see `settled`).

    Raises `TapeError` for a text that is no such call, a class that does not exist, and arguments that it does not take.
    """
    try:
        made = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _wrong(text, f"no Python expression ({error})") from None
    match made:
        case ast.Name(id=name):
            return _class(name, text)
        case ast.Call(func=ast.Name(id=name)):
            return _made(_class(name, text), made, text)
        case _:
            raise _wrong(text, "neither the call of a mutator nor its name")


def _class(name: str, text: str) -> type[Any]:
    known = {kind.__name__: kind for kind in MUTATORS}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    raise TapeError(
        f"there is no mutator {name!r}",
        where=text,
        mend=f"one of {', '.join(near or known)}; stream_cassette.mutate has all",
    )


def _made(kind: type[Any], call: ast.Call, text: str) -> Mutator:
    try:
        positional = [ast.literal_eval(each) for each in call.args]
        named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        made: Mutator = kind(*positional, **named)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise _wrong(text, str(error), kind) from None
    hints = get_type_hints(kind)
    for each in fields(kind):
        if not _fits(value := getattr(made, each.name), hints[each.name]):
            raise _wrong(text, f"{each.name} cannot be {value!r}", kind)
    return made


def _fits(value: Any, hint: Any) -> bool:
    """Whether `value` is of the type of a field, as mutators have them: plain types, words, tuples of one type, and unions of those."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in inner
    if origin is UnionType:
        return any(_fits(value, each) for each in inner)
    if origin is tuple:
        return type(value) is tuple and all(_fits(each, inner[0]) for each in value)
    return type(value) is hint


def _wrong(text: str, why: str, kind: type[Any] | None = None) -> TapeError:
    taken = [f"{each.name}: {each.type}" for each in fields(kind)] if kind else []
    mend = f"{kind.__name__}({', '.join(taken)})" if kind else "write it as code: 'InterleaveToolCalls(order=(0, 1))'"
    return TapeError(f"not a mutator: {why}", where=text, mend=mend)

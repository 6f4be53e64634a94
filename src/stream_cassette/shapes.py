"""What a value was asked to be (a pydantic model, a dataclass, a JSON Schema), and whether it is."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NewType, TypeGuard, Union, get_args, get_origin, get_type_hints

from . import schemas

Validate = Callable[[str, Any], Any]
"""From a JSON text and its value to what the user gets; raises `Misfit`."""


class Misfit(ValueError):
    """What does not fit, in words, and `where`: its JSON path."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what)
        self.where = where


def validator(schema: Any) -> Validate:
    """The check that `schema` stands for. `TypeError` for what is no schema, or a dataclass with a field of a type that JSON does not have.

    A dataclass is checked here and never by pydantic, so that the same reply is valid on every machine: an object has all fields without a default and
    no others; `str`, `bool`, `int` and `None` are just that, `float` is any number; `list`, `tuple`, `set`, `frozenset` and `Sequence` are arrays;
    `dict` and `Mapping` are objects; then there are `Literal`, an `Enum` by its values, unions, `Any`, and dataclasses within.
    """
    if isinstance(schema, Mapping):
        return _by_json_schema(schema)
    if hasattr(schema, "model_validate_json"):
        return _by_pydantic(schema.model_validate_json)
    if hasattr(schema, "__pydantic_validator__"):
        from pydantic import TypeAdapter

        return _by_pydantic(TypeAdapter(schema).validate_json)
    if _is_dataclass(schema):
        read = _Compiler().reader(schema)
        return lambda _, value: read(value, "$")
    raise TypeError(f"{schema!r} is no schema: give a pydantic model, a dataclass, or a JSON Schema as a mapping")


def _by_json_schema(schema: Mapping[str, Any]) -> Validate:
    misfit = schemas.misfit(schema)

    def validate(_: str, value: Any) -> Any:
        if found := misfit(value):
            raise Misfit(found[0], found[1] or "$")
        return value

    return validate


def _by_pydantic(validate_json: Callable[[str], Any]) -> Validate:
    def validate(text: str, _: Any) -> Any:
        try:
            return validate_json(text)
        except ValueError as error:
            faults = error.errors() if hasattr(error, "errors") else [{"msg": str(error), "loc": ()}]
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in faults[0]["loc"])
        raise Misfit(f"{faults[0]['msg']}{more}", "".join(["$", *steps]))

    return validate


# ---------------------------------------------------------------------------------------------------------------- dataclasses

_Read = Callable[[Any, str], Any]
"""From a JSON value and its path to the value of a type."""

_LISTS: Mapping[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
}


def _is_dataclass(kind: Any) -> TypeGuard[type[Any]]:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


class _Compiler:
    """Makes the reader of a type, before any value comes, so that a type that cannot be read is told at once."""

    def __init__(self) -> None:
        self._fields: dict[type, dict[str, _Read]] = {}  # of the dataclasses begun, so that one may hold itself

    def reader(self, kind: Any) -> _Read:
        origin, inner = get_origin(kind) or kind, get_args(kind)
        if kind in (Any, object):
            return lambda value, at: value
        if isinstance(kind, NewType):
            return self.reader(kind.__supertype__)
        if origin is Literal:
            return _one_of({repr(each): each for each in inner}, inner)
        if origin in (Union, types.UnionType):
            return _any_of([(each, self.reader(each)) for each in inner])
        if origin is tuple and inner and inner[-1] is not ...:
            return _fixed([self.reader(each) for each in inner])
        if origin in _LISTS:
            return _list(self.reader(inner[0] if inner else Any), _LISTS[origin])
        if origin in (dict, collections.abc.Mapping) and inner[:1] in ((), (str,)):
            return _dict(self.reader(inner[1] if inner else Any))
        if kind in _PLAIN or kind is type(None):
            return _plain(kind)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _one_of({repr(each.value): each for each in kind}, [each.value for each in kind])
        if _is_dataclass(kind):
            return self._dataclass(kind)
        raise TypeError(f"{kind!r} is no type of a JSON value: use a pydantic model, which knows more types")

    def _dataclass(self, kind: type[Any]) -> _Read:
        fields = {each.name: each for each in dataclasses.fields(kind) if each.init}
        if kind not in self._fields:
            readers = self._fields[kind] = {}
            hints = get_type_hints(kind)
            readers.update((name, self.reader(hints[name])) for name in fields)
        readers = self._fields[kind]
        needed = [
            name
            for name, each in fields.items()
            if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        ]

        def read(value: Any, at: str) -> Any:
            _expect(isinstance(value, dict), "an object", value, at)
            for name in (*needed, *value):
                if name not in value:
                    raise Misfit(f"{name!r} is missing", at)
                if name not in fields:
                    raise Misfit(f"there is no field {name!r} in {kind.__name__}", at)
            return kind(**{name: readers[name](each, f"{at}.{name}") for name, each in value.items()})

        return read


_PLAIN: Mapping[type, str] = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}


def _expect(fits: bool, what: str, value: Any, at: str) -> None:
    if not fits:
        raise Misfit(f"expected {what}, got {value!r}"[:200], at)


def _plain(kind: type) -> _Read:
    def read(value: Any, at: str) -> Any:
        fits = type(value) is kind or (kind is float and type(value) is int)
        _expect(fits, _PLAIN.get(kind, "null"), value, at)
        try:
            return float(value) if kind is float else value
        except OverflowError:
            raise Misfit("the number is too large", at) from None

    return read


def _one_of(known: Mapping[str, Any], values: Iterable[Any]) -> _Read:
    kinds = {repr(each): type(each) for each in values}

    def read(value: Any, at: str) -> Any:
        _expect(kinds.get(repr(value)) is type(value), f"one of {', '.join(known)}", value, at)
        return known[repr(value)]

    return read


def _any_of(readers: list[tuple[Any, _Read]]) -> _Read:
    real = [read for kind, read in readers if kind is not type(None)]

    def read(value: Any, at: str) -> Any:
        misfits = []
        for _, each in readers:
            try:
                return each(value, at)
            except Misfit as misfit:
                misfits.append(misfit)
        if len(real) == 1:
            return real[0](value, at)  # which tells where inside
        raise Misfit(" or ".join(map(str, misfits)), at)

    return read


def _list(inner: _Read, make: Callable[[Iterable[Any]], Any]) -> _Read:
    def read(value: Any, at: str) -> Any:
        _expect(isinstance(value, list), "an array", value, at)
        try:
            return make([inner(each, f"{at}[{number}]") for number, each in enumerate(value)])
        except TypeError:
            raise Misfit("a set cannot hold arrays or objects", at) from None

    return read


def _fixed(inner: list[_Read]) -> _Read:
    def read(value: Any, at: str) -> Any:
        _expect(isinstance(value, list) and len(value) == len(inner), f"an array of {len(inner)}", value, at)
        return tuple(
            each(item, f"{at}[{number}]") for number, (each, item) in enumerate(zip(inner, value, strict=True))
        )

    return read


def _dict(inner: _Read) -> _Read:
    def read(value: Any, at: str) -> Any:
        _expect(isinstance(value, dict), "an object", value, at)
        return {name: inner(each, f"{at}.{name}") for name, each in value.items()}

    return read

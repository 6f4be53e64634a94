"""What stands in `mutate=` of a marker, as test items: from the arguments alone, so that every worker sees the same ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..dialects import DIALECTS
from ..errors import NotApplicable, TapeError
from ..stream import Stream
from . import LEVELS, MUTATORS
from .base import Mutator
from .quirks import Quirk

Spec = Mutator | type[Mutator]
"""A mutator as it is, or a class of which the stream at hand will give one."""


def items(specs: Iterable[Any], where: str) -> list[tuple[str, Spec]]:
    """`(id, what)` for each item: a mutator or class is one, a level name (`"all"`: every level) one for each of its classes and known quirks."""
    found: list[tuple[str, Spec]] = []
    for spec in [specs] if isinstance(specs, str) else specs:
        if isinstance(spec, Mutator) or (isinstance(spec, type) and issubclass(spec, Mutator)):
            found.append((name_of(spec), spec))
        elif spec in ("all", *LEVELS):
            for kind in MUTATORS:
                if spec in ("all", kind.level):
                    found += [(name_of(each), each) for each in (_quirks() if kind is Quirk else [kind])]
        else:
            known = ", ".join(("all", *LEVELS))
            raise TapeError(f"mutate cannot be {spec!r}", where=where, mend=f"a mutator, its class, or one of {known}")
    return list(dict(found).items())


def name_of(spec: Spec) -> str:
    """How an item is called."""
    if isinstance(spec, Quirk):
        return f"Quirk({spec.name})"
    return repr(spec) if isinstance(spec, Mutator) else spec.__name__


def _quirks() -> list[Quirk]:
    return [Quirk(name) for name in dict.fromkeys(name for dialect in DIALECTS for name in dialect.quirks)]


def settled(spec: Spec, stream: Stream) -> Mutator:
    """The mutator that `spec` means for this stream. Of a class it is the middle one of its instances: `NotApplicable` where there is none."""
    if isinstance(spec, Mutator):
        return spec
    if not (isinstance(spec, type) and issubclass(spec, Mutator)):
        raise TapeError(
            f"{spec!r} is no mutator", mend="write one, such as Ping(1), or its class; level names go into levels="
        )
    choices = spec.instances(stream)
    if not choices:
        raise NotApplicable(f"{spec.__name__} has nothing to act on")
    return choices[len(choices) // 2]

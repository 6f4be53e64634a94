"""The search for secrets in a text: every known kind, and what the user adds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..errors import TapeError
from .patterns import KINDS, PLACEHOLDER, Hit, Kind

_DONE = re.compile(rf"(?:[*\s]|\\[nr])+|9+|{PLACEHOLDER}(?:-[a-z0-9]+)*")
_NAMED = re.compile(r"([a-z][a-z0-9 _-]{0,39}): +(.+)", re.DOTALL)

_BLOB = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_BLOB_AROUND = 120  # characters beside the hit; more than a path in a URL has


@dataclass(frozen=True, slots=True)
class Secrets:
    """The kinds that are looked for: those `known`, and the user's `own`."""

    own: tuple[Kind, ...] = ()
    known: tuple[Kind, ...] = KINDS

    def __hash__(self) -> int:
        return hash(self.own)  # of fifty regular expressions it would cost more than what is looked up by it

    def find(self, text: str) -> list[Hit]:
        """The secrets in `text`, in order and apart. Linear in its length, but for what patterns of the user's do."""
        return _apart(text, [*self._known(text), *self.find_own(text)])

    def find_own(self, text: str) -> list[Hit]:
        """The secrets that the user's patterns see."""
        return [hit for kind in self.own for hit in kind.hits(text)]

    def within(self, text: str) -> Secrets:
        """Those that may be in `text` by their anchors, and the user's."""
        found = _anchors_in(text)
        return replace(self, known=tuple(kind for kind in self.known if not found.isdisjoint(kind.anchors)))

    def _known(self, text: str) -> Iterator[Hit]:
        for kind in self.within(text).known if self.known is KINDS else self.known:
            yield from (hit for hit in kind.hits(text) if hit.named or not _in_blob(text, hit))


NO_MORE = Secrets()
"""The known kinds alone."""

# Looking for a hundred words one by one takes too long. Most prefixes end in - or _, of which texts have few; most others have a word in common.
_TAIL_SIZE = 3
_SHARED = ("=", "key", "token", "secret", "passw", "")
_TAILED = [anchor for kind in KINDS for anchor in kind.anchors if anchor[-1] in "-_" and not kind.folded]
_TAIL = re.compile(f"[-_](?<={'|'.join({anchor[-_TAIL_SIZE:] for anchor in _TAILED})})")
_OTHERS = tuple(
    dict.fromkeys(
        (anchor, next(word for word in _SHARED if word in anchor), kind.folded)
        for kind in KINDS
        for anchor in kind.anchors
        if anchor not in _TAILED
    )
)


def _anchors_in(text: str) -> set[str]:
    ends = (match.end() for match in _TAIL.finditer(text))
    found = {anchor for end in ends for anchor in _TAILED if text.endswith(anchor, 0, end)}
    folded = text.lower()
    shared = {word for word in _SHARED if word in folded}
    return found.union(
        anchor for anchor, word, is_folded in _OTHERS if word in shared and anchor in (folded if is_folded else text)
    )


def is_replaced(text: str) -> bool:
    """Is this what stands in the place of a secret?"""
    return _DONE.fullmatch(text) is not None


def secrets_of(patterns: Iterable[str], where: str = "secrets") -> Secrets:
    """The known kinds and those of `patterns`: regular expressions, each maybe as `name: expression`. What its first group matches is the secret.

    Raises `TapeError` for what is no regular expression, and for one that matches the empty text.
    """
    return Secrets(tuple(_own(number, pattern, where) for number, pattern in enumerate(patterns, 1)))


def _own(number: int, pattern: str, where: str) -> Kind:
    named = _NAMED.fullmatch(pattern)
    name, expression = (named[1], named[2]) if named else (f"secret pattern {number}", pattern)
    try:
        compiled = re.compile(expression)
    except re.error as error:
        raise TapeError(
            f"{pattern!r} is no regular expression: {error}", where=where, mend="write it as `name: expression`"
        ) from None
    if compiled.match(""):
        raise TapeError(
            f"{pattern!r} matches the empty text, so everything would be a secret", where=where, mend="make it longer"
        )
    return Kind(name, compiled, "the user")


def _apart(text: str, hits: list[Hit]) -> list[Hit]:
    """Those not replaced yet; what overlaps becomes one, as the first kind of the table names it."""
    out: list[Hit] = []
    ranked = sorted(enumerate(hits), key=lambda pair: (pair[1].start, pair[0]))
    rank: dict[int, int] = {}
    for at, hit in ranked:
        if is_replaced(text[hit.start : hit.end]):
            continue
        if out and hit.start < out[-1].end:
            last = out[-1]
            kind = hit.kind if at < rank[len(out)] else last.kind
            rank[len(out)] = min(at, rank[len(out)])
            # The name decides what stands there: it does so for a key of any make.
            out[-1] = replace(last, end=max(last.end, hit.end), kind=kind, named=last.named or hit.named)
        else:
            out.append(hit)
            rank[len(out)] = at
    return out


def _in_blob(text: str, hit: Hit) -> bool:
    """Does the hit stand inside a long run of base64? Pictures, audio and sealed reasoning look like anything here or there."""
    before, after = text[max(0, hit.start - _BLOB_AROUND) : hit.start], text[hit.end : hit.end + _BLOB_AROUND]
    around = before[len(before.rstrip(_BLOB)) :] + after[: len(after) - len(after.lstrip(f"{_BLOB}="))]
    return len(around) >= _BLOB_AROUND and all(re.search(kind, around) for kind in ("[a-z]", "[A-Z]", "[0-9]"))

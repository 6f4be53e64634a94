"""What was recorded goes into the file, beside what others wrote there: merged, settled with what it replaces, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from stream_cassette.cassette import of_now, update
from stream_cassette.errors import CassetteError
from stream_cassette.files import resolved
from stream_cassette.model import Cassette, Interaction

Settle = Callable[[Sequence[Interaction], Sequence[Interaction]], Sequence[Interaction]]


class Saver:
    """Saves the interactions of the test `test` into the file `path`; `replacing` those that the file holds, it is to be made before the file is read.

    `settle` makes of the interactions that are replaced and the new ones what is to be written.
    """

    # How often savers of this process have replaced what a file held for a test.
    _times: ClassVar[dict[tuple[Path, str | None], int]] = {}

    def __init__(self, path: Path, test: str | None, settle: Settle, *, replacing: bool) -> None:
        self.replaces: Sequence[Interaction] | None = None
        """The interactions of the test that the file held when it was read, and that the new ones are to replace; None where new ones are added."""
        self.expects_none = False
        """Whether the file held nothing for the test when it was read; what another process has recorded for it since then stays, and this is dropped."""
        self.changed = False
        """Whether the file is another one since."""
        self.dropped = False
        """Whether it was."""
        self._path, self._test, self._settle = path, test, settle
        # To resolve a path costs a look at every folder of it, and most tapes only play.
        self._place = (resolved(path) if replacing else path, test)
        self._times_before = Saver._times.get(self._place, 0)

    def save(self, recorded: Sequence[Interaction]) -> None:
        """Raises `CassetteError`, which names the file, where that fails; the file is then as it was."""
        if not recorded:
            return
        try:
            update(self._path, lambda cassette: self._merged(cassette, recorded))
        except CassetteError as error:
            raise CassetteError(
                error.what, where=error.where or str(self._path), mend=error.mend or "mend that and record again"
            ) from error
        except Exception as error:
            raise unsaved(self._path, "the recording was not saved", error) from error

    def _merged(self, cassette: Cassette, recorded: Sequence[Interaction]) -> Cassette:
        kept = list(cassette.interactions)
        place = len(kept)
        if self.expects_none and self._test is not None and any(each.test == self._test for each in kept):
            self.dropped = True
            return cassette
        if self.replaces is not None:
            kept, place = self._without(self.replaces, kept)
            recorded = self._settle(self.replaces, recorded)
        merged = (*kept[:place], *recorded, *kept[place:])
        self.changed = merged != cassette.interactions
        return of_now(merged) if self.changed else cassette

    def _without(self, before: Sequence[Interaction], kept: list[Interaction]) -> tuple[list[Interaction], int]:
        """Without what was there before, and the place for what is new.

        Another tape may have replaced that already; then all that is there is newer and stays.
        """
        mine = [place for place, each in enumerate(kept) if each.test == self._test]
        gone: list[int] = []
        for each in before:
            gone += [place for place in mine if place not in gone and kept[place] == each][:1]
        times = Saver._times.get(self._place, 0)
        if len(gone) < len(before) or times != self._times_before:
            return kept, mine[-1] + 1 if mine else len(kept)
        Saver._times[self._place] = times + 1
        first = min(gone, default=mine[-1] + 1 if mine else len(kept))
        return [each for place, each in enumerate(kept) if place not in gone], first


def unsaved(path: Path, what: str, error: Exception) -> CassetteError:
    """The error that tells `what` came of `error`."""
    return CassetteError(f"{what}: {type(error).__name__}: {error}", where=str(path), mend="mend that and record again")

"""Which files an import reads, and where the cassette of each goes: where the plugin looks for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath

from ..errors import StreamCassetteError
from ..settings import file_name

_ENDINGS = (".yaml", ".yml", ".json", ".har", ".toml")
_NAMED_SO = "cassettes"


def sources(paths: Iterable[Path], *, any_ending: bool = False) -> list[tuple[Path, PurePath]]:
    """The files named, and those in the folders named, each with its path below what was named.

    In a folder those that are named like a recording, unless `any_ending`, and nothing that is hidden. `StreamCassetteError` for a path that does
    not exist.
    """
    found: dict[Path, PurePath] = {}
    for path in paths:
        if path.is_dir():
            inside = ((file, file.relative_to(path)) for file in sorted(path.rglob("*")))
            found |= {
                file: below
                for file, below in inside
                if file.is_file()
                and (any_ending or file.suffix.lower() in _ENDINGS)
                and not any(part.startswith(".") for part in below.parts)
            }
        elif path.exists():
            found[path] = PurePath(path.name)
        else:
            raise StreamCassetteError("there is no such file or folder", where=str(path), mend="name an existing one")
    return list(found.items())


def target_of(to: Path, below: PurePath) -> Path:
    """The cassette in the folder `to` for a file that lies at `below`.

    pytest-recording has `tests/unit/cassettes/test_x/test_y.yaml` where this package has `cassettes/unit/test_x/test_y.yaml`, so a folder named
    `cassettes` on the way says nothing; and a test's name is spelled as the plugin spells it.
    """
    folders = [part for part in below.parts[:-1] if part != _NAMED_SO]
    return Path(to, *folders, f"{file_name(below.stem)}.yaml")

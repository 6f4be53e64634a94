"""Which files an import reads, and where the cassette of each goes: where the plugin looks for it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from ..errors import StreamCassetteError
from ..settings import file_name

_ENDINGS = (".yaml", ".yml", ".json", ".har", ".toml")
_NAMED_SO = "cassettes"
# What pytest-recording 0.14 does to the name of a test (`get_default_cassette_name`, and `use_cassette` to a long one).
_RESPELLED = re.compile(r"""[<>?%*:|\\"'/]""")
_SHORTENED = re.compile(r"\.\.\.([0-9a-f]{32})\Z")


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


def names_in(nodeids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """How the plugin names the cassettes of these tests, by how pytest-recording names them: `<module>/<test>`, both without an ending.

    pytest-recording spells much in a parameter as `-`, so several tests may share a name there, and none of it can be told from the name.
    """
    found: dict[str, tuple[str, ...]] = {}
    for nodeid in nodeids:
        test, bracket, parameters = nodeid.strip().partition("[")
        module, *names = test.split("::")
        if names:
            theirs = _RESPELLED.sub("-", f"{'.'.join(names[-2:])}{bracket}{parameters}")
            ours = file_name(f"{'.'.join(names)}{bracket}{parameters}")
            for name in (theirs, hashlib.md5(theirs.encode(), usedforsecurity=False).hexdigest()):
                key = f"{PurePath(module).stem}/{name}"
                found[key] = (*found.get(key, ()), ours)
    return found


def targets_of(to: Path, below: PurePath, names: Mapping[str, Sequence[str]]) -> list[Path]:
    """The cassettes in the folder `to` for a file that lies at `below`; several where tests share it. `names` are those of `names_in`.

    pytest-recording has `tests/unit/cassettes/test_x/test_y.yaml` where this package has `cassettes/unit/test_x/test_y.yaml`, so a folder named
    `cassettes` on the way says nothing.
    """
    folders = [part for part in below.parts[:-1] if part != _NAMED_SO]
    shortened = _SHORTENED.search(below.stem)
    theirs = f"{below.parent.name}/{shortened[1] if shortened else below.stem}"
    return [Path(to, *folders, f"{name}.yaml") for name in names.get(theirs) or [file_name(below.stem)]]


def is_respelled(below: PurePath) -> bool:
    """Whether the name may stand for a test that is named otherwise."""
    return "-" in below.stem or bool(_SHORTENED.search(below.stem))

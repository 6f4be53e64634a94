"""Files that several processes write: one at a time, in one step, or not at all."""

from __future__ import annotations

import contextlib
import errno
import getpass
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .errors import CassetteError

PATIENCE = 60.0  # seconds to wait for the lock; whoever holds it is only writing one file


@contextlib.contextmanager
def locked(target: Path, path: Path) -> Iterator[None]:
    """Holds the one lock for the file `target` (resolved) over all processes of this user; an error names it as `path`."""
    import filelock  # brings asyncio along, and a mere replay needs neither

    # Not beside the cassette, where a lock file would end up in version control.
    user = getattr(os, "getuid", getpass.getuser)()  # in a container a user may have no name
    folder = Path(tempfile.gettempdir()) / f"stream-cassette-{user}"
    digest = hashlib.sha256(os.path.normcase(target).encode(errors="surrogatepass")).digest()
    # A lock file cannot be deleted while others may wait for it, so there are 256 of them, ever; two targets that share one wait for each other.
    lock = filelock.FileLock(folder / f"{digest[0]:02x}.lock", timeout=PATIENCE)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        _check_owner(folder, user, path)
        lock.acquire()
    except OSError as error:  # filelock's timeout is one
        raise CassetteError(
            f"cannot lock the cassette: {error}", where=str(path), mend=f"see who else writes it, and {folder}"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _check_owner(folder: Path, user: int | str, path: Path) -> None:
    """The name of the folder can be guessed: whoever made it first could keep us out, or lead us elsewhere over a link."""
    found = folder.lstat()
    ours = not isinstance(user, int) or (found.st_uid == user and not found.st_mode & 0o022)
    if not stat.S_ISDIR(found.st_mode) or not ours:
        raise CassetteError(
            f"cannot lock the cassette: {folder} is no folder that this user alone can write to",
            where=str(path),
            mend="remove it, or set TMPDIR to a folder of your own: mkdir -m 700 ~/.tmp && export TMPDIR=~/.tmp",
        )


def resolved(path: Path) -> Path:
    """The file that is meant where `path` is a symbolic link; a link that leads round in circles is left alone."""
    return Path(os.path.realpath(path))


def replace_file(target: Path, chunks: Iterable[bytes], check: Callable[[Path], None] | None = None) -> None:
    """Puts what `chunks` join to in the place of `target` in one step: after any failure the old file is intact and nothing lies beside it.

    To be called under `locked`. `check` gets the path of the finished new file before it takes the place, and may refuse it by raising.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not target.stat().st_mode & 0o222:  # a rename would not ask
        raise PermissionError(errno.EACCES, "the file is read-only")
    for leftover in leftovers(target.parent, target.name):
        with contextlib.suppress(OSError):
            leftover.unlink()
    beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with beside.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(beside)
        if target.exists():
            shutil.copymode(target, beside)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
    # The file is safe by now; that its new name is on disk too is more than some platforms offer.
    with contextlib.suppress(OSError):
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def leftovers(folder: Path, name: str | None = None) -> list[Path]:
    """What processes that were killed while they saved left in `folder`, of the file `name` or of any; who holds the lock of `name` may delete that."""
    ours = re.compile(rf"\.{re.escape(name) if name else '.+'}\.[0-9a-f]{{12}}\.tmp")
    return [folder / each for each in sorted(os.listdir(folder)) if ours.fullmatch(each)]

"""The folder of a job that another launcher than malt's has started: the ranks of each host agree on one.

Its name is that of the start of the ranks (malt/session/resilience/torchrun.py). The first of them makes it, closed to
all other users, and holds a lock on it as long as it runs. The others wait for a folder with such a lock in which they
have not begun before: one that a killed rank has left has no lock, and the next first rank replaces it.

The launcher removes nothing. So the first rank does at its end, or the lowest that sees another one fail. It cannot be
removed earlier: `malt status` and `malt stacks` look into it, and a later session begins in it. What is left of ranks
that were killed is removed by the next job of this user.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dstorm.errors import DeadlinePassed
from dstorm.transports import shm_space
from dstorm.waits.stopwatch import Stopwatch
from malt.session.resilience.process_group import PREFIX, is_made
from malt.watch import jobs

_POLL_S = 0.02
_ENDS_S = 5.0
"""How long the first rank waits for the end of another job of that name."""

_locks: list[int] = []
"""The folders that this process has made. It holds a lock on each as long as it runs, which shows that."""


def agreed(
    name: str, rank: int, ranks: Sequence[int], program: Sequence[str], deadline_s: float, size: int | None = None
) -> Path:  # fmt: skip
    """The folder of the job, the same on all `ranks`, which are those of one host, of this user alone. Collective.

    `name`: the same on all ranks, and of no other job that runs; fit for a file. `program`: what is shown of the job.
    `size`: the number of its ranks, by default of these. The others return once the first rank has made it.

    DeadlinePassed: after `deadline_s` seconds it has not. RuntimeError: another user may have made the folder, or
    another job has this name.
    """
    path, waited = Path(tempfile.gettempdir(), f"{PREFIX}{os.geteuid()}-{name}"), Stopwatch()
    if rank == ranks[0]:
        remove_left()
        while not _is_made(path):
            if waited.seconds() > _ENDS_S:
                _replace(path)
            time.sleep(_POLL_S)
        try:
            jobs.publish(path, size or len(ranks), program)
        except BaseException:
            remove(path)
            raise
    while rank != ranks[0] and not _is_ready(path, rank):
        if waited.seconds() > deadline_s:
            raise DeadlinePassed(f"malt.init: rank {rank} has come", {ranks[0]: 0}, {ranks[0]: deadline_s})
        time.sleep(_POLL_S)
    return path


def remove(folder: str | os.PathLike[str]) -> None:
    """Remove the folder of a job, if `agreed` has made it, and its memory, if that is there. Local."""
    if is_made(folder):
        shutil.rmtree(folder, ignore_errors=True)
        for path in shm_space.files_of(os.path.basename(folder)):
            path.unlink(missing_ok=True)


def is_maker() -> bool:
    """Return whether this process has made the folder of its job. Local."""
    return bool(_locks)


def remove_left() -> None:
    """Remove such folders of this user whose first rank has ended. Local."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it goes at this moment
            is_whole = _is_own(folder.lstat()) and (folder / jobs.FILE).exists()  # else it is about to be locked
            if is_whole and not _is_locked(folder):
                remove(folder)


def _is_made(path: Path) -> bool:
    """Make the folder, and lock it. Returns whether that was done: another one may be there."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        with contextlib.suppress(FileNotFoundError):  # it goes at this moment
            _check(path.lstat(), path)
        return False
    _locks.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    with contextlib.suppress(OSError):  # this file system has no locks: nobody finds the folder unlocked
        fcntl.flock(_locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def _replace(path: Path) -> None:
    """Remove what a rank has left that was killed as it made it. RuntimeError: it is of a rank that runs."""
    with contextlib.suppress(OSError):
        if not _is_locked(path):
            return remove(path)
    raise RuntimeError(
        "another job with the variables of this one (MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID) runs: give this "
        "one another port, as by torchrun --standalone"
    )


def _is_ready(path: Path, rank: int) -> bool:
    """Return whether the first rank has made the folder, for a start of this one: not for one before."""
    with contextlib.suppress(FileNotFoundError):
        _check(path.lstat(), path)
        return (path / jobs.FILE).exists() and _is_locked(path) and not (path / f"events-{rank}").exists()
    return False


def _is_locked(folder: Path) -> bool:
    """Return whether the rank that has made it runs, as far as is known."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # or it has no locks
        return True
    finally:
        os.close(file)
    return False


def _check(found: os.stat_result, path: Path) -> None:
    """Raise RuntimeError unless a folder is of this user alone."""
    if not _is_own(found):
        what = "is not a folder that only this user can enter, another user may have made it"
        raise RuntimeError(f"{path} {what}: set TMPDIR to a folder of yours")


def _is_own(found: os.stat_result) -> bool:
    """Return whether this is a folder of this user, closed to all others."""
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077

"""The folder of a job that another launcher than malt's has started: the ranks of each host agree on one.

The first of them makes it, and tells the others its name over a Unix socket. The socket lies in a folder that this user
alone can enter: so nobody else can be asked, or ask. Its name is that of the start of the ranks
(malt/session/resilience/torchrun.py). It is removed once all ranks have come. One that a killed rank has left answers
to nobody, and the next one replaces it.

The launcher removes nothing. So the first rank does at its end, or the lowest that sees another one fail. It cannot be
removed earlier: `malt status` and `malt stacks` look into it, and a later session begins in it. What is left of ranks
that were killed is removed by the next job of this user.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dstorm.errors import DeadlinePassed
from dstorm.transports import shm_space
from dstorm.waits.stopwatch import Stopwatch
from malt.watch import jobs

_PREFIX: Final = "malt-torchrun-"
_CALL: Final = "malt.init"
_POLL_S, _ANSWER_S = 0.02, 5.0
_MOST_NBYTES = 1 << 12
_NOT_THERE = FileNotFoundError, ConnectionError, TimeoutError, BlockingIOError
"""What a rank finds that looks for the first one too early, or while too many others do."""

_locks: list[int] = []
"""The folders that this process has made. It holds a lock on each as long as it runs, which shows that."""


def agreed(
    name: str, rank: int, ranks: Sequence[int], program: Sequence[str], deadline_s: float, size: int | None = None
) -> Path:  # fmt: skip
    """The folder of the job, the same on all `ranks`, which are those of one host, of this user alone. Collective.

    `name`: the same on all ranks, and of no other job that runs; fit for a file. `program`: what is shown of the job.
    `size`: the number of its ranks, by default of these. The first rank returns once all have come, the others once it
    has.

    DeadlinePassed: after `deadline_s` seconds ranks are missing; it names them. RuntimeError: another user may have
    made the folder of the socket, or another job has this name.
    """
    with _place() as place:
        path = f"/proc/self/fd/{place}/{name}"  # a socket's own path may have 107 bytes
        if rank != ranks[0]:
            return _asked(path, rank, ranks[0], deadline_s)
        remove_left()
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            _lock(folder)
            jobs.publish(folder, size or len(ranks), program)
            _serve(path, folder, ranks, deadline_s)
        except BaseException:
            remove(folder)
            raise
        return folder


def is_made(folder: str | os.PathLike[str]) -> bool:
    """Return whether `agreed` has made this folder of a job: no launcher of malt has started the job. Pure."""
    return os.path.basename(folder).startswith(_PREFIX)


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
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it goes at this moment
            is_whole = _is_own(folder.lstat()) and (folder / jobs.FILE).exists()  # else it is about to be locked
            if is_whole and not _is_locked(folder):
                remove(folder)


def _lock(folder: Path) -> None:
    _locks.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    with contextlib.suppress(OSError):  # this file system has no locks: nobody finds the folder unlocked
        fcntl.flock(_locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_locked(folder: Path) -> bool:
    """Return whether the rank that has made it runs. OSError: the file system has no locks."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@contextlib.contextmanager
def _place() -> Iterator[int]:
    """The folder of sockets of this user, as a file descriptor: what is checked is then what is used."""
    path = os.path.join(tempfile.gettempdir(), f"malt-{os.geteuid()}")
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise RuntimeError(_foreign(path)) from error
    try:
        if not _is_own(os.fstat(place)):
            raise RuntimeError(_foreign(path))
        yield place
    finally:
        os.close(place)


def _foreign(path: str) -> str:
    what = "is not a folder that only this user can enter, another user may have made it"
    return f"{path} {what}: set TMPDIR to a folder of yours"


def _is_own(found: os.stat_result) -> bool:
    """Return whether this is a folder of this user, closed to all others."""
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _serve(path: str, folder: Path, ranks: Sequence[int], deadline_s: float) -> None:
    """Answer all other ranks as they come."""
    came, waited = {ranks[0]}, Stopwatch()
    with socket.socket(socket.AF_UNIX) as server:
        _bind(server, path)
        try:
            server.listen(len(ranks))
            server.settimeout(_POLL_S)
            while len(came) < len(ranks):
                with contextlib.suppress(TimeoutError):
                    came |= _answer(server, folder, ranks)
                if len(came) < len(ranks) and waited.seconds() > deadline_s:
                    raise missing(came, ranks, deadline_s)
        finally:
            os.unlink(path)


def _answer(server: socket.socket, folder: Path, ranks: Sequence[int]) -> set[int]:
    """Answer the next rank that comes: its number. TimeoutError: none comes."""
    caller, _ = server.accept()
    with caller, contextlib.suppress(OSError):  # it has ended meanwhile
        caller.settimeout(_ANSWER_S)
        rank = caller.recv(_MOST_NBYTES)
        if rank.isdigit() and int(rank) in ranks:  # else it has looked whether somebody is here
            caller.sendall(os.fsencode(folder))
            return {int(rank)}
    return set()


def _bind(server: socket.socket, path: str) -> None:
    """Bind `server` to `path`, in place of what a rank that was killed has left there."""
    try:
        server.bind(path)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError):
            probe.connect(path)
            raise RuntimeError(
                "another job with the variables of this one (MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID) starts at "
                "the same time: give it another port, as by torchrun --standalone"
            ) from None
        os.unlink(path)
        server.bind(path)


def _asked(path: str, rank: int, first: int, deadline_s: float) -> Path:
    """The folder, as the rank `first` says."""
    waited = Stopwatch()
    while True:
        with contextlib.suppress(*_NOT_THERE), socket.socket(socket.AF_UNIX) as me:
            me.settimeout(_ANSWER_S)
            me.connect(path)
            me.sendall(b"%d" % rank)
            if found := me.recv(_MOST_NBYTES):
                return Path(os.fsdecode(found))
        if waited.seconds() > deadline_s:
            raise DeadlinePassed(f"{_CALL}: rank {rank} has come", {first: 0}, {first: deadline_s})
        time.sleep(_POLL_S)


def missing(came: set[int], all_ranks: Sequence[int], deadline_s: float) -> DeadlinePassed:
    """The error that names the ranks that have not come, and those that have. Pure."""
    ranks = sorted(set(all_ranks) - came)
    named = f"rank {min(came)} has" if len(came) == 1 else f"ranks {', '.join(map(str, sorted(came)))} have"
    return DeadlinePassed(f"{_CALL}: {named} come", dict.fromkeys(ranks, 0), dict.fromkeys(ranks, deadline_s))

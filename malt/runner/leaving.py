"""How a rank leaves: told to by the launcher (malt/launch/departure.py), and without MPI_Finalize, which is collective.

malt/runner/program.py loads it by its path, so it imports nothing of malt; what malt imports later is this very module.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

INPUT = "input"
"""The file in the folder of the job that rank 0 reads as its standard input."""

HOST_COUNTS = (("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"), ("MPI_LOCALNRANKS", "PMI_SIZE"))
"""Where mpiexec tells how many ranks it has started on this host, and how many in all."""
_NAP_S = 0.002

_exit = os._exit
"""That of os, which `report_end_inside_mpi` replaces."""
_process = 0
"""The process that is a rank; a fork of it is none."""
_folder: str | None = None
"""That of the job, if it is here."""
_notified = 0
"""The signal by which the launcher, on another host, has told this rank to leave."""
_leaving = 0
"""The one by which it leaves."""
_report: Callable[[str, str], None]
"""Leaves word for the launcher."""
_rank = "?"


def take_signals(folder: str | None, rank: str, report: Callable[[str, str], None]) -> None:
    """Take the launcher's signals, until the program has handlers of its own. `folder`: that of the job, or None."""
    global _process, _folder, _rank, _report
    _process, _folder, _rank, _report = os.getpid(), folder, rank, report
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is default:  # not so where they are ignored, as under nohup
            signal.signal(number, _signalled)


def process() -> str:
    """By what the launcher finds this process: its number, and when it has started, in clock ticks after the system
    (proc_pid_stat(5)); -1: it does not tell."""
    try:
        with open("/proc/self/stat", "rb") as file:  # as in dstorm.membership.processes, which is not imported here
            return f"{os.getpid()} {int(file.read().rpartition(b')')[2].split()[19])}"
    except OSError:
        return f"{os.getpid()} -1"


def hear(connection: int) -> None:
    """On another host: be told to leave, over that connection to the launcher. Returns when the launcher has gone."""
    global _notified
    with contextlib.suppress(OSError, ValueError):
        _notified = int(os.read(connection, 16) or b"0")
        if _notified:
            os.kill(_process, _notified)


def is_leaving() -> bool:
    """Whether the launcher has told this rank to leave: then it ends nobody but itself. Local."""
    return _leaving != 0 and os.getpid() == _process


def follow_others() -> bool:
    """Leave, too, where the launcher is telling ranks to: one that was told first may be gone, and missed here, before
    it comes to this rank. Whether it is. Local."""
    global _leaving
    if not _leaving:
        _leaving = next((number for number in (signal.SIGINT, signal.SIGTERM) if _is_notified(number)), 0)
    return is_leaving()


def ignore_signals() -> None:
    """From here on is_leaving() stays as it is. Python's end would set the signals to end the process, which may wait
    in MPI_Finalize for long. Local."""
    for _ in range(2):  # one may come meanwhile
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is _signalled:
                    signal.signal(number, signal.SIG_IGN)


def wait_to_be_killed() -> None:
    """From here on the interpreter ends as ever, says so, and the process waits: its exit would end the others.

    Where ranks are on several hosts it does not return, and closes no files but flushes them: one-sided calls of others
    need it inside MPI (MPI-4.1, 12.7.3).
    """
    closing = os.path.join(_folder or "", f"closing-{_rank}")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _report(f"closing-{_rank}", "")
    _report(f"stopped-{_rank}", "")
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and _spans_hosts() and mpi.Is_initialized() and not mpi.Is_finalized():
        _flush_files()
        os.unlink(closing)
        while True:
            mpi.COMM_WORLD.Iprobe()
            time.sleep(_NAP_S)
    if not _call_at_the_end(("fflush", None), ("unlink", closing), ("pause", None), ("_exit", 0)):
        flush()
        os.unlink(closing)
        signal.pause()


def _spans_hosts() -> bool:
    return any(os.environ.get(here) != os.environ.get(all_) for here, all_ in HOST_COUNTS)


def _flush_files() -> None:
    for one in gc.get_objects():
        with contextlib.suppress(Exception):  # closed, or for reading
            if isinstance(one, io.IOBase):
                one.flush()


def skip_mpi_finalize(status: int) -> None:
    """From here on the interpreter ends as ever, which closes open files, and then the process, with `status`: before
    mpi4py's MPI_Finalize, which would wait for the dead, and before what the MPI library does at exit. Local."""
    if not _call_at_the_end(("fflush", None), ("_exit", status)):
        flush()
        _exit(status)


def flush() -> None:
    """Flush stdout and stderr, as far as they are there. Local."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a full disk, a broken pipe, closed, None, or the program's own
            stream.flush()


def report_end_inside_mpi() -> None:
    """Let the launcher know where this rank loads MPI, and then ends without coming to the end of its interpreter: by
    os._exit, or where a library calls exit(). Some mpiexecs end all others then, and call that a good end."""
    sys.meta_path.insert(0, _MpiImport())
    atexit.register(_forget_mpi)
    for name in ("_exit", "execv", "execve"):  # the other functions of this kind in os call these
        setattr(os, name, _publishing(name, getattr(os, name)))


class _MpiImport:
    """Sees that MPI is imported, and finds nothing."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "mpi4py.MPI" and os.getpid() == _process:
            _report(f"inside-{_rank}", "")


def _forget_mpi() -> None:
    if os.getpid() == _process and _folder is not None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(_folder, f"inside-{_rank}"))


def _publishing(name: str, end: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    def report(*words: object) -> NoReturn:
        if os.getpid() == _process:
            _report(f"quit-{_rank}", "")
            mpi = sys.modules.get("mpi4py.MPI")
            if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
                _report(f"inside-{_rank}", "os._exit(0)" if (name, words) == ("_exit", (0,)) else f"os.{name}")
            else:
                _forget_mpi()
        end(*words)

    return report


def _call_at_the_end(*calls: tuple[str, str | int | None]) -> bool:
    """Have these functions of the C library called, each with its argument, right after the end of the interpreter;
    whether that can be done. The last one does not return.

    Both Py_AtExit and __cxa_atexit (as exit(3) does) call first what came last. Python's functions take no argument, so
    exit() gets an arbitrary one.
    """
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        libc.strdup.restype = ctypes.c_void_p
        for name, value in reversed(calls):
            argument = libc.strdup(os.fsencode(value)) if isinstance(value, str) else value
            libc.__cxa_atexit(getattr(libc, name), ctypes.c_void_p(argument), None)
        return bool(ctypes.pythonapi.Py_AtExit(libc.exit) == 0)
    except (ImportError, OSError, AttributeError):  # a Python without ctypes, another C library
        return False


def _signalled(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt or SystemExit, once where the launcher has told this rank to leave; else do as Python
    does by default."""
    global _leaving
    if os.getpid() != _process or not _is_notified(number):
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
    elif _leaving:
        return
    else:
        _leaving = number
        if _rank == "0":
            _report("at-0.txt", f"rank 0 was in {_place(frame)}")
    error = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
    interruption = sys.modules.get("dstorm.interruption")
    if interruption is None or not interruption.defers(frame, error):
        raise error


def _is_notified(number: int) -> bool:
    return number == _notified or (_folder is not None and os.path.exists(os.path.join(_folder, f"signal-{number}")))


def _place(frame: FrameType | None) -> str:
    """Where the program is, in its own file if it can be."""
    own = getattr(sys.modules.get("__main__"), "__file__", None)
    at = innermost = frame
    while at is not None and at.f_code.co_filename != own:
        at = at.f_back
    at = at or innermost
    return f"{at.f_code.co_filename}, line {at.f_lineno}" if at is not None else "no program"

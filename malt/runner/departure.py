"""Lets a rank depart when the launcher asks it to (malt/launch/processes/departure.py), without MPI_Finalize.

MPI_Finalize is collective: it would wait for other ranks. malt/runner/program.py loads this module by its path, after
malt/runner/events.py and reporting.py, and it imports nothing else of malt. When malt imports it later, it gets the
same module.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from malt.runner.events import Kind, Stream
from malt.runner.reporting import folder as folder_of_job
from malt.runner.reporting import is_rank, rank, report

GRACE_S = 10.0
"""How long ranks may take to leave after a signal to the launcher, by default."""
NOTIFIED = "notified"
"""The file in the folder of the job that exists once all ranks have been sent the launcher's signal."""

HOST_COUNTS = (
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"), ("MPI_LOCALNRANKS", "PMI_SIZE"),
)  # fmt: skip
"""Pairs of variables of an mpiexec: the number of ranks on this host, and in all."""
_NO_HANDLER_OF_UCX = "UCX_DEBUG_SIGNO", "0"
"""A variable and its value. By default UCX takes SIGHUP for a request to print more, in place of the program."""
_NAP_S = 0.002
_NOTICE_S = 1.0
"""How long a rank that gets SIGTERM waits for the launcher to say that the job ends. Open MPI's mpiexec, which ends
ranks where one has failed, gives them as long."""
_NOTIFIES_S = 10.0
"""How long a rank waits for the launcher to signal the other ranks. It is longer only if the launcher was stopped."""

_notified = 0
"""The signal by which a launcher on another host has asked this rank to leave, or 0."""
_ended: dict[int, int] = {}
"""The ranks whose processes have ended on the launcher's host, where this one runs on another: their incarnations."""
_published: dict[str, str] = {}
"""What ranks have published, where the launcher is on another host."""
_is_connected: bool | None = None
"""Whether the connection to that launcher lasts. None: there was none."""
_leaving = 0
"""The signal by which this rank leaves, or 0."""
_is_asking = False
"""Whether a handler waits to learn who has sent a signal."""
_depart: Callable[[], bool] = bool
"""Called where SIGTERM is for this rank alone. Returns whether it leaves by itself."""


def take_signals() -> None:
    """Handle the launcher's signals, until the program sets handlers of its own. Local."""
    os.environ.setdefault(*_NO_HANDLER_OF_UCX)
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is default:  # else it is ignored, as under nohup
            signal.signal(number, _signalled)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # what starts ranks may have it blocked


def depart_by(depart: Callable[[], bool]) -> None:
    """Have depart() called where this rank alone gets SIGTERM: it returns whether the rank leaves by itself. Local."""
    global _depart
    _depart = depart


def end_by_sigterm() -> None:
    """End this process as SIGTERM does by default. Local."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def process() -> str:
    """Return the number of this process and its start time, by which the launcher identifies it. Local.

    The start time is in clock ticks after that of the system (proc_pid_stat(5)), or -1 if unknown.
    """
    try:
        with open("/proc/self/stat", "rb") as file:  # as in dstorm.membership.processes, which is not imported here
            return f"{os.getpid()} {int(file.read().rpartition(b')')[2].split()[19])}"
    except OSError:
        return f"{os.getpid()} -1"


def listen(connection: int) -> None:
    """Obey what comes over `connection` from a launcher on another host, until it is closed.

    A line is the number of a signal, which asks this process to leave; "signal" and the number of one that is for its
    program; or "ended", a rank and its incarnation: the launcher has seen the end of that rank's process on its own
    host. Or it is "published", a name and a text, of a rank anywhere.
    """
    global _notified, _is_connected
    _is_connected = True
    with contextlib.suppress(OSError, ValueError), open(connection, "rb", closefd=False) as lines:
        for line in lines:
            what, _, rest = line.rstrip().partition(b" ")
            if what == b"ended":
                rank, incarnation = map(int, rest.split())
                _ended[rank] = max(incarnation, _ended.get(rank, 0))
            elif what == b"published":
                name, _, text = rest.decode().partition(" ")
                _published[name] = text
            elif what == b"signal":
                os.kill(os.getpid(), int(rest))
            elif not _notified:  # it comes again whenever another rank has connected
                _notified = int(what)
                os.kill(os.getpid(), _notified)
    _is_connected = False


def publications() -> list[str]:
    """Return the names of what ranks have published, as far as this one knows. Local."""
    folder = folder_of_job()
    if folder is None:
        return list(_published)
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def published(name: str) -> str | None:
    """Return the text that a rank has published under this name, or None. Local."""
    folder = folder_of_job()
    if folder is None:
        return _published.get(name)
    with contextlib.suppress(OSError), open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()
    return None


def is_disconnected() -> bool:
    """Return whether the connection to a launcher on another host has ended. Local."""
    return _is_connected is False


def ended_elsewhere() -> dict[int, int]:
    """The ranks that have ended on the host of the launcher, as far as it has told this one: their incarnations. Local.

    Earlier incarnations have ended, too.
    """
    return dict(tuple(_ended.items()))


def is_leaving() -> bool:
    """Return whether the launcher has asked this rank to leave. If so, it ends no other rank. Local."""
    return _leaving != 0 and is_rank()


def follow_others() -> bool:
    """Leave if the launcher is asking ranks to leave. Returns whether it is. Local.

    A rank that was notified before this one may have departed already, and be missing here.
    """
    global _leaving
    if not _leaving:
        _leaving = next((number for number in (signal.SIGINT, signal.SIGTERM) if _is_notified(number)), 0)
    return is_leaving()


class _Closing:
    """A lock on a file that this process lets go of as one of the last things of its interpreter."""

    def __init__(self, file: int) -> None:
        self._files = [file]
        with contextlib.suppress(OSError):  # this file system has no locks
            fcntl.lockf(file, fcntl.LOCK_EX)

    def take(self) -> int:
        """The file, which this object closes no more."""
        return self._files.pop()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        for file in self._files:
            close(file)


def show_closing(folder: str) -> None:
    """Show to the launcher that the interpreter runs, until it has ended. Local.

    The launcher looks with malt/launch/hosts/agent/closing.py. What the program has not
    closed is closed after the last exit handler, and may be long in writing.
    """
    with contextlib.suppress(OSError):
        file = os.open(os.path.join(folder, f"interpreter-{rank()}"), os.O_RDWR | os.O_CREAT, 0o600)
        vars(sys)["_malt_closing"] = _Closing(file)  # Python clears the module sys after all others


def ignore_signals() -> None:
    """Ignore the launcher's signals from here on, so that is_leaving() does not change. Local.

    At its end Python would restore the default, which kills the process. It may wait in MPI_Finalize for long.
    """
    for _ in range(2):  # a signal may come meanwhile
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is _signalled:
                    signal.signal(number, signal.SIG_IGN)


def wait_to_be_killed() -> None:
    """Make the process wait after the end of its interpreter, as its exit would end the other ranks. Local.

    The end of the interpreter is shown, as in `show_closing`, but after the files of C are flushed, too. If ranks are
    on several hosts, the function flushes all files and does not return: one-sided calls of other ranks need this one
    inside MPI (MPI-4.1, 12.7.3).
    """
    closing = vars(sys).get("_malt_closing")
    file = closing.take() if closing else os.open(os.devnull, os.O_RDONLY)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    report(Kind.STOPPED)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and _spans_hosts() and mpi.Is_initialized() and not mpi.Is_finalized():
        _flush_files()
        os.close(file)
        while True:
            mpi.COMM_WORLD.Iprobe()
            time.sleep(_NAP_S)
    _call_at_the_end(("fflush", None), ("close", file), ("pause", None), ("_exit", 0))


def _spans_hosts() -> bool:
    return any(os.environ.get(here) != os.environ.get(all_) for here, all_ in HOST_COUNTS)


def _flush_files() -> None:
    for one in gc.get_objects():
        with contextlib.suppress(Exception):  # a file that is closed, or open for reading
            if isinstance(one, io.IOBase):
                one.flush()


def skip_mpi_finalize(status: int) -> None:
    """Make the process end with `status` right after the end of its interpreter, which closes open files. Local.

    So neither mpi4py calls MPI_Finalize, which would wait for failed ranks, nor the MPI library its exit handlers.
    """
    _call_at_the_end(("fflush", None), ("_exit", status))


def flush() -> None:
    """Flush stdout and stderr, and ignore errors. Local."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a full disk, a broken pipe, a closed file, None, the program's own
            stream.flush()


def report_end_inside_mpi() -> None:
    """Report to the launcher if this rank loads MPI, and then ends before the end of its interpreter. Local.

    It may do so by os._exit, or a library may call exit(). Some mpiexecs then end all ranks and return 0.
    """
    sys.meta_path.insert(0, _MpiImport())
    for name in ("_exit", "execv", "execve"):  # the other exec functions of os call these
        setattr(os, name, _publishing(name, getattr(os, name)))


def refuse_mpi() -> None:
    """Make the import of mpi4py.MPI fail: MPI would take this rank, a plain process, for a job of one. Local."""
    sys.meta_path.insert(0, _MpiRefusal())


class _MpiRefusal:
    """A finder that finds no mpi4py.MPI, and says why."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Find nothing. Local. ImportError: it is mpi4py.MPI, and the ranks may fail."""
        if name == "mpi4py.MPI" and is_rank():
            raise ImportError(
                "MPI cannot be used under malt run --survive: ranks are not processes of one MPI job, which would end "
                "with the first failure: use malt.rank(), malt.size() and malt's collectives"
            )


class _MpiImport:
    """A finder that reports the import of MPI, and finds no module."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Report that MPI is imported, and find nothing. Local."""
        if name == "mpi4py.MPI":
            report(Kind.INSIDE)


def _publishing(name: str, end: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    def reported(*words: object) -> NoReturn:
        """Report that this rank ends so, then end it. Local."""
        if is_rank():
            report(Kind.QUIT)
            mpi = sys.modules.get("mpi4py.MPI")
            if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
                report(Kind.INSIDE, "os._exit(0)" if (name, words) == ("_exit", (0,)) else f"os.{name}")
            if name == "_exit" and isinstance(status := words[0] if words else 0, int) and status & 0xFF:
                report(Kind.STATUS, str(status & 0xFF))
        end(*words)

    return reported


def _call_at_the_end(*calls: tuple[str, int | None]) -> None:
    """Make the process call functions of the C library, each with its argument, right after the end of the interpreter.

    The last function does not return. Py_AtExit and __cxa_atexit call first what was registered last. Functions of
    Py_AtExit take no argument, so exit() gets an arbitrary one.
    """
    import ctypes  # few ranks end so

    libc = ctypes.CDLL(None)
    for name, argument in reversed(calls):
        libc.__cxa_atexit(getattr(libc, name), ctypes.c_void_p(argument), None)
    ctypes.pythonapi.Py_AtExit(libc.exit)


def _signalled(number: int, frame: FrameType | None) -> None:
    """Handle a signal. If the launcher sent it, or got it, too, raise KeyboardInterrupt or SystemExit, but only once.

    Otherwise do what Python does by default.
    """
    global _leaving
    if _is_asking and number == signal.SIGTERM and is_rank():
        return  # mpiexec passes on what all have got
    is_for_all = number == signal.SIGTERM and not _leaving and is_rank() and _is_for_all()
    if not is_rank() or not (is_for_all or _is_notified(number)):
        if number == signal.SIGTERM:
            if not is_rank() or not _depart():
                end_by_sigterm()
            return
    elif _leaving:
        return
    else:
        _leaving = number
        if rank() == "0":
            report(Kind.WAS_AT, f"rank 0 was in {_place(frame)}")
        _wait_for_notified()
    error = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
    interruption = sys.modules.get("dstorm.waits.interruption")
    if interruption is None or not interruption.defers(frame, error):
        raise error


def _is_notified(number: int) -> bool:
    folder = folder_of_job()
    return number == _notified or (folder is not None and os.path.exists(os.path.join(folder, f"signal-{number}")))


def _is_for_all() -> bool:
    """Return whether the launcher ends the job by SIGTERM, which this rank has got: it may know so a moment later.

    Who ends a service or a batch job signals all of its processes at once, in any order. But where a rank has failed,
    it is mpiexec that ends the others.
    """
    global _is_asking
    end, _is_asking = time.monotonic() + _NOTICE_S, True
    reports = Stream(folder_of_job() or os.devnull)
    try:
        while not _is_notified(signal.SIGTERM):
            is_heard = folder_of_job() or _is_connected
            if time.monotonic() > end or not is_heard or reports.read().ranks(Kind.STATUS):
                return False
            time.sleep(_NAP_S)
        return True
    finally:
        _is_asking = False


def _wait_for_notified() -> None:
    """Wait until the launcher has signalled the other ranks, which would miss this one if it left earlier."""
    end = time.monotonic() + _NOTIFIES_S
    folder = folder_of_job()
    while folder is not None and not os.path.exists(os.path.join(folder, NOTIFIED)) and time.monotonic() < end:
        time.sleep(_NAP_S)


def _place(frame: FrameType | None) -> str:
    """The file and line that the program has come to: the innermost frame in its own file, if there is one."""
    own = getattr(sys.modules.get("__main__"), "__file__", None)
    at = innermost = frame
    while at is not None and at.f_code.co_filename != own:
        at = at.f_back
    at = at or innermost
    return f"{at.f_code.co_filename}, line {at.f_lineno}" if at is not None else "no program"

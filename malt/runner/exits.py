"""How a rank's failure ends the job: an MPI job whose rank just leaves would wait for it for ever.

Covers an uncaught exception in any thread (sys.excepthook, threading.excepthook) and sys.exit, exit or quit with a
non-zero status. That status is noted when sys.exit is called; whether its exception really ended the program, and was
not caught, is read off the outermost frame when the interpreter exits: it stopped where the exception left it.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NamedTuple, NoReturn

from malt.runner.leaving import flush, is_leaving, skip_mpi_finalize
from malt.runner.program import JOB_DIR, status_of
from malt.runner.reporting import report_to, report_traceback

_abort: Callable[[int], None] | None = None
_rank = 0
_hooked = False
_has_left = False
_last_exit: _Exit | None = None
_child_status: int | None = None
"""What a SystemExit, raised without sys.exit, ends a forked process with."""

_DRAIN_S = 0.1
"""What was printed is given this time to get through: MPICH's process manager drops it when it is told to abort."""


def end_job_on_failure(abort: Callable[[int], None], rank: int) -> None:
    """From here on a failure of this process, `rank`, calls abort(status), which ends the job. Local."""
    global _abort, _rank, _hooked
    if not _hooked:
        _hooked = True
        sys.excepthook = _after(sys.excepthook)
        threading.excepthook = _after_thread(threading.excepthook)
        _note_exits()
    _abort, _rank = abort, rank


def become_child() -> None:
    """In a forked process: what ends it ends it alone, and is noted for `end_without_mpi`. Local."""
    if not _hooked:
        _note_exits()
    stand_down()


def note_child_status(status: int) -> None:
    """A SystemExit ends this forked process with `status`. Local."""
    global _child_status
    _child_status = status


def _note_exits() -> None:
    sys.exit = _noting_exit(sys.exit)
    for name in ("exit", "quit"):  # not there under python -S
        if hasattr(builtins, name):
            setattr(builtins, name, _noting_exit(getattr(builtins, name)))


def leave_on_failure() -> None:
    """From here on a failure ends this process alone, at once: the others go on without it. Local."""
    global _abort
    _abort = _leave


def _leave(status: int) -> None:
    """End this process, and leave nothing for MPI to wait for: it takes an exit for the end of the job. What it would
    have ended with is for the launcher to know, where nobody is left."""
    if folder := os.environ.get(JOB_DIR):
        report_to(folder, f"left-{_rank}", str(status))
    os.kill(os.getpid(), signal.SIGKILL)


def leave_early() -> None:
    """Where the others train on without this rank, whose program has ended well: say so. Local."""
    global _has_left
    _has_left = True
    if folder := os.environ.get(JOB_DIR):
        report_to(folder, f"left-{_rank}", "0")
    else:
        skip_mpi_finalize(0)


def has_left() -> bool:
    """Whether this rank has ended before the others. Local."""
    return _has_left


def stand_down() -> None:
    """The session has ended on all ranks: how this process ends is its own business again. Local."""
    global _abort
    _abort = None


def end_job_if_failing() -> None:
    """Called while the interpreter exits: end the job if a non-zero sys.exit is the reason. Local."""
    if _abort is not None and _last_exit is not None and _ended_program(_last_exit):
        status = status_of(_last_exit.error)
        if status != 0:
            _end(status)


def end_job_for(error: BaseException) -> None:
    """End the job as if `error` had not been caught. Local; returns where there is no job to end."""
    if _abort is None:
        return
    if isinstance(error, SystemExit):
        status = status_of(error)
    else:
        with contextlib.suppress(Exception):
            traceback.print_exception(type(error), error, error.__traceback__)
        report_traceback(error)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    _end(status or 1)


def session_is_over() -> bool:
    """Whether all ranks have ended a session, and none is open. Local."""
    return _hooked and _abort is None


def end_without_mpi() -> None:
    """From here on the interpreter ends as ever but for MPI_Finalize, which may wait for those who have died, or is the
    parent's. Local."""
    status = int(getattr(sys, "last_type", None) is not None)
    if _child_status is not None:
        status = _child_status
    elif _last_exit is not None and _ended_program(_last_exit):
        status = status_of(_last_exit.error)
    skip_mpi_finalize(status)


def end_job(why: str) -> None:
    """Say why, and end the job; or this process alone, where the others go on without it. Local."""
    with contextlib.suppress(Exception):
        print(why, file=sys.stderr)
    _end(1)


def _after(hook: Callable[..., Any]) -> Callable[..., Any]:
    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            hook(kind, error, trace)
        finally:  # it may be the program's own, and stderr may be closed: the job must still end
            _end(1)

    return report


def _after_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    def report(args: threading.ExceptHookArgs) -> None:
        try:
            hook(args)
        finally:
            if not issubclass(args.exc_type, SystemExit):  # a thread's own way to end
                if args.exc_value is not None:
                    report_traceback(args.exc_value)
                _end(1)

    return report


def _noting_exit(exit: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    def note(status: Any = None, /) -> NoReturn:
        global _last_exit
        if threading.current_thread() is threading.main_thread():
            frame = _outermost(sys._getframe())
            _last_exit = _Exit(SystemExit(status), frame, frame.f_lasti)
        exit(status)

    return note


class _Exit(NamedTuple):
    """A call of sys.exit: the outermost frame of the program, and where in its code it stood."""

    error: SystemExit
    frame: FrameType
    place: int


def _outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _ended_program(exit: _Exit) -> bool:
    """Whether the exception left the outermost frame, which then stopped where it stood, or at the end of a `finally`.
    Where it was caught, the frame ran on from there."""
    stopped = exit.frame.f_lasti
    return stopped == exit.place or dis.opname[exit.frame.f_code.co_code[stopped]] == "RERAISE"


def _end(status: int) -> None:
    flush()
    if _abort is not None and not is_leaving():
        time.sleep(_DRAIN_S)
        _abort(status)

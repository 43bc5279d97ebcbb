"""Ends the job when a rank fails: otherwise the other ranks would wait for it for ever.

A failure is an uncaught exception in any thread (sys.excepthook, threading.excepthook), or sys.exit, exit or quit with
a non-zero status. The status is noted when sys.exit is called. Its exception may still be caught. So, when the
interpreter exits, the outermost frame is examined: if the exception ended the program, that frame stopped at the call.

malt/runner/program.py loads this module by its path, after malt/runner/departure.py.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NamedTuple, NoReturn

from malt.runner.departure import flush, is_leaving, skip_mpi_finalize
from malt.runner.events import Kind
from malt.runner.reporting import report, report_traceback

_abort: Callable[[int], None] | None = None
_hooked = False
_has_left = False
_last_exit: _Exit | None = None
_child_status: int | None = None
"""The status of a forked process that ends by a SystemExit raised without sys.exit."""

DRAIN_S = 0.1
"""How long output may take to get through: MPICH's process manager drops it when it is asked to abort."""


def end_job_on_failure(abort: Callable[[int], None]) -> None:
    """Make a failure of this process call abort(status), which ends the job, from here on. Local."""
    global _abort, _hooked
    if not _hooked:
        _hooked = True
        sys.excepthook = _after(sys.excepthook)
        threading.excepthook = after_thread(threading.excepthook, _end)
        _note_exits()
    _abort = abort


def status_of(error: SystemExit) -> int:
    """Return the status that the process exits with after `error`, as sys.exit documents it. Local."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def become_child() -> None:
    """Make a failure of this forked process end it alone, with a status for `end_without_mpi`. Local."""
    if not _hooked:
        _note_exits()
    stand_down()


def note_child_status(status: int) -> None:
    """Note that a SystemExit ends this forked process with `status`. Local."""
    global _child_status
    _child_status = status


def _note_exits() -> None:
    sys.exit = _noting_exit(sys.exit)
    for name in ("exit", "quit"):  # they do not exist under python -S
        if hasattr(builtins, name):
            setattr(builtins, name, _noting_exit(getattr(builtins, name)))


def leave_on_failure(depart: Callable[[], object]) -> None:
    """Make a failure end this process alone and at once, from here on: the other ranks go on. Local.

    depart() tells them that it ends.
    """
    global _abort

    def abort(status: int) -> None:
        """Tell the other ranks, and end this process. Local."""
        depart()
        leave(status)

    _abort = abort


def leave(status: int) -> None:
    """End this process alone. The launcher needs its status if all fail."""
    report(Kind.LEFT, str(status))
    os._exit(status or 1)


def leave_early() -> None:
    """Report that this rank departs before the others, as its program has ended well. Local."""
    global _has_left
    _has_left = True
    report(Kind.LEFT, "0")


def has_left() -> bool:
    """Return whether this rank has departed before the others. Local."""
    return _has_left


def stand_down() -> None:
    """Make a failure of this process no longer end the job: the session has ended on all ranks. Local."""
    global _abort
    _abort = None


def end_job_if_failing() -> None:
    """End the job if the interpreter exits because of a non-zero sys.exit. Call it at that exit. Local."""
    if _abort is not None and _last_exit is not None and _ended_program(_last_exit):
        status = status_of(_last_exit.error)
        if status != 0:
            _end(status)


def end_job_for(error: BaseException) -> None:
    """End the job as if `error` had not been caught. Returns if there is no job to end. Local."""
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
    """Return whether a session has ended on all ranks, and none is open. Local."""
    return _hooked and _abort is None


def end_without_mpi() -> None:
    """Make the interpreter end without MPI_Finalize, which may wait for failed ranks, or is the parent's. Local."""
    status = int(getattr(sys, "last_type", None) is not None)
    if _child_status is not None:
        status = _child_status
    elif _last_exit is not None and _ended_program(_last_exit):
        status = status_of(_last_exit.error)
    skip_mpi_finalize(status)


def end_job(why: str) -> None:
    """Print `why` and end the job, or this process alone if the others can go on. Local."""
    with contextlib.suppress(Exception):
        print(why, file=sys.stderr)
    _end(1)


def _after(hook: Callable[..., Any]) -> Callable[..., Any]:
    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Call the hook, then end. Local."""
        try:
            hook(kind, error, trace)
        finally:  # the job must end even if the hook is the program's own and fails, or stderr is closed
            _end(130 if issubclass(kind, KeyboardInterrupt) else 1)

    return report


def after_thread(hook: Callable[..., Any], end: Callable[[int], object]) -> Callable[..., Any]:
    """Return a hook for the errors of threads: it calls `hook`, reports the traceback, and calls end(1)."""

    def report(args: threading.ExceptHookArgs) -> None:
        """Call the hook, then end, unless the thread has ended itself. Local."""
        try:
            hook(args)
        finally:
            if not issubclass(args.exc_type, SystemExit):  # it ends the thread alone
                if args.exc_value is not None:
                    report_traceback(args.exc_value)
                end(1)

    return report


def _noting_exit(exit: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    def note(status: Any = None, /) -> NoReturn:
        """Note who exits and with what, then exit. Local."""
        global _last_exit
        if threading.current_thread() is threading.main_thread():
            frame = _outermost(sys._getframe())
            _last_exit = _Exit(SystemExit(status), frame, frame.f_lasti)
        exit(status)

    return note


class _Exit(NamedTuple):
    """A call of sys.exit: the outermost frame of the program, and the instruction that it had come to."""

    error: SystemExit
    frame: FrameType
    place: int


def _outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _ended_program(exit: _Exit) -> bool:
    """Return whether the exception left the outermost frame, which then stopped at the call or the end of a `finally`.

    If it was caught, the frame ran on.
    """
    import dis  # most programs end otherwise

    stopped = exit.frame.f_lasti
    return stopped == exit.place or dis.opname[exit.frame.f_code.co_code[stopped]] == "RERAISE"


def _end(status: int) -> None:
    flush()
    if _abort is not None and not is_leaving():
        time.sleep(DRAIN_S)
        _abort(status)

"""Runs a program as one rank of a job, as `python PROGRAM` does, and ends the whole job where the program fails.

    python malt/runner/program.py [-m] PROGRAM ARGS...         or -c CODE ARGS...

`malt run` starts every rank through this file. malt.runner.exits does the same from malt.init on, under any mpiexec;
here it also holds before malt.init, and for programs that never call it:

- Open MPI ends a job when a rank exits with a non-zero status before MPI_Init. MPICH does not: the others wait in
  MPI_Init for ever. Its process manager ends the job at once when asked to over its own connection (PMI).
- After MPI_Init both wait: an interpreter that exits finalizes MPI, which is collective. MPI_Abort ends both.

It is started by its path. Of malt it loads only malt/runner/leaving.py and malt/runner/reporting.py, also by their
paths. So the program finds the modules, sys.path and environment that it would find under plain Python, and its first
line may still set what numpy reads when it is imported.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)  # the folder of this file, which Python put there: nothing may be imported from it by chance

import atexit
import builtins
import contextlib
import importlib.util
import io
import runpy
import signal
import stat
import threading
import time
from collections.abc import Callable
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING or __name__ != "__main__":
    from malt.runner import leaving, reporting
else:

    def _beside(name):
        """The module malt.runner.`name`, loaded by its path. When malt imports it later, it gets the same module."""
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
        spec = importlib.util.spec_from_file_location(f"malt.runner.{name}", path)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    leaving, reporting = _beside("leaving"), _beside("reporting")

FAILURE_DIR = "MALT_FAILURE_DIR"
"""The variable that names the folder where a failing rank leaves its traceback, as rank-<r>.txt, for the launcher.

A rank takes it out of its environment: what the rank starts in its turn is not of this job.
"""

JOB_DIR = "MALT_JOB_DIR"
"""The variable that names the same folder where ranks may die: they say there that they have started, have come to the
session (malt/resilience/start.py), and have ended well."""

SESSION_BASE = "PRTE_MCA_prte_local_tmpdir_base"
"""Where Open MPI's mpiexec keeps its files, for the launcher to set. By default that is a folder named for its process
number: one that a killed job has left behind makes a later mpiexec of the same number give up ("The PMIx server's
listener thread failed to start"). A rank takes it out of its environment, too."""

PIPES = {1: "out", 2: "err"}
"""The pipes in that folder from which the launcher takes what ranks on its host print: out-<rank>, err-<rank>."""

_exit = os._exit  # for the end that the launcher is told of here; the program's own calls are noted

_POLL_S = 0.05
_OWN_FILES = (__file__, runpy.__file__, "<frozen runpy>")
_DRAIN_S = 0.1
"""What was printed is given this time to get through: MPICH's process manager drops it when it is told to abort."""

_folder: str | None = None
_process = 0
"""The process that is a rank; a fork of it is none."""


def main() -> None:
    """Run the program that sys.argv[1:] names. Returns when it has ended well; else the job has ended."""
    global _folder, _process
    _process = os.getpid()
    endpoint = os.environ.pop(reporting.CONTROL_SERVER, "").split()
    _folder = reporting.start(os.environ.pop(FAILURE_DIR, None), endpoint)
    # for malt.runner.exits: what is known here of the launcher
    sys.modules["malt.runner.program"] = sys.modules[__name__]
    os.environ.pop(SESSION_BASE, None)
    del sys.argv[0]
    kind = sys.argv.pop(0) if sys.argv[0] in ("-c", "-m") else ""
    program = sys.argv[0]
    if kind == "-c":
        sys.argv[0] = kind
    if not getattr(sys.flags, "safe_path", False):
        places = {"-c": "", "-m": os.getcwd()}
        sys.path.insert(0, places[kind] if kind else os.path.dirname(os.path.realpath(program)))
    _print_to_the_launcher()
    _write_whole_lines()
    _take_input()
    leaving.take_signals(_folder, reporting.rank(), reporting.report)
    if reporting.CALL in os.environ:
        threading.Thread(target=leaving.hear, args=[int(os.environ[reporting.CALL])], daemon=True).start()
    else:
        reporting.report(f"started-{reporting.rank()}", leaving.process())
    if JOB_DIR in os.environ:
        threading.Thread(target=_report_when_mpi_has_begun, daemon=True).start()
    atexit.register(_end)
    if JOB_DIR not in os.environ and _folder is not None:
        leaving.report_end_inside_mpi()
    threading.excepthook = _ending_job(threading.excepthook)
    try:
        if kind == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        elif kind == "-c":
            _run(compile(program, "<string>", "exec", dont_inherit=True), ModuleType("__main__"))
        else:
            _run_file(program)
    except SystemExit as error:
        _exited(error)
    except BaseException as error:
        _failed(error)


def _exited(error: SystemExit) -> None:
    """The program has ended by SystemExit: where this returns, or raises it again, so may the interpreter."""
    status = status_of(error)
    if os.getpid() != _process:
        if (exits := sys.modules.get("malt.runner.exits")) is not None:  # it cannot see a bare `raise SystemExit`
            exits.note_child_status(status)
        raise
    if leaving.is_leaving():
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return
    if status == 0 or (_is_alone() and JOB_DIR not in os.environ):
        raise
    if not isinstance(error.code, int):
        with contextlib.suppress(Exception):
            print(error.code, file=sys.stderr)
    if _folder is not None and _session_is_over():  # all ranks end here: the launcher knows the job's status, and
        reporting.report(f"status-{status}", "")  # mpiexec has nothing to complain of
        return
    _end_job(status)


def _failed(error: BaseException) -> None:
    """The program has ended by another exception. Returns where this rank was told to end; else the job ends."""
    if os.getpid() != _process:
        raise
    error.__traceback__ = _without_this_file(error.__traceback__)
    if leaving.is_leaving():
        if not isinstance(error, KeyboardInterrupt):
            reporting.report_traceback(error)  # the launcher prints the first
        return
    if type(error).__name__ == "PeerLost" and leaving.follow_others():
        return
    reporting.report_traceback(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)  # malt.init's hook ends the job itself
    except BaseException:
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        _end_job(130 if isinstance(error, KeyboardInterrupt) else 1)


def _run_file(path: str) -> None:
    """As runpy.run_path, but sys.argv[0] stays as the user typed it, and the module stays where it is at the end."""
    module = ModuleType("__main__")
    module.__file__ = os.path.abspath(path)
    with io.open_code(module.__file__) as file:
        code = compile(file.read(), module.__file__, "exec", dont_inherit=True)
    _run(code, module)


def _run(code: CodeType, module: ModuleType) -> None:
    vars(module)["__builtins__"] = builtins
    sys.modules["__main__"] = module
    exec(code, vars(module))


def _take_input() -> None:
    """Standard input is rank 0's (malt/launch/streams/standard_input.py); the others read its end."""
    given = os.path.join(_folder or "", leaving.INPUT) if reporting.rank() == "0" else os.devnull
    if reporting.rank() != "?" and os.path.exists(given):
        source = os.open(given, os.O_RDONLY)
        os.dup2(source, 0)
        os.close(source)


def _report_when_mpi_has_begun() -> None:
    """Where ranks may die: from here on the others need not wait in MPI_Init for one that does."""
    while (mpi := sys.modules.get("mpi4py.MPI")) is None or not getattr(mpi, "Is_initialized", bool)():
        time.sleep(_POLL_S)
    reporting.report(f"begun-{reporting.rank()}", "")


def _end() -> None:
    """Last of all that is done at exit: say how this rank has ended, and end it without MPI_Finalize where that would
    wait for the dead, or for those who leave later."""
    if os.getpid() != _process:
        return
    leaving.ignore_signals()
    exits = sys.modules.get("malt.runner.exits")
    if leaving.is_leaving() and JOB_DIR not in os.environ:
        leaving.wait_to_be_killed()
    elif not leaving.is_leaving() and (exits is None or not exits.has_left()):
        reporting.report(f"finished-{reporting.rank()}", "")
    if JOB_DIR in os.environ:
        leaving.skip_mpi_finalize(0)


def _end_job(status: int) -> NoReturn:
    """End all ranks at once with `status`, whether or not MPI runs here yet; or this one alone, where the others can go
    on. Does not return."""
    alone = JOB_DIR in os.environ
    goes_on = alone and not _session_is_over()  # after it nobody does for this rank what it was about to
    reporting.report(f"left-{reporting.rank()}" if goes_on else f"status-{status}", str(status))
    leaving.flush()
    time.sleep(_DRAIN_S)
    if alone:
        os.kill(_process, signal.SIGKILL)  # leaves nothing for MPI to wait for
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized():
        _ask_process_manager(status)
    elif not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(status)
    _exit(status)


def _ask_process_manager(status: int) -> None:
    """Tell MPICH's or Intel MPI's process manager, which handed down a socket, to abort the job.

    Only before MPI_Init: the library takes the socket over, and after MPI_Finalize its number may be anyone's.
    """
    descriptor = os.environ.get("PMI_FD", "")
    if descriptor.isdigit():
        try:
            if stat.S_ISSOCK(os.fstat(int(descriptor)).st_mode):
                os.write(int(descriptor), b"cmd=abort exitcode=%d\n" % status)
        except OSError:
            pass


def status_of(error: SystemExit) -> int:
    """The status that the process exits with (as in the documentation of sys.exit). Local."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def _session_is_over() -> bool:
    """Whether malt.finalize has ended the session on all ranks, and MPI goes on."""
    exits, mpi = sys.modules.get("malt.runner.exits"), sys.modules.get("mpi4py.MPI")
    return exits is not None and mpi is not None and not mpi.Is_finalized() and bool(exits.session_is_over())


def _is_alone() -> bool:
    """Whether MPI runs here with no other rank, whom an ordinary exit could leave waiting."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.size == 1


def _ending_job(hook: Callable[[threading.ExceptHookArgs], object]) -> Callable[[threading.ExceptHookArgs], None]:
    def report(args: threading.ExceptHookArgs) -> None:
        try:
            hook(args)
        finally:
            # SystemExit: a thread's way to end
            if not issubclass(args.exc_type, SystemExit) and os.getpid() == _process:
                if args.exc_value is not None:
                    reporting.report_traceback(args.exc_value)
                if not leaving.is_leaving():
                    _end_job(1)

    return report


def _without_this_file(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's own first frame on, as plain Python prints it."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
        trace = trace.tb_next
    return trace


def _print_to_the_launcher() -> None:
    """Where the launcher is on this host, and listens: else to mpiexec, as ever."""
    for number, name in PIPES.items():
        with contextlib.suppress(OSError):
            path = os.path.join(_folder or os.devnull, f"{name}-{reporting.rank()}")
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(pipe, True)
            os.dup(number)  # stays open: Open MPI's mpiexec complains where it is closed before the process ends
            os.dup2(pipe, number)
            os.close(pipe)


def _write_whole_lines() -> None:
    """Write stdout and stderr line by line, so that those of several ranks do not get mixed.

    A rank's stdout is often a pipe, and what its buffer holds is lost when the job is ended; and where PYTHONUNBUFFERED
    is set every piece of a print is written by itself.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


if __name__ == "__main__":
    main()

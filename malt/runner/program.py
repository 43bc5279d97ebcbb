"""The program of one rank: it runs as under `python PROGRAM`, and its failure ends the whole job.

    python malt/runner/program.py [-m] PROGRAM ARGS...         or -c CODE ARGS...
    python malt/runner/program.py + [+-m] +PROGRAM +ARGS...    on the line of an mpiexec (`marked`)

`malt run` starts every rank through this file. malt.init also has a failure end the job (malt/runner/exit_hooks.py).
This file does so before malt.init, and for programs that never call it:

- Before MPI_Init, Open MPI ends the job when a rank exits with a non-zero status. MPICH does not: the others wait in
  MPI_Init for ever. Its process manager ends the job at once on a request over its own connection (PMI).
- After MPI_Init both wait: an interpreter that exits calls MPI_Finalize, which is collective. MPI_Abort ends the job.

It is started by its path. Of malt it loads only the modules beside it that are named below, also by their paths. So the
program finds the modules, sys.path and environment that it would find under plain Python, and its first line may still
set what numpy reads when it is imported.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)  # the folder of this file, which Python has added: no import may find its modules

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
from collections.abc import Sequence
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING or __name__ != "__main__":
    from malt.runner import departure, events, exit_hooks, main_file, reporting, standard_input
else:

    def _beside(name):
        """The module malt.runner.`name`, loaded by its path. When malt imports it later, it gets the same module."""
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
        spec = importlib.util.spec_from_file_location(f"malt.runner.{name}", path)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    _NAMES = "events", "reporting", "departure", "exit_hooks", "main_file", "standard_input"
    events, reporting, departure, exit_hooks, main_file, standard_input = map(_beside, _NAMES)

FAILURE_DIR = "MALT_FAILURE_DIR"
"""The variable that names the folder of the job, in which ranks report to the launcher (malt/runner/events.py).

A rank removes it from its environment: the processes that it starts are not of this job.
"""

JOB_DIR = "MALT_JOB_DIR"
"""The variable that names the same folder if ranks may fail."""

SESSION_BASE = "PRTE_MCA_prte_local_tmpdir_base"
"""The variable that tells Open MPI's mpiexec where to keep its files. The launcher sets it.

By default they lie in a folder named by the process number. If a killed job has left that folder, a later mpiexec with
the same number fails ("The PMIx server's listener thread failed to start"). A rank removes it from its environment,
too.
"""

_MARK = "+"
"""What each word of the program begins with on the line of an mpiexec, after a word that is nothing but this.

To each mpiexec a `:` begins another program. No option of any begins with a +, and no shell changes it, where a line of
--dry-run is pasted.
"""

PIPES = {1: "out", 2: "err"}
"""The pipes in the folder of the job to which ranks on the launcher's host print: out-<rank>, err-<rank>."""

_exit = os._exit  # the program's own calls are reported as an end inside MPI, this module's are not

STACKS, STACKS_SIGNAL = "stacks-{}", signal.SIGRTMAX - 4
"""The file in that folder to which a rank adds its Python stacks, and the signal at which it does so."""

_POLL_S = 0.05
_OWN_FILES = (
    __file__, main_file.__file__, os.path.join(os.path.dirname(os.path.abspath(__file__)), "function.py"),
    runpy.__file__, "<frozen runpy>",
)  # fmt: skip
"""What stands above the user's program in a traceback."""


def main() -> None:
    """Run the program that sys.argv[1:] names. Returns if it ended well. Otherwise this ends the job."""
    endpoint = os.environ.pop(reporting.CONTROL_SERVER, "").split()
    folder = reporting.start(os.environ.pop(FAILURE_DIR, None), endpoint)
    # so that all others get this module, not a second copy
    sys.modules["malt.runner.program"] = sys.modules[__name__]
    os.environ.pop(SESSION_BASE, None)
    sys.argv[:] = _unmarked(sys.argv[1:])
    kind = sys.argv.pop(0) if sys.argv[0] in ("-c", "-m") else ""
    program = sys.argv[0]
    if kind == "-c":
        sys.argv[0] = kind
    if not getattr(sys.flags, "safe_path", False):
        places = {"-c": "", "-m": os.getcwd()}
        sys.path.insert(0, places[kind] if kind else main_file.folder(program))
    _print_to_the_launcher(folder)
    _write_whole_lines()
    standard_input.take(folder, reporting.rank(), bool(reporting.incarnation()))
    write_stacks_when_asked(folder)
    try:
        _join_the_job(folder)
        if kind == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        elif kind == "-c":
            _run(compile(program, "<string>", "exec", dont_inherit=True), ModuleType("__main__"))
        else:
            _run(*main_file.load(program))
    except SystemExit as error:
        _exited(error)
    except BaseException as error:
        _failed(error)


def marked(program: Sequence[str]) -> list[str]:
    """Return the words PROGRAM ARGS... such that none of them means anything to an mpiexec. Pure."""
    return [_MARK, *(_MARK + word for word in program)]


def _unmarked(words: list[str]) -> list[str]:
    """The words PROGRAM ARGS... of a line on which they may be `marked`: a plain process gets them as they are."""
    return [word[len(_MARK) :] for word in words[1:]] if words[0] == _MARK and not reporting.is_plain() else words


def _join_the_job(folder: str | None) -> None:
    """Report the start of this rank. From here on it takes the signals of the launcher, and reports how it ends."""
    departure.take_signals()
    if reporting.is_plain():
        departure.refuse_mpi()
    atexit.register(_end)
    if JOB_DIR not in os.environ and folder is not None:
        departure.report_end_inside_mpi()
        departure.show_closing(folder)
    threading.excepthook = exit_hooks.after_thread(threading.excepthook, _end_job_for_thread)
    if reporting.CALL in os.environ:  # last: from here on such a signal may come
        threading.Thread(target=departure.listen, args=[int(os.environ[reporting.CALL])], daemon=True).start()
    elif folder is not None:
        _report_start(folder)


def _report_start(folder: str) -> None:
    """Report the start of this rank. Where it cannot be written, as on a full disk, end the job: others would wait."""
    try:
        events.append(folder, events.event(events.Kind.STARTED, int(reporting.rank()), departure.process()))
    except FileNotFoundError:  # the folder is on another host
        return
    except OSError as error:
        if reporting.is_first_without_space(folder):
            print(
                f"malt: rank {reporting.rank()} cannot write to the folder of the job, {folder}: {error.strerror}: "
                "free space there, or set TMPDIR to another folder", file=sys.stderr,
            )  # fmt: skip
        reporting.report(events.Kind.STATUS, "1")
        _leave(1)


def _exited(error: SystemExit) -> None:
    """End after a SystemExit of the program. If this returns or raises it again, the interpreter ends as usual."""
    status = exit_hooks.status_of(error)
    if not reporting.is_rank():
        exit_hooks.note_child_status(status)  # they cannot see a bare `raise SystemExit`
        raise
    if departure.is_leaving():
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return
    if status == 0 or (_is_alone() and JOB_DIR not in os.environ):
        raise
    if not isinstance(error.code, int):
        with contextlib.suppress(Exception):
            print(error.code, file=sys.stderr)
    if (reporting.folder() is not None or reporting.is_plain()) and _session_is_over():
        # All ranks end by themselves: the launcher gets the status, and mpiexec sees a good end.
        reporting.report(events.Kind.STATUS, str(status))
        return
    _end_job(status)


def _failed(error: BaseException) -> None:
    """End after another exception of the program. Returns only if the launcher asked this rank to leave."""
    if not reporting.is_rank():
        raise
    error.__traceback__ = _without_this_file(error.__traceback__)
    if departure.is_leaving():
        if not isinstance(error, KeyboardInterrupt):
            reporting.report_traceback(error)  # the launcher prints the first
        return
    if type(error).__name__ == "PeerLost" and departure.follow_others():
        return
    reporting.report_traceback(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)  # malt.init's hook ends the job itself
    except BaseException:
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        _end_job(130 if isinstance(error, KeyboardInterrupt) else 1)


def _run(code: CodeType, module: ModuleType) -> None:
    vars(module)["__builtins__"] = builtins
    sys.modules["__main__"] = module
    exec(code, vars(module))


def write_stacks_when_asked(folder: str | None) -> None:
    """Have the stacks of all threads written at each STACKS_SIGNAL, also while C code runs. Local."""
    if folder is not None:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(STACKS_SIGNAL, signal.SIG_IGN)  # faulthandler restores it: else a late one ended the rank
        with contextlib.suppress(OSError, ImportError):
            import faulthandler

            path = os.path.join(folder, STACKS.format(reporting.rank()))
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            faulthandler.register(STACKS_SIGNAL, file)


def _end() -> None:
    """Report how this rank has ended, as the last exit handler.

    If MPI_Finalize would wait for ranks that leave later, the process ends without it.
    """
    if not reporting.is_rank():
        return
    departure.ignore_signals()
    if departure.is_leaving() and JOB_DIR not in os.environ:
        departure.wait_to_be_killed()
    elif not departure.is_leaving() and not exit_hooks.has_left():
        reporting.report(events.Kind.FINISHED)


def _end_job(status: int) -> NoReturn:
    """End all ranks at once with `status`, or this rank alone if ranks may fail. Does not return."""
    goes_on = JOB_DIR in os.environ and not _session_is_over()  # after it no rank takes over the work of this one
    reporting.report(events.Kind.LEFT if goes_on else events.Kind.STATUS, str(status))
    _leave(status)


def _leave(status: int) -> NoReturn:
    """End this rank, and where none may fail all others, with `status`. Does not return."""
    departure.flush()
    time.sleep(exit_hooks.DRAIN_S)
    if JOB_DIR in os.environ:
        _exit(status)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized():
        _ask_process_manager(status)
    elif not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(status)
    _exit(status)


def _ask_process_manager(status: int) -> None:
    """Ask the process manager of MPICH or Intel MPI to abort the job, over the socket PMI_FD.

    Call it before MPI_Init only: the library uses the socket then, and after MPI_Finalize it may be another file.
    """
    descriptor = os.environ.get("PMI_FD", "")
    if descriptor.isdigit():
        try:
            if stat.S_ISSOCK(os.fstat(int(descriptor)).st_mode):
                os.write(int(descriptor), b"cmd=abort exitcode=%d\n" % status)
        except OSError:
            pass


def _session_is_over() -> bool:
    """Return whether malt.finalize has ended the session on all ranks, and MPI, if any, is not finalized yet."""
    mpi = sys.modules.get("mpi4py.MPI")
    is_open = reporting.is_plain() or (mpi is not None and not mpi.Is_finalized())
    return is_open and exit_hooks.session_is_over()


def _is_alone() -> bool:
    """Return whether MPI runs here and this is its only rank: no other could wait for it."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.size == 1


def _end_job_for_thread(status: int) -> None:
    """End the job with `status`, as a thread has failed. Local."""
    if reporting.is_rank() and not departure.is_leaving():
        _end_job(status)


def _without_this_file(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame of the program on, as plain Python prints it."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
        trace = trace.tb_next
    return trace


def _print_to_the_launcher(folder: str | None) -> None:
    """Print to the pipes of the launcher, if it is on this host. Otherwise mpiexec gets the output, as usual."""
    for number, name in PIPES.items():
        with contextlib.suppress(OSError):
            path = os.path.join(folder or os.devnull, f"{name}-{reporting.rank()}")
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(pipe, True)
            os.dup(number)  # keeps it open: Open MPI's mpiexec complains if it is closed before the process ends
            os.dup2(pipe, number)
            os.close(pipe)


def _write_whole_lines() -> None:
    """Write stdout and stderr line by line, so that lines of several ranks do not get mixed.

    The stdout of a rank is often a pipe. With block buffering, its buffer is lost when the job is ended. With
    PYTHONUNBUFFERED, each piece of a print is a write of its own.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = encoding_of_lines(stream.encoding)
            stream.reconfigure(encoding=encoding, errors=stream.errors, line_buffering=True, write_through=False)


def encoding_of_lines(wanted: str) -> str:
    """Return the encoding of what ranks print: `wanted`, or UTF-8 in place of UTF-16, say, whose newline is no byte.

    The launcher would find no lines in that. Pure.
    """
    return wanted if "\n".encode(wanted) == b"\n" else "utf-8"


if __name__ == "__main__":
    main()

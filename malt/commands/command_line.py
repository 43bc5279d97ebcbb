"""The command line, `malt COMMAND ...`: the start of its commands."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from malt.launch.machine.mpi_library import LaunchError, Library, looking_for_library

if TYPE_CHECKING:
    import argparse

    from malt.commands import options

_NO_MPI = "--survive", "--elastic"
"""What the options of a job begin with whose ranks load no MPI."""
_SURVIVE = "MALT_SURVIVE"
"""That of malt/runner/reporting.py. What takes time to load is loaded while another process looks for the library."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name, and return its exit status. Local.

    `arguments`: the words after `malt`. None: those of this process.
    """
    _open_what_is_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # it may lack dashes, and letters of names
    if arguments is None:
        _end_in_order()
    words = list(sys.argv[1:] if arguments is None else arguments)
    may_need_mpi = words[:1] == ["run"] and not any(word.startswith(_NO_MPI) for word in words)
    with _printing(), looking_for_library(may_need_mpi and not os.environ.get(_SURVIVE)) as library:
        return _main(words, library)


@contextlib.contextmanager
def _printing() -> Iterator[None]:
    """Have the block end the process where what it prints cannot be written: quietly where nobody reads it."""
    try:
        yield
    except BrokenPipeError as error:
        _end_unwritten(error)
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            _end_unwritten(error)


def _end_unwritten(error: OSError) -> NoReturn:
    """End the process, whose output cannot be written because of `error`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python says at its end what it could not write
    is_unread = isinstance(error, BrokenPipeError)  # as by `| head -1`
    sys.exit(128 + signal.SIGPIPE if is_unread else f"malt: the output cannot be written: {error.strerror}")


def _main(words: list[str], library: Callable[[], Library]) -> int:
    from malt.commands import hints, options
    from malt.launch.program import named

    parser = options.parser(next(iter(words), ""))
    hints.check_command(words, parser)
    own, program = options.split(words, parser)
    chosen, unknown = parser.parse_known_args(own)
    try:
        hints.check_options(chosen.command, unknown, parser)
        _check_temporary_files()
        if chosen.command != "run":
            return _other(chosen, program, parser)
        from malt.commands import run

        is_marked = words[len(own) : len(own) + 1] == ["--"]
        return run.main(chosen, own, named(program, chosen.module), is_marked, library)
    except LaunchError as error:
        print(f"malt {chosen.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before a job began, or of another command: during a job Signals handles it
        print(f"malt {chosen.command}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def _other(chosen: argparse.Namespace, program: Sequence[str], parser: options.Parser) -> int:
    """Run a command that starts no job of its own. Each loads what it needs."""
    if chosen.command == "doctor":
        from malt.commands.doctor import command as doctor

        return doctor.main(chosen.n, chosen.json, chosen.hosts)
    if chosen.command == "graph":
        from malt.commands import graph

        return graph.main(chosen.name, chosen.n, chosen.degree, chosen.seed, chosen.hosts, chosen.json, chosen.plot)
    if chosen.command == "plan":
        from malt.commands.plan import command as plan
        from malt.launch.program import named

        return plan.main(
            named(program, chosen.module), chosen.ranks, chosen.slots, chosen.loss, chosen.json, chosen.latency,
            chosen.bandwidth,
        )  # fmt: skip
    if chosen.command == "report":
        from malt.commands import report

        return report.main(chosen.folders, chosen.output)
    if chosen.command == "scale":
        from malt.commands import scale

        return scale.main(chosen.job, chosen.n)
    if chosen.command == "completion":
        from malt.commands import completion

        print(completion.script(parser, chosen.shell), end="")
        return 0
    from malt.commands import watching

    if chosen.command == "stacks":
        return watching.print_stacks(chosen.job)
    return watching.status(chosen.job, chosen.json)


def _end_in_order() -> None:
    """Have SIGTERM and SIGHUP end this process by SystemExit, which removes what it has made. During a job Signals
    handles them."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # else it is ignored, as under nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def _open_what_is_closed() -> None:
    """Open /dev/null for each closed standard stream (`malt run ... >&-`), whose number any file could take."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest number that is free
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")


def _check_temporary_files() -> None:
    """Raise LaunchError where no folder for temporary files can be written to: a job has one."""
    import tempfile  # the look at the library begins before

    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        trouble = "no folder for temporary files, such as /tmp, is writable: set TMPDIR to one that is"
        raise LaunchError(trouble) from None

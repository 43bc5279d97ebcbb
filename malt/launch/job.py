"""A job from the start of its mpiexec to its end, after which nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dstorm.transports.links import handshake
from dstorm.words import count
from malt.launch.command import Line, is_here
from malt.launch.environment import RESTART, travelling
from malt.launch.hosts.agent.processes import WITHIN, of_job
from malt.launch.hosts.agent.watch import clean
from malt.launch.hosts.ending import Ending
from malt.launch.hosts.own_agent import guarded
from malt.launch.hosts.plain.remote_ranks import RemoteRanks
from malt.launch.hosts.remote import RemoteHosts
from malt.launch.injection.striker import Striker
from malt.launch.machine import open_files
from malt.launch.machine.mpi_library import LaunchError
from malt.launch.processes.departure import Departure
from malt.launch.processes.signals import Signals
from malt.launch.processes.supervisor import Supervised
from malt.launch.reports.control import ControlServer
from malt.launch.reports.follower import Follower
from malt.launch.reports.job_state import BAD_INPUT, ends_inside_mpi, failed_with
from malt.launch.reports.observer import Observer
from malt.launch.streams.display import say
from malt.launch.streams.output import Output
from malt.runner import roster
from malt.runner.departure import GRACE_S
from malt.runner.events import History, Kind, Stream
from malt.runner.program import FAILURE_DIR, JOB_DIR, SESSION_BASE
from malt.runner.reporting import CONTROL_SERVER, KEY
from malt.runner.roster import Roster
from malt.watch import jobs

REMOTE_SESSION_BASE = "PRTE_MCA_prte_remote_tmpdir_base"
"""The same as SESSION_BASE, for the other hosts, on which the folder of the job has the same name."""
_LAST = "_"
"""A variable that no other host gets. MPICH's mpiexec, told which variables to pass on, leaves out the last one."""
_REMEDY = "free space there, or set TMPDIR to another folder"
"""What to do where the folder of a job cannot be written to."""
_FILES_AWAY, _FILES_OF_HOST = 3, 3
"""Files that are open here for each rank on another host, beside its pipes, and for each such host, where each is
started by itself."""
_KILLING = {
    getattr(signal, name)
    for name in ("SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGPIPE", "SIGALRM",
                 "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGXFSZ", "SIGSYS")
}  # fmt: skip
"""Signals that kill a Python process, without 1 to 3, with which mpiexec itself ends."""

_FAILED, _EXIT_CODE = 255, re.compile(rb"^=   EXIT CODE: (\d+)\r?$", re.MULTILINE)

Ends = tuple[Callable[[], int | None], Callable[[], bool], Callable[[], bool]]
"""The arguments of Supervised.wait."""


class End(NamedTuple):
    """The end of a job."""

    status: int
    is_notified: bool = False
    """Whether the job was ended by a signal to the launcher."""
    goes_on: bool = False
    """Whether ranks may continue on hosts that this one has lost."""
    is_done: bool = False
    """Whether the ranks have ended well, and the status is not 0 as what they printed could not be written."""


def run(
    line: Line, environ: Mapping[str, str], grace_s: float = GRACE_S, remote: RemoteHosts | None = None
) -> End:  # fmt: skip
    """Run `line` to its end and return how it ended. After a failure print the traceback of the first failed rank.

    `remote`: the other hosts of the job, on which nothing is left at the return. LaunchError: it cannot be started.
    """
    remote = remote or RemoteHosts()
    _allow_files(line)
    # With --survive other hosts are left to themselves: a part without the launcher may go on.
    with Signals() as signals, remote.folder(is_watched=not line.survives) as folder, guarded(folder):
        reports = Stream(folder)
        remote.add = reports.add
        follower = Follower(reports, line.job.ranks, line.is_spread, line.job.least) if line.survives else None
        _publish(folder, line)
        control_server, endpoint = _server(folder, line, reports, follower)
        ours = _variables(line, environ, str(folder), bool(remote), endpoint)
        departure = Departure(reports, line.job.ranks, line.is_spread, follower is not None, control_server)
        output = Output(folder, line.job.most, line.job.display, signals.came_again)
        job = Supervised(line, ours, signals, departure, grace_s, output)
        signals.pass_on = lambda number: departure.pass_on(number) and remote.send_signal(number)
        output.start()
        others = RemoteRanks(
            dict(line.remote_ranks or ()), line.job.most, line.job.program, _passed(ours), folder, remote
        )
        striker = Striker(folder, line)
        signals.suspends += [remote.suspend, striker.suspend]
        observer = Observer(folder, line.job.most, line.job.program, output, line.job.display.view)
        observer.start()
        striker.start()
        ending = Ending(reports, line.job.most, remote) if remote and follower is None else None
        status = _waited(job, _ends(reports, follower, ending, others), ending, signals)
        others.collect(status, signals.came_again)
        banners = output.close(observer.close())
        if control_server is not None:
            control_server.close()
        others.end()
        remote.clean()
        status = _of_the_rank(status, banners)
        status, is_printed = _settled(status, line, reports.read(), follower, signals)
        is_clean = follower is None and status == 0 and not (ending is not None and ending.is_forced)
        say(striker.close(status))
        _say_why(status, reports.read(), follower, signals.first, b"" if is_printed else banners)
        say(others.last_words)
        if not is_clean:
            _end_what_is_left(str(folder))
    is_done = status == 0 and output.has_lost()
    return End(status or int(is_done), signals.first is not None, bool(others.left), is_done)


def run_again(
    compose: Callable[[Mapping[str, str]], Line], environ: Mapping[str, str], restarts: int,
    grace_s: float = GRACE_S, remote: RemoteHosts | None = None,
) -> int:  # fmt: skip
    """Run the line that compose(environ) returns, and again after a failure of the whole job, at most `restarts` times.

    Returns the status of the last run. A job that a signal to the launcher has ended is not run again, nor one that
    ended with BAD_INPUT, nor one that has only lost what it printed, nor one whose ranks may go on elsewhere: both
    would write the same files. `remote`: the other hosts.
    """
    try:
        for attempt in range(restarts + 1):
            again = {**environ, RESTART: str(attempt)} if attempt else environ
            end = run(compose(again), again, grace_s, remote)
            is_final = end.is_notified or end.goes_on or end.is_done
            if end.status in (0, BAD_INPUT) or is_final or attempt == restarts:
                break
            say(f"malt run: the job ended with status {end.status}: restart {attempt + 1} of {restarts}\n")
        return end.status
    except KeyboardInterrupt:  # between two runs; during a run Signals handles it
        return 128 + signal.SIGINT


def _allow_files(line: Line) -> None:
    """Let this process open the pipes to which ranks print, and their connections. LaunchError: the limit is lower."""
    ranks, others = line.job.most, line.remote_ranks or ()
    files = 2 * ranks + sum(_FILES_AWAY * len(ranks) + _FILES_OF_HOST for _, ranks in others) + open_files.OTHERS
    if (limit := open_files.allow(files)) is not None:
        raise LaunchError(f"a job of {count(ranks, 'rank')} needs {files} open files here, and the limit is {limit}: "
                          f"raise it (ulimit -n {files}), or start fewer ranks")  # fmt: skip


def _publish(folder: Path, line: Line) -> None:
    """Write down which job is in `folder`. LaunchError: the disk is full."""
    ranks = line.job.ranks
    with _writing_to(folder):
        jobs.publish(folder, line.job.most, line.job.program)
        if line.job.rejoin:
            roster.write(folder, Roster.of(ranks, *(line.job.elastic or (ranks, ranks))))


@contextlib.contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """A block that writes to the folder of the job. LaunchError: it cannot, as on a full disk."""
    try:
        yield
    except OSError as error:
        raise LaunchError(f"nothing can be written to {folder.parent}: {error.strerror}: {_REMEDY}") from None


def _server(
    folder: Path, line: Line, reports: Stream, follower: Follower | None
) -> tuple[ControlServer | None, str]:  # fmt: skip
    """The control server, and its endpoint, where ranks of several hosts may fail; else None, and "".

    Ranks on all hosts find the key of the job in its folder there.
    """
    if follower is None or not line.is_spread:
        return None, ""
    key = handshake.new_key()
    file = os.open(folder / KEY, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    with _writing_to(folder), open(file, "w", encoding="utf-8") as text:
        text.write("\n".join([key, *_hosts_of_ranks(line)]))
    made = ControlServer(folder, key, [host.name for host in line.job.hosts])
    follower.report_ended, made.add = made.tell, reports.add
    return made, made.endpoint(os.uname().nodename)


def _hosts_of_ranks(line: Line) -> list[str]:
    """The name of the host of each rank."""
    here = next((host.name for host in line.job.hosts if is_here(host.name)), os.uname().nodename)
    found = [here] * line.job.most
    for host, ranks in line.remote_ranks or ():
        for rank in ranks:
            found[rank] = host
    return found


def _variables(line: Line, environ: Mapping[str, str], folder: str, has_hosts: bool, endpoint: str) -> dict[str, str]:
    """The environment of mpiexec. `has_hosts`: whether there are other hosts. `endpoint`: of a control server."""
    is_watched = has_hosts and not line.survives
    ours = {SESSION_BASE: folder, **({REMOTE_SESSION_BASE: folder} if is_watched else {}), **environ, **line.settings}
    for variable in (JOB_DIR, CONTROL_SERVER):  # of the job that starts this one
        ours.pop(variable, None)
    ours |= {FAILURE_DIR: folder, WITHIN: folder}
    ours |= {JOB_DIR: folder} if line.survives else {}
    ours |= {CONTROL_SERVER: endpoint} if endpoint else {}
    return ours | ({_LAST: ours.pop(_LAST, "")} if has_hosts or line.is_spread else {})


def _ends(
    reports: Stream, follower: Follower | None, ending: Ending | None, others: RemoteRanks
) -> Ends:
    """Functions: the status; whether ranks still run to their end; whether a host cannot be reached any more."""
    if follower is not None and others:
        status, unreached = partial(_status_of_part, follower, others), others.unreached
        return status, lambda: follower.is_ending(unreached()), lambda: bool(others.last_words)
    if follower is not None:
        return follower.status, follower.is_ending, bool
    if ending is not None:
        return ending.status, bool, lambda: ending.is_cut_off
    return lambda: failed_with(reports.read()), bool, bool


def _status_of_part(follower: Follower, others: RemoteRanks) -> int | None:
    """The status of a job that may go on without this host, or None while it runs.

    Where ranks of a host cannot start, none can meet the others: the job ends at once.
    """
    if others.last_words or others.have_failed(follower.heard()):
        return 1
    status = follower.status()
    others.stop_starting()
    others.pass_on_roster()
    if status is None and not follower.is_any_here() and others.is_cut_off(follower.state.members):
        others.leave(follower.state.members)
        return 1
    return status


def _passed(ours: Mapping[str, str]) -> dict[str, str]:
    """The variables of ranks on other hosts."""
    return {name: ours[name] for name in travelling(ours)}


def _waited(job: Supervised, ends: Ends, ending: Ending | None, signals: Signals) -> int:
    """The status with which a job has ended. `ends`: those of `_ends`."""
    status = job.wait(*ends)
    return status if ending is None or not status or signals.first is not None else ending.settled(status)


def _end_what_is_left(folder: str) -> None:
    """Kill what the job has left here, children of failed ranks say, and remove its files."""
    clean(folder)
    if left := of_job(folder):  # it waits for a disk, say
        names = ", ".join(map(str, sorted(left)))
        say(f"malt run: killed, but not ended yet: process {names}\n")


def _of_the_rank(status: int, banners: bytes) -> int:
    """The status of an mpiexec, or that which MPICH's `banners` name: it ends with 255 where its daemons fail, too."""
    found = _EXIT_CODE.search(banners) if status == _FAILED else None
    return int(found[1]) if found else status


def _settled(
    status: int, line: Line, reports: History, follower: Follower | None, signals: Signals
) -> tuple[int, bool]:  # fmt: skip
    """The status of a job whose mpiexec has ended with `status`, and whether it is printed how ranks have ended it."""
    if signals.first is not None:  # the second may have come when all had ended, and cut off what they printed
        return status or (128 + signals.first if signals.came_again() else 0), False
    if follower is not None:
        return follower.end(status), False
    status += 128 * (line.forwards_signals and _was_killed(reports, status))
    status, why = ends_inside_mpi(reports, status)
    say(why)
    return status, bool(why)


def _was_killed(reports: History, status: int) -> bool:
    """Return whether `status` is that of a signal that has killed a rank. A rank that exits by itself reports it."""
    return status in _KILLING and failed_with(reports) is None and not reports.ranks(Kind.QUIT)


def _say_why(status: int, reports: History, follower: Follower | None, number: int | None, banners: bytes) -> None:
    """Print why a job has failed: what a rank or the signal `number` has left, or else the `banners` of MPI.

    In place of banners it names the rank that has exited by itself, if one has.
    """
    why = (_notified(reports, number) or first_failure(reports)) if status != 0 else ""
    if not why and banners:
        told = next(iter(reports.texts(Kind.STATUS).items()), None)
        say(f"malt run: rank {told[0]} exited with status {told[1]}\n" if told else banners.decode(errors="replace"))
    if status != 0 and follower is not None and number is None:
        say(follower.state.silent_failures())
    say(why)


def first_failure(reports: History) -> str:
    """Return the text that ends the output: the oldest traceback, or "" without one. Pure."""
    traces = {rank: text.rstrip() for rank, text in reports.texts(Kind.TRACEBACK).items()}
    if not traces:
        return ""
    oldest = next(iter(traces.values()))
    equal = sorted(rank for rank, trace in traces.items() if trace == oldest)
    first = f", the first of {len(traces)} ranks," if len(traces) > len(equal) else ""
    return f"\nmalt run: rank{'s'[: len(equal) - 1]} {', '.join(map(str, equal))}{first} failed:\n{oldest}\n"


def _notified(reports: History, number: int | None) -> str:
    """The text that ends the output of a job that a signal has ended: where rank 0 was, or "" without a signal."""
    if number is None or reports.ranks(Kind.TRACEBACK):
        return ""
    where = "".join(f"; {text}" for text in reports.texts(Kind.WAS_AT).values())
    return f"malt run: ended by {signal.Signals(number).name}{where}\n"

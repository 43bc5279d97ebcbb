"""The line that starts a job: an mpiexec, or plain processes where ranks may fail.

Pure but for `this_machine`: the MPI library, the machine and the environment are arguments. A variable or option is set
only where it is needed, and never over the user's own setting.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dstorm.transports.progress import OPENMPI_YIELD
from dstorm.words import count
from malt.launch.environment import travelling
from malt.launch.hosts.agent.processes import WITHIN
from malt.launch.hosts.allocation import Host
from malt.launch.injection.faults import Faults
from malt.launch.machine import network
from malt.launch.machine.cores import usable_cores
from malt.launch.machine.mpi_library import LaunchError, Library
from malt.launch.streams.display import PLAIN, Display
from malt.runner.program import FAILURE_DIR, marked
from malt.runner.reporting import BEST_EFFORT, REJOIN, SURVIVE
from malt.watch.metrics import METRICS, TRACE

_SEVERAL_HOSTS = (
    "--survive: on several hosts ranks open TCP connections of their own, not encrypted: allow it with "
    "--survive=best-effort, or run on one host"
)

STARTER = str(Path(__file__).with_name("hosts") / "plain" / "starter.py")
"""The file that starts the ranks of one host as plain processes."""

RUNNER = str(Path(__file__).parents[1] / "runner" / "program.py")
"""The file that each rank starts with, which then runs the program."""

THREADS = {
    "OMP_NUM_THREADS": False,
    "OPENBLAS_NUM_THREADS": True,
    "MKL_NUM_THREADS": True,
    "BLIS_NUM_THREADS": True,
    "NUMEXPR_NUM_THREADS": True,
    "VECLIB_MAXIMUM_THREADS": False,
    "NUMBA_NUM_THREADS": False,
}
"""The variables that set how many threads a rank computes with. True: OMP_NUM_THREADS replaces the variable."""

HEAP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 26)}
"""The variables by which glibc keeps the memory of arrays up to 32 MB that are freed, for those that are made next.

glibc sets these numbers itself once an array of 32 MB is freed. Before, each new array costs a page fault for 4 KB.
"""

_BINDING_POLICIES = ("PRTE_MCA_hwloc_default_binding_policy", "OMPI_MCA_hwloc_base_binding_policy")


@dataclass(frozen=True)
class Job:
    """The job that the user asks for."""

    ranks: int
    program: tuple[str, ...]
    """PROGRAM ARGS..., -m MODULE ARGS... or -c CODE ARGS..."""
    hosts: tuple[Host, ...] = ()
    """Empty: this machine."""
    survive: str | None = None
    """The value of MALT_SURVIVE. None: unset."""
    display: Display = PLAIN
    """What the launcher shows and keeps of what ranks print."""
    metrics: str | None = None
    """The value of MALT_METRICS. None: that of the environment, if it is there."""
    trace: str | None = None
    """The folder of the trace. None: there is none."""
    rejoin: bool = False
    """Whether ranks that fail are started again."""
    elastic: tuple[int, int] | None = None
    """The least and the largest number of ranks that the job may be scaled to. None: it has always `ranks`."""

    @property
    def most(self) -> int:
        """The number of ranks for which there is to be room."""
        return self.ranks if self.elastic is None else self.elastic[1]

    @property
    def least(self) -> int:
        """The number of ranks below which the job has failed."""
        return 1 if self.elastic is None or self.elastic[0] == self.elastic[1] else self.elastic[0]


@dataclass(frozen=True)
class Machine:
    """The machine that the ranks run on. Several machines are assumed to be alike."""

    cores: int
    """The number of ranks that can compute at the same time."""
    fabrics: Collection[str] = ()
    """The fast networks, by the names of malt/launch/machine/network.py."""
    root: bool = False
    """Whether the user is root."""
    terminal: bool = True
    """Whether standard output is a terminal."""
    home: dict[str, str] = field(default_factory=dict)
    """The variable HOME, if it is to be set."""


@dataclass(frozen=True)
class Line:
    """A command line, and the variables that it adds to the environment."""

    settings: dict[str, str]
    arguments: list[str]
    job: Job
    """What it starts."""
    forwards_signals: bool = False
    """Whether it ends with status n, not 128 + n, after signal n has killed a rank."""
    is_spread: bool = False
    """Whether some ranks may be on other hosts."""
    remote_ranks: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    """Other hosts and their ranks, where ranks are plain processes, and each may fail alone. None: mpiexec starts them
    all."""
    ended_by: int = signal.SIGTERM
    """The signal that ends it. Where that is another, SIGTERM is for the launcher alone."""
    faults: Faults | None = None
    """What the launcher does to ranks of this host."""

    @property
    def survives(self) -> bool:
        """True if live ranks go on when one fails."""
        return self.remote_ranks is not None

    @property
    def passes_input_on(self) -> bool:
        """True if rank 0 reads the input of mpiexec, as it is on another host."""
        return self.is_spread and not self.survives and not is_here(self.job.hosts[0].name)

    def __str__(self) -> str:
        """The line in the syntax of a shell."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.settings.items()]
        return " ".join([*settings, shlex.join(self.arguments)])


def is_here(name: str) -> bool:
    """Return whether `name` is of this machine, also where only one of the two names has a domain. Local."""
    own = os.uname().nodename
    if name in ("localhost", "127.0.0.1", own):
        return True
    return ("." in name) != ("." in own) and name.split(".")[0] == own.split(".")[0]


def this_machine() -> Machine:
    """Return what is known of the launcher's machine. Local."""
    return Machine(
        cores=usable_cores(),
        fabrics=network.found(),
        root=os.geteuid() == 0,
        terminal=sys.stdout.isatty(),
        home=network.home_of(os.environ),
    )


def compose(job: Job, library: Library | None, mpiexec: str, machine: Machine, environ: Mapping[str, str]) -> Line:
    """Return the line that starts `job`: with `mpiexec`, that of `library`, unless ranks may fail. Pure.

    LaunchError: the hosts have too few slots, or ranks may fail on several hosts, and best-effort is not asked for.
    """
    placed = with_slots(job.hosts, job.most)
    per_machine = min(job.most, max((host.slots or 0 for host in placed), default=job.most))
    crowded = per_machine > machine.cores
    settings = _threads(max(1, machine.cores // per_machine), environ) | HEAP
    if job.survive:
        return _plain(job, placed, settings, environ)
    assert library is not None  # no mpiexec without one
    options = ["-n", str(job.ranks)]
    is_spread = any(not is_here(host.name) for host in placed)
    if job.metrics is not None:
        settings[METRICS] = job.metrics
    if job.trace is not None:
        settings[TRACE] = job.trace
    if job.display.label and is_spread:
        options += _labelling(library)
    if is_spread:
        settings |= network.between_hosts(library, environ)
    if library.family == "openmpi":
        settings |= _openmpi_settings(library, machine, crowded, job.ranks == 1)
        if not machine.terminal and "FORCE_COLOR" not in environ:
            settings["NO_COLOR"] = "1"  # its ranks print to a pseudo-terminal, and would colour what goes into a file
        options += _openmpi_options(environ)
    ours = {**settings, FAILURE_DIR: "", WITHIN: ""}
    options += _hosts_options(library.family, placed, travelling({**environ, **ours}) if is_spread else [])
    added = {name: value for name, value in settings.items() if name not in environ}
    command = [mpiexec, *options, sys.executable, RUNNER, *marked(job.program)]
    forwards_signals = library.family != "openmpi"
    ended_by = signal.SIGTERM if forwards_signals else signal.SIGHUP
    return Line(added, command, job, forwards_signals, is_spread, ended_by=ended_by)


def _plain(job: Job, placed: Sequence[Host], settings: Mapping[str, str], environ: Mapping[str, str]) -> Line:
    """The line that starts the ranks of this host as plain processes. An mpiexec would end all where one fails."""
    named = {SURVIVE: job.survive, METRICS: job.metrics, TRACE: job.trace, REJOIN: "1" if job.rejoin else None}
    ours = {**settings, **{name: value for name, value in named.items() if value is not None}}
    left, here, away = list(range(job.most)), list[int](), dict[str, tuple[int, ...]]()
    for host in placed or (Host("localhost", job.most),):
        ranks, left = left[: host.slots], left[host.slots :]
        if is_here(host.name):
            here += ranks
        elif ranks:
            away[host.name] = (*away.get(host.name, ()), *ranks)
    words = [sys.executable, STARTER, ",".join(map(str, here)) or "-", str(job.most), *job.program]
    added = {name: value for name, value in ours.items() if name not in environ}
    if away and job.survive != BEST_EFFORT:
        raise LaunchError(_SEVERAL_HOSTS)
    return Line(added, words, job, False, bool(away), tuple(away.items()), signal.SIGHUP)


def _labelling(library: Library) -> list[str]:
    """Options that make mpiexec prefix lines by their rank. The launcher gives all prefixes the same form."""
    if library.family != "openmpi":
        return ["-l"]
    return ["--output", "tag"] if library.version[0] >= 5 else ["--tag-output"]


def with_slots(hosts: Sequence[Host], ranks: int) -> tuple[Host, ...]:
    """The hosts, each with a number of slots. Local. LaunchError: they are too few for so many ranks.

    Without one Open MPI assumes 1 slot, and MPICH deals ranks in turn.
    """
    given = sum(host.slots or 0 for host in hosts)
    sharing = sum(host.slots is None for host in hosts)
    if hosts and not sharing and given < ranks:
        raise LaunchError(f"the hosts have {count(given, 'slot')}, too few for {ranks} ranks: {_joined(hosts)}")
    share = max(1, -(-(ranks - given) // max(1, sharing)))
    return tuple(Host(host.name, host.slots or share) for host in hosts)


def _joined(hosts: Sequence[Host]) -> str:
    return ",".join(map(str, hosts))


def _threads(threads: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that limit each rank to `threads` threads. The user's OMP_NUM_THREADS holds for the other libraries."""
    wanted = (name for name, follows in THREADS.items() if not (follows and "OMP_NUM_THREADS" in environ))
    return dict.fromkeys(wanted, str(threads))


def _openmpi_settings(library: Library, machine: Machine, crowded: bool, alone: bool) -> dict[str, str]:
    settings = network.settings(machine.fabrics, alone) | machine.home
    if machine.root:
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if crowded and library.version[0] >= 5:
        settings["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    elif crowded:
        settings["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    if crowded:
        # Open MPI compares the ranks with the cores of the machine, not with a quota or an affinity mask. A rank that
        # waits without yielding then keeps the rank that it waits for off its core (a barrier takes 5 ms).
        settings[OPENMPI_YIELD] = "1"
    return settings


def _openmpi_options(environ: Mapping[str, str]) -> list[str]:
    if any(policy in environ for policy in _BINDING_POLICIES):
        return []
    # By default Open MPI binds a rank and all its threads to one core. It is the same core in each job on the machine,
    # and may lie outside the launcher's affinity mask.
    return ["--bind-to", "none"]


def _hosts_options(family: str, placed: Sequence[Host], names: Sequence[str]) -> list[str]:
    """Options for the hosts. `names`: the variables that ranks there get, whose values no command line shows.

    Open MPI itself passes on only its own, and MPICH also those of the session and the terminal.
    """
    if not placed:
        return []
    if family == "openmpi":
        others = (name for name in names if not name.startswith(("OMPI_", "PRTE_", "PMIX_")))
        return ["--host", _joined(placed), *(word for name in others for word in ("-x", name))]
    passed = ["-genvlist", ",".join(names)] if names else []
    if family != "intel":
        return ["-hosts", _joined(placed), *passed]
    if len({host.slots for host in placed}) > 1:
        raise LaunchError("Intel MPI's mpiexec takes the same number of slots for all hosts")
    return ["-hosts", ",".join(host.name for host in placed), "-ppn", str(placed[0].slots), *passed]

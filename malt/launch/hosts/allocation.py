"""The hosts that a hostfile names, or that a batch system has granted. Pure but for `found`, which reads files.

Slurm          SLURM_JOB_NODELIST, with brackets as in n[01-03,7]; SLURM_TASKS_PER_NODE, as in 2(x3),1
PBS, Torque    the file PBS_NODEFILE: a line a slot
LSF            LSB_MCPU_HOSTS, pairs of host and slots; else the file LSB_DJOB_HOSTFILE, a line a slot
MPIJob         the hostfile that the operator of Kubernetes names to the MPI library, /etc/mpi/hostfile

A hostfile has a line a host, in the syntax of Open MPI or of MPICH: `a slots=2`, `a:2`, or `a`, which may come again.
What follows # is a comment.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from malt.launch.machine.mpi_library import LaunchError

BATCH_JOBS = "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"
"""The variables of batch systems that may start the daemons of mpiexec themselves, without ssh."""
MPIJOB_FILES = (
    "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"
)  # fmt: skip
"""The variables in which the operator of MPIJob names its hostfile: for Open MPI, MPICH and Intel MPI."""

MOST_RANKS = 1 << 22
"""The most processes that Linux has (proc_sys_kernel(5), pid_max)."""
_WORD = r"(?:[^\[\],]|\[[^\[\]]*\])+"
"""A word of a node list of Slurm: commas within brackets are of it."""


@dataclass(frozen=True)
class Host:
    """A host to start ranks on."""

    name: str
    slots: int | None = None
    """The number of ranks it takes. None: its share of the ranks."""

    def __str__(self) -> str:
        return self.name if self.slots is None else f"{self.name}:{self.slots}"


@dataclass(frozen=True)
class Allocation:
    """Hosts, and where they are from."""

    hosts: tuple[Host, ...]
    source: str
    """As in `from the Slurm allocation 17`."""
    is_binding: bool = False
    """Whether more ranks than slots are an error: the user has counted the slots."""

    def slots(self, cores: int) -> int:
        """Return how many ranks the hosts take. `cores`: how many a host takes for which no slots are counted."""
        return sum(host.slots or cores for host in self.hosts)

    def shared_by(self, ranks: int) -> tuple[Host, ...]:
        """The hosts for so many ranks. Where a batch system grants fewer slots each gets its share of the ranks."""
        given = sum(host.slots or 0 for host in self.hosts)
        if self.is_binding or given >= ranks or any(host.slots is None for host in self.hosts):
            return self.hosts
        return tuple(Host(host.name) for host in self.hosts)


def hosts(text: str) -> tuple[Host, ...]:
    """Return the hosts of `h1,h2:slots`. ValueError: the text has another form."""
    return tuple(_host(word) for word in text.split(","))


def of_hostfile(text: str) -> tuple[Host, ...]:
    """Return the hosts of a hostfile, in the order of their first lines. ValueError: a line has another form."""
    found: dict[str, int | None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        try:
            host = _of_line(words)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if host.name in found:  # each line without a count is a slot, as for Open MPI and PBS
            found[host.name] = (found[host.name] or 1) + (host.slots or 1)
        else:
            found[host.name] = host.slots
    return tuple(Host(name, slots) for name, slots in found.items())


def _of_line(words: Sequence[str]) -> Host:
    """A line of Open MPI: `name slots=2 max_slots=4`, or of MPICH: `name:2 binding=...`. Other words say no slots."""
    host = _host(words[0])
    slots = [word.partition("=")[2] for word in words[1:] if re.match(r"slots=|cpus?=|count=", word)]
    return _host(f"{host.name}:{slots[0]}") if slots else host


def _host(word: str) -> Host:
    name, colon, slots = word.partition(":")
    if not name or name.startswith("-") or name.split() != [name]:
        raise ValueError(f"no host name in {word!r}")
    if colon and not (slots.isdecimal() and 0 < int(slots) <= MOST_RANKS):
        raise ValueError(f"the slots of a host are a number from 1 to {MOST_RANKS}, not {slots!r}")
    return Host(name, int(slots) if colon else None)


def expanded(nodelist: str) -> list[str]:
    """Return the names in a node list of Slurm, `n[01-03,7],x`, in its order. ValueError: brackets do not match."""
    if not re.fullmatch(f"{_WORD}(,{_WORD})*", nodelist):
        raise ValueError(f"brackets do not match in {nodelist!r}")
    return [name for word in re.findall(_WORD, nodelist) for name in _expanded(word)]


def _expanded(word: str) -> Iterator[str]:
    head, bracket, rest = word.partition("[")
    if not bracket:
        yield head
        return
    inside, _, tail = rest.partition("]")
    for span in inside.split(","):
        first, dash, last = span.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise ValueError(f"no range of numbers: {span!r}")
        for number in range(int(first), int(last or first) + 1):
            for end in _expanded(tail):
                yield f"{head}{number:0{len(first)}d}{end}"


def counts(text: str) -> list[int]:
    """Return the numbers that Slurm writes as `2(x3),1`. ValueError: the text has another form."""
    found: list[int] = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", word)
        if match is None:
            raise ValueError(f"no number of tasks: {word!r}")
        found += [int(match[1])] * int(match[2] or 1)
    return found


def found(environ: Mapping[str, str], read: Callable[[str], str] | None = None) -> Allocation | None:
    """Return the hosts that a batch system has granted, or None without one. Reads files, by read(path).

    LaunchError: its variables or files have no known form.
    """
    for batch_system in (_slurm, _pbs, _lsf, _mpijob):
        try:
            made = batch_system(environ, read or _text)
        except (OSError, ValueError) as error:
            what = f"the hosts that {batch_system.__name__.strip('_')} has granted"
            raise LaunchError(f"{what} cannot be read ({error}): name them by --hosts") from None
        if made is not None and made.hosts:
            return made
    return None


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8-sig", errors="replace")


def _slurm(environ: Mapping[str, str], read: Callable[[str], str]) -> Allocation | None:
    nodelist = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not nodelist:
        return None
    names = expanded(nodelist)
    tasks = counts(environ["SLURM_TASKS_PER_NODE"]) if environ.get("SLURM_TASKS_PER_NODE") else []
    # Within a step of fewer nodes the counts are those of the step: the ranks are then shared.
    slots: Iterable[int | None] = tasks if len(tasks) == len(names) else itertools.repeat(None)
    where = tuple(Host(name, count or None) for name, count in zip(names, slots, strict=False))
    return Allocation(where, f"the Slurm allocation {environ.get('SLURM_JOB_ID', '')}".strip())


def _pbs(environ: Mapping[str, str], read: Callable[[str], str]) -> Allocation | None:
    path = environ.get("PBS_NODEFILE")
    if not path:
        return None
    return Allocation(_lines(read(path)), f"the PBS allocation {environ.get('PBS_JOBID', '')}".strip())


def _lsf(environ: Mapping[str, str], read: Callable[[str], str]) -> Allocation | None:
    source = f"the LSF allocation {environ.get('LSB_JOBID', '')}".strip()
    if words := environ.get("LSB_MCPU_HOSTS", "").split():
        if len(words) % 2 or not all(word.isdecimal() for word in words[1::2]):
            raise ValueError(f"LSB_MCPU_HOSTS has no pairs of host and slots: {' '.join(words)!r}")
        slots: Counter[str] = Counter()
        for name, count in zip(words[::2], words[1::2], strict=True):
            slots[name] += int(count)
        return Allocation(tuple(Host(name, count) for name, count in slots.items() if count), source)
    path = environ.get("LSB_DJOB_HOSTFILE")
    return Allocation(_lines(read(path)), source) if path else None


def _mpijob(environ: Mapping[str, str], read: Callable[[str], str]) -> Allocation | None:
    path = next((environ[name] for name in MPIJOB_FILES if environ.get(name)), None)
    return Allocation(of_hostfile(read(path)), f"the hostfile {path}") if path else None


def _lines(text: str) -> tuple[Host, ...]:
    """The hosts of a file with a line a slot."""
    names = Counter(line.strip() for line in text.splitlines() if line.strip())
    return tuple(Host(name, count) for name, count in names.items())

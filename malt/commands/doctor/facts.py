"""The facts from which `malt doctor` reports. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from malt.commands.doctor.self_test import Examination
from malt.launch.machine.mpi_library import Library


@dataclass(frozen=True)
class Outcome:
    """The outcome of the job."""

    status: int | None
    """Its exit status. None: it did not end in time, and was ended."""
    seconds: float
    """How long it ran."""
    messages: str
    """Its output without the examination."""


@dataclass(frozen=True)
class Facts:
    """The facts known of this machine. Fields that are None are unknown, often because of `trouble`."""

    malt: str
    python: str
    numpy: str
    ranks: int
    """The number of ranks that the user asked for."""
    cores: int
    """The number of ranks that can compute at the same time."""
    processors: int
    """The number of processors, hardware threads included, in the affinity mask."""
    shm_nbytes: int | None = None
    """The size of /dev/shm. None: it does not exist."""
    shm_free_nbytes: int | None = None
    """The free space of /dev/shm."""
    shm_is_writable: bool = True
    """Whether this user can make files in it."""
    mpi4py: str | None = None
    """The version of mpi4py."""
    library: Library | None = None
    """The MPI library that mpi4py is bound to."""
    mpiexec: str | None = None
    """The mpiexec that belongs to the library."""
    other_mpiexec: str | None = None
    """The mpiexec that a shell finds, if it is another file."""
    where: str = ""
    """The hosts of the job, as for --hosts. Empty: this machine."""
    missing: tuple[str, ...] = ()
    """What is not installed of what MALT can do without."""
    kernels: tuple[str, str] = ("", "")
    """How kernels are compiled; what helps if they are not, or not once for all."""
    trouble: str = ""
    """The reason why no job could be started."""
    job: Outcome | None = None
    examination: Examination | None = None

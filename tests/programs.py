"""Programs of apps/, run as jobs of their own or in this process, and what they print last."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hung import below

import malt
from apps.harness import checkpoints

ROOT = Path(__file__).parents[1]


def as_job(module, environment):
    """A function that runs `malt run -n RANKS -m MODULE ARGUMENTS` to its end."""

    def start(*arguments, ranks):
        command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), "-m", module, *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)

    return start


def in_process(run, capsys):
    """A function that runs run(arguments) here, on simulated ranks, and returns what they print."""

    def call(*arguments, ranks=1, seed=0):
        words = [str(argument) for argument in arguments]
        malt.simulate(lambda rank: run(words), ranks, seed)
        return subprocess.CompletedProcess(arguments, 0, *capsys.readouterr())

    return call


def on_simulated_ranks(run, folder):
    """A function that runs run(arguments) on simulated ranks: its report, and the model that it saves."""

    def simulated(ranks, *arguments):
        report, model = folder / "report.json", folder / "model.npz"
        words = [str(word) for word in (*arguments, "--json", report, "--save", model)]
        malt.simulate(lambda rank: run(words), ranks)
        return json.loads(report.read_text()), malt.files.load_npz(model)

    return simulated


class Died(BaseException):
    """An error in place of a kill."""


@contextlib.contextmanager
def dying_after(epoch):
    """A block in which ranks of this process die, once the lowest has saved a checkpoint at the end of `epoch`."""
    save = checkpoints.Checkpoints.save

    def save_and_die(self, at, *rest, **named):
        save(self, at, *rest, **named)
        if at == epoch and malt.lowest():  # under asp others are there before it
            raise Died

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Died):
        patch.setattr(checkpoints.Checkpoints, "save", save_and_die)
        yield


def last_line(done, shape):
    """The groups of `shape` in the last line of a run that ended well and without a complaint.

    On a machine with other work ranks may have to wait for each other.
    """
    assert done.returncode == 0, done.stderr
    assert re.sub(r"malt: waiting for rank.*\n", "", done.stderr) == ""
    return re.fullmatch(shape, done.stdout.splitlines()[-1]).groups()


def kill_all(launcher):
    """Kill all that came from the launcher."""
    for process, *_ in below(launcher.pid):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(process, signal.SIGKILL)
    launcher.wait(100)

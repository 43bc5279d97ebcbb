"""Programs of apps/, run as jobs of their own or in this process, and what they print last."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def as_job(module, environment):
    """A function that runs `malt run -n RANKS -m MODULE ARGUMENTS` to its end."""

    def start(*arguments, ranks):
        command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), "-m", module, *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)

    return start


def in_process(run, capsys):
    """A function that runs run(arguments) here, in a world of one."""

    def call(*arguments):
        run([str(argument) for argument in arguments])
        return subprocess.CompletedProcess(arguments, 0, capsys.readouterr().out, "")

    return call


def last_line(done, shape):
    """The groups of `shape` in the last line of a run that ended well and without a complaint.

    On a machine with other work ranks may have to wait for each other.
    """
    assert done.returncode == 0, done.stderr
    assert re.sub(r"malt: waiting for rank.*\n", "", done.stderr) == ""
    return re.fullmatch(shape, done.stdout.splitlines()[-1]).groups()

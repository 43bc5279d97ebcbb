"""Where a job hangs that a test ends, as it has taken too long: its processes, and the stacks of its ranks."""

import contextlib
import subprocess
import sys
from pathlib import Path


def show_before_kill():
    """Have subprocess.run print that before it kills what has not ended in time."""
    kill = subprocess.Popen.kill

    def show_and_kill(process):
        if isinstance(sys.exc_info()[1], subprocess.TimeoutExpired):
            with contextlib.suppress(Exception):
                print(report(process.pid), file=sys.stderr)
        kill(process)

    subprocess.Popen.kill = show_and_kill


def report(launcher):
    """The processes below `launcher`, and the Python stacks of the ranks, if it is `malt run`."""
    lines = [f"process {number}: {state}, in {place}: {words}" for number, state, place, words in below(launcher)]
    variables = Path(f"/proc/{launcher}/environ").read_bytes().split(b"\0")
    environment = dict(one.decode(errors="replace").split("=", 1) for one in variables if b"=" in one)
    command = [sys.executable, "-m", "malt", "stacks", str(launcher)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20)
    return "\n".join([*lines, found.stdout + found.stderr])


def below(process):
    """Each process from `process` down: number, state, kernel function, command line."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parents[int(path.name)] = int(parent), state, (path / "wchan").read_text(), words[:200]
    known = [process]
    for number in known:  # it grows
        known += [one for one, (parent, *_) in parents.items() if parent == number]
    return [(number, *parents[number][1:]) for number in known if number in parents]

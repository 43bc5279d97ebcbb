"""Measures the processor time that `malt run --view` and `malt run --trace DIR` add to a job of two ranks.

    python -m bench.overhead [--json FILE [--only svm mlp]]

Runs with and without the options take turns. Of the view each part is measured by itself: what the launcher needs more,
and the threads of the ranks that answer it. What a trace adds is the difference of two runs, which vary by more.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import runpy
import statistics
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.harness import datasets, document, timing
from bench.harness.document import Measured, Tables, say

RANKS = 2
OPTIONS: dict[str, list[str]] = {"plain": ["--no-view"], "view": ["--view"], "trace": ["--no-view", "--trace"]}
"""What is compared. The folder of a trace follows its option."""
ROUNDS = 2
EPOCHS, DATA = {"svm": 6000, "mlp": 60}, {"svm": datasets.RCV1, "mlp": datasets.MNIST}
"""By program: so many epochs last 20 s or longer; its argument."""
_RANK = "--rank"

Usage = dict[str, float]
"""Processor seconds: of all ranks; of their threads that answer the view; of the launcher, with mpiexec."""


def run(words: Sequence[str], folder: Path) -> Usage:
    """The processor seconds of `malt run` with `words`, in a terminal, whose ranks report theirs in `folder`.

    OSError: it failed.
    """
    own, theirs = pty.openpty()
    reader = threading.Thread(target=_drain, args=[own])
    reader.start()
    actions = [(os.POSIX_SPAWN_DUP2, theirs, number) for number in range(3)]
    words = [sys.executable, "-m", "malt", "run", "-n", str(RANKS), *words]
    process = os.posix_spawn(words[0], words, {**os.environ, "TERM": "xterm-256color"}, file_actions=actions)
    _, status, usage = os.wait4(process, 0)
    os.close(theirs)
    reader.join()
    os.close(own)
    if status:
        raise OSError(f"{' '.join(words)} failed: status {os.waitstatus_to_exitcode(status)}")
    reports = [json.loads(path.read_text()) for path in folder.glob("usage-*.json")]
    ranks, answers = (sum(report[name] for report in reports) for name in ("ranks", "answers"))
    return {"ranks": ranks, "answers": answers, "launcher": usage.ru_utime + usage.ru_stime - ranks}


def _drain(terminal: int) -> None:
    with contextlib.suppress(OSError):  # closed: the job has ended
        while os.read(terminal, 1 << 16):
            pass


def once(program: Sequence[str], how: str) -> Usage:
    """The usage of a run of `program` with one of OPTIONS."""
    with tempfile.TemporaryDirectory() as folder:
        options = [*OPTIONS[how], *([f"{folder}/trace"] if how == "trace" else [])]
        found = run([*options, "-m", __spec__.name, _RANK, folder, *program], Path(folder))
    say(f"{program[0]} {how}: {', '.join(f'{what} {seconds:.3f} s' for what, seconds in found.items())}")
    return found


def measured(name: str, _: Namespace, _found: Measured) -> Measured:
    """The usage of runs of a program with each of OPTIONS, in turns."""
    datasets.need(DATA[name])
    program = [f"apps.{name}", str(DATA[name]), "--epochs", str(EPOCHS[name])]
    return {name: timing.turns({how: lambda _, how=how: once(program, how) for how in OPTIONS}, ROUNDS)}


def tables(found: Measured) -> Tables:
    """The processor seconds of the ranks of each program, and what each option adds, in percent of them."""
    heads = ["program", "processor time of the ranks", "--view adds", "--trace adds"]
    return {"overhead": [heads, *(_row(f"apps.{name}", one) for name, one in found.items())]}


def _row(program: str, found: Measured) -> list[str]:
    ranks, launcher = ([one[what] for one in found["plain"]] for what in ("ranks", "launcher"))
    before_s = statistics.median(launcher)
    views = [(one["launcher"] - before_s + one["answers"]) / statistics.median(ranks) for one in found["view"]]
    traces = [one["ranks"] / plain - 1 for one, plain in zip(found["trace"], ranks, strict=True)]
    return [program, f"{statistics.median(ranks):.1f} s", _percent(views), _percent(traces)]


def _percent(parts: Sequence[float]) -> str:
    """Median and range."""
    return f"{100 * statistics.median(parts):.2f} % ({100 * min(parts):.2f} to {100 * max(parts):.2f})"


def rank(folder: str, module: str) -> None:
    """Run the program `module` as this rank, and report its processor time. Collective."""
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    answering = [one.native_id for one in threading.enumerate() if one.name == "malt answers"]
    answers_ns = sum(int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[0]) for task in answering)
    usage = {"ranks": time.process_time(), "answers": answers_ns / 1e9}
    Path(folder, f"usage-{os.getpid()}.json").write_text(json.dumps(usage))


if __name__ == "__main__":
    if sys.argv[1:2] == [_RANK]:
        folder, module, *rest = sys.argv[2:]
        sys.argv[1:] = rest
        rank(folder, module)
    else:
        parts = {name: partial(measured, name) for name in EPOCHS}
        document.measure("bench.overhead", str(__doc__), lambda _: {}, tables, parts=parts)

"""Measures the processor time that `malt run --view` and `malt run --trace DIR` add to a job of two ranks.

    python -m bench.overhead RCV1 MNIST [--rounds N] [--only svm mlp] [--json FILE]

RCV1 is svmlight text, MNIST a folder of idx files. Runs with and without the options take turns. Of the view each part
is measured by itself: what the launcher needs more, and the threads of the ranks that answer it. What a trace adds is
the difference of two runs, which vary by more.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Sequence
from pathlib import Path

from bench.document import new_file

RANKS = 2
OPTIONS: dict[str, list[str]] = {"plain": ["--no-view"], "view": ["--view"], "trace": ["--no-view", "--trace"]}
"""What is compared. The folder of a trace follows its option."""
EPOCHS = {"svm": 6000, "mlp": 60}
"""So many last 20 s or longer."""
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


def measure(program: Sequence[str], rounds: int) -> dict[str, list[Usage]]:
    """The usage of runs of `program` with each of OPTIONS, one a round."""
    found: dict[str, list[Usage]] = {name: [] for name in OPTIONS}
    for turn in range(rounds):
        for name in list(OPTIONS) if turn % 2 == 0 else list(reversed(OPTIONS)):
            with tempfile.TemporaryDirectory() as folder:
                options = [*OPTIONS[name], *([f"{folder}/trace"] if name == "trace" else [])]
                words = [*options, "-m", __spec__.name, _RANK, folder, *program]
                found[name].append(run(words, Path(folder)))
            shown = ", ".join(f"{what} {seconds:.3f} s" for what, seconds in found[name][-1].items())
            print(f"{program[0]} {name}: {shown}", file=sys.stderr, flush=True)
    return found


def line(program: str, found: dict[str, list[Usage]]) -> str:
    """A line of the table: the processor seconds of the ranks, and what each option adds, in percent of them."""
    ranks, launcher = ([one[what] for one in found["plain"]] for what in ("ranks", "launcher"))
    before_s = statistics.median(launcher)
    views = [(one["launcher"] - before_s + one["answers"]) / statistics.median(ranks) for one in found["view"]]
    traces = [one["ranks"] / plain - 1 for one, plain in zip(found["trace"], ranks, strict=True)]
    return f"| {program} | {statistics.median(ranks):.1f} s | {_percent(views)} | {_percent(traces)} |"


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


def main() -> None:
    if sys.argv[1:2] == [_RANK]:
        folder, module, *rest = sys.argv[2:]
        sys.argv[1:] = rest
        return rank(folder, module)
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__.splitlines()[0])
    parser.add_argument("rcv1", help="svmlight text")
    parser.add_argument("mnist", help="a folder of idx files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=EPOCHS, default=list(EPOCHS))
    parser.add_argument("--json", type=new_file, help="add what is measured to this file, and show all that it holds")
    options = parser.parse_args()
    stored = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    data = {"svm": options.rcv1, "mlp": options.mnist}
    for name in options.only:
        program = [f"apps.{name}", data[name], "--epochs", str(EPOCHS[name])]
        for kind, usages in measure(program, options.rounds).items():
            stored.setdefault(name, {}).setdefault(kind, []).extend(usages)
    if options.json:
        options.json.write_text(json.dumps(stored, indent=1) + "\n")
    print("| program | processor time of the ranks | --view adds | --trace adds |\n|---|---|---|---|")
    print("\n".join(line(f"apps.{name}", found) for name, found in stored.items()))


if __name__ == "__main__":
    main()

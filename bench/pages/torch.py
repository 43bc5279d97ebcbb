"""Compares malt.torch with DDP over gloo: time, accuracy and bytes of a small network on MNIST; writes docs/torch.md.

python -m bench.pages.torch FOLDER --runs FILE [--rounds 3] [--times 3] [--write docs/torch.md]

FOLDER: that of MNIST. Each call adds rounds, and short rounds for times, to those in FILE; the page is of all.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import jobs, timing

RANKS, EPOCHS, TARGETS = 2, 10, (0.97, 0.98)
SELDOM = {"average": "delta", "every": 78}
SMOOTH = {**SELDOM, "outer": (0.7, 0.5)}
CONTENDERS: dict[str, dict[str, Any]] = {
    "DDP, gloo": {"way": "ddp"},
    "gradients, every batch": {"average": "gradient"},
    "changes, every 78 batches": SELDOM,
    "outer Nesterov, every 78": SMOOTH,
    'the same, `wire="int8"`': {**SMOOTH, "wire": "int8"},
    'the same, `wire="int8"`, `top=0.25`': {**SMOOTH, "wire": "int8", "top": 0.25},
}
TIMED, TIMED_EPOCHS = ("DDP, gloo", "gradients, every batch", "outer Nesterov, every 78"), 2
Epochs = list[dict[str, float]]
PAGE = """# malt.torch beside DDP

A small convolutional network of 80,202 parameters on 10,000 pictures of MNIST, {ranks} ranks of one thread each on one
host of 2 cores, batches of 32 a rank, SGD with momentum 0.9 and a step size of 0.05 that falls to 0 along a cosine,
{epochs} epochs of 156 batches. Medians of rounds, each with a seed of its own: {rounds}. Accuracy is that on all
10,000 test pictures. Bytes are what a rank sends: those of DDP are computed, an allreduce of all gradients along a
ring at each step; those of malt.torch are counted, with `finish`. It is made by

    python -m bench.pages.torch MNIST --runs runs.json --rounds 3 --times 3 --write docs/torch.md

| | test accuracy | MB sent | a part of DDP's | {reached} |
|---|---|---|---|{lines}
{table}

{times}The last columns are bytes until the accuracy at the end of an epoch is that high. All ways of malt.torch have
`sync="bsp"`: all ranks have the same model after each exchange. The outer step is `malt.optim.nesterov(0.7, 0.5)`.
DiLoCo's decay of 0.9 is too much for 20 outer steps: one run of 6 epochs ended at 0.968, and DDP at 0.982.
"""


def run(options: dict[str, Any], seed: int, folder: str) -> Epochs:
    """What one run reports of its epochs."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "out")
        whole = {"way": "malt", "rate": 0.05, "epochs": EPOCHS, "seed": seed, **options}
        words = ["-m", "bench.pages.cnn", folder, str(out), json.dumps(whole)]
        if whole["way"] == "ddp":
            _run_ddp(words)
        else:
            jobs.run(RANKS, *words)
        found: Epochs = json.loads(out.read_text())
        return found


def _run_ddp(words: list[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([sys.executable, *words], env={**os.environ, **own, "RANK": str(rank)})
        for rank in range(RANKS)
    ]  # fmt: skip
    failed = [one.wait() for one in started]
    if any(failed):
        raise RuntimeError("DDP has failed")


def page(rounds: list[dict[str, Epochs]], times: list[dict[str, float]]) -> str:
    """The whole page, of all rounds. `times`: seconds of short runs."""
    ddp, lines = next(iter(CONTENDERS)), []
    for who in CONTENDERS:
        ends = [one[who][-1] for one in rounds]
        theirs = [one[ddp][-1] for one in rounds]
        accuracy = statistics.median(end["accuracy"] for end in ends)
        sent, least = ends[0]["sent"], theirs[0]["sent"]
        reached = " | ".join(_reached([one[who] for one in rounds], target) for target in TARGETS)
        part = "1" if who == ddp else f"1/{least / sent:.0f}"
        lines.append(f"| {who} | {accuracy:.4f} | {sent / 1e6:.2f} | {part} | {reached} |")
    return PAGE.format(
        times=_times(times), ranks=RANKS, epochs=EPOCHS, rounds=len(rounds), table="\n".join(lines),
        lines="---|" * len(TARGETS),
        reached=" | ".join(f"MB to {target}" for target in TARGETS),
    )  # fmt: skip


def _times(rounds: list[dict[str, float]]) -> str:
    """A paragraph on the time of short runs; "" without any."""
    if not rounds:
        return ""
    theirs = [one[TIMED[0]] for one in rounds]
    texts = [f"{TIMED[0]}: {statistics.median(theirs):.1f} s"]
    for who in TIMED[1:]:
        own = [one[who] for one in rounds]
        texts.append(f"{who}: {statistics.median(own):.1f} s, {1 / timing.ratio(theirs, own):.2f} of it")
    return f"Training for {TIMED_EPOCHS} epochs, medians of {len(rounds)} rounds in turns: {'; '.join(texts)}.\n\n"


def _reached(runs: list[Epochs], target: float) -> str:
    """The median of the megabytes that runs send until they reach this accuracy."""
    sent = [next((one["sent"] for one in epochs if one["accuracy"] >= target), float("inf")) for epochs in runs]
    found = statistics.median(sent)
    return "not reached" if found == float("inf") else f"{found / 1e6:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages.torch", description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--times", type=int, default=0)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    found = json.loads(options.runs.read_text()) if options.runs.exists() else {"rounds": [], "times": []}
    for _ in range(options.rounds):
        seed = len(found["rounds"])
        found["rounds"].append({who: run(what, seed, options.folder) for who, what in CONTENDERS.items()})
        options.runs.write_text(json.dumps(found))
    for _ in range(options.times):
        short = {who: {**CONTENDERS[who], "epochs": TIMED_EPOCHS} for who in TIMED}
        seconds = {who: run(what, 0, options.folder)[-1]["seconds"] for who, what in short.items()}
        found["times"].append(seconds)
        options.runs.write_text(json.dumps(found))
    made = page(found["rounds"], found["times"])
    print(made)
    if options.write:
        options.write.write_text(made)


if __name__ == "__main__":
    main()

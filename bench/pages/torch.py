"""Compares malt.torch with DDP over gloo: time, accuracy and bytes of a small network on MNIST; writes docs/torch.md.

python -m bench.pages.torch FOLDER --runs FILE [--rounds 3] [--link 3] [--minutes 4] [--write docs/torch.md]

FOLDER: that of MNIST. FILE keeps what was measured: what it lacks of so many rounds is run, and the page is of all.
--minutes: no run begins after so many, so that a long measurement may be made in parts.
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
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from bench import jobs, timing
from bench.document import new_file
from bench.pages import link

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
OVER_LINK = ("DDP, gloo", "gradients, every batch", "changes, every 78 batches", "outer Nesterov, every 78")
MBIT = 100
"""The rate of the link between two hosts."""
Epochs = list[dict[str, float]]
Rounds = list[dict[str, Epochs]]
PAGE = """# malt.torch beside DDP

A small convolutional network of 80,202 parameters on 10,000 pictures of MNIST, {ranks} ranks of one thread each on one
host of 2 cores, batches of 32 a rank, SGD with momentum 0.9 and a step size of 0.05 that falls to 0 along a cosine,
{epochs} epochs of 156 batches. Medians of {rounds} rounds in turns, each with a seed of its own. Accuracy is that on
all 10,000 test pictures, seconds those of training. Bytes are what a rank sends: those of DDP are computed, an
allreduce of all gradients along a ring at each step; those of malt.torch are counted, with `finish`. It is made by

    python -m bench.pages.torch MNIST --runs runs.json --rounds 3 --link 3 --write docs/torch.md

![Seconds of training](pictures/torch.svg)

![MB that a rank sends until an accuracy of 0.97](pictures/torch-bytes.svg)

{host}

The last columns are bytes until the accuracy at the end of an epoch is that high. All ways of malt.torch have
`sync="bsp"`: all ranks have the same model after each exchange. The outer step is `malt.optim.nesterov(0.7, 0.5)`
after its warm-up of five exchanges. DiLoCo's decay of 0.9 is too much for 20 exchanges: one run ended at 0.980.
"""
LINK = """
## Over a link of {mbit} Mbit/s

The same with a rank on each of two hosts, medians of {rounds} rounds: network namespaces of one machine, whose link is
held to {mbit} Mbit/s each way. The last columns are seconds of training until the accuracy is that high.

{table}
"""


def run(options: dict[str, Any], seed: int, folder: str, mbit: int | None = None) -> Epochs:
    """What one run reports of its epochs. `mbit`: that of the link between two hosts; None: all ranks are on one."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "out")
        whole = {"way": "malt", "rate": 0.05, "epochs": EPOCHS, "seed": seed, **options}
        words = ["-m", "bench.pages.cnn", os.path.abspath(folder), str(out), json.dumps(whole)]
        if whole["way"] == "ddp":
            _run_ddp(words, mbit)
        elif mbit is None:
            jobs.run(RANKS, *words)
        else:
            link.run_malt(mbit, *words)
        found: Epochs = json.loads(out.read_text())
        return found


def _run_ddp(words: list[str], mbit: int | None) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
    own = [{"RANK": str(rank)} for rank in range(RANKS)]
    if mbit is not None:
        link.run_pair(mbit, words, common | {"MASTER_ADDR": link.FIRST, "GLOO_SOCKET_IFNAME": "eth0"}, own)
        return
    common |= {"MASTER_ADDR": "127.0.0.1", **os.environ}
    started = [subprocess.Popen([sys.executable, *words], env=common | one) for one in own]
    failed = [one.wait() for one in started]
    if any(failed):
        raise RuntimeError("DDP has failed")


def complete(rounds: Rounds, count: int, whom: Collection[str], measured: Callable[[str, int], Epochs | None]) -> None:
    """Add to `rounds` what they lack of `count`. `measured(who, seed)`: a run, kept in place; None: it is too late."""
    for seed in range(count):
        if seed == len(rounds):
            rounds.append({})
        for who in whom:
            if who not in rounds[seed]:
                found = measured(who, seed)
                if found is None:
                    return
                rounds[seed][who] = found


def page(host: Rounds, over_link: Rounds) -> str:
    """The whole page, of all whole rounds."""
    host = [one for one in host if len(one) == len(CONTENDERS)]
    over_link = [one for one in over_link if len(one) == len(OVER_LINK)]
    text = PAGE.format(ranks=RANKS, epochs=EPOCHS, rounds=len(host), host=_table(host, CONTENDERS, "sent"))
    if over_link:
        table = _table(over_link, OVER_LINK, "seconds")
        text += LINK.format(mbit=MBIT, rounds=len(over_link), table=table)
    return text


def _table(rounds: Rounds, whom: Collection[str], cost: str) -> str:
    """The table of `whom`. `cost`: what the last columns count until an accuracy is reached, "sent" or "seconds"."""
    if not rounds:
        return "No round is whole yet."
    unit = {"sent": "MB", "seconds": "s"}[cost]
    titles = ["", "test accuracy", "seconds", "of DDP's", "MB sent", "of DDP's"]
    lines = [titles + [f"{unit} to {target}" for target in TARGETS], ["---"] * (len(titles) + len(TARGETS))]
    for who in whom:
        ends, theirs = ([one[name][-1] for one in rounds] for name in (who, next(iter(whom))))
        seconds = [end["seconds"] for end in ends]
        part = 1 / timing.ratio([end["seconds"] for end in theirs], seconds)
        sent, least = ends[0]["sent"], theirs[0]["sent"]
        lines.append([
            who, f"{statistics.median(end['accuracy'] for end in ends):.4f}", f"{statistics.median(seconds):.1f}",
            f"{part:.2f}", f"{sent / 1e6:.2f}", "1" if sent == least else f"1/{least / sent:.0f}",
            *(_reached([one[who] for one in rounds], target, cost) for target in TARGETS),
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" if line[0] != "---" else f"|{'|'.join(line)}|" for line in lines)


def _reached(runs: list[Epochs], target: float, cost: str) -> str:
    """The median of what runs cost until they reach this accuracy: megabytes or seconds."""
    costs = [next((one[cost] for one in epochs if one["accuracy"] >= target), float("inf")) for epochs in runs]
    found = statistics.median(costs)
    if found == float("inf"):
        return "not reached"
    return f"{found / 1e6:.2f}" if cost == "sent" else f"{found:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages.torch", description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--link", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--write", type=new_file)
    options = parser.parse_args()
    found = {"host": [], "link": [], **(json.loads(options.runs.read_text()) if options.runs.exists() else {})}
    end = time.monotonic() + 60 * options.minutes

    def measured(who: str, seed: int, mbit: int | None = None) -> Epochs | None:
        options.runs.write_text(json.dumps(found))
        print(f"round {seed}, {who}, {'one host' if mbit is None else 'two hosts'}", file=sys.stderr, flush=True)
        return None if time.monotonic() > end else run(CONTENDERS[who], seed, options.folder, mbit)

    complete(found["host"], options.rounds, CONTENDERS, measured)
    if options.link and (why := link.missing(MBIT)):
        print(why, file=sys.stderr)
    else:
        complete(found["link"], options.link, OVER_LINK, lambda who, seed: measured(who, seed, MBIT))
    options.runs.write_text(json.dumps(found))
    made = page(found["host"], found["link"])
    print(made)
    if options.write:
        options.write.write_text(made)


if __name__ == "__main__":
    main()

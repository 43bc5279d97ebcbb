"""Compares malt.torch with DDP over gloo: time, accuracy and bytes of a small network on MNIST.

python -m bench.pages.torch FOLDER --runs FILE [--rounds 3] [--link 3] [--minutes 4] [--json FILE]

FOLDER: that of MNIST. FILE keeps what was measured: what it lacks of so many rounds is run, and all of it counts.
--minutes: no run begins after so many, so that a long measurement may be made in parts.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from bench import document, jobs, timing
from bench.document import Measured, Table, reached, say
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
_PORT = "29500"
"""On a host of its own network any is free."""
Epochs = list[dict[str, float]]
Rounds = list[dict[str, Epochs]]


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
    if mbit is None:
        return jobs.processes(RANKS, words, {"OMP_NUM_THREADS": "1"})
    common = {"MASTER_PORT": _PORT, "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1", "MASTER_ADDR": link.FIRST}
    own = [{"RANK": str(rank)} for rank in range(RANKS)]
    link.run_pair(mbit, words, common | {"GLOO_SOCKET_IFNAME": "eth0"}, own)


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


def figures(host: Rounds, over_link: Rounds) -> Measured:
    """The tables of all whole rounds, and how many these are. Pure."""
    host = [one for one in host if len(one) == len(CONTENDERS)]
    over_link = [one for one in over_link if len(one) == len(OVER_LINK)]
    tables = {"host": _table(host, CONTENDERS, "sent"), "link": _table(over_link, OVER_LINK, "seconds")}
    return {"tables": tables, "figures": {"rounds": len(host), "link_rounds": len(over_link)}}


def _table(rounds: Rounds, whom: Collection[str], cost: str) -> Table | str:
    """The table of `whom`. `cost`: what the last columns count until an accuracy is reached, "sent" or "seconds"."""
    if not rounds:
        return "No round is whole yet."
    unit = {"sent": "MB", "seconds": "s"}[cost]
    titles = ["", "test accuracy", "seconds", "of DDP's", "MB sent", "of DDP's"]
    rows = [titles + [f"{unit} to {target}" for target in TARGETS]]
    for who in whom:
        ends, theirs = ([one[name][-1] for one in rounds] for name in (who, next(iter(whom))))
        seconds = [end["seconds"] for end in ends]
        part = 1 / timing.ratio([end["seconds"] for end in theirs], seconds)
        sent, least = ends[0]["sent"], theirs[0]["sent"]
        rows.append([
            who, f"{statistics.median(end['accuracy'] for end in ends):.4f}", f"{statistics.median(seconds):.1f}",
            f"{part:.2f}", f"{sent / 1e6:.2f}", "1" if sent == least else f"1/{least / sent:.0f}",
            *(_reached([one[who] for one in rounds], target, cost) for target in TARGETS),
        ])  # fmt: skip
    return rows


def _reached(runs: list[Epochs], target: float, cost: str) -> str:
    """The median of what runs cost until they reach this accuracy: megabytes or seconds."""
    costs = [next((one[cost] for one in epochs if one["accuracy"] >= target), float("inf")) for epochs in runs]
    return reached(statistics.median(costs) / (1e6 if cost == "sent" else 1), ".2f" if cost == "sent" else ".1f")


def measured(options: Namespace) -> Measured:
    """The figures of the page, of all runs that the file has. It starts jobs."""
    found = {"host": [], "link": [], **(json.loads(options.runs.read_text()) if options.runs.exists() else {})}
    end = time.monotonic() + 60 * options.minutes

    def ran(who: str, seed: int, mbit: int | None = None) -> Epochs | None:
        options.runs.write_text(json.dumps(found))
        say(f"round {seed}, {who}, {'one host' if mbit is None else 'two hosts'}")
        return None if time.monotonic() > end else run(CONTENDERS[who], seed, options.folder, mbit)

    complete(found["host"], options.rounds, CONTENDERS, ran)
    if options.link and (why := link.missing(MBIT)):
        say(why)
    else:
        complete(found["link"], options.link, OVER_LINK, lambda who, seed: ran(who, seed, MBIT))
    options.runs.write_text(json.dumps(found))
    return figures(found["host"], found["link"])


def add_options(parser: ArgumentParser) -> None:
    """Add what this command alone has."""
    parser.add_argument("folder")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--link", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))


if __name__ == "__main__":
    document.measure("bench.pages.torch", str(__doc__), measured, add_options=add_options)

"""Compares apps.mlp with PyTorch, DDP and torchft: seconds to a test accuracy on MNIST; writes docs/network.md.

python -m bench.pages.network FOLDER [--torchft FOLDER] [--rounds 3] [--write docs/network.md]

FOLDER: that of MNIST. --torchft: the folder that torchft lies in, where the environment lacks it.
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import jobs
from bench.document import new_file

TARGET = 0.98
Epochs = list[dict[str, float]]
Environment = dict[str, str]


class Contender(NamedTuple):
    """One way to train, at the settings that were best of the grid."""

    way: str
    """"ours", or that of `dense.Options`."""
    processes: int
    settings: Mapping[str, Any]
    """`dense.Options`, or options of apps.mlp, by their names."""


CONTENDERS = {
    "apps.mlp, 1 rank": Contender("ours", 1, {"batch": 128, "step": 0.25, "epochs": 4, "warm_up": 0.1}),
    "apps.mlp, 2 ranks": Contender(
        "ours", 2, {"batch": 128, "step": 0.4, "epochs": 5, "warm_up": 0.1, "exchange_every": 4, "sync": "bsp"}
    ),
    "PyTorch, 2 threads": Contender("torch", 1, {"batch": 256, "step": 0.5, "epochs": 4, "warm_up": 0.2, "threads": 2}),
    "DDP over gloo, 2 processes": Contender("ddp", 2, {"batch": 128, "step": 0.5, "epochs": 4, "warm_up": 0.2}),
    "torchft LocalSGD, 2 processes": Contender(
        "localsgd", 2, {"batch": 64, "step": 0.2, "epochs": 6, "warm_up": 0.1, "every": 50}
    ),
}
PAGE = """# A network of dense layers beside PyTorch

MNIST, 784-128-10 neurons, float32, on 2 cores: seconds of training until the accuracy on 10,000 test pictures is
{target} at the end of an epoch. Only training is timed: no start, no reading, no test. Medians of {rounds} runs,
in turns, each with a seed of its own. It is made by

    python -m bench.pages.network MNIST --torchft FOLDER --rounds {rounds} --write docs/network.md

![Seconds of training to an accuracy of 0.98: medians and ranges](pictures/network.svg)

{table}

All have momentum, 0.9. Step sizes rise in a line during the warm-up, a share of the training, and fall to 0 in a line
in the rest. apps.mlp exchanges every 4 batches, under bsp; LocalSGD every 50. Settings of apps.mlp and of PyTorch are
those of the least time of which the median of three seeds or more, in searches, ended at {target} or above: on two
ranks batches of 32 to 256, an exchange every 1, 2, 4, 8, 10 and 30 batches, 3 to 5 epochs, warm-ups of 0.05 to 0.3,
two steps each or more; for PyTorch batches of 64, 128, 256 and 512, 3 to 6 epochs, warm-ups of 0.1 and 0.2. For two
ranks 4 epochs with an exchange every 2 batches, a step of 0.5 and a warm-up of 0.2 did so too; in a first run of this
page they ended at 0.9795. Nesterov's momentum, a cosine in place of the line, Adam and centred pixels gained nothing
beyond what seeds differ by. DDP has PyTorch's batches in halves, and LocalSGD was not searched. {target} is near to
what this network reaches in a few epochs, so a run ends just above or below it, and where it does not get there
depends on the seed.

An epoch is 24 GFLOP where all pixels are multiplied, 4 x 60,000 x 784 x 128. BLAS does 135 GFLOP/s on a core here, so
on two cores four epochs of these products alone take 0.36 s. apps.mlp multiplies 285 of the 784 pixels and skips the
zeros of the others. At rest an epoch took it 0.13 s on two ranks: 0.10 s is computation, 0.20 s on one rank, and the
rest exchange. An epoch of PyTorch took 0.29 s.
"""


def run(contender: Contender, seed: int, folder: str, more: Environment) -> Epochs:
    """What one run reports of its epochs. `more`: variables of the environment that PyTorch's ways need."""
    settings = contender.settings
    if contender.way == "ours":
        words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value)]
        found: Epochs = jobs.report(contender.processes, "apps.mlp", folder, *words, "--seed", seed)["epochs"]
        return found
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "out")
        options = json.dumps({**settings, "way": contender.way, "seed": seed})
        _together(contender.processes, ["-m", "bench.pages.dense", folder, str(out), options], more)
        found = json.loads(out.read_text())
        return found


def _together(processes: int, words: list[str], more: Environment) -> None:
    """Run so many Python processes. RuntimeError: one has failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, **more, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    started = [subprocess.Popen([sys.executable, *words], env={**common, "RANK": str(n)}) for n in range(processes)]
    failed = [one.wait() for one in started]
    if any(failed):
        raise RuntimeError(f"{' '.join(words)} has failed")


@contextmanager
def lighthouse(torchft: Path | None) -> Iterator[Environment | None]:
    """The environment of torchft, with its lighthouse at work; None where it is not installed."""
    path = [] if torchft is None else [str(torchft)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *path])}
    code = (
        "import time, sys; from torchft.coordination import LighthouseServer\n"
        "server = LighthouseServer(bind='127.0.0.1:0', min_replicas=2, join_timeout_ms=1000)\n"
        "print(server.address(), flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdin
        address = server.stdout.readline().strip()
        yield {"PYTHONPATH": env["PYTHONPATH"], "TORCHFT_LIGHTHOUSE": address} if address else None
        server.stdin.close()


def seconds(epochs: Epochs) -> float:
    """Seconds of training until the target; infinity where no epoch ends there."""
    return next((one["seconds"] for one in epochs if one["test_accuracy"] >= TARGET), float("inf"))


def table(runs: Mapping[str, list[Epochs]]) -> str:
    """A table in Markdown, a line for each contender that has run."""
    lines = [
        [
            "",
            f"s to {TARGET}",
            "from, to",
            "accuracy at the end",
            "batch of a process",
            "largest step",
            "warm-up",
            "epochs",
        ]
    ]
    lines.append(["---"] * len(lines[0]))
    for name, found in runs.items():
        own = CONTENDERS[name].settings
        times = [seconds(epochs) for epochs in found]
        ends = statistics.median(epochs[-1]["test_accuracy"] for epochs in found)
        lines.append([
            name, _time(statistics.median(times)), f"{_time(min(times))}, {_time(max(times))}", f"{ends:.4f}",
            str(own["batch"]), f"{own['step']:g}", f"{own['warm_up']:g}", str(own["epochs"]),
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" if line[0] != "---" else f"|{'|'.join(line)}|" for line in lines)


def _time(value: float) -> str:
    return "not reached" if value == float("inf") else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages.network", description=str(__doc__).splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--torchft", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=new_file)
    options = parser.parse_args()
    runs: dict[str, list[Epochs]] = {}
    with lighthouse(options.torchft) as more:
        for seed in range(options.rounds):
            for name, contender in CONTENDERS.items():
                if more or contender.way != "localsgd":
                    runs.setdefault(name, []).append(run(contender, seed, options.folder, more or {}))
    page = PAGE.format(target=TARGET, rounds=options.rounds, table=table(runs))
    print(page)
    if options.write:
        options.write.write_text(page)


if __name__ == "__main__":
    main()

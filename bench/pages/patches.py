"""Measures apps.autoencoder on 1, 2 and 4 ranks in turns, beside what Qjam's authors report; writes docs/patches.md.

python -m bench.pages.patches FOLDER [--write docs/patches.md]        the folder of MNIST
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path

from bench import jobs

RANKS, PATCHES, ROUNDS, ITERATIONS = (1, 2, 4), (1000, 10_000, 50_000), 5, 50
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""A rank has one thread: the speed of one rank would else be that of two."""
PAGE = """# A sparse autoencoder through malt.map_reduce

apps.autoencoder on patches of MNIST: {iterations} iterations of L-BFGS, 25 hidden units, a thread a rank, 2 cores.
Medians of {rounds} rounds in turns. It is made by

    python -m bench.pages.patches MNIST --write docs/patches.md

| patches | seconds in all, 1, 2, 4 ranks | ms an iteration | speedup in all, 2, 4 ranks | of an iteration |
|---|---|---|---|---|
{table}
| Qjam: 100,000 | 5030, 2350, 1253 | 10,000, 4,700, 2,500 | 2.14, 4.01 | 2.13, 4.00 |

The last row is what Qjam's authors report (2010): some 500 iterations, a machine a worker. The losses of the iterations
on several ranks differ by {error:.1e} at most from those on one, relatively. Chunks travel in the first iteration
({megabytes} MB on 4 ranks); afterwards {after:,} bytes of chunks do.
"""


def page(folder: Path) -> str:
    """The whole page."""
    lines, error, megabytes, after = [], 0.0, [], 0
    for patches in PATCHES:
        made: dict[int, list[jobs.Report]] = {ranks: [] for ranks in RANKS}
        for _ in range(ROUNDS):
            for ranks, found in made.items():
                words = (folder, "--patches", patches, "--epochs", ITERATIONS, "--tolerance", 0)
                found.append(jobs.report(ranks, "apps.autoencoder", *words))
        whole = [statistics.median(one["epochs"][-1]["seconds"] for one in found) for found in made.values()]
        each = [statistics.median(map(_iteration_s, found)) for found in made.values()]
        faster = [_joined([times[0] / one for one in times[1:]], ".2f") for times in (whole, each)]
        seconds = f"{_joined(whole, '.2f')} | {_joined([1e3 * one for one in each], '.1f')}"
        lines.append(f"| {patches:,} | {seconds} | {' | '.join(faster)} |")
        alone = [epoch["loss"] for epoch in made[1][0]["epochs"]]
        for one in (one for found in made.values() for one in found):
            error = max(
                error, *(abs(epoch["loss"] / loss - 1) for epoch, loss in zip(one["epochs"], alone, strict=True))
            )
        travelled = [epoch["chunk_bytes"] for epoch in made[4][0]["epochs"]]
        megabytes.append(travelled[0] / 1e6)
        after += travelled[-1] - travelled[0]
    return PAGE.format(
        iterations=ITERATIONS, rounds=ROUNDS, table="\n".join(lines), error=error, megabytes=_joined(megabytes, ".1f"),
        after=after,
    )  # fmt: skip


def _iteration_s(report: jobs.Report) -> float:
    """Seconds of an iteration after the first."""
    epochs = report["epochs"]
    return float(epochs[-1]["seconds"] - epochs[0]["seconds"]) / (len(epochs) - 1)


def _joined(numbers: list[float], shape: str) -> str:
    return ", ".join(format(number, shape) for number in numbers)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages.patches", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    os.environ.update(dict.fromkeys(THREADS, "1"))
    made = page(options.folder)
    print(made)
    if options.write:
        options.write.write_text(made)


if __name__ == "__main__":
    main()

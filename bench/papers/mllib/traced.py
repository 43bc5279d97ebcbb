"""One way to train on real ranks: what each does when is in its trace.

malt run -n 4 --trace DIR -m bench.papers.mllib.traced WAY STEP SHARE STEPS; malt report DIR

WAY: what its name begins with. STEP, SHARE: a setting, as the table of docs/mllib.md has it. STEPS: of communication.
"""

from __future__ import annotations

import sys

import numpy as np

import malt
from bench.papers.mllib import task
from bench.papers.mllib.ways import WAYS, Setting, Training
from malt.models import linear

ROWS, FEATURES = 40_000, 20_000


def main(name: str, step: str, share: str, steps: str) -> None:
    """Train so, on rows generated from a seed. Collective."""
    way = next(way for way in WAYS if way.name.startswith(name))
    linear.compile_kernels()
    data, problem = task.rows(ROWS, FEATURES, task.TEXT), linear.Problem("hinge", task.L2, False)
    whole = task.Task(data, FEATURES, problem, optimum=0.0, square=1.0)
    ends = [rank * ROWS // malt.size() for rank in (malt.rank(), malt.rank() + 1)]
    mine, generator = linear.part(data, *ends), np.random.default_rng(malt.rank())
    setting, most = Setting(float(step), float(share)), int(steps)
    way.train(way, Training(whole, mine, setting, lambda number, _: number >= most, generator))


if __name__ == "__main__":
    main(*sys.argv[1:])

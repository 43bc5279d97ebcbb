"""Measures apps.autoencoder on 1, 2 and 4 ranks in turns, beside what Qjam's authors report.

python -m bench.papers.qjam [--quick] [--json docs/qjam.json]

The patches are those of MNIST; where that is missing, of the digits of scikit-learn.
"""

from __future__ import annotations

import os
from argparse import Namespace
from typing import NamedTuple

from bench.harness import document
from bench.harness.datasets import MNIST
from bench.harness.document import Measured, say
from bench.harness.rest import Others
from bench.papers.qjam import page
from bench.papers.qjam.runs import modelled, runs


class Scale(NamedTuple):
    """How much is measured."""

    patches: tuple[int, ...]
    ranks: tuple[int, ...]
    rounds: int
    iterations: int
    hosts: tuple[int, ...]
    """Of the simulation."""


WHOLE = Scale((1000, 10_000, 50_000), (1, 2, 4), 3, 50, (1, 2, 4, 8, 16))
QUICK = Scale((500,), (1, 2), 1, 3, (1, 4))


def measured(options: Namespace) -> Measured:
    """All figures of the page. It starts jobs."""
    scale, others = options.scale, Others()
    folder = MNIST if MNIST.exists() else None
    made = list(runs(folder, scale.patches, scale.ranks, scale.rounds, scale.iterations))
    share = others.share()
    alone = next(one for one, _ in made if one["patches"] == scale.patches[-1] and one["ranks"] == 1)
    patch_s = alone["iteration_s"] / alone["patches"]
    say(f"simulated hosts: {', '.join(map(str, scale.hosts))}")
    pictures = "MNIST" if folder else "digits"
    about = {**scale._asdict(), "pictures": pictures, "cores": os.cpu_count(), "patch_s": patch_s}
    hosts = [modelled(page.QJAM_PATCHES, ranks, patch_s) for ranks in scale.hosts]
    return {
        "about": about, "runs": [one for one, _ in made], "error": max(error for _, error in made), "others": share,
        "modelled": hosts,
    }  # fmt: skip


if __name__ == "__main__":
    document.measure("bench.papers.qjam", str(__doc__), measured, page.tables, scales=(WHOLE, QUICK))

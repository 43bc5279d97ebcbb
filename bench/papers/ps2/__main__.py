"""Measures a step of Adam and a dot where vectors lie, by pull and push, and through rank 0.

python -m bench.papers.ps2 [--quick] [--json docs/ps2.json]
"""

from __future__ import annotations

from argparse import Namespace
from typing import NamedTuple

from bench.harness import document, jobs
from bench.harness.document import Measured
from bench.harness.rest import Others
from bench.papers.ps2 import page, steps
from bench.papers.ps2.ways import ADAM_S


class Scale(NamedTuple):
    """How much is measured."""

    lengths: tuple[int, ...]
    ranks: tuple[int, ...]
    rounds: int
    modelled: tuple[int, int]
    """Ranks and length of the simulation."""


WHOLE = Scale((10**5, 10**6, 10**7), (2, 4), 7, (8, 10**6))
QUICK = Scale((10**4, 10**5), (2, 4), 3, (4, 10**4))


def measured(options: Namespace) -> Measured:
    """All figures of the page. It starts jobs."""
    scale, others = options.scale, Others()
    words = "bench.papers.ps2.steps", scale.rounds, *scale.lengths
    records = [one for ranks in scale.ranks for one in jobs.report(ranks, *words)]
    share = others.share()
    ranks, length = scale.modelled
    about = {
        "lengths": scale.lengths, "ranks": scale.ranks, "rounds": scale.rounds, "modelled_ranks": ranks,
        "modelled_length": length, "adam_s": ADAM_S,
    }  # fmt: skip
    return {"about": about, "records": records, "others": share, "modelled": steps.modelled(ranks, length)}


if __name__ == "__main__":
    document.measure("bench.papers.ps2", str(__doc__), measured, page.tables, scales=(WHOLE, QUICK))

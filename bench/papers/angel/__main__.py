"""Compares vectors through rank 0 with parts on all ranks, by SGD, L-BFGS and OWL-QN.

python -m bench.papers.angel [--quick] [--json docs/angel.json]
"""

from __future__ import annotations

from argparse import Namespace
from typing import NamedTuple

from bench.harness import document
from bench.harness.document import Measured, say
from bench.harness.rest import Others
from bench.papers.angel import comparison, page, rows


class Scale(NamedTuple):
    """How much is measured."""

    rows: int
    features: int
    ranks: tuple[int, ...]
    rounds: int
    hosts: int
    """Of the simulation."""
    modelled_epochs: int


WHOLE = Scale(40_000, 500_000, (2, 4), 3, 8, 3)
QUICK = Scale(20_000, 2000, (2,), 1, 3, 1)


def measured(options: Namespace) -> Measured:
    """All figures of the page. It starts jobs."""
    scale, file = options.scale, options.scratch / "rows.svm"
    say(f"{scale.rows:,} rows of {scale.features:,} features")
    present, others = rows.write(file, scale.rows, scale.features), Others()
    found = list(comparison.Comparison(file, scale.ranks, scale.rounds).rows())
    share = others.share()
    say(f"{scale.hosts} simulated hosts")
    modelled = comparison.modelled(file, scale.hosts, scale.modelled_epochs)
    about = {**scale._asdict(), "present": present}
    return {"about": about, "rows": found, "others": share, "modelled": modelled}


if __name__ == "__main__":
    document.measure("bench.papers.angel", str(__doc__), measured, page.tables, scales=(WHOLE, QUICK))

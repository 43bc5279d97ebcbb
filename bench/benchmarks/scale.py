"""Measures how exchanges scale along graphs of logarithmic degree: bytes per rank, and rounds to a target."""

from __future__ import annotations

import math

from bench.benchmarks.rows import Row
from bench.pages import graphs


def rows(quick: bool) -> list[Row]:
    """Rows on simulated ranks: bytes per rank against log2 N, and rounds against those of the graph "all"."""
    training = graphs.Training()
    made = []
    sizes = (16,) if quick else (16, 64, 256)
    sent = {ranks: training.run("exponential", ranks, 0) for ranks in sizes}
    for ranks in sizes:
        grown = sent[ranks].bytes_a_rank / sent[16].bytes_a_rank
        due = math.log2(ranks) / math.log2(16)
        name = f"bytes per rank along exponential, {ranks} simulated ranks over 16"
        made.append(Row(name, "log2 N", due / grown, grown, due, "x"))
    for ranks in sizes[:2]:
        every = training.run("all", ranks, 0).rounds
        mine = sent[ranks].rounds
        ratio = None if every is None or mine is None else every / mine
        name = f"rounds to objective {graphs.TARGET} along exponential, {ranks} simulated ranks"
        made.append(Row(name, "the graph all", ratio, mine or 0, every or 0, "rounds"))
    return made

"""What each rank does when, as a picture: of ways to train on one axis of time, from traces of real ranks.

malt run -n 4 --trace DIR -m bench.papers.mllib.gantt ROWS FEATURES WAY STEP SHARE STEPS
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import malt
from bench.bars import svg, words
from bench.harness import jobs
from bench.papers.mllib import task
from bench.papers.mllib.ways import WAYS, Setting, Training
from malt.models import linear
from malt.watch.trace.layout import Kind
from malt.watch.trace.reading import RankTrace, read

RANKS = 4
Span = tuple[str, float, float]
"""`exchange` or `wait`, and from when to when, in seconds. What lies between spans is computation."""
CALL = "malt.allreduce"


class Lanes(NamedTuple):
    """What the ranks of a run have done."""

    name: str
    steps: int
    """Of communication, until the objective was reached in the simulation."""
    until: float
    """When the last rank was done, in seconds since the first began to compute."""
    ranks: list[list[Span]]


def traced(size: tuple[int, int], one: Mapping[str, Any]) -> Lanes:
    """The lanes of a run as `one` says, which is a count as JSON. `size`: the number of rows, and of features."""
    with tempfile.TemporaryDirectory() as folder:
        place = [way.name for way in WAYS].index(one["way"])
        arguments = (*size, place, one["step"], one["share"], one["steps"])
        jobs.run(RANKS, "--trace", folder, "-m", "bench.papers.mllib.gantt", *arguments, quietly=True)
        trace = read(folder)
    return lanes(one["way"], one["steps"], [_calls(rank) for rank in trace.ranks])


def _calls(rank: RankTrace) -> list[tuple[float, float, float]]:
    """When each allreduce began and ended, and the seconds of it in which the rank waited for others."""
    records = rank.of(Kind.CALL, Kind.WAIT)
    found = []
    for call in records[[record["kind"] == Kind.CALL and CALL in rank.names[record["name"]] for record in records]]:
        start, end = float(call["start"]), float(call["start"] + call["seconds"])
        inside = records[(records["kind"] == Kind.WAIT) & (records["start"] >= start) & (records["start"] < end)]
        found.append((start, end, min(float(inside["seconds"].sum()), end - start)))
    return found


def lanes(name: str, steps: int, calls: Sequence[Sequence[tuple[float, float, float]]]) -> Lanes:
    """Of the calls of each rank: the last `steps` of them, since the end of the one before. Pure.

    The waits of a call are drawn together, at its beginning.
    """
    begun = max(rank[-steps - 1][1] for rank in calls)
    found = []
    for rank in calls:
        spans: list[Span] = []
        for start, end, waited in rank[-steps:]:
            spans.append(("wait", round(start - begun, 6), round(start + waited - begun, 6)))
            spans.append(("exchange", round(start + waited - begun, 6), round(end - begun, 6)))
        found.append(spans)
    return Lanes(name, steps, max(rank[-1][1] for rank in calls) - begun, found)


_WIDTH, _LEFT, _RIGHT, _ROW, _HEAD = 760, 70, 12, 18, 26
_STYLE = """
  text { font: 13px sans-serif; fill: #24292f } .title { font-weight: bold }
  .compute { fill: #2f81c7 } .exchange { fill: #00a884 }
  .wait { fill: #d0d7de } .axis { stroke: #8c959f }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .wait { fill: #484f58 } }
"""


def picture(runs: Sequence[Lanes], until: float) -> str:
    """An SVG of all runs on one axis, which ends `until` seconds after the start. Pure."""
    scale, top = (_WIDTH - _LEFT - _RIGHT) / until, _HEAD
    marks = ['<text class="title" x="4" y="17">What each rank does over time</text>']
    for run in runs:
        ended = f"{run.steps} steps, {1e3 * run.until:,.0f} ms"
        ended += f", of which {1e3 * until:.0f} are shown" if run.until > until else ""
        marks.append(words(_LEFT, top + 12, f"{run.name}: {ended}", "start"))
        top += _HEAD
        for rank, spans in enumerate(run.ranks):
            marks.append(words(_LEFT - 8, top + 8, f"rank {rank}", "end"))
            marks.append(_bar("compute", 0.0, min(run.until, until), top, scale))
            marks += [_bar(kind, start, min(end, until), top, scale) for kind, start, end in spans if start < until]
            top += _ROW
    marks.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{top + 4}" y2="{top + 4}"/>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        anchor, at = "end" if share == 1 else "middle", _LEFT + share * (_WIDTH - _LEFT - _RIGHT)
        marks.append(words(at, top + 15, f"{1e3 * share * until:.0f} ms", anchor))
    top += 44
    for place, (kind, meant) in enumerate((("compute", "computes"), ("exchange", "exchanges"), ("wait", "waits"))):
        marks.append(f'<rect class="{kind}" x="{_LEFT + 130 * place}" y="{top - 12}" width="14" height="12"/>')
        marks.append(words(_LEFT + 130 * place + 20, top - 6, meant, "start"))
    return svg(_WIDTH, top + 6, _STYLE, marks)


def _bar(kind: str, start: float, end: float, top: int, scale: float) -> str:
    start, end = max(start, 0.0), max(end, 0.0)
    left, wide = _LEFT + scale * start, scale * (end - start)
    return f'<rect class="{kind}" x="{left:.1f}" y="{top}" width="{wide:.1f}" height="15"/>'


def main() -> None:
    n_rows, n_features, place = map(int, sys.argv[1:4])
    setting, steps = Setting(float(sys.argv[4]), float(sys.argv[5])), int(sys.argv[6])
    linear.compile_kernels()
    problem = linear.Problem("hinge", task.L2, False)
    whole = task.Task(task.rows(n_rows, n_features, task.TEXT), n_features, problem, optimum=0.0, square=1.0)
    ends = [rank * n_rows // malt.size() for rank in (malt.rank(), malt.rank() + 1)]
    mine, generator = linear.part(whole.data, *ends), np.random.default_rng(malt.rank())
    way = WAYS[place]
    for most in (1, steps):  # the first run is a warm-up
        way.train(way, Training(whole, mine, setting, lambda number, _, most=most: number >= most, generator))


if __name__ == "__main__":
    main()

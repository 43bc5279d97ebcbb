"""The report of one run, or of two: a page of HTML that loads nothing, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import NamedTuple

import numpy as np

from dstorm.words import count
from malt.watch.trace import charts, reported
from malt.watch.trace.advice import advice
from malt.watch.trace.charts import Series, number
from malt.watch.trace.reading import Trace
from malt.watch.trace.style import RUNS, STYLE
from malt.watch.trace.summary import ACTIVITIES, Floats, Summary, summarize

MOST_ROWS = 64
"""The most ranks that have a row of their own."""
_MOST_CELLS = 40
_MOST_LINES, _LONGEST = 8, 200

_SPLIT_IS = (
    "Seconds from the start of malt run on: up to the first counted step or exchange of a rank, and from then on, "
    "without and in waits."
)
_SPLIT = {"start": "yield", "training": "compute", "waiting": "wait"}
"""The classes of the parts of `Split` in a bar."""
_PALETTE = ("merge", "send", "compute", "wait", "yield", "collective")
"""The classes of peers in a bar."""
_OF_RANKS = (*RUNS, *_PALETTE[2:])
"""The classes of ranks in a chart of one run."""
_MOST_CARDS = 12
"""The most numbers that are drawn."""


class Run(NamedTuple):
    """A run, as the page shows it."""

    kind: str
    """The class of what is drawn of it."""
    label: str
    trace: Trace
    found: Summary


def runs_of(traces: Sequence[Trace]) -> list[Run]:
    """One trace, or two, as the page shows them. Local."""
    labels = [trace.folder.resolve().name for trace in traces]
    if len(set(labels)) < len(labels):
        labels = [str(trace.folder) for trace in traces]
    return [Run(*one, summarize(one[-1])) for one in zip(RUNS, labels, traces, strict=False)]


def page(runs: Sequence[Run]) -> str:
    """The HTML of the report of one run, or of two beside each other. Pure."""
    title = " and ".join(run.label for run in runs)
    keys = "".join(f'<span class="key {run.kind}"></span>{escape(run.label)}' for run in runs) if len(runs) > 1 else ""
    sections = [
        _section("What to do", "", runs, _advice, wide=True),
        *_reported(runs),
        _section("Timeline", _legend(ACTIVITIES), runs, partial(_timeline, len(runs) == 1), wide=True),
        _section("Start, training, waiting", _SPLIT_IS, runs, _splits),
        _section("Waits", "By the peer that is waited for, from the first exchange on.", runs, _waits),
        _section("Bytes by edge", "Of the whole run, by sender and receiver.", runs, _bytes),
        _section("Lag", "How many steps each merged message was behind its receiver.", runs, _lags),
        _section("Overwritten", "Messages overwritten between two that were merged.", runs, _overwritten),
        _section("The run", "", runs, _facts, wide=True),
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}: malt report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>"
        f'<p class="dim">{keys or escape(_program(runs[0].trace))}</p>\n{_outcomes(runs)}<div class="cards">\n'
        + "\n".join(sections) + "\n</div></body></html>\n"
    )  # fmt: skip


def _outcomes(runs: Sequence[Run]) -> str:
    """Return the outcome of each run, in a sentence each."""
    heads = [f"{run.label}: " if len(runs) > 1 else "" for run in runs]
    told = [head + reported.outcome(run.trace, run.found.failures) for head, run in zip(heads, runs, strict=True)]
    return "".join(f"<p>{escape(line)}</p>\n" for line in told)


def _section(heading: str, about: str, runs: Sequence[Run], draw: Callable[[Run], str], wide: bool = False) -> str:
    """A card with what draw(run) returns for each run. `about`: a line above, as HTML."""
    drawn = [f"<div>{f'<h3>{escape(run.label)}</h3>' if len(runs) > 1 else ''}{draw(run)}</div>" for run in runs]
    body = f'<div class="pair">{"".join(drawn)}</div>' if len(runs) > 1 else drawn[0]
    line = f'<p class="about">{about}</p>' if about else ""
    kind = ' class="wide"' if wide or len(runs) > 1 else ""
    return f"<section{kind}><h2>{escape(heading)}</h2>{line}{body}</section>"


def _legend(kinds: Sequence[str]) -> str:
    return "".join(f'<span class="key {kind}"></span>{kind}' for kind in kinds)


def _advice(run: Run) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in advice(run.trace, run.found)) + "</ul>"


def _reported(runs: Sequence[Run]) -> list[str]:
    """A card for each number that was reported, in which all runs are overlaid, and one of losses over examples."""
    names = reported.names(run.trace for run in runs)
    cards = [_card(f"{name.capitalize()} over time", runs, name, "seconds", reported.over_time) for name in names]
    if "loss" in names:
        over = _card("Loss over examples", runs, "loss", "examples of all ranks", reported.over_examples)
        cards.insert(1, over)
    return cards[:_MOST_CARDS] or [f"<section><h2>Reports</h2>{_nothing('no malt.report(loss=...) in it')}</section>"]


def _card(
    heading: str, runs: Sequence[Run], name: str, across: str, pick: Callable[[Trace, str], dict[int, reported.Points]]
) -> str:  # fmt: skip
    """A card of the curves of a number: each run in its colour, or each rank of the only run."""
    found = [(run, rank, points) for run in runs for rank, points in list(pick(run.trace, name).items())[:_MOST_LINES]]
    kinds = [run.kind if len(runs) > 1 else _OF_RANKS[rank % len(_OF_RANKS)] for run, rank, _ in found]
    series = [Series(kind, points) for kind, (*_, points) in zip(kinds, found, strict=True)]
    body = charts.lines(series, across, name) if series else _nothing("no malt.report(examples=...) in it")
    keys = [f'<span class="key {kind}"></span>rank {rank}' for kind, (_, rank, _) in zip(kinds, found, strict=True)]
    line = f'<p class="about">{"".join(keys)}</p>' if len(runs) == 1 and keys else ""
    return f"<section><h2>{escape(heading)}</h2>{line}{body}</section>"


def _timeline(is_wide: bool, run: Run) -> str:
    found, width = run.found, charts.WIDE if is_wide else charts.WIDE / 2
    shares = found.timeline[:MOST_ROWS] / np.diff(found.edges)
    labels = [f"rank {rank}" for rank in found.ranks[:MOST_ROWS]]
    ends = (float(found.edges[0]), float(found.edges[-1]))
    return charts.timeline(labels, ACTIVITIES, shares.tolist(), ends, width) + _more(found)


def _splits(run: Run) -> str:
    keys = "".join(f'<span class="key {kind}"></span>{what}' for what, kind in _SPLIT.items())
    rows = [
        (f"rank {rank}", [(kind, one, f"rank {rank}: {what} {one:.3g} s")
                          for (what, kind), one in zip(_SPLIT.items(), seconds, strict=True)])
        for rank, seconds in zip(run.found.ranks[:MOST_ROWS], run.found.split, strict=False)
    ]  # fmt: skip
    return f'<p class="about">{keys}</p>' + charts.bars(rows, "seconds") + _more(run.found)


def _waits(run: Run) -> str:
    found = run.found
    if not found.waited.any():
        return _nothing("no rank has waited")
    rows, peers = [], {}
    for rank, waited in zip(found.ranks[:MOST_ROWS], found.waited.tolist(), strict=False):
        parts = []
        for peer in sorted(range(len(waited)), key=lambda peer: -waited[peer])[:_MOST_LINES]:
            if waited[peer] > 0:
                peers[peer] = kind = _PALETTE[peer % len(_PALETTE)]
                parts.append((kind, waited[peer], f"rank {rank} waited {waited[peer]:.3g} s for rank {peer}"))
        rows.append((f"rank {rank}", parts))
    keys = "".join(f'<span class="key {peers[peer]}"></span>for rank {peer}' for peer in sorted(peers)[:_MOST_LINES])
    return f'<p class="about">{keys}</p>' + charts.bars(rows, "seconds") + _more(found)


def _bytes(run: Run) -> str:
    if not run.found.nbytes.any():
        return _nothing("no bytes went from rank to rank")
    cells, labels = _grouped(run.found.nbytes)
    across, all_bytes = run.found.nbytes_across, run.found.nbytes.sum()
    line = f"{number(across)}B of {number(all_bytes)}B, {across / all_bytes:.1%}, went to another host."
    return (f'<p class="about">{line}</p>' if across else "") + charts.heat(
        cells.tolist(), labels,
        lambda row, column: f"from {labels[row]} to {labels[column]}: {number(cells[row, column])}B",
    )  # fmt: skip


def _grouped(matrix: Floats) -> tuple[Floats, list[str]]:
    """The matrix with at most _MOST_CELLS rows and columns: neighbouring ranks added up."""
    size = len(matrix)
    width = -(-size // _MOST_CELLS)
    firsts = np.arange(0, size, width)
    cells: Floats = np.add.reduceat(np.add.reduceat(matrix, firsts, axis=0), firsts, axis=1)
    lasts = np.minimum(firsts + width, size) - 1
    return cells, [str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True)]


def _lags(run: Run) -> str:
    return _histogram(run.found.lags, run.kind) if run.found.lags else _nothing("no merges")


def _histogram(counts: Sequence[tuple[int, int]], kind: str) -> str:
    """Bars of how many messages there are of each integer."""
    whole, bars = sum(count for _, count in counts), charts.binned(counts)
    rows = [(label, [(kind, count, f"{label}: {count:,} messages, {count / whole:.1%}")]) for label, count in bars]
    return charts.bars(rows, "messages")


def _overwritten(run: Run) -> str:
    found = run.found
    arrived = found.merged + found.overwritten
    if not arrived:
        return _nothing("no merges")
    line = f"{found.overwritten:,} of {arrived:,} messages in all, {found.overwritten / arrived:.1%}."
    if not sum(count for _, count in found.losses):
        return _nothing(line)
    return f'<p class="about">{line}</p>' + _histogram(found.losses, run.kind)


def _facts(run: Run) -> str:
    job, found = run.trace.job, run.found
    error_s = max(rank.error_s for rank in run.trace.ranks)
    facts = {
        "program": _program(run.trace), "began": job.get("began"), "seconds": job.get("seconds"),
        "status": job.get("status"), "ranks": run.trace.size, "survive": job.get("survive"),
        "MPI": job.get("mpi"), "Python, malt": ", ".join(filter(None, [job.get("python"), job.get("malt")])),
        "machine": job.get("machine"), "cores": job.get("cores"), "hosts": ", ".join(job.get("hosts") or []),
        "exchanged": "; ".join(found.vectors),
        "every, by auto": "; ".join(reported.intervals(run.trace)),
        "examples/s": reported.speeds(run.trace),
        "calls": "; ".join(f"{name} {seconds:.3g} s in {count:,}" for name, seconds, count in found.calls[:6]),
        "clocks": f"the same to {error_s * 1e6:.3g} us at the start" if error_s else "one clock",
        "variables": "; ".join(f"{name}={value}" for name, value in (job.get("environment") or {}).items()),
    }  # fmt: skip
    rows = "".join(f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items()
                   if value not in (None, ""))  # fmt: skip
    return f"<table>{rows}</table>"


def _program(trace: Trace) -> str:
    text = " ".join(" ".join(trace.job.get("program", [])).split())  # -c takes a text of many lines
    return (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...") or "without a launcher"


def _more(found: Summary) -> str:
    left = len(found.ranks) - MOST_ROWS
    return f'<p class="about">and {count(left, "rank")} more</p>' if left > 0 else ""


def _nothing(why: str) -> str:
    return f'<p class="dim">{escape(why)}</p>'

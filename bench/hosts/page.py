"""The page of the measurements across hosts: docs/hosts.md, from the JSON beside it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench.hosts import outcomes, planning, ways

Measured = Mapping[str, Any]
"""What `python -m bench.hosts` writes as JSON: by MPI and part, what was found."""
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}
SLOWEST = 0.99
PAGE = """# Across hosts

Ranks of MALT on several hosts, beside MPI's own calls. The hosts are network namespaces of one machine of 2 cores, as
in tests/hosts: each has a network, file systems, an ssh daemon and a core of its own, but where more than two hosts
share them. So the links are real TCP, and two ranks of a host share a core: there Open MPI yields while it waits, as
`malt run` tells it; MPICH cannot be told. Linux shares the cores among all threads meanwhile, not among sessions first
(`sched_autogroup_enabled`): the ranks of each host are a session, and where those of one yielded, those of another
stood still for a second now and then. It is made by

    python -m bench.hosts --mpi .venv-openmpi/bin/python .venv-mpich/bin/python --write docs/hosts.md

as root, or part by part (`--only`, `--mpi`): what is not measured anew is read from the JSON beside the page.

{parts}"""


def text(measured: Measured) -> str:
    """The page in Markdown: what of it has been measured. Pure."""
    found = [part(measured) for name, part in PARTS.items() if any(name in one for one in measured.values())]
    return PAGE.format(parts="\n\n".join(found)) + "\n"


def _each(measured: Measured, part: str) -> dict[str, Any]:
    """What a part has found, by the name of the MPI."""
    return {NAMES[mpi]: one[part] for mpi, one in sorted(measured.items(), reverse=True) if part in one}


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows))


# -- messages -------------------------------------------------------------------------------------------------

TRANSFERS = """## Messages

Two ranks on two hosts. One run, medians:

{table}

A rank, its threads and the network of its host share a core. So a gather that copies 4 MB keeps the network waiting: of
eleven runs messages under notify-ack came at 0.85 to 1.16 of the rate of raw Puts with Open MPI, and at 0.65 to 0.98
with MPICH. An exchange of 40 B took 9 to 12 times an Allreduce with Open MPI in seven, and 5 to 7 with MPICH; on a
machine that is several times as fast 6 to 7, and 4 to 5. It is a hundred calls of Python.
"""
_MESSAGES = (
    ("40 B under bsp, scatter and gather; a blocking Allreduce", "small", "bsp", "Allreduce"),
    ("the same, where a round trip takes 40 ms", "far_small", "bsp", "Allreduce"),
    ("189 KB, the same", "far_model", "bsp", "Allreduce"),
    ("4 MB back to back under notify-ack; Put and Flush", "stream", "notify-ack", "Put + Flush"),
    ("the same; Put and Flush to a rank that copies each message", "stream", "notify-ack", "copied"),
    ("189 KB under asp until they are there, while the receiver computes without the GIL", "landing", "landing", ""),
    ("189 KB under asp where a round trip takes 40 ms: they hold the loop, median and 99 %", "far_held", "asp", ""),
)


def transfers(measured: Measured) -> str:
    """The section on messages."""
    found = _each(measured, "transfers")
    titles = ["", *(title for mpi in found for title in (mpi, "its own call"))]
    rows = [
        [what, *(cell for one in found.values() for cell in _pair(one[part], ours, theirs))]
        for what, part, ours, theirs in _MESSAGES
        if all(part in one for one in found.values())
    ]
    return TRANSFERS.format(table=table(titles, rows)).rstrip()


def _pair(times: Mapping[str, Sequence[float]], ours: str, theirs: str) -> tuple[str, str]:
    own = _time(statistics.median(times[ours]))
    if ours == "asp":
        own += f", {_time(sorted(times[ours])[int(SLOWEST * len(times[ours]))])}"
    return own, _time(statistics.median(times[theirs])) if theirs else ""


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


# -- trainings ------------------------------------------------------------------------------------------------

LINK = """## A link of 100 Mbit/s

The model and the kernel of apps.svm on rcv1-ccat, hinge loss, l2 1e-4; 47,237 float32 are 189 KB. 2 hosts of 2 ranks,
an exchange every 1000 examples of a rank. Seconds until the objective of rank 0's model is 0.192, 1.8 % above the
optimum; medians of {rounds} runs in turns, each with a seed of its own. Only training is timed. The Allreduce is MPI's
own, of the model, of which each rank takes a quarter: all else is the same. MB are what the hosts have sent by then,
with all headers; epochs are rank 0's. Where most runs do not get there, the lowest objective is given.

{table}

{notes}"""
LINK_NOTES = """\
- An Allreduce takes 17 ms: 190 KB each way, which is what the link carries in 15. A rank of asp makes more epochs in
  that time, on its own rows, and merges what has come. Along "hierarchical" each host sends two models an exchange, and
  hears of the other host every 30 ms at best, every 8 ms as int8. Models weigh by what is new in them there.
- Asp along "hierarchical" is sooner than an Allreduce, with rounded models by more: it needs the fewest messages.
  Single runs differ by a factor of two: which models meet is a matter of chance.
- Sparse vectors send the same mean in 40 % of the bytes under bsp. Under asp the target is not reached. A rank does not
  pass on rows that it has merged, unless its own examples have them, which may be why.
- Changes as int8 go to all ranks: two on the other host. Four messages of a quarter are as many bytes as an Allreduce.
  Along "hierarchical" ranks would never hear of changes of a rank that is no neighbour: a run ended at 0.227.
- A quarter of the blocks is a third of the bytes. Such an exchange needs 5 ms of the link, and takes 7 to 9: a rank
  computes for 3 ms to choose and round them, and two ranks share a core. To wait takes as much processor time as that:
  without its yield Open MPI's Allreduce took 47 ms."""
FAR = """## 40 ms and losses

The same where a packet takes 20 ms each way, and 1 % of them are lost; the rate is not held. TCP resends
them, with cubic.

{table}

{notes}"""
FAR_NOTES = """\
Along "hierarchical" asp is there in a third of an Allreduce's time or less; with models that are rounded to int8
between hosts in a twelfth. The hosts send 0.5 to 2.6 MB/s where 1 % is lost, while their ranks train on."""
GRAPHS = """## Bytes by graph

The same with no delay and no limit, under bsp, where bytes and objectives are the same in each run: payload bytes that
crossed between hosts (`statistics().bytes_across`), and rank 0's epochs, until the objective is 0.192.

{table}

{notes}"""
GRAPHS_NOTES = """\
In an exchange "hierarchical" sends half of all's bytes on 2 hosts, and a third on 4: there a host has 2 others as
peers, and a rank sends to one rank of each. With all 3 as peers it took 10.3 epochs, too, and 132.6 MB. Changes as int8
along "all" are a quarter of its bytes on both, for as many epochs."""


PLANNED = """## Predictions

The same along three graphs under bsp, over links of three rates, until the objective is {target}: seconds as
`malt.simulate(network=)` predicts them, and as these hosts take them. In the same job, before, are measured what a
simulation is given: half a round trip and the bytes a second of a plain TCP connection between the hosts, and what a
rank computes between two exchanges while all four do. Nothing else is fitted.

{table}

{summary}
{notes}"""
PLANNED_NOTES = """\
- Figures are medians of 3 runs, each with a seed of its own, which simulated ranks have, too. Ring at 30 and all at
  100 Mbit/s come close to each other: which one is sooner differs by run.
- Along the ring a link carries one message at a time, each way. Along the others two or four share it. A simulated link
  carries them one after the other, at the rate of a single stream. Four took up to a quarter longer with Open MPI, and
  up to half as long again with MPICH."""


def planned(measured: Measured) -> str:
    """The section on predictions."""
    found = _each(measured, "planned")
    titles = ["", "MPI", "link, MB/s", "ms to there", "compute, ms", "predicted, s", "measured, s", "error"]
    rows = [_predicted(mpi, row) for mpi, rows in found.items() for row in rows]
    summaries = [_summary(mpi, rows) for mpi, rows in found.items()]
    return PLANNED.format(
        target=planning.PLAN.target, table=table(titles, rows), summary="\n".join(summaries), notes=PLANNED_NOTES
    )


def _predicted(mpi: str, row: Measured) -> list[str]:
    numbers = [row["bandwidth"] / 1e6, row["latency_s"] * 1e3, row["compute_s"] * 1e3]
    seconds = [f"{row[name]:.2f}" if row[name] else "-" for name in ("predicted", "measured")]
    error = planning.error(row)
    off = f"{error:.0%}" if error < math.inf else "-"
    graph = row["way"].removeprefix("bsp, ")
    return [f"{row['mbit']} Mbit/s, {graph}", mpi, *(f"{number:.2f}" for number in numbers), *seconds, off]


def _summary(mpi: str, rows: Sequence[Measured]) -> str:
    median, largest, is_in_order = planning.summary(rows)
    best = {
        kind: ", ".join(f"{way.removeprefix('bsp, ')} at {mbit}" for mbit, way in planning.best(rows, kind))
        for kind in ("predicted", "measured")
    }
    order = f"{best['measured']}{', as' if is_in_order else ';'} predicted"
    order += "" if is_in_order else f" {best['predicted']}"
    rates = f"{len(planning.in_order(rows))} of {len({row['mbit'] for row in rows})} rates"
    return (
        f"- {mpi}: the median error is {median:.0%}, the largest {largest:.0%}. At {rates} the graphs come in the\n"
        f"  predicted order. The three best of all are {order}."
    )


def link(measured: Measured) -> str:
    """The section on a link of a low rate."""
    runs = _each(measured, "link")
    rounds = max(len(of) for one in runs.values() for of in _by_way(one).values())
    return LINK.format(rounds=rounds, table=_compared(runs), notes=LINK_NOTES)


def far(measured: Measured) -> str:
    """The section on delay and losses."""
    return FAR.format(table=_compared(_each(measured, "far")), notes=FAR_NOTES)


def _compared(found: Mapping[str, Sequence[Measured]]) -> str:
    """The table of ways to train, a line each."""
    titles = ["", *(title for mpi in found for title in (f"{mpi}, s", "sooner", "MB", "epochs"))]
    by_mpi = [_by_way(runs) for runs in found.values()]
    rows = [[way, *(cell for runs in by_mpi for cell in _cells(runs, way))] for way in by_mpi[0]]
    return table(titles, rows)


def _by_way(runs: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Runs by way, in the order of the table of ways."""
    names = [name for name in ways.WAYS if any(run["way"] == name for run in runs)]
    return {name: [run for run in runs if run["way"] == name] for name in names}


def seconds(runs: Sequence[Measured]) -> float:
    """The median; infinity where most runs have not reached the target."""
    return statistics.median(math.inf if run["seconds"] is None else run["seconds"] for run in runs)


def _cells(by_way: Mapping[str, Sequence[Measured]], way: str) -> list[str]:
    runs = by_way[way]
    took, theirs = seconds(runs), seconds(by_way[ways.ALLREDUCE])
    if took == math.inf:
        lowest = statistics.median(run["lowest"] for run in runs)
        return [f"not in {max(run['ended_s'] for run in runs):.1f} ({lowest:.4f})", "-", "-", "-"]
    sooner = "" if way == ways.ALLREDUCE or theirs == math.inf else f"{theirs / took:.1f} x"
    wire, epochs = (statistics.median(run[name] for run in runs) for name in ("wire", "epochs"))
    return [f"{took:.2f}", sooner, f"{wire / 1e6:.1f}", f"{epochs:.1f}"]


def graphs(measured: Measured) -> str:
    """The section on bytes by graph. They do not depend on the MPI: those of the first one are shown."""
    found = next(iter(_each(measured, "graphs").values()))
    rows = []
    for hosts, runs in found.items():
        by_way = {run["way"]: run for run in runs}
        everybody = by_way[ways.GRAPHS[0]]
        for way, run in by_way.items():
            share = "" if way == ways.GRAPHS[0] else f"1/{everybody['across'] / run['across']:.1f}"
            where = f"{hosts} hosts of 2 ranks, {way.removeprefix('bsp, ')}"
            rows.append([where, f"{run['across'] / 1e6:.1f}", share, f"{run['epochs']:.1f}"])
    titles = ["", "MB across hosts", "of all's", "epochs"]
    return GRAPHS.format(table=table(titles, rows), notes=GRAPHS_NOTES)


def _outcome(name: str, section: Callable[[dict[str, Any]], str]) -> Callable[[Measured], str]:
    return lambda measured: section(_each(measured, name))


PARTS = {"transfers": transfers, "link": link, "planned": planned, "far": far, "graphs": graphs}
"""The sections, in the order of the page."""
PARTS |= {name: _outcome(name, section) for name, section in outcomes.SECTIONS.items()}

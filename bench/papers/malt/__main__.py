"""Runs the experiments of the MALT paper (EuroSys 2015) on shapes of its data.

python -m bench.papers.malt [--quick] [--json docs/malt.json] [--only PART ...]

Ranks go on without one that is killed: that part needs Open MPI.
"""

from __future__ import annotations

import math
import statistics
from argparse import Namespace
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import malt
from bench.harness import document
from bench.harness.document import Measured, Table, Tables, reached, say
from bench.harness.rest import Others
from bench.papers.malt import experiments, workloads
from bench.papers.malt.struck import PACE_S
from bench.papers.malt.workloads import Workload


class Scale(NamedTuple):
    """How much is measured."""

    shapes: workloads.Scale
    rounds: int
    failing_rows: int
    until_back: bool
    """Whether the others wait for the rank that comes back."""
    untimed: frozenset[str]
    """Workloads whose seconds are left out. Their bytes are counted."""


WHOLE = Scale(workloads.WHOLE, 3, 12_000, False, frozenset())
QUICK = Scale(workloads.QUICK, 1, 4000, True, frozenset({"alpha", "DNA", "webspam", "Netflix", "KDD12"}))

MANY = 10
"""Hosts of which the page says most."""
_LAST = 5
"""Epochs at the end, in which a rank that came back takes part."""


@cache
def shapes(scale: Scale, folder: Path) -> list[Workload]:
    """The workloads, made once."""
    return list(workloads.made(scale.shapes, folder))


def of_shapes(options: Namespace) -> dict[str, Any]:
    """What the page says of the workloads."""
    return {"shapes": [shape(one) for one in shapes(options.scale, options.scratch)]}


def timed(options: Namespace, _: Measured) -> dict[str, Any]:
    """Seconds of two ranks beside those of one, in jobs."""
    scale, made, found = options.scale, of_shapes(options), []
    others = Others()
    for one in shapes(scale, options.scratch):
        if one.name not in scale.untimed:
            say(f"{one.name}: one rank and {experiments.RANKS}")
            found.append(experiments.speedup(one, scale.rounds))
    return {**made, "speedup": found, "rounds": scale.rounds, "others": others.share()}


def spread(options: Namespace, _: Measured) -> dict[str, Any]:
    """Virtual seconds of ranks on hosts of their own. RCV1 is there with many rows."""
    scale, folder = options.scale, options.scratch
    some = [one for one in shapes(scale, folder) if one.name in experiments.LINEAR and one.name not in scale.untimed]
    each = [workloads.many_news(scale.shapes, folder), *some]
    return {**of_shapes(options), "hosts": [{**shape(one), **experiments.on_hosts(one)} for one in each]}


def counted(options: Namespace, _: Measured) -> dict[str, Any]:
    """Bytes of the rows that are touched, on simulated ranks."""
    found = []
    for one in shapes(options.scale, options.scratch):
        say(f"{one.name}: {one.simulated} simulated ranks")
        found.append({"name": one.name, "ranks": one.simulated, **experiments.traffic(one)})
    return {**of_shapes(options), "traffic": found}


def killed(options: Namespace, _: Measured) -> dict[str, Any]:
    """The objective over seconds with a failure and without one, in jobs."""
    say(f"{experiments.FAILING} ranks, of which one is killed")
    return {"failure": experiments.failure(options.scale.failing_rows, options.scratch, options.scale.until_back)}


PARTS: dict[str, document.Part] = {"speedup": timed, "hosts": spread, "traffic": counted, "failure": killed}
"""What can be measured by itself."""


def shape(one: Workload) -> dict[str, Any]:
    """What the page says of a workload."""
    fields = ("name", "kind", "rows", "weights", "nonzeros", "measure")
    return {**{field: getattr(one, field) for field in fields}, "real": one.words[0] == "apps.svm"}


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    return {
        "shapes": _shapes(found), "speedup": _speedup(found), "hosts": _hosts(found), "bytes": _traffic(found),
        "failure": _failure(found["failure"]),
    }  # fmt: skip


def figures(found: Measured) -> dict[str, Any]:
    """What the sentences of the page say."""
    return {
        "rounds": found["rounds"], "ranks": experiments.RANKS, "others": found["others"],
        "is_real": found["shapes"][0]["real"], "failing_rows": found["failure"]["rows"], "failing": experiments.FAILING,
        "failing_every": experiments.FAILING_EVERY, "pace": 1 / PACE_S, "killed_in": experiments.KILLED_IN,
        **_host_numbers(found["hosts"]), **_failure_numbers(found["failure"]),
    }  # fmt: skip


def _shapes(measured: Measured) -> Table:
    rows = [[one["name"], one["kind"], f"{one['rows']:,}", f"{one['weights']:,}", f"{one['nonzeros']:,.0f}"]
            for one in measured["shapes"]]  # fmt: skip
    return [["like", "trained", "rows", "weights", "features a row"], *rows]


def _speedup(measured: Measured) -> Table:
    rows = []
    for one in measured["speedup"]:
        pairs = [alone / several for alone, several in zip(one["one"], one["several"], strict=True)]
        rows.append([
            one["name"], one["measure"].replace("_", " "), f"{one['target']:.4f}",
            f"{one['close'] - 1:.1%}", _seconds(one["one"]),
            _seconds(one["several"]), f"{one['ratio']:.2f}",
            f"{reached(min(pairs) or math.inf)}, {max(pairs):.2f}",
            f"{one['rate']:.2f}",
            " / ".join(reached(count, ".0f") for count in one["epochs"]),
        ])  # fmt: skip
    heads = ["like", "measure", "goal", "above", "1 rank, s", f"{experiments.RANKS} ranks, s", "times as fast",
             "from, to", "rows a second, times", "epochs, 1 / 2 ranks"]  # fmt: skip
    return [heads, *rows]


def _hosts(measured: Measured) -> Table:
    heads = ["like", "1 rank, ms", *(f"{ranks} ranks" for ranks in experiments.HOSTS), "epochs, 1 rank",
             *(f"{ranks} ranks" for ranks in experiments.HOSTS)]  # fmt: skip
    rows = []
    for one in measured["hosts"]:
        alone, epochs = one["one"]
        for graph, several in one["graphs"].items():
            gains = (f"{alone / seconds:.1f}" if seconds < math.inf else "-" for seconds, *_ in several)
            later = (reached(count, ".0f") if count < math.inf else "-" for _, count, _ in several)
            rows.append([f"{one['name']}, {graph}", f"{1e3 * alone:.1f}", *gains, reached(epochs, ".0f"), *later])
    return [heads, *rows]


def _host_numbers(found: Sequence[Measured]) -> dict[str, Any]:
    """What the page says of RCV1 on MANY hosts. Lists are by graph."""
    news, place = found[0], experiments.HOSTS.index(MANY)
    peers = [len(malt.graph(graph, MANY).sources(0)) for graph in experiments.GRAPHS]
    return {
        "network": experiments.NETWORK, "latency_us": 1e6 * experiments.LATENCY_S, "every": experiments.EVERY,
        "news": news, "peers": peers, "row_us": [1e6 * one["row_s"] for one in found], "many": MANY,
        "taken_ms": [1e3 * (experiments.EVERY * news["row_s"] + count * news["merge_s"]) for count in peers],
        "link_ms": [1e3 * count * 4 * news["weights"] / experiments.BANDWIDTH for count in peers],
        "left": [news["graphs"][graph][place][2] for graph in experiments.GRAPHS],
    }  # fmt: skip


def _failure_numbers(found: Measured) -> dict[str, Any]:
    without, killed, rejoined = _epochs(found)
    struck = experiments.KILLED_IN - 1
    return {
        "stall": killed[struck] - without[struck], "lost_rows": found["lost"]["rows"],
        "longer": statistics.median(killed[struck + 1 :]) / statistics.median(without),
        "away": found["back"]["back_at_s"] - found["back"]["at_s"],
        "again": statistics.median(rejoined[-_LAST:]) / statistics.median(without), "epochs": experiments.EPOCHS,
    }  # fmt: skip


def _epochs(found: Measured) -> list[list[float]]:
    """The seconds of each epoch, by run."""
    curves = ([[0.0, 0.0], *found[name]] for name in experiments.FAILURES)
    return [[now[0] - before[0] for before, now in pairwise(curve)] for curve in curves]


def _seconds(taken: list[float]) -> str:
    return reached(statistics.median(taken), ".3f")


def _traffic(measured: Measured) -> Table:
    rows = []
    for one in measured["traffic"]:
        sizes = (f"{one[key] / 1e6:,.2f}" for key in ("dense", "sent"))
        share = f"{100 * one['sent'] / one['dense']:.1f}"
        rows.append([one["name"], str(one["ranks"]), f"{one['messages']:,}", *sizes, share])
    return [["like", "ranks", "messages", "all weights, MB", "rows touched, MB", "% of all"], *rows]


def _failure(found: Measured) -> Table:
    names = "without a failure", f"one of {experiments.FAILING} killed", "killed and restarted"
    rows = []
    for name, run, seconds in zip(names, experiments.FAILURES, _epochs(found), strict=True):
        epochs = seconds[experiments.KILLED_IN - 1], seconds[-1], found[run][-1][0]
        rows.append([name, *(f"{one:.2f}" for one in epochs), f"{found[run][-1][1]:.4f}"])
    return [["", "epoch of the failure, s", "last epoch, s", "all epochs, s", "objective"], *rows]


if __name__ == "__main__":
    document.measure("bench.papers.malt", str(__doc__), lambda _: {}, tables, parts=PARTS, scales=(WHOLE, QUICK))

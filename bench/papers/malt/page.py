"""The tables and figures of docs/malt.md, from the JSON beside it. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import malt
from bench.harness.document import Measured, Table, Tables, reached
from bench.papers.malt import failure, hosts, speedup
from bench.papers.malt.workloads import Workload

MANY = 10
"""Hosts of which the page says most."""
_LAST = 5
"""Epochs at the end, in which a rank that came back takes part."""


def shape(one: Workload) -> dict[str, Any]:
    """What the page says of a workload."""
    fields = ("name", "kind", "rows", "weights", "nonzeros", "measure")
    return {**{field: getattr(one, field) for field in fields}, "real": one.words[0] == "apps.svm"}


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    return {
        "shapes": _shapes(found), "speedup": _speedup(found), "hosts": _hosts(found), "bytes": _traffic(found),
        "failure": _failure(found),
    }  # fmt: skip


def figures(found: Measured) -> dict[str, Any]:
    """What the sentences of the page say."""
    return {
        "rounds": found["rounds"], "ranks": speedup.RANKS, "others": found["others"],
        "is_real": found["shapes"][0]["real"], "failing_rows": found["failure"]["rows"], "failing": failure.RANKS,
        "failing_every": failure.EVERY, "pace": 1 / failure.PACE_S, "killed_in": failure.KILLED_IN,
        **_host_numbers(found["hosts"]), **_failure_numbers(found),
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
    heads = ["like", "measure", "goal", "above", "1 rank, s", f"{speedup.RANKS} ranks, s", "times as fast", "from, to",
             "rows a second, times", "epochs, 1 / 2 ranks"]  # fmt: skip
    return [heads, *rows]


def _hosts(measured: Measured) -> Table:
    heads = ["like", "1 rank, ms", *(f"{ranks} ranks" for ranks in hosts.RANKS), "epochs, 1 rank",
             *(f"{ranks} ranks" for ranks in hosts.RANKS)]  # fmt: skip
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
    news, place = found[0], hosts.RANKS.index(MANY)
    peers = [len(malt.graph(graph, MANY).sources(0)) for graph in hosts.GRAPHS]
    return {
        "network": hosts.NETWORK, "latency_us": 1e6 * hosts.LATENCY_S, "every": hosts.EVERY, "news": news,
        "peers": peers, "row_us": [1e6 * one["row_s"] for one in found], "many": MANY,
        "taken_ms": [1e3 * (hosts.EVERY * news["row_s"] + count * news["merge_s"]) for count in peers],
        "link_ms": [1e3 * count * 4 * news["weights"] / hosts.BANDWIDTH for count in peers],
        "left": [news["graphs"][graph][place][2] for graph in hosts.GRAPHS],
    }  # fmt: skip


def _failure_numbers(measured: Measured) -> dict[str, Any]:
    found, struck = measured["failure"], failure.KILLED_IN - 1
    runs = [found[name] for name in failure.RUNS]
    without, killed, rejoined = ([now[0] - before[0] for before, now in pairwise(run)] for run in runs)
    return {
        "stall": killed[struck - 1] - without[struck - 1], "lost_rows": found["lost"]["rows"],
        "longer": statistics.median(killed[struck:]) / statistics.median(without),
        "period": measured["goodput"]["period_s"], "goodput": measured["goodput"]["goodput"],
        "long": measured["goodput"]["killed"]["seconds"],
        "away": found["back"]["back_at_s"] - found["back"]["at_s"],
        "again": statistics.median(rejoined[-_LAST:]) / statistics.median(without),
        "ends": [run[-1][0] for run in runs], "reached": [run[-1][1] for run in runs],
    }  # fmt: skip


def _seconds(taken: list[float]) -> str:
    return reached(statistics.median(taken), ".3f")


def _traffic(measured: Measured) -> Table:
    rows = []
    for one in measured["traffic"]:
        sizes = (f"{one[key] / 1e6:,.2f}" for key in ("dense", "sent"))
        share = f"{100 * one['sent'] / one['dense']:.1f}"
        rows.append([one["name"], str(one["ranks"]), f"{one['messages']:,}", *sizes, share])
    return [["like", "ranks", "messages", "all weights, MB", "rows touched, MB", "% of all"], *rows]


def _failure(measured: Measured) -> Table:
    runs = [measured["failure"][name] for name in failure.RUNS]
    heads = ["epoch", "without a failure, s", "objective", f"one of {failure.RANKS} killed, s", "objective",
             "killed and restarted, s", "objective"]  # fmt: skip
    rows = [[str(epoch), *(f"{value:.4f}" for run in both for value in run)]
            for epoch, both in enumerate(zip(*runs, strict=True), 1)]  # fmt: skip
    return [heads, *rows]

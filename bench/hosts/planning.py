"""Seconds to an objective as malt.simulate predicts them, and as hosts take them that links of low rates join."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import malt
from bench.hosts.training import Plan, results, rows
from malt.models import linear

MBIT = (10, 30, 100)
"""The rates that links are held to."""
PLAN = Plan(("bsp, all", "bsp, hierarchical", "bsp, ring"), 3, 0.0, 25, 0.1945, tells_pace=True)
QUICK = PLAN._replace(rounds=1, exchanges=4, target=0.5)
HOSTS = ("a", "a", "b", "b")
LATENCY_S, PAYLOAD = 25e-6, 1448 / 1514
"""Of these links: half a round trip of TCP; the share of what travels that is no header."""


def predicted(compute_s: float, mbit: int, plan: Plan) -> list[dict[str, Any]]:
    """The results of the plan on simulated ranks that compute as long as was measured, over links of this rate."""
    network = malt.Network(LATENCY_S, PAYLOAD * mbit * 1e6 / 8, list(HOSTS))
    linear.compile_kernels()

    def live(rank: int) -> list[dict[str, Any]]:
        return results(rows(), plan._replace(compute_s=compute_s))

    return malt.simulate(live, len(HOSTS), network=network)[0]


def compared(found: Sequence[Mapping[str, Any]], mbit: int, plan: Plan) -> list[dict[str, Any]]:
    """What was measured at a rate, beside what is predicted: medians. `found`: of bench.hosts.training."""
    pace, *made = found
    expected = predicted(pace["compute_s"], mbit, plan)
    return [
        {"mbit": mbit, "way": way, "predicted": _middle(expected, way), "measured": _middle(made, way), **pace}
        for way in plan.ways
    ]


def _middle(results: Sequence[Mapping[str, Any]], way: str) -> float | None:
    """The median seconds of the runs of this way; None where most do not reach the target."""
    middle = statistics.median(one["seconds"] or float("inf") for one in results if one["way"] == way)
    return None if middle == float("inf") else middle


def error(row: Mapping[str, Any]) -> float:
    """By which part the prediction is off; infinity where one of the two does not reach the target."""
    if not (row["predicted"] and row["measured"]):
        return float("inf")
    return abs(float(row["predicted"]) / float(row["measured"]) - 1)


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """The rates at which the ways come in the predicted order."""

    def ways(mbit: int, kind: str) -> list[str]:
        some = [row for row in rows if row["mbit"] == mbit]
        return [row["way"] for row in sorted(some, key=lambda row: float(row[kind] or "inf"))]

    return [mbit for mbit in sorted({row["mbit"] for row in rows}) if ways(mbit, "predicted") == ways(mbit, "measured")]


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The errors of predictions, and at how many of the rates the ways come in their order."""
    errors = [error(row) for row in rows]
    rates = len({row["mbit"] for row in rows})
    return {
        "median": statistics.median(errors),
        "largest": max(errors),
        "in_order": len(in_order(rows)),
        "rates": rates,
    }

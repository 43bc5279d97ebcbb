"""The command `malt plan`: what a program would take on clusters that one cannot try."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dstorm.words import count
from malt.commands.plan import losses
from malt.commands.plan.measuring import Measured, measured
from malt.commands.plan.prediction import (
    BY_HOST,
    GRAPHS,
    INTERVALS,
    MOST_SIMULATED,
    NETWORKS,
    OWN,
    SYNCS,
    Choice,
    Prediction,
)
from malt.launch.machine.mpi_library import LaunchError
from malt.launch.program import check_program

_COLUMN, _GRAPH = 10, 14


class Plan:
    """The predictions for a program, by network, number of ranks and choice. `slots`: how many ranks a host has."""

    def __init__(
        self, program: str, found: Measured, ranks: Sequence[int], slots: int, trained: losses.Losses | None,
        networks: Mapping[str, tuple[float, float]] = NETWORKS,
    ) -> None:  # fmt: skip
        self._name, self._program, self._ranks, self._trained = program, found, ranks, trained
        self._slots, self._networks = slots, networks
        intervals = INTERVALS if trained is None else losses.INTERVALS
        graphs = (*GRAPHS, BY_HOST) if slots > 1 else GRAPHS
        self._choices = [Choice(graph, sync, times) for graph in graphs for sync in SYNCS for times in intervals]

    def rows(self) -> list[dict[str, Any]]:
        """A row for each network, number of ranks and choice. It says on stderr which network it is at."""
        rows = []
        for name in self._networks:
            most = min(max(self._ranks), MOST_SIMULATED)
            print(f"malt plan: simulating up to {count(most, 'rank')}, {name}", file=sys.stderr, flush=True)
            predicted = Prediction(self._program, name, self._slots, self._networks)
            rows += [self._row(predicted, choice, ranks) for choice in self._choices for ranks in self._ranks]
        return rows

    def _row(self, predicted: Prediction, choice: Choice, ranks: int) -> dict[str, Any]:
        epoch = predicted.epoch(choice, ranks)
        row: dict[str, Any] = {
            "network": predicted.name, "ranks": ranks, "graph": choice.graph, "sync": choice.sync,
            "every": self._program.every * choice.interval, "seconds_an_epoch": epoch.seconds,
            "bytes_an_epoch": epoch.nbytes, "exchange_share": epoch.exchange_share,
            "extrapolated": epoch.is_extrapolated,
        }  # fmt: skip
        if self._trained is not None:
            epochs = self._trained.epochs(choice, ranks, predicted.name)
            reached = epochs < math.inf
            row["epochs_to_loss"] = epochs if reached else None
            row["seconds_to_loss"] = epochs * epoch.seconds if reached else None
        return row

    def facts(self) -> dict[str, Any]:
        """Return the facts that --json prints."""
        rows, program = self.rows(), self._program
        loss = None if self._trained is None else {"measure": program.loss, "target": self._trained.target}
        one = {
            "compute_s": program.compute_s, "bytes_a_message": program.nbytes, "exchanges_an_epoch": program.exchanges,
            "every": program.every, "seconds_an_epoch": program.compute_s * program.exchanges,
        }  # fmt: skip
        return {
            "program": self._name, "one_rank": one, "slots": self._slots, "loss": loss,
            "networks": self._networks, "best": bests(rows, program.every), "rows": rows,
        }  # fmt: skip


def bests(rows: Sequence[dict[str, Any]], every: int) -> list[dict[str, Any]]:
    """For each network the row of the least time: to the loss, or of an epoch at `every`, the program's interval."""
    found = []
    for name in dict.fromkeys(row["network"] for row in rows):
        mine = [row for row in rows if row["network"] == name and _time(row) is not None]
        if "seconds_to_loss" not in rows[0]:
            mine = [row for row in mine if row["every"] == every]
        if mine:
            found.append(min(mine, key=lambda row: float(_time(row) or 0.0)))
    return found


def _time(row: dict[str, Any]) -> float | None:
    time: float | None = row["seconds_to_loss"] if "seconds_to_loss" in row else row["seconds_an_epoch"]
    return time


def main(
    program: Sequence[str], ranks: Sequence[int], slots: int, loss: float | None, as_json: bool,
    latency_s: float | None = None, bandwidth: float | None = None,
) -> int:  # fmt: skip
    """Measure the program, and print the plan. Returns 0. Local. LaunchError: it is not there, or cannot be measured.

    `program`: PROGRAM ARGS... or -m MODULE ARGS...  `latency_s`, `bandwidth`: of a network of the user's own, for which
    alone it plans.
    """
    is_module = program[:1] == ("-m",)
    if len(program) <= is_module:
        raise LaunchError("no PROGRAM to plan for (see malt plan --help)")
    if program[0] == "-c":
        raise LaunchError("a file or a module is planned for, not -c CODE")
    networks = _networks(latency_s, bandwidth)
    check_program(program)
    name, *arguments = program[is_module:]
    found = measured(name, arguments, is_module)
    trained = None
    if found.loss:
        target = min(found.losses) * (1 + losses.WITHIN) if loss is None else loss
        trained = losses.Losses(name, arguments, found, target, slots, networks)
    elif loss is not None:
        raise LaunchError(f"--loss {loss:g}: {name} is not a program on the harness, whose report has losses")
    facts = Plan(name, found, ranks, slots, trained, networks).facts()
    print(json.dumps(facts) if as_json else table(facts))
    return 0


def _networks(latency_s: float | None, bandwidth: float | None) -> Mapping[str, tuple[float, float]]:
    """The networks to plan for. LaunchError: one of the two is missing."""
    if latency_s is None and bandwidth is None:
        return NETWORKS
    if latency_s is None or bandwidth is None:
        missing = "--latency SECONDS" if latency_s is None else "--bandwidth BYTES_A_SECOND"
        raise LaunchError(f"a network of your own needs {missing}, too (malt doctor --hosts A,B measures both)")
    return {OWN: (latency_s, bandwidth)}


def table(facts: dict[str, Any]) -> str:
    """Return the text printed: a table for each network, a line for each choice, a column for each number of ranks."""
    one, loss = facts["one_rank"], facts["loss"]
    what = "s an epoch" if loss is None else f"s until {loss['measure']} <= {loss['target']:.4g}"
    lines = [
        f"{facts['program']} on one rank: {one['seconds_an_epoch']:.3g} s an epoch, {one['exchanges_an_epoch']:.4g} "
        f"exchanges of {one['bytes_a_message']:,.0f} bytes, one every {one['every']}, {one['compute_s']:.3g} s apart"
    ]
    if facts["slots"] > 1:
        lines.append(f"{facts['slots']} ranks on each host")
    for network in dict.fromkeys(row["network"] for row in facts["rows"]):
        rows = [row for row in facts["rows"] if row["network"] == network]
        latency_s, bandwidth = facts["networks"][network]
        lines += ["", f"{network} ({latency_s * 1e6:g} us, {bandwidth / 1e6:,.0f} MB/s): {what}; ~ is extrapolated"]
        lines += _lines(rows, [row for row in facts["best"] if row["network"] == network])
    return "\n".join(lines)


def _lines(rows: Sequence[dict[str, Any]], best: Sequence[dict[str, Any]]) -> list[str]:
    ranks = list(dict.fromkeys(row["ranks"] for row in rows))
    head = "".join(f"{count(number, 'rank'):>{_COLUMN + 2}}" for number in ranks)
    lines = [f"{'graph':{_GRAPH}}{'sync':6}{'every':>8}{head}"]
    for graph, sync, every in dict.fromkeys((row["graph"], row["sync"], row["every"]) for row in rows):
        mine = [row for row in rows if (row["graph"], row["sync"], row["every"]) == (graph, sync, every)]
        cells = "".join(f"{_cell(row, best):>{_COLUMN + 2}}" for row in mine)
        lines.append(f"{graph:{_GRAPH}}{sync:6}{every:8}{cells}")
    if not best:
        return [*lines, "best: none of them reaches the loss"]
    [one] = best
    return [
        *lines,
        f"best: {count(one['ranks'], 'rank')}, graph {one['graph']}, sync {one['sync']}, every {one['every']}: "
        f"{_time(one):.3g} s; an epoch sends {one['bytes_an_epoch'] / 1e6:,.3g} MB between hosts, and exchanges take "
        f"{one['exchange_share']:.0%} of its time",
    ]


def _cell(row: dict[str, Any], best: Sequence[dict[str, Any]]) -> str:
    time = _time(row)
    if time is None:
        return "-"
    return f"{'*' if row in best else ''}{'~' if row['extrapolated'] else ''}{time:.3g}"

"""Programs of apps/ on two hosts beside one: how good they become, and the bytes between the hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.benchmarks.svm import task
from bench.harness.jobs import Report
from bench.hosts.trials import hosts, own_cores, report

_RUNS = 9
"""The runs of which the median counts, where it is a matter of chance which messages meet."""
_NAMES = "ab"
_RIDGE = 0.29922308955
"""The least objective of logistic regression on rcv1-ccat with l2 1e-4, by scipy's L-BFGS-B."""


class Program(NamedTuple):
    """A program, and what it must reach."""

    words: tuple[object, ...]
    measure: str
    """Of its final report."""
    least: float
    """The most that it may be."""
    is_even: bool
    """Whether all its messages arrive before it ends: ranks wait for each other. Else two runs differ."""

    @property
    def runs(self) -> int:
        """How often it runs, on one host and on two."""
        return 1 if self.is_even else _RUNS


def _svm(sync: str, least: float) -> Program:
    train, test = _files("rcv1-ccat", "svm")
    options = ("--l2", 1e-4, "--no-intercept", "--epochs", 10, "--sync", sync)
    return Program(("apps.svm", train, "--test", test, *options), "objective", least, sync == "bsp")


def _files(name: str, kind: str) -> tuple[Path, Path]:
    return task.DATA / name / f"train.{kind}.xz", task.DATA / name / f"test.{kind}.xz"


_MF = ("apps.mf", _files("epinions", "txt")[0], "--test", _files("epinions", "txt")[1])
_LOGISTIC = ("apps.logistic", _files("rcv1-ccat", "svm")[0], "--l2", 1e-4, "--no-intercept", "--sharded")
PROGRAMS = {
    "apps.svm, rcv1-ccat, bsp": _svm("bsp", task.RCV1_TARGET),
    "apps.svm, rcv1-ccat, asp": _svm("asp", 0.1916),
    "apps.mf, epinions": Program(_MF, "test_rmse", 1.032, True),
    "apps.logistic --sharded, rcv1-ccat": Program(_LOGISTIC, "objective", _RIDGE * (1 + 1e-6), True),
}
QUICK = {"apps.svm, embedded": Program(("apps.svm", "--epochs", 2, "--sync", "bsp"), "objective", 0.4, True)}


def programs(python: str, quick: bool) -> dict[str, dict[str, Any]]:
    """What the programs reach on one host and on two, by name, and the bytes that cross."""
    chosen = QUICK if quick else PROGRAMS
    with hosts(_NAMES) as network:
        alone = {name: _middle(_reports(network, python, one, 4)) for name, one in chosen.items()}
        own_cores(network)
        return {name: _run(network, python, one, alone[name]) for name, one in chosen.items()}


def _run(network: Any, python: str, program: Program, alone: Report) -> dict[str, Any]:
    """What the program reaches on two hosts, beside `alone`, its report on one."""
    reports = _reports(network, python, program, 2, hosts=_NAMES)
    reached = [one["final"][program.measure] for one in reports]
    across = _middle(reports)
    return {
        "measure": program.measure, "least": program.least, "is_even": program.is_even,
        "alone": alone["final"][program.measure], "across": across["final"][program.measure], "reached": reached,
        "bytes_across": across["epochs"][-1]["bytes_across"], "bytes_wire": across["bytes_wire"],
        "seconds": across["final"]["seconds"], "seconds_alone": alone["final"]["seconds"],
    }  # fmt: skip


def _reports(network: Any, python: str, program: Program, ranks: int, **where: str) -> list[Report]:
    """The reports of all runs, from the best to the worst, on so many ranks of each host.

    The bytes in them are those between hosts, each in a namespace of its own.
    """
    words = "bench.hosts.counted", *program.words
    found = []
    for _ in range(program.runs):
        found.append(report(network, python, ranks, *words, **where))
        network.until_clean()
    return sorted(found, key=lambda one: float(one["final"][program.measure]))


def _middle(reports: Sequence[Report]) -> Report:
    return reports[len(reports) // 2]

"""Programs of apps/ on two hosts beside one: how good they become, and the bytes between the hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.hosts.trials import LAUNCHER, ROOT, own_cores
from bench.svm import task

_DATA = task.RCV1.parents[1]
_RANKS = 4
_LIMIT_S = 300
_RUNS = 9
"""The runs of which the median counts, where it is a matter of chance which messages meet."""
_NAMES = "ab"
_REPORT, _COUNT = "/tmp/report.json", "/tmp/sent"
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
    return _DATA / name / f"train.{kind}.xz", _DATA / name / f"test.{kind}.xz"


_MF = ("apps.mf", _files("epinions", "txt")[0], "--test", _files("epinions", "txt")[1])
_LOGISTIC = ("apps.logistic", _files("rcv1-ccat", "svm")[0], "--l2", 1e-4, "--no-intercept", "--sharded")
PROGRAMS = {
    "apps.svm, rcv1-ccat, bsp": _svm("bsp", task.RCV1_TARGET),
    "apps.svm, rcv1-ccat, asp": _svm("asp", 0.1916),
    "apps.mf, epinions": Program(_MF, "test_rmse", 1.032, True),
    "apps.logistic --sharded, rcv1-ccat": Program(_LOGISTIC, "objective", _RIDGE * (1 + 1e-6), True),
}
_Reported = tuple[Any, int]
"""The report of a run, and the bytes that its hosts have sent to each other in training."""
QUICK = {"apps.svm, embedded": Program(("apps.svm", "--epochs", 2, "--sync", "bsp"), "objective", 0.4, True)}


def programs(python: str, quick: bool) -> dict[str, dict[str, Any]]:
    """What the programs reach on one host and on two, by name, and the bytes that cross."""
    from host_network import HostNetwork  # of tests/, with pytest, as tests use it

    network, chosen = HostNetwork(_NAMES), QUICK if quick else PROGRAMS
    try:
        alone = {name: _middle(_reports(network, python, one, ())) for name, one in chosen.items()}
        own_cores(network)
        return {name: _run(network, python, one, alone[name]) for name, one in chosen.items()}
    finally:
        network.close()


def _run(network: Any, python: str, program: Program, alone: _Reported) -> dict[str, Any]:
    """What the program reaches on two hosts, beside `alone`, its report on one."""
    reports = _reports(network, python, program, ("--hosts", "a:2,b:2"))
    reached = [report["final"][program.measure] for report, _ in reports]
    (across, sent), (alone_report, _) = _middle(reports), alone
    return {
        "measure": program.measure, "least": program.least, "is_even": program.is_even,
        "alone": alone_report["final"][program.measure], "across": across["final"][program.measure], "reached": reached,
        "bytes_across": across["epochs"][-1]["bytes_across"], "bytes_wire": sent,
        "seconds": across["final"]["seconds"], "seconds_alone": alone_report["final"]["seconds"],
    }  # fmt: skip


def _reports(network: Any, python: str, program: Program, options: Sequence[str]) -> list[_Reported]:
    """The reports of all runs, from the best to the worst."""
    found = [_reported(network, python, program, options) for _ in range(program.runs)]
    return sorted(found, key=lambda one: one[0]["final"][program.measure])


def _middle(reports: Sequence[_Reported]) -> _Reported:
    return reports[len(reports) // 2]


def _reported(network: Any, python: str, program: Program, options: Sequence[str]) -> _Reported:
    """The report of a run, and the bytes that its hosts have sent to each other in training. RuntimeError: it failed.

    They are counted where each host is in a namespace of its own.
    """
    run = ["-m", "malt", "run", "-n", _RANKS, *options]
    words = [*run, "-m", "bench.hosts.counted", _COUNT, *program.words, "--json", _REPORT]
    done = network.run(LAUNCHER, python, *map(str, words), folder=ROOT, limit_s=_LIMIT_S)
    if done.returncode:
        raise RuntimeError(done.stderr)
    report, sent = json.loads(network.shell(LAUNCHER, f"cat {_REPORT}")), network.shell(LAUNCHER, f"cat {_COUNT}")
    network.shell(LAUNCHER, f"rm {_REPORT} {_COUNT}")
    network.until_clean()
    return report, int(sent)

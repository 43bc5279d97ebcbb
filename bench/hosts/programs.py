"""Programs of apps/ on two hosts beside one: how good they become, and the bytes between the hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.hosts.trials import LAUNCHER, ROOT, YIELD
from bench.svm import task

_DATA = task.RCV1.parents[1]
_RANKS = 4
_LIMIT_S = 300
_NAMES = "ab"
_COUNTERS = "cat /proc/net/dev"
_SENT = 8
"""The place of the bytes that an interface has sent, in its line there."""
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
    """Whether all its messages arrive before it ends: ranks wait for each other."""


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
QUICK = {"apps.svm, embedded": Program(("apps.svm", "--epochs", 2, "--sync", "bsp"), "objective", 0.4, True)}


def programs(python: str, quick: bool) -> dict[str, dict[str, Any]]:
    """What the programs reach on one host and on two, by name, and the bytes that cross."""
    from host_network import HostNetwork  # of tests/, with pytest, as tests use it

    network = HostNetwork(_NAMES)
    try:
        return {name: _run(network, python, one) for name, one in (QUICK if quick else PROGRAMS).items()}
    finally:
        network.close()


def _run(network: Any, python: str, program: Program) -> dict[str, Any]:
    alone = _reported(network, python, program, ())
    before = _sent(network)
    across = _reported(network, python, program, ("--hosts", "a:2,b:2"))
    return {
        "measure": program.measure, "least": program.least, "is_even": program.is_even,
        "alone": alone["final"][program.measure], "across": across["final"][program.measure],
        "bytes_across": across["epochs"][-1]["bytes_across"], "bytes_wire": _sent(network) - before,
        "seconds": across["final"]["seconds"], "seconds_alone": alone["final"]["seconds"],
    }  # fmt: skip


def _reported(network: Any, python: str, program: Program, options: Sequence[str]) -> Any:
    """The report of a run. RuntimeError: it failed."""
    words = ["-m", "malt", "run", "-n", _RANKS, *options, "-m", *program.words, "--json", "/tmp/report.json"]
    done = network.run(LAUNCHER, python, *map(str, words), folder=ROOT, limit_s=_LIMIT_S, environment=YIELD)
    if done.returncode:
        raise RuntimeError(done.stderr)
    report = json.loads(network.shell(LAUNCHER, "cat /tmp/report.json; rm /tmp/report.json"))
    network.until_clean()
    return report


def _sent(network: Any) -> int:
    """The bytes that all hosts have sent to the bridge so far, with all headers."""
    lines = [line.partition(":") for host in _NAMES for line in network.shell(host, _COUNTERS).splitlines()[2:]]
    return sum(int(counters.split()[_SENT]) for name, _, counters in lines if name.strip() != "lo")

"""A linear classifier, a support vector machine or logistic regression, by SGD or dual coordinate ascent.

    python -m apps.svm [TRAIN] [--test TEST] ...               alone
    malt run -n 4 -m apps.svm [TRAIN] [--test TEST] ...        on four ranks

Every rank trains on its own rows, one example at a time. With --optimizer sgd it exchanges its model with its peers
every --exchange-every examples, and waits for nobody. With --optimizer dual all add up their changes after each epoch,
until the duality gap says that little is left to gain.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import malt
from apps import harness
from apps.harness import Column, Parser
from apps.linear import reading
from apps.svm import dual, sgd
from apps.svm.problem import USUAL
from malt.models import linear

AVERAGES: Final = ("model", "reweighted", "delta", "gradient", "none")
_SGD: Final[dict[str, Any]] = {
    "epochs": 10, "exchange_every": None, "average": "model", "vector": "dense", "step": None, "graph": "all",
    "degree": None, "sync": "asp", "tolerance": 0.0,
}  # fmt: skip
_DUAL: Final[dict[str, Any]] = {"epochs": 1000, "exchange_every": None, "gap": 1e-4}
"""The options of each optimizer, and their defaults."""
_WHY: Final = {
    "average": "the ranks of dual add up their changes", "vector": "the ranks of dual add up whole weights",
    "step": "dual has no step size", "graph": "all ranks of dual exchange together",
    "degree": "all ranks of dual exchange together",
    "sync": "all ranks of dual exchange together", "tolerance": "dual ends by --gap",
    "gap": "sgd knows of no duality gap, and ends by --tolerance",
}  # fmt: skip


class Program(harness.Program):
    """The command line."""

    measures = (Column("objective", "objective", ".4f"), Column("duality_gap", "duality gap", ".1e"),
                Column("test_accuracy", "test accuracy", ".4f"))  # fmt: skip

    def add_options(self, parser: Parser) -> None:
        add = parser.add_argument
        reading.add_options(parser)
        add("--loss", choices=sorted(linear.LOSSES), default="hinge", help="default: %(default)s")
        parser.real("--l2", 1e-4, "weight of |w|^2 / 2")
        add("--no-intercept", dest="intercept", action="store_false", help="fit a plane through the origin")
        add("--optimizer", choices=("sgd", "dual"), default="sgd",
            help="stochastic gradient descent, or dual coordinate ascent to a gap (default: %(default)s)")  # fmt: skip
        add("--epochs", type=harness.whole_number(0), metavar="N",
            help=f"passes over the rows (default: {_SGD['epochs']}; dual: at most {_DUAL['epochs']})")  # fmt: skip
        harness.add_exchange_every(parser, USUAL, "examples", more="; dual: an epoch")
        parser.add_argument_group("for --optimizer dual").add_argument("--gap", type=harness.number, metavar="X",
            help="stop at this duality gap, relative to the objective "
            f"(default: {_DUAL['gap']}; 0: never)")  # fmt: skip
        group = parser.add_argument_group("for --optimizer sgd")
        add = group.add_argument
        add("--average", choices=AVERAGES, help=f"what ranks exchange; reweighted: models, "
            f"with each example counted as many times as there are ranks (default: {_SGD['average']})")  # fmt: skip
        add("--vector", choices=("dense", "sparse"),
            help="send all weights, or only those of features seen in the rows "
            f"(default: {_SGD['vector']})")  # fmt: skip
        add("--step", type=harness.positive_number, metavar="X", help="initial step size (default: chosen on a sample)")
        add("--tolerance", type=harness.number, metavar="X",
            help="stop when an epoch improves the objective by less than this fraction "
            "(default: 0, never)")  # fmt: skip
        harness.add_graph(group, _SGD["graph"], _SGD["sync"])

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return reading.inputs(options)

    def read(self, options: Namespace) -> tuple[malt.Dataset, malt.Dataset | None]:
        """The training rows and the test rows. Collective. ValueError, OSError: as `load`."""
        return reading.load(options)

    def load(self, options: Namespace) -> sgd.Problem | dual.Problem:
        settle(options)
        made = dual.Problem if options.optimizer == "dual" else sgd.Problem
        return made(options, *self.read(options))


def settle(options: Namespace) -> None:
    """Give the options of the optimizer their defaults. Local.

    ValueError: an option of the other optimizer was given; there is no dual.
    """
    mine, other = (_SGD, _DUAL) if options.optimizer == "sgd" else (_DUAL, _SGD)
    for name in other:
        if name not in mine and getattr(options, name) is not None:
            whose = "sgd" if mine is _DUAL else "dual"
            raise ValueError(f"--{name} is for --optimizer {whose}: {_WHY[name]}")
    for name, default in mine.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    if mine is _SGD:
        together = options.average in ("gradient", "none") or (options.tolerance > 0 and options.sync != "asp")
        harness.settle_exchange_every(options, USUAL, together)
    elif options.exchange_every == harness.AUTO:
        raise ValueError("--exchange-every auto is for --optimizer sgd: all ranks of dual exchange together")
    if mine is _DUAL and not options.l2:
        raise ValueError("--optimizer dual needs an --l2 above 0: without it there is no dual")
    if mine is _DUAL and not linear.has_dual(linear.Problem(options.loss, options.l2)):
        raise ValueError(f"--optimizer dual has no --loss {options.loss}: apps.logistic trains it to the optimum")


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""

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

import malt
from apps import harness
from apps.harness import Column, Parser
from apps.linear import reading
from apps.svm import dual, optimizers, sgd
from malt.models import linear


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
        optimizers.add_options(parser)
        harness.add_common_options(parser)

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return reading.inputs(options)

    def read(self, options: Namespace) -> tuple[malt.Dataset, malt.Dataset | None]:
        """The training rows and the test rows. Collective. ValueError, OSError: as `load`."""
        return reading.load(options)

    def load(self, options: Namespace) -> sgd.Problem | dual.Problem:
        optimizers.settle(options)
        made = dual.Problem if options.optimizer == "dual" else sgd.Problem
        return made(options, *self.read(options))


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""

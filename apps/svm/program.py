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

import malt
from apps import harness
from apps.harness import Column, Parser
from apps.linear.reading import load, paths
from apps.svm import dual, optimizers, sgd
from malt.models import linear

SUMMARY = str(__doc__).splitlines()[0]


class Program(harness.Program):
    """The command line."""

    name, summary = "apps.svm", SUMMARY
    measures = (Column("objective", "objective", ".4f"), Column("duality_gap", "duality gap", ".1e"),
                Column("test_accuracy", "test accuracy", ".4f"))  # fmt: skip

    def add_options(self, parser: Parser) -> None:
        add = parser.add_argument
        add("train", nargs="?", metavar="TRAIN",
            help="svmlight text, also .gz .bz2 .xz (default: the embedded census data a9a)")  # fmt: skip
        add("--test", metavar="TEST", help="rows on which to measure the accuracy")
        add("--loss", choices=sorted(linear.LOSSES), default="hinge", help="default: %(default)s")
        add("--l2", type=harness.real_number(0), default=1e-4, metavar="X",
            help="weight of |w|^2 / 2 (default: %(default)s)")  # fmt: skip
        add("--no-intercept", dest="intercept", action="store_false", help="fit a plane through the origin")
        optimizers.add_options(parser)
        harness.add_common_options(parser, epochs=None)

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return list(zip(("TRAIN", "--test"), paths(options), strict=True))

    def read(self, options: Namespace) -> tuple[malt.Dataset, malt.Dataset | None]:
        """The training rows and the test rows. Collective. ValueError, OSError: as `load`."""
        return load(options)

    def load(self, options: Namespace) -> sgd.Problem | dual.Problem:
        optimizers.settle(options)
        made = dual.Problem if options.optimizer == "dual" else sgd.Problem
        return made(options, *self.read(options))


def run(arguments: Sequence[str]) -> None:
    """Run the program on every rank. Collective. BadInput, FloatingPointError: as in `harness.run`."""
    harness.run(Program(), arguments)

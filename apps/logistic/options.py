"""The options of apps.logistic, and which of them go together."""

from __future__ import annotations

import math
from argparse import Namespace
from typing import Final

import malt
from apps import harness
from apps.harness import Parser
from apps.linear import reading
from malt.models import linear

BATCH: Final = ("lbfgs", "owlqn")
"""Optimizers of the whole gradient."""
OPTIMIZERS: Final = (*BATCH, "sgd", "adam", "ftrl")
SMOOTH: Final = sorted(set(linear.LOSSES) - {"hinge"})
ALGORITHMS: Final = ("reduce-scatter", "tree", "star")
ITERATIONS, PASSES = 1000, 10
STEPS: Final = {"adam": 0.03, "ftrl": 0.6}
"""That of adam times the square root of the number of ranks, as their mean has less noise (Malladi et al., NeurIPS
2022)."""
STEP_EVERY, AVERAGED_EVERY = 500, 10_000
"""One rank makes 360 steps of adam and 82 of ftrl to 1 % above the optimum of rcv1-ccat. With 200 adam ends above that,
and ftrl makes 303. With a mean every 10,000 rows two ranks are at the optimum of rcv1-ccat in 0.7 to 0.8 of one rank's
time (every 5,000: 0.7 to 0.9), and four on the 32,561 rows of a9a end 0.8 % above it (0.1 %)."""


def add_options(parser: Parser) -> None:
    """Add all options."""
    add, steps = parser.add_argument, ", ".join(f"{name}: {step:g}" for name, step in STEPS.items())
    reading.add_options(parser)
    add("--optimizer", choices=OPTIMIZERS, default="lbfgs", help="default: %(default)s")
    add("--loss", choices=SMOOTH, default="logistic", help="default: %(default)s")
    add("--multiclass", choices=("ovr", "softmax"),
        help="for more than two classes: one against the rest, or all (default: ovr)")  # fmt: skip
    parser.real("--l1", 0.0, "weight of |w|_1")
    parser.real("--l2", 1e-4, "weight of |w|^2 / 2")
    add("--no-intercept", dest="intercept", action="store_false", help="fit a plane through the origin")
    add("--sharded", action="store_true", help="each rank holds a part of the weights (default: all of them)")
    add("--allreduce", choices=("auto", *ALGORITHMS), default="auto",
        help="how gradients are summed without --sharded; star: by the lowest rank (default: %(default)s)")  # fmt: skip
    add("--tolerance", dest="gradient_tolerance", type=harness.number, metavar="X",
        help="lbfgs, owlqn: stop at this gradient norm, relative to that of zero weights (default: 1e-6)")  # fmt: skip
    parser.whole("--warm-start", default=0, least=0, metavar="K",
        text="lbfgs, owlqn: start with K epochs of averaged sgd")  # fmt: skip
    add("--epochs", type=harness.whole_number(0), metavar="N",
        help=f"maximum iterations (default: {ITERATIONS}); others: passes over the rows ({PASSES})")  # fmt: skip
    add("--step", type=harness.positive_number, metavar="X",
        help=f"step size; sgd: the first (default: chosen on a sample); {steps}, adam's times sqrt(ranks)")  # fmt: skip
    add("--exchange-every", type=harness.whole_number(1), metavar="N",
        help=f"rows of a rank per step of adam or ftrl (default: {STEP_EVERY}), or between two means of sgd "
        f"({AVERAGED_EVERY:,})")  # fmt: skip


def settle(options: Namespace) -> None:
    """Fill in the defaults that depend on other options. ValueError: two options do not match."""
    optimizer = options.optimizer
    is_batch, has_sgd = optimizer in BATCH, optimizer == "sgd" or options.warm_start > 0
    refused = {
        f"--l1 needs --optimizer owlqn or ftrl, not {optimizer}": options.l1 and optimizer not in ("owlqn", "ftrl"),
        "--optimizer owlqn needs --l1 above 0: without it take lbfgs": optimizer == "owlqn" and not options.l1,
        f"--warm-start needs --optimizer lbfgs or owlqn, not {optimizer}": options.warm_start and not is_batch,
        f"--tolerance needs --optimizer lbfgs or owlqn: {optimizer} ends after --epochs": (
            options.gradient_tolerance is not None and not is_batch
        ),
        f"--step needs --optimizer sgd, adam or ftrl, or --warm-start: {optimizer} searches for its steps": (
            options.step and is_batch and not has_sgd
        ),
        f"--exchange-every needs --optimizer sgd, adam or ftrl, or --warm-start: {optimizer} exchanges once a pass": (
            options.exchange_every and is_batch and not has_sgd
        ),
        "--allreduce is for weights that all ranks have, not for --sharded": (
            options.sharded and options.allreduce != "auto"
        ),
        f"--multiclass softmax needs --loss logistic, not {options.loss}": (
            options.multiclass == "softmax" and options.loss != "logistic"
        ),
    }
    for message in (message for message, is_wrong in refused.items() if is_wrong):
        raise ValueError(message)
    options.gradient_tolerance = 1e-6 if options.gradient_tolerance is None else options.gradient_tolerance
    options.epochs = (ITERATIONS if is_batch else PASSES) if options.epochs is None else options.epochs
    ranks = malt.size() if optimizer == "adam" else 1
    options.step = options.step or STEPS.get(optimizer, 0.0) * math.sqrt(ranks) or None
    options.exchange_every = options.exchange_every or (STEP_EVERY if optimizer in STEPS else AVERAGED_EVERY)

"""The options of apps.mlp, of which some have other defaults for rows than for pictures."""

from __future__ import annotations

import argparse
from argparse import Namespace
from typing import Any, Final

from apps import harness
from apps.harness import Parser
from malt.kernels.networks import OPTIMIZERS

USUAL: Final = 10
"""The batches between two exchanges where ranks exchange together, and at the start."""
_PICTURES: Final[dict[str, Any]] = {"hidden": [128], "batch": 32, "optimizer": "momentum", "epochs": 10}
_ROWS: Final[dict[str, Any]] = {"hidden": [16], "batch": 100, "optimizer": "adagrad", "epochs": 2}
PROBLEMS: Final = ("clicks",)
"""The problems that are made of the seed: `rows.load` makes them."""


def add_options(parser: Parser) -> None:
    """Add all options."""
    add = parser.add_argument
    steps = ", ".join(f"{name}: {kind.step:g}" for name, kind in OPTIMIZERS.items())
    add("train", nargs="?", metavar="DATA",
        help="a folder with idx files named as those of MNIST, plain or .gz; or svmlight text of two classes, also .gz "
        ".bz2 .xz (the digits of scikit-learn)")  # fmt: skip
    add("--test", metavar="TEST", help="rows to measure on, where DATA is svmlight text")
    add("--problem", choices=PROBLEMS, help="rows made of the seed in place of DATA: clicks on advertisements")
    add("--hidden", type=layer_sizes, metavar="N[,N...]", help=f"neurons of the hidden layers ({_both('hidden')})")
    add("--batch", type=harness.whole_number(1), metavar="N", help=f"examples of one step ({_both('batch')})")
    add("--optimizer", choices=sorted(OPTIMIZERS), help=f"({_both('optimizer')}, which alone is for rows)")
    add("--step", type=harness.real_number(0), metavar="X",
        help=f"the first step size, or with --warm-up the largest; it falls to 0 in a line ({steps})")  # fmt: skip
    add("--warm-up", type=share_below_1, default=0.0, metavar="X",
        help="the share of the training in which the step size rises to --step, in a line (%(default)g)")  # fmt: skip
    add("--l2", type=harness.real_number(0), default=0.0, metavar="X",
        help="weight of |w|^2 / 2, without biases; rows: of weights that a batch touches (%(default)g)")  # fmt: skip
    add("--model", metavar="FILE", help="start from a model that --save wrote")
    add("--epochs", type=harness.whole_number(0), metavar="N", help=f"passes over the examples ({_both('epochs')})")
    harness.add_common_options(parser, epochs=None, exchange_every=USUAL, graph="auto", sync="asp", unit="batches")


def settle(options: Namespace, is_rows: bool) -> None:
    """Give the options their defaults. Local. ValueError: an option does not go with the data."""
    if options.problem and options.train:
        raise ValueError("--problem is made of the seed: it goes without DATA")
    if options.test and (options.problem or not is_rows):
        raise ValueError("--test is for svmlight text: other data has its own test examples")
    for name, default in (_ROWS if is_rows else _PICTURES).items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    harness.settle_exchange_every(options, USUAL)
    if is_rows and options.optimizer != "adagrad":
        raise ValueError(f"--optimizer {options.optimizer} changes all weights in each step: rows need adagrad")


def _both(name: str) -> str:
    """The defaults of an option, for --help."""
    of_pictures, of_rows = (str(some[name]).strip("[]") for some in (_PICTURES, _ROWS))
    return f"{of_pictures}; rows: {of_rows}"


def share_below_1(text: str) -> float:
    """A type for argparse: a number from 0 up and below 1."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 up and below 1, got {text}")
    return number


def layer_sizes(text: str) -> list[int]:
    """A type for argparse: whole numbers such as "128" or "256,64"."""
    sizes = [int(size) if size.isdecimal() else 0 for size in text.split(",")]
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"must be whole numbers from 1 up, with commas between them, got {text}")
    return sizes

"""The options of apps.gbdt, and the files that they name."""

from __future__ import annotations

from argparse import Namespace

import malt
from apps import harness
from apps.harness import Parser, Path
from apps.linear import reading
from malt.models.trees import MOST_BINS, MOST_DEPTH, MOST_ROWS

PATIENCE = 10
LOSSES = "logistic", "squared"


def add_options(parser: Parser) -> None:
    """Add all options."""
    add = parser.add_argument
    reading.add_options(parser, "rows on which to measure")
    add("--valid", metavar="VALID", help="validation rows, which decide when to stop and which trees to keep")
    add("--patience", type=harness.whole_number(1), metavar="N",
        help=f"stop after this many trees without a lower loss on VALID (default: {PATIENCE})")  # fmt: skip
    parser.whole("--trees", "--epochs", default=100, least=0, dest="epochs", text="maximum number of trees")
    parser.whole("--depth", default=6, type=harness.whole_number(1, MOST_DEPTH), text="maximum depth of a tree")
    parser.whole("--bins", default=MOST_BINS, type=harness.whole_number(2, MOST_BINS), text="bins per feature")
    parser.real("--learning-rate", 0.1, "fraction of each tree that is added", harness.positive_number)
    add("--loss", choices=LOSSES, default="logistic", help="for two classes, or for numbers (default: %(default)s)")
    parser.real("--l2", 0.0, "L2 penalty on leaf values")
    parser.whole("--min-rows", default=20, text="minimum rows per leaf")
    add("--missing", action="store_true", help="treat absent entries as missing values (default: as 0)")


def inputs(options: Namespace) -> list[tuple[str, Path | None]]:
    """The files that are read, by their names on the command line."""
    return [*reading.inputs(options), ("--valid", options.valid)]


def load(options: Namespace) -> dict[str, malt.Dataset]:
    """The rows to train, to test and to stop by, with the same features and labels. Collective.

    OSError, ValueError: a file cannot be read, or does not suit the options.
    """
    if options.patience and not options.valid:
        raise ValueError("--patience needs --valid FILE, the rows that say when to stop")
    options.patience = options.patience or PATIENCE
    (_, path), *others = inputs(options)
    assert path is not None
    is_logistic = options.loss == "logistic"
    train = malt.open_svmlight(path, labels=None if is_logistic else "raw")
    if len(train.y) > MOST_ROWS:
        raise ValueError(f"{path}: {len(train.y):,} rows, and {MOST_ROWS:,} are the most")
    if is_logistic and (isinstance(train.labels, str) or len(train.labels) < 2):
        raise ValueError(f"{path}: --loss logistic is for two different labels: take --loss squared for numbers")
    if not train.X.shape[1]:
        raise ValueError(f"{path}: no row has a feature")
    more = {
        name.lstrip("-"): malt.open_svmlight(other, zero_based=train.zero_based, labels=train.labels)
        for name, other in others if other is not None
    }  # fmt: skip
    return {"train": train, **more}

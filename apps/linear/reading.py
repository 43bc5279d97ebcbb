"""Reads the rows of a linear model, to train and to test on."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import malt
from apps import harness
from apps.harness import Array
from apps.harness import Path as AnyPath

EMBEDDED = Path(__file__).parent / "data" / "a9a"


def add_options(parser: harness.Parser, test: str = "rows on which to measure the accuracy") -> None:
    """Add TRAIN and --test. `test`: what TEST is for."""
    parser.add_argument("train", nargs="?", metavar="TRAIN",
        help="svmlight text, also .gz .bz2 .xz (default: the embedded census data a9a)")  # fmt: skip
    parser.add_argument("--test", metavar="TEST", help=test)


def inputs(options: Namespace) -> list[tuple[str, AnyPath | None]]:
    """The files that are read, by their names on the command line. Local."""
    return list(zip(("TRAIN", "--test"), paths(options), strict=True))


def paths(options: Namespace) -> tuple[AnyPath, AnyPath | None]:
    """The paths of the training rows and of the test rows. Local."""
    if options.train is None:
        return EMBEDDED / "train.svm.xz", options.test or EMBEDDED / "test.svm.xz"
    return options.train, options.test


def load(
    options: Namespace, two_classes: bool = True, zero_based: bool | None = None, labels: Sequence[float] | None = None
) -> tuple[malt.Dataset, malt.Dataset | None]:
    """The training rows and the test rows, with the same features and labels. Collective.

    `zero_based` and `labels` are those of malt.open_svmlight, if they are known.

    OSError, ValueError: a file cannot be read, or does not hold `two_classes` alone.
    """
    train_path, test_path = paths(options)
    train = malt.open_svmlight(train_path, zero_based=zero_based, labels=labels)
    if train.labels == "raw" and two_classes:
        raise ValueError(f"{train_path}: {_several(np.unique(train.y))}: there must be two: make one class of some and "
                         "the other of the rest")  # fmt: skip
    if test_path is None:
        return train, None
    return train, malt.open_svmlight(test_path, zero_based=train.zero_based, labels=train.labels)


def widest(options: Namespace, train: malt.Dataset, test: malt.Dataset | None = None) -> str:
    """The line with the largest feature, for a message: one stray index makes a wide model. Local."""
    path, found = paths(options)[0], train
    if test is not None and test.X.shape[1] > train.X.shape[1]:
        path, found = str(paths(options)[1]), test
    return f"{path}:{found.largest_line}: feature {found.X.shape[1] - found.zero_based:,} makes a wide model"


def facts(train: malt.Dataset, n_features: int) -> dict[str, Any]:
    """The sizes and the fingerprint of the training rows, to recognise them by. Local."""
    size = {"rows": len(train.y), "non-zeros": train.X.nnz, "features": n_features}
    return {**size, "CRC-32 of labels": harness.fingerprint(train.y)}


def described(train: malt.Dataset, more: Mapping[str, malt.Dataset | None], note: str = "") -> str:
    """The size of the data, for the introduction. `more`: all rows, by what they are for. Local."""
    some = {name: data for name, data in more.items() if name != "train" and data is not None}
    others = "".join(f"; {len(data.y):,} {name} rows" for name, data in some.items())
    return f"{len(train.y):,} rows, {train.X.shape[1]:,} features, {train.X.nnz:,} non-zeros{note}{others}"


def _several(labels: Array) -> str:
    shown = [f"{label:.9g}" for label in labels[:3]]
    return f"{len(labels)} different labels ({', '.join(shown)}{', ...' if len(labels) > len(shown) else ''})"

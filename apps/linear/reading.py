"""Reads the rows of a linear model, to train and to test on."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import malt
from apps.harness import Array
from apps.harness import Path as AnyPath

EMBEDDED = Path(__file__).parent / "data" / "a9a"


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


def _several(labels: Array) -> str:
    shown = [f"{label:.9g}" for label in labels[:3]]
    return f"{len(labels)} different labels ({', '.join(shown)}{', ...' if len(labels) > len(shown) else ''})"

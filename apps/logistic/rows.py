"""The rows of all ranks, and the classes of their labels."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

import malt
from apps.harness import Array
from apps.linear.reading import load, paths
from malt.models import linear
from malt.models.linear import Examples

MOST_CLASSES: Final = 1000
"""More different labels are numbers rather than classes."""

Numbers = NDArray[Any]


class Classes(NamedTuple):
    """The classes that labels stand for."""

    values: Array
    """The labels of the file: two, of which the first is -1 and the second +1, one of those, or more."""
    columns: int
    """The columns of the model: 1 for two classes, else one for each."""

    def labels(self, data: malt.Dataset, path: Any) -> NDArray[np.float32]:
        """The labels for the kernels: -1 and +1, or numbers of classes. ValueError: a label is in no class."""
        if self.columns == 1:
            return data.y
        places = np.searchsorted(self.values, data.y).clip(max=self.columns - 1)
        if strange := np.flatnonzero(self.values[places] != data.y).tolist():
            raise ValueError(f"{path}: row {strange[0]}, counted from 0, has label {data.y[strange[0]]:g}, which is "
                             "not in the training rows")  # fmt: skip
        return places.astype(np.float32)


class Rows:
    """All rows to train and to test on, and their classes. The constructor is Collective.

    OSError, ValueError: a file cannot be read, or its labels do not suit the options.
    """

    def __init__(self, options: Namespace) -> None:
        self.train, self.test = load(options, two_classes=False)
        path, test_path = paths(options)
        if isinstance(self.train.labels, str):
            values = np.unique(self.train.y)
            self.classes = Classes(values, len(values))
            if len(values) > MOST_CLASSES:
                raise ValueError(f"{path}: {len(values):,} different labels are too many classes")
        else:
            self.classes = Classes(np.array(self.train.labels), 1)
            if options.multiclass:
                raise ValueError(f"--multiclass {options.multiclass} is for more classes than {path} has")
        self.labels = self.classes.labels(self.train, path)
        self._test_labels = None if self.test is None else self.classes.labels(self.test, test_path)
        self.n_features = max(self.train.X.shape[1], 0 if self.test is None else self.test.X.shape[1])

    def chosen(self, rows: Numbers) -> Examples:
        """Copies of these training rows, in this order."""
        return linear.examples(self.train.X, self.labels, rows)

    def tested(self, rows: Numbers) -> Examples:
        """Copies of these of the test rows, which there are."""
        assert self.test is not None and self._test_labels is not None
        return linear.examples(self.test.X, self._test_labels, rows)

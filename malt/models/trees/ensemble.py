"""Trees as arrays: all nodes of all trees, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.models.trees import splits


class Nodes(NamedTuple):
    """Nodes by number. A leaf is its own left and right child, and looks at feature 0."""

    feature: NDArray[np.int32]
    bin: NDArray[np.int32]
    """Rows whose bin is at most this one go left."""
    threshold: NDArray[np.float64]
    """Rows whose value is at most this go left: the edge above that bin, or infinity."""
    missing_left: NDArray[np.bool_]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    """What a leaf adds to the score."""


DTYPES: Final = ("i4", "i4", "f8", "?", "i4", "i4", "f8")


class Trees:
    """An ensemble. `state`: what `state` returned of another, or nothing."""

    def __init__(self, baseline: float, state: Mapping[str, Any]) -> None:
        self.baseline = baseline
        """The score of a row before the first tree."""
        self.roots: NDArray[np.int64] = state.get("roots", np.empty(0, np.int64))
        """The number of the first node of each tree."""
        self.nodes = Nodes(
            *(state.get(name, np.empty(0, kind)) for name, kind in zip(Nodes._fields, DTYPES, strict=True))
        )

    def __len__(self) -> int:
        return len(self.roots)

    def state(self) -> dict[str, Any]:
        """The arrays, by name: views."""
        return {"roots": self.roots, **self.nodes._asdict()}

    def append(self, tree: Nodes) -> None:
        """Add a tree, whose nodes are numbered from 0."""
        first = len(self.nodes.value)
        self.roots = np.append(self.roots, first)
        shifted = tree._replace(left=tree.left + np.int32(first), right=tree.right + np.int32(first))
        both: Any = zip(self.nodes, shifted, strict=True)
        self.nodes = Nodes(*map(np.concatenate, both))

    def cut(self, count: int) -> None:
        """Keep the first `count` trees."""
        if count < len(self):
            nodes: Any = self.nodes
            self.nodes = Nodes(*(array[: self.roots[count]].copy() for array in nodes))
            self.roots = self.roots[:count].copy()

    def scores(self, bins: Any, missing: int) -> NDArray[np.float64]:
        """The scores of rows, by their bins."""
        scores = np.full(len(bins), self.baseline)
        self.add(bins, missing, scores)
        return scores

    def add(self, bins: Any, missing: int, scores: Any, first: int = 0) -> None:
        """Add to the scores of rows, by their bins, what the trees from number `first` on say."""
        nodes = self.nodes
        for root in self.roots[first:]:
            splits.add_tree(
                bins, nodes.feature, nodes.bin, nodes.missing_left, nodes.left, nodes.right, nodes.value, int(root),
                missing, scores,
            )  # fmt: skip


def leaves(count: int) -> Nodes:
    """Leaves of value 0, to be made nodes of a tree."""
    arrays: Any = (np.zeros(count, kind) for kind in DTYPES)
    made = Nodes(*arrays)
    made.left[:] = made.right[:] = np.arange(count)
    return made

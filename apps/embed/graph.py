"""The graph: its neighbours, and how often each node is drawn as a negative example. All is local."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
_POWER = 0.75
"""Negative examples are drawn by degree to this power (Mikolov et al., NeurIPS 2013)."""


class Links(NamedTuple):
    """What walks need: the neighbours of node i are neighbours[starts[i]:starts[i + 1]], ascending."""

    starts: NDArray[np.int64]
    neighbours: NDArray[np.int32]
    threshold: NDArray[np.float64]
    """Of the alias method: node i stands for itself with this probability, else for other[i]."""
    other: NDArray[np.int32]


class Graph(NamedTuple):
    """An undirected graph in which each node has a neighbour."""

    names: NDArray[Any]
    """The name of each node, ascending."""
    links: Links
    communities: Numbers | None
    """The community of each node, where communities are known."""


def graph(names: NDArray[Any], edges: Numbers, communities: Numbers | None = None) -> Graph:
    """The graph of these edges, each of which stands for both directions; one that is there twice counts once."""
    both = np.concatenate([edges, edges[:, ::-1]])
    nodes = len(names)
    keys = np.unique(both[:, 0] * nodes + both[:, 1])
    source, target = keys // nodes, keys % nodes
    degrees = np.bincount(source, minlength=nodes)
    starts = np.concatenate([[0], np.cumsum(degrees)])
    threshold, other = _alias(degrees.astype(np.float64) ** _POWER)
    return Graph(names, Links(starts, target.astype(np.int32), threshold, other), communities)


def _alias(weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """A table that draws by `weights` in constant time (Vose, IEEE Trans. Software Eng. 17, 1991)."""
    threshold, other = weights * (len(weights) / weights.sum()), np.arange(len(weights), dtype=np.int32)
    small, large = list(np.flatnonzero(threshold < 1)), list(np.flatnonzero(threshold >= 1))
    while small and large:
        low, high = small.pop(), large[-1]
        other[low] = high
        threshold[high] -= 1 - threshold[low]
        if threshold[high] < 1:
            small.append(large.pop())
    threshold[[*small, *large]] = 1
    return threshold, other


def read(path: str, labels: str | None) -> Graph:
    """The graph of a file with the names of two nodes a line, and the communities of a file with a node and a label.

    ValueError, OSError: a file cannot be read, or has other lines.
    """
    names, numbered = np.unique(_pairs(path), return_inverse=True)
    return graph(names, numbered.reshape(-1, 2), None if labels is None else _labels(labels, names))


def _labels(path: str, names: NDArray[Any]) -> Numbers:
    nodes, labels = _pairs(path).T
    order = np.argsort(nodes)
    places = np.searchsorted(nodes[order], names)
    found = order[np.minimum(places, len(nodes) - 1)]
    if missing := [str(name) for name in names[nodes[found] != names]]:
        raise ValueError(f"{path}: there is no label of node {missing[0]}")
    communities: Numbers = np.unique(labels[found], return_inverse=True)[1]
    return communities


def _pairs(path: str) -> NDArray[Any]:
    """The two words of each line, of shape (lines, 2)."""
    with open(path, "rb"):  # whose error has the number of the error and the name of the file
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file is empty
            found = np.loadtxt(path, dtype=str, ndmin=2)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: {str(error).splitlines()[0]}") from None
    if found.shape[1] != 2 or not len(found):
        raise ValueError(f"{path}: expected two names a line, found " + (f"{found.shape[1]}" if len(found) else "none"))
    return found

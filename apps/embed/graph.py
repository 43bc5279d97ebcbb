"""The graph: its neighbours, and how often each node is drawn as a negative example; a model of it. All is local."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apps.embed import planted
from apps.harness import Array, load_model
from malt.data import read_chunks

Numbers = NDArray[np.int64]
_POWER = 0.75
"""Negative examples are drawn by degree to this power (Mikolov et al., NeurIPS 2013)."""
_COMMENTS = "#%"
_LONGEST = 256
"""The longest name of a node: in memory every name takes as much as the longest one."""


class Links(NamedTuple):
    """The links that walks follow: the neighbours of node i are neighbours[starts[i]:starts[i + 1]], ascending."""

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
    edges = np.array(_pairs(path))
    _refuse_titles(path, edges)
    names, numbered = np.unique(edges, return_inverse=True)
    return graph(names, numbered.reshape(-1, 2), None if labels is None else _labels(labels, names))


def chosen(options: Namespace) -> tuple[Graph, Mapping[str, Array] | None]:
    """The graph, and the vectors to start from, if there are any. ValueError, OSError: a file cannot be read."""
    found = _graph(options)
    return found, _model(options, found)


def _graph(options: Namespace) -> Graph:
    if options.edges is not None:
        return read(options.edges, options.labels)
    if options.labels is not None:
        raise ValueError("--labels needs EDGES: the communities of the generated graph are known")
    return graph(np.arange(planted.NODES), *planted.graph(options.seed))


def _model(options: Namespace, found: Graph) -> Mapping[str, Array] | None:
    """The vectors to start from. ValueError, OSError: the file cannot be read, or is of other nodes or sizes."""
    if options.model is None:
        return None
    model = load_model(options.model, "apps.embed")
    shape = (len(found.names), options.dim)
    if not np.array_equal(model.get("nodes", []), found.names):
        raise ValueError(f"{options.model}: not a model of apps.embed of the nodes of this graph")
    vectors = [model.get(name, np.empty(0)) for name in ("vectors", "contexts")]
    if any(one.shape != shape or not np.isfinite(one).all() for one in vectors):
        raise ValueError(f"{options.model}: its vectors must be finite, with {options.dim} numbers (--dim)")
    return model


def _labels(path: str, names: NDArray[Any]) -> Numbers:
    label_of: dict[str, str] = {}
    for node, label in _pairs(path):
        if label_of.setdefault(node, label) != label:
            raise ValueError(f"{path}: node {node} has two labels, {label_of[node]} and {label}")
    if missing := [name for name in names.tolist() if name not in label_of]:
        raise ValueError(f"{path}: there is no label for node {missing[0]}")
    communities: Numbers = np.unique([label_of[name] for name in names.tolist()], return_inverse=True)[1]
    return communities


def _pairs(path: str) -> list[tuple[str, str]]:
    """The two words of each line. Names may hold anything but white space."""
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            words = line.decode().split()
        except UnicodeDecodeError:
            raise ValueError(f"{path}:{number}: not UTF-8") from None
        if not words or _is_comment(words):
            continue
        if len(words) != 2 or max(map(len, words)) > _LONGEST:
            what = f"{len(words)}" if len(words) != 2 else f"one of more than {_LONGEST} characters"
            raise ValueError(f"{path}:{number}: expected two names a line, found {what}")
        pairs.append((words[0], words[1]))
    if not pairs:
        raise ValueError(f"{path}: expected two names a line, found none")
    return pairs


def _lines(path: str) -> Iterator[bytes]:
    for chunk in read_chunks(path):
        yield from chunk.split(b"\n")[:-1]


def _is_comment(words: Sequence[str]) -> bool:
    """Return whether a line is a comment, and not the edge of a node whose name begins as one."""
    return words[0][0] in _COMMENTS and (len(words) != 2 or len(words[0]) == 1)


def _refuse_titles(path: str, edges: NDArray[Any]) -> None:
    """ValueError: the first line seems to hold titles: its names are of another kind than all others."""
    first, others = edges[0].tolist(), edges[1:].reshape(-1)
    are_numbers = others.size and np.char.isdecimal(others).all() and not np.char.isdecimal(edges[0]).any()
    is_marked = first[0][0] in _COMMENTS and not any(np.char.startswith(others, mark).any() for mark in _COMMENTS)
    if are_numbers or is_marked:
        raise ValueError(f"{path}: the first names, {first[0]} and {first[1]}, seem to be titles: remove that line")

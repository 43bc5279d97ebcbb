"""The kernels of apps.embed, against slow twins, and its graphs."""

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("numba")

from apps.embed import graph, kernels, planted

EDGES = np.array([[0, 1], [0, 2], [1, 2], [2, 3], [3, 4], [4, 0], [3, 4], [1, 1]])
SMALL = graph.graph(np.arange(5), EDGES)


FILES = {
    "names with # and %": "C# F#\n#a C#\nF# 100%\n",
    "comments of SNAP": "# Nodes: 4 Edges: 3\n#\nC# F#\n# note\n#a C#\nF# 100%\n",
    "comments of KONECT": "% sym unweighted\n% 3 4\nC# F#\n#a\tC#\nF# 100%",
    "a byte order mark": "\ufeffC# F#\r\n\r\n #a   C#\r\nF# 100%\r\n",
}


@pytest.mark.parametrize("name", FILES)
def test_names_of_nodes_are_whole(tmp_path, name):
    (tmp_path / "edges").write_bytes(FILES[name].encode())
    (tmp_path / "labels").write_text("# labels\n#a x\n100% y\nC# x\nF# y\n")
    found = graph.read(str(tmp_path / "edges"), str(tmp_path / "labels"))
    assert found.names.tolist() == ["#a", "100%", "C#", "F#"] and found.communities.tolist() == [0, 1, 0, 1]
    assert found.links.neighbours.tolist() == [2, 3, 0, 3, 1, 2]


def drawn(starts, length, window, p=1.0, q=1.0, negatives=2, seed=0):
    """The pairs of walks from `starts`."""
    starts = np.array(starts, np.int32)
    pairs = np.empty((len(starts) * kernels.pair_count(length, window), negatives + 2), np.int32)
    walk = np.empty(length, np.int32)
    kernels.draw(SMALL.links, starts, walk, window, p, q, np.random.default_rng(seed), pairs)
    return pairs


def neighbours(node):
    starts, found, *_ = SMALL.links
    return list(found[starts[node] : starts[node + 1]])


def test_each_edge_counts_once_in_both_directions():
    assert [neighbours(node) for node in range(5)] == [[1, 2, 4], [0, 1, 2], [0, 1, 3], [2, 4], [0, 3]]


@pytest.mark.parametrize("length, window", [(2, 1), (6, 2), (4, 9)])
def test_pairs_are_the_nodes_of_a_window(length, window):
    pairs = drawn([3, 0], length, window)
    for one in (pairs[0::2], pairs[1::2]):
        near = [
            (place, other) for place in range(length) for other in range(length)
            if place != other and abs(place - other) <= window
        ]  # fmt: skip
        assert len(near) == len(one)
        walk = {place: int(one[row, 0]) for row, (place, _) in enumerate(near)}
        assert [int(node) for node in one[:, 1]] == [walk[other] for _, other in near]
        assert all(walk[step + 1] in neighbours(walk[step]) for step in range(length - 1))
    assert list(pairs[:2, 0]) == [3, 0]  # pairs of the two walks take turns


@pytest.mark.parametrize("p, q", [(1.0, 1.0), (0.25, 4.0), (3.0, 0.5)])
def test_walks_turn_as_node2vec_says(p, q):
    """From each pair of nodes, each next one with the frequency that its weight stands for."""
    triples = Counter()
    pairs = drawn([0, 3] * 4000, 3, 2, p, q)
    for walk in pairs[:, :2].reshape(6, -1, 2).swapaxes(0, 1):
        triples[int(walk[0, 0]), int(walk[2, 0]), int(walk[4, 0])] += 1
    for before, node in {key[:2] for key in triples}:
        weights = {
            after: 1 / p if after == before else 1.0 if after in neighbours(before) else 1 / q
            for after in neighbours(node)
        }  # fmt: skip
        count = sum(triples[before, node, after] for after in weights)
        for after, weight in weights.items():
            expected = weight / sum(weights.values())
            assert triples[before, node, after] / count == pytest.approx(expected, abs=4 * (0.25 / count) ** 0.5)


def test_negative_examples_are_drawn_by_degree():
    found = np.bincount(drawn([0] * 3000, 4, 2, negatives=3)[:, 2:].ravel(), minlength=5)
    weights = np.array([3, 3, 3, 2, 2]) ** 0.75
    assert found / found.sum() == pytest.approx(weights / weights.sum(), abs=0.01)


def test_a_step_goes_down_the_gradient():
    generator = np.random.default_rng(2)
    own, near = (generator.standard_normal((5, 3)).astype(np.float32) for _ in range(2))
    pairs = np.array([[0, 1, 2, 2], [3, 4, 1, 0]], np.int32)  # pairs of nodes of their own, so that none is stale
    products = np.empty((2, 3), np.float32)
    kernels.products(own, near, pairs, products)
    expected = [[own[row[0]] @ near[other] for other in row[1:]] for row in pairs]
    assert products == pytest.approx(np.array(expected), rel=1e-5)

    def loss(own, near, pairs):
        margins = np.array([[own[row[0]] @ near[other] for other in row[1:]] for row in pairs]) * [1, -1, -1]
        return np.log1p(np.exp(-margins)).sum()

    def slope(which, place):
        tables = [table.astype(np.float64) for table in (own, near)]
        tables[which][place] += 1e-6
        above = loss(*tables, pairs[:1])
        tables[which][place] -= 2e-6
        return (above - loss(*tables, pairs[:1])) / 2e-6

    moved = own.copy(), near.copy()
    assert kernels.learn(*moved, pairs[:1], products[:1], 1e-3) == pytest.approx(loss(own, near, pairs[:1]), rel=1e-5)
    for which, table in enumerate((own, near)):
        gradient = np.array([[slope(which, (row, column)) for column in range(3)] for row in range(5)])
        assert moved[which] - table == pytest.approx(-1e-3 * gradient, abs=2e-6)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_in_an_exchange_no_node_is_in_too_many_pairs(most):
    pairs = np.random.default_rng(0).integers(12, size=(60, 4), dtype=np.int32)
    counts, first = np.zeros((2, 12), np.int32), 0
    while first < len(pairs):
        end = kernels.exchange_end(pairs, first, most, *counts)
        assert end > first and not counts.any()

        def repeats(end, first=first):
            """Of a node before the last pair: that may bring several of one."""
            centers, others = pairs[first : end - 1, 0], pairs[first : end - 1, 1:].ravel()
            return max(
                np.bincount(centers, minlength=12)[pairs[end - 1, 0]],
                *np.bincount(others, minlength=12)[pairs[end - 1, 1:]],
            )

        assert all(repeats(place) < most for place in range(first + 1, end + 1))
        assert end == len(pairs) or repeats(end + 1) >= most
        first = end


def test_planted_communities_hold_most_edges():
    edges, communities = planted.graph(1, 300, 4)
    assert sorted(np.bincount(communities)) == [75] * 4 and edges.max() < 300
    assert 0.7 < (communities[edges[:, 0]] == communities[edges[:, 1]]).mean() < 0.9
    assert np.array_equal(edges, planted.graph(1, 300, 4)[0]) and not np.array_equal(edges, planted.graph(2, 300, 4)[0])

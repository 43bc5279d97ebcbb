"""Graphs: the built-in ones at every size, the published figures, failed ranks, and bad arguments."""

import dataclasses
import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vol.graphs.builtin import NAMES, _built, as_graph, graph
from vol.graphs.connectivity import components
from vol.graphs.graph import Graph

SIZES = (*range(1, 18), 31, 32, 33)


def made(name: str, size: int, **more: int) -> Graph:
    """Return the graph `name`; a hierarchical one of two hosts, of which the second has a third of the ranks."""
    hosts = ["a" if 3 * r < 2 * size else "b" for r in range(size)]
    return graph(name, size, hosts=hosts if name == "hierarchical" else None, **more)


def reach(graph: Graph, start: int) -> set[int]:
    """Return the ranks that an update of `start` reaches: the slow twin of is_strongly_connected."""
    seen, todo = {start}, [start]
    while todo:
        new = set(graph.targets(todo.pop())) - seen
        seen |= new
        todo += new
    return seen


def check_graph(graph: Graph) -> None:
    """Check what every graph promises, custom or built-in, with or without failed ranks."""
    living = set(graph.remaining)
    pairs = set()
    for step in range(1, graph.period + 1):
        for r in range(graph.size):
            out, into = graph.out(r, step), graph.into(r, step)
            assert list(out) == sorted(set(out)) and list(into) == sorted(set(into))
            assert r not in out and set(out) <= living and set(into) <= living
            assert r in living or not (out or into)
            assert all(r in graph.into(p, step) for p in out) and all(r in graph.out(p, step) for p in into)
            assert graph.out(r, step + graph.period) == out and graph.into(r, step + 2 * graph.period) == into
            assert all(type(p) is int for p in out + into)
            pairs |= {(r, p) for p in out}
    assert graph.edges == tuple(sorted(pairs))
    assert all(graph.targets(r) == tuple(sorted(b for a, b in pairs if a == r)) for r in range(min(graph.size, 8)))
    assert all(graph.sources(r) == tuple(sorted(a for a, b in pairs if b == r)) for r in range(min(graph.size, 8)))
    steps = range(1, graph.period + 1)
    assert graph.degree == max(len(graph.out(r, t)) for t in steps for r in range(graph.size))
    assert all(reach(graph, r) == living for r in living) and graph.is_strongly_connected()


def gap_by_definition(graph: Graph) -> float:
    """Return the spectral gap, by the formula in the docstring of spectral_gap."""
    product = np.eye(graph.size)
    for step in range(1, graph.period + 1):
        w = np.zeros((graph.size, graph.size))
        for i in range(graph.size):
            for j in (i, *graph.into(i, step)):
                w[i, j] = 1 / (len(graph.into(i, step)) + 1) if graph.name != "base" else graph.weight(i, j, step)
        product = w @ product
    living = list(graph.remaining)
    if len(living) == 1:
        return 1.0
    second = np.sort(np.abs(np.linalg.eigvals(product[np.ix_(living, living)])))[-2]
    return float(1 - (second if second > 1e-12 else 0.0) ** (1 / graph.period))


def rounds_by_definition(graph: Graph) -> int:
    if graph.name == "base" and not graph.removed:
        return graph.period if graph.size > 1 else 0
    living = set(graph.remaining)
    knows = {r: {r} for r in living}
    for step in itertools.count(1):
        if all(knows[r] == living for r in living):
            return step - 1
        knows = {r: knows[r].union(*(knows[p] for p in graph.into(r, step))) for r in living}
    raise AssertionError


# Built-ins


@pytest.mark.parametrize("name", NAMES)
def test_built_in_at_every_size(name: str) -> None:
    for size in SIZES:
        built = made(name, size)
        assert (built.name, built.size, built.remaining) == (name, size, tuple(range(size)))
        check_graph(built)
        if name not in ("all", "star", "torus", "hierarchical") and size > 4:
            assert built.degree <= math.ceil(math.log2(size))
        if size == 2:
            assert built.edges == ((0, 1), (1, 0))
        if size == 1:
            assert built.edges == () and built.degree == 0 and built.period == 1


@pytest.mark.parametrize("name", NAMES)
def test_same_arguments_same_graph(name: str) -> None:
    first = made(name, 24, seed=3)
    _built.cache_clear()
    assert made(name, 24, seed=3) == first and hash(made(name, 24, seed=3)) == hash(first)


def test_shapes() -> None:
    assert graph("chord", 10).out(0) == (1, 2, 5)
    assert graph("exponential", 10).out(9) == (0, 1, 3, 7)
    assert graph("halton", 16).out(0) == (1, 5, 9, 13)
    assert [graph("one-peer", 10).out(7, step) for step in range(1, 7)] == [(8,), (9,), (1,), (5,), (8,), (9,)]
    assert graph("hypercube", 8).out(5) == (1, 4, 7)
    assert graph("hypercube", 6).out(5) == (1, 4)
    assert graph("torus", 12).out(0) == (1, 3, 4, 8)
    assert graph("torus", 7).out(0) == (1, 6)
    assert graph("star", 5).edges == tuple(sorted({(0, r) for r in range(1, 5)} | {(r, 0) for r in range(1, 5)}))


def test_pairs_are_random_matchings() -> None:
    for size, seed in itertools.product(range(2, 20), range(3)):
        pairs = graph("pairs", size, seed=seed)
        assert len(set(pairs.phases)) == pairs.period <= 2 * math.ceil(math.log2(size))
        for step in range(1, pairs.period + 1):
            met = [pairs.out(r, step) for r in range(size)]
            assert all(met[peer] == (r,) for r in range(size) for peer in met[r]), "both ways"
            assert sum(map(len, met)) == size - size % 2 and max(map(len, met)) == 1
    assert graph("pairs", 2) == graph("all", 2)
    assert graph("pairs", 16, seed=1) != graph("pairs", 16, seed=2)
    assert len(graph("pairs", 64).targets(0)) > 6, "a peer seldom comes again"
    assert graph("pairs", 64).spectral_gap() > 0.2


def test_in_a_complete_graph_every_rank_hears_of_all() -> None:
    assert {name for name in NAMES if made(name, 6).is_complete()} == {"all"}
    assert all(made(name, size).is_complete() for name in NAMES for size in (1, 2))
    assert graph("random", 5, degree=4).is_complete() and not graph("pairs", 4).is_complete()


def test_degree_limits_the_offsets() -> None:
    assert graph("chord", 16, degree=2).out(0) == (1, 8)
    assert graph("exponential", 16, degree=3).out(0) == (1, 2, 4)
    assert graph("halton", 16, degree=3).out(0) == (1, 5, 9)
    for name, size in itertools.product(("halton", "chord", "exponential", "random"), (1, 2, 3, 7, 12, 16)):
        for degree in range(1, size + 2):
            limited = graph(name, size, degree=degree)
            check_graph(limited)
            assert limited.degree <= min(degree, size - 1)
            assert name in ("chord", "exponential") or limited.degree == min(degree, size - 1)
            if name == "random":
                assert {len(limited.into(r)) for r in range(size)} == {len(limited.out(r)) for r in range(size)}
    assert graph("random", 16, seed=1) != graph("random", 16, seed=2)
    assert graph("all", 8, degree=7) == graph("all", 8)


def test_auto() -> None:
    for size in range(1, 5):
        assert graph("auto", size) == graph("all", size)
    for size in range(5, 40):
        gap = graph("auto", size).spectral_gap()
        for name in ("chord", "exponential", "halton", "random"):
            assert gap >= graph(name, size).spectral_gap() - 1e-3
    assert graph("auto", 64).spectral_gap() > 0.5


# Measures


@pytest.mark.parametrize("name", NAMES)
def test_spectral_gap_is_its_definition(name: str) -> None:
    for size in (2, 3, 4, 5, 6, 7, 8, 13, 30, 70):
        whole = made(name, size)
        for g in [whole, whole.without([1])] + ([whole.without([0, 2, 3])] if size > 4 else []):
            assert g.spectral_gap() == pytest.approx(gap_by_definition(g), abs=2e-3 if g.period > 1 else 1e-5), g


@pytest.mark.parametrize("name", NAMES)
def test_rounds_is_its_definition(name: str) -> None:
    for size in (*range(1, 14), 32):
        whole = made(name, size)
        for g in [whole] + ([whole.without([size // 2])] if size > 1 else []):
            assert g.rounds() == rounds_by_definition(g), g


def test_exact_averaging_has_gap_one_however_the_ranks_are_numbered() -> None:
    number = [3, 0, 7, 1, 6, 2, 5, 4]
    one_peer = graph("one-peer", 8)
    tables = [{number[r]: tuple(number[p] for p in one_peer.out(r, step)) for r in range(8)} for step in (1, 2, 3)]
    shuffled = Graph("shuffled", 8, tuple(tuple(table[r] for r in range(8)) for table in tables))
    assert shuffled.spectral_gap() == one_peer.spectral_gap() == 1.0


def test_a_graph_in_two_parts_has_no_rounds() -> None:
    parts = Graph("parts", 4, (((1,), (0,), (3,), (2,)),))
    assert not parts.is_strongly_connected()
    assert parts.spectral_gap() == pytest.approx(0.0)
    with pytest.raises(ValueError, match="not strongly connected"):
        parts.rounds()


def test_strongly_connected_parts() -> None:
    choose = random.Random(0)
    for _ in range(100):
        size = choose.randint(1, 12)
        table = tuple(tuple(sorted(choose.sample(range(size), choose.randint(0, min(2, size))))) for _ in range(size))
        ways = [reach(Graph("any", size, (table,)), r) for r in range(size)]
        parts = {tuple(p for p in range(size) if p in ways[r] and r in ways[p]) for r in range(size)}
        assert components(table, range(size)) == [list(part) for part in sorted(parts)]


# Failed ranks


def check_without(whole: Graph, failed: set[int]) -> Graph:
    """Remove `failed`; check that the graph is mended, and that no edge is added without need."""
    left = whole.without(failed)
    assert left.size == whole.size and left.removed == failed
    check_graph(left)
    if whole.name != "star":
        kept = {(a, b) for a, b in whole.edges if not {a, b} & failed}
        added = set(left.edges) - kept
        assert kept <= set(left.edges)
        bare = Graph("bare", whole.size, tuple(
            tuple(tuple(p for p in peers if not {r, p} & failed) for r, peers in enumerate(table))
            for table in whole.phases
        ), left.removed)  # fmt: skip
        assert bool(added) == (not bare.is_strongly_connected())
        for k in (0, 1):
            ends = [edge[k] for edge in added]
            assert len(ends) == len(set(ends))
    return left


@pytest.mark.parametrize("name", NAMES)
def test_every_single_failure(name: str) -> None:
    for size in (*range(2, 10), 13):
        for failed in range(size):
            check_without(made(name, size), {failed})


@pytest.mark.parametrize("name", NAMES)
def test_failures_down_to_one_live_rank_in_any_order(name: str) -> None:
    for size, seed in itertools.product((3, 8, 13), range(3)):
        order = random.Random(seed).sample(range(size), size)
        whole = one_by_one = made(name, size)
        for k, failed in enumerate(order[:-1], start=1):
            one_by_one = one_by_one.without([failed])
            assert one_by_one == check_without(whole, set(order[:k]))
        assert one_by_one.remaining == (order[-1],) and one_by_one.edges == ()
        assert (one_by_one.rounds(), one_by_one.spectral_gap(), one_by_one.degree) == (0, 1.0, 0)


def test_the_lowest_live_rank_becomes_the_hub() -> None:
    assert graph("star", 5).without([3]).edges == ((0, 1), (0, 2), (0, 4), (1, 0), (2, 0), (4, 0))
    assert graph("star", 5).without([0]).without([1]).edges == ((2, 3), (2, 4), (3, 2), (4, 2))


def test_a_mended_one_peer_graph_still_sends_to_one() -> None:
    for size in (5, 8, 13):
        for failed in itertools.combinations(range(size), 3):
            assert graph("one-peer", size).without(failed).degree == 1


@pytest.mark.parametrize("name", [name for name in NAMES if name != "base"])
def test_where_ranks_come_and_go_the_graph_is_that_of_the_ranks_there_are(name: str) -> None:
    """Of all up to the last one; those of them that have failed are taken out of it."""
    whole = dataclasses.replace(made(name, 8), smaller=lambda size: made(name, size))
    for size in range(1, 8):
        left = whole.without(range(size, 8))
        assert [left.out(r, step) for step in range(1, 9) for r in range(8)] == [
            made(name, size).out(r, step) if r < size else () for step in range(1, 9) for r in range(8)
        ]
        assert whole.without([7]).without(range(size, 8)) == left
        if size > 2:
            failed = whole.without([1, *range(size, 8)])
            assert failed.is_strongly_connected() and failed == left.without([1])


# Custom graphs and arguments


def test_from_dict() -> None:
    custom = Graph.from_dict({2: [0], 0: (2, 1), np.int64(1): {0}}, 3)
    check_graph(custom)
    assert custom.name == "custom"
    assert custom.edges == ((0, 1), (0, 2), (1, 0), (2, 0)) and custom.degree == 2
    assert Graph.from_dict({}, 1) == Graph.from_dict({0: []}, 1) == graph("all", 1)
    assert Graph.from_dict({r: [(r + 1) % 8] for r in range(8)}, 8) == graph("ring", 8)


@pytest.mark.parametrize(
    ("spec", "size", "error", "message"),
    [
        ({0: [1], 1: [2]}, 2, ValueError, r"rank 2 is out of range: ranks are 0 to 1"),
        ({0: [-1], 1: [0]}, 2, ValueError, r"rank must be an integer of at least 0, got -1"),
        ({0: [1], 1: [0], 2: [0]}, 2, ValueError, r"rank 2 is out of range"),
        ({0: [1.0], 1: [0]}, 2, TypeError, r"rank must be an integer of at least 0, got 1.0"),
        ({0: [True], 1: [0]}, 2, TypeError, r"rank must be an integer of at least 0, got True"),
        ({"0": [1], 1: [0]}, 2, TypeError, r"rank must be an integer of at least 0, got '0'"),
        ({0: 1, 1: 0}, 2, TypeError, r"peers of rank 0: expected a list of ranks, got 1"),
        ({0: [0, 1], 1: [0]}, 2, ValueError, r"rank 0 sends to itself"),
        ({0: [1], 1: [0, 0]}, 2, ValueError, r"rank 1 lists peer 0 twice"),
        ({0: [1], 2: [0]}, 3, ValueError, r"rank 1 has no out-peers"),
        ({0: [1], 1: []}, 2, ValueError, r"rank 1 has no out-peers"),
        ({0: [1], 1: [0], 2: [0]}, 3, ValueError, r"no way from rank 0 to rank 2"),
        ({0: [1], 1: [2], 2: [1]}, 3, ValueError, r"no way from rank 1 to rank 0"),
        ({0: [1], 1: [0], 2: [3], 3: [2]}, 4, ValueError, r"no way from rank 0 to rank 2"),
        (graph("ring", 8), 4, ValueError, r"is for 8 ranks, not 4"),
        ("rnig", 4, ValueError, r"no graph is called 'rnig': there are all, ring, .*; did you mean 'ring'\?"),
        ("CHORD", 4, ValueError, r"did you mean 'chord'\?"),
        ("xyz", 4, ValueError, r"there are all, [^?]*$"),
        (7, 4, TypeError, r"expected a name, a Graph, a dict or a networkx graph, got int"),
    ],
)
def test_bad_graphs(spec: object, size: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        as_graph(spec, size)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": 0}, ValueError, "size must be an integer of at least 1, got 0"),
        ({"size": True}, TypeError, "size must be an integer of at least 1, got True"),
        ({"size": 2.0}, TypeError, "size must be an integer"),
        ({"seed": -1}, ValueError, "seed must be an integer of at least 0"),
        ({"seed": None}, TypeError, "seed must be an integer"),
        ({"degree": 0}, ValueError, "degree must be an integer of at least 1"),
        ({"degree": 2}, ValueError, "graph 'ring' of 8 ranks has degree 1: degree=2 is not possible"),
        ({"name": None}, TypeError, "name: expected one of all, ring"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    graph("ring", 1)  # True == 1: a cached graph must not be returned in place of an error
    with pytest.raises(error, match=message):
        graph(**({"name": "ring", "size": 8} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda g, bad: g.out(bad), None, "rank must be an integer"),
        (lambda g, bad: g.into(bad), None, "rank must be an integer"),
        (lambda g, bad: g.targets(bad), None, "rank must be an integer"),
        (lambda g, bad: g.sources(bad), None, "rank must be an integer"),
        (lambda g, bad: g.without([bad]), None, "rank must be an integer"),
        (lambda g, bad: g.out(0, bad), None, "step must be an integer"),
        (lambda g, bad: g.into(0, 0), ValueError, "step must be .* least 1"),
        (lambda g, bad: g.out(8), ValueError, "rank 8 is out of range: .* 0 to 7"),
        (lambda g, bad: g.into(8), ValueError, "rank 8 is out of range"),
        (lambda g, bad: g.targets(-1), ValueError, "rank must .* least 0"),
        (lambda g, bad: g.sources(8), ValueError, "rank 8 is out of range"),
        (lambda g, bad: g.without([8]), ValueError, "rank 8 is out of range"),
        (lambda g, bad: g.without(range(8)), ValueError, "cannot remove all ranks"),
        (lambda g, bad: g.without(1), TypeError, "ranks: expected a list of ranks, got 1"),
    ],
)
def test_no_such_rank_or_step(call, error, message) -> None:
    for bad in ("x", 0.5, None, True):
        with pytest.raises(error or TypeError, match=message):
            call(graph("ring", 8), bad)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 7).flatmap(lambda n: st.lists(st.sets(st.integers(0, n - 1)), min_size=n, max_size=n)))
def test_from_dict_accepts_strongly_connected_graphs_alone(peers: list[set[int]]) -> None:
    size = len(peers)
    table = tuple(tuple(sorted(listed - {r})) for r, listed in enumerate(peers))
    raw = Graph("raw", size, (table,))
    connected = all(len(reach(raw, r)) == size for r in range(size))
    assert raw.is_strongly_connected() == connected
    if connected:
        assert Graph.from_dict(dict(enumerate(table)), size) == raw
    else:
        with pytest.raises(ValueError, match="no out-peers|no way"):
            Graph.from_dict(dict(enumerate(table)), size)


def test_networkx() -> None:
    nx = pytest.importorskip("networkx")
    assert as_graph(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), 3) == graph("ring", 3)
    assert as_graph(nx.Graph(graph("hypercube", 8).edges), 8) == graph("hypercube", 8)
    for name in NAMES:
        static = made(name, 20)
        if static.period == 1:
            assert static.rounds() == nx.diameter(nx.DiGraph(static.edges))
    for bad, error in ((nx.DiGraph([("a", "b")]), TypeError), (nx.DiGraph([(0, 1)]), ValueError),
                       (nx.Graph([(0, 1), (1, 1)]), ValueError),
                       (nx.MultiDiGraph([(0, 1), (0, 1), (1, 0)]), ValueError),
                       (nx.cycle_graph(3), ValueError)):  # fmt: skip
        with pytest.raises(error):
            as_graph(bad, 2)


def test_equal_graphs_have_equal_fingerprints() -> None:
    assert graph("halton", 16).fingerprint == graph("halton", 16, degree=4).fingerprint
    different = [graph("halton", 16, degree=3), *(made(name, 16) for name in NAMES), graph("random", 16, seed=1)]
    assert len({one.fingerprint for one in different}) == len(different)


def test_a_graph_is_a_value() -> None:
    ring = graph("ring", 4)
    assert Graph("other name", 4, ring.phases) == ring and len({ring, Graph("other name", 4, ring.phases)}) == 1
    assert ring != graph("ring", 5) and ring != graph("torus", 4)
    with pytest.raises(AttributeError):
        ring.size = 5  # type: ignore[misc]
    assert repr(graph("one-peer", 8).without([1])) == "Graph('one-peer', size=8, degree=1, period=3, removed=[1])"
    assert repr(ring) == "Graph('ring', size=4, degree=1)"

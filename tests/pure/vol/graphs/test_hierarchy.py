"""The graph "hierarchical": all-to-all inside a host, few edges between hosts."""

from __future__ import annotations

import itertools
import pickle
import random

import numpy as np
import pytest

import malt
from vol.graphs.builtin import NAMES, as_graph, graph


def hosts_of(*sizes: int) -> list[str]:
    return [f"h{place}" for place, size in enumerate(sizes) for _ in range(size)]


def across(hosts: list[str], built: malt.Graph) -> int:
    return sum(hosts[a] != hosts[b] for a, b in built.edges)


def check(hosts: list[str]) -> malt.Graph:
    built = graph("hierarchical", len(hosts), hosts=hosts)
    assert built.is_strongly_connected() and built.name == "hierarchical" and built.period == 1
    for rank, other in itertools.permutations(range(len(hosts)), 2):
        if hosts[rank] == hosts[other]:
            assert other in built.out(rank)
    return built


def test_every_small_job():
    """Up to 6 ranks on any hosts, in any order: strongly connected, also without any one rank."""
    for size in range(1, 7):
        for places in itertools.product(range(size), repeat=size):
            if all(place <= max(places[:k], default=-1) + 1 for k, place in enumerate(places)):  # up to names
                built = check([f"h{place}" for place in places])
                assert all(built.without([r]).is_strongly_connected() for r in range(size) if size > 1)


def test_random_jobs():
    rng = random.Random(0)
    for _ in range(40):
        hosts = hosts_of(*(rng.randint(1, 9) for _ in range(rng.randint(1, 12))))
        rng.shuffle(hosts)
        left = check(hosts).without(rng.sample(range(len(hosts)), rng.randint(0, len(hosts) - 1)))
        assert left.is_strongly_connected()


def test_edges_between_hosts():
    two = graph("hierarchical", 16, hosts=hosts_of(8, 8))
    assert two.out(3) == (0, 1, 2, 4, 5, 6, 7, 11) and across(hosts_of(8, 8), two) == 16
    uneven = graph("hierarchical", 5, hosts=hosts_of(3, 2))
    assert uneven.out(0) == (1, 2, 3) and uneven.out(3) == (0, 2, 4) and uneven.out(2) == (0, 1, 3)
    assert graph("hierarchical", 4, hosts=["a", "b", "a", "b"]).out(2) == (0, 3)
    four = hosts_of(2, 2, 2, 2)
    assert across(four, graph("hierarchical", 8, hosts=four)) * 3 == across(four, graph("all", 8)) == 48
    many = hosts_of(*[4] * 16)
    assert across(many, graph("hierarchical", 64, hosts=many)) == 64 * 4, "4 of 16 hosts: log2"
    assert graph("hierarchical", 5, hosts=["one"] * 5) == graph("all", 5)
    assert graph("hierarchical", 16, hosts=hosts_of(*[1] * 16)) == graph("auto", 16), "a rank on each host"


def test_auto_is_hierarchical_on_several_hosts():
    hosts = hosts_of(4, 4)
    auto = graph("auto", 8, hosts=hosts)
    assert auto.name == "auto" and auto == graph("hierarchical", 8, hosts=hosts) != graph("auto", 8)
    assert graph("auto", 8, hosts=["one"] * 8) is not auto and graph("auto", 8, hosts=["one"] * 8) == graph("auto", 8)
    large = hosts_of(8, 8)
    assert across(large, graph("auto", 16, hosts=large)) == 16 < across(large, graph("auto", 16))
    assert as_graph("auto", 8, hosts=hosts) == auto and as_graph("ring", 8, hosts=hosts) == graph("ring", 8)


@pytest.mark.parametrize(
    ("name", "hosts", "error", "message"),
    [
        ("hierarchical", None, ValueError, "'hierarchical' needs hosts=, a host name by rank: .* no session of 3"),
        ("hierarchical", ["a", "b"], ValueError, "hosts: expected a name for each rank, 3, got 2"),
        ("auto", ["a"] * 4, ValueError, "hosts: expected a name for each rank, 3, got 4"),
        ("auto", ["a", "", "b"], ValueError, "hosts: the name of the host of rank 1 is empty"),
        ("hierarchical", ["a", "b", " "], ValueError, "hosts: the name of the host of rank 2 is empty"),
        ("hierarchical", ["a", 2, "b"], TypeError, "hosts: the name of the host of rank 1 must be a string, got 2"),
        ("hierarchical", "abc", TypeError, "hosts: expected a list of host names by rank, got 'abc'"),
        ("hierarchical", 3, TypeError, "hosts: expected a list of host names by rank, got 3"),
        ("ring", ["a", "b", "c"], ValueError, "hosts is for the graphs auto and hierarchical, not for 'ring'"),
    ],
)
def test_bad_hosts(name, hosts, error, message):
    with pytest.raises(error, match=message) as caught:
        malt.graph(name, 3, hosts=hosts)
    assert "\n" not in str(caught.value)


def test_bad_degree():
    with pytest.raises(ValueError, match="graph 'hierarchical' of 3 ranks has degree 2: degree=1 is not possible"):
        malt.graph("hierarchical", 3, degree=1, hosts=["a", "a", "b"])
    with pytest.raises(ValueError, match="degree must be an integer of at least 1"):
        malt.graph("base", 3, degree=0)
    with pytest.raises(TypeError, match="degree must be an integer"):
        malt.graph("base", 3, degree=1.5)


def test_the_hosts_of_the_session():
    """A vector's graph by name, and malt.graph, take the hosts of the session, if it has so many ranks."""

    def live(rank: int) -> tuple[malt.Graph, ...]:
        transport = malt.init().transport
        transport.hosts = ("a", "a", "b", "b", "b", "b")
        v, w = malt.vector(3, graph="hierarchical"), malt.vector(3, graph="auto")
        replica = malt.Replica(np.zeros(2))
        with pytest.raises(ValueError, match="no session of 7 ranks"):
            malt.graph("hierarchical", 7)
        found = (malt.graph("hierarchical", 6), malt.graph("auto", 6), malt.graph("auto", 7))
        return *found, *(one._topology.graph for one in (v, w, replica.vectors[0]))

    mine, auto, seven, *of_vectors = malt.simulate(live, 6)[3]
    assert mine == auto == graph("hierarchical", 6, hosts=list("aabbbb"))
    assert seven == graph("auto", 7) and all(one == mine for one in of_vectors)


@pytest.mark.parametrize("name", NAMES)
def test_graphs_can_be_pickled(name):
    """As multiprocessing does with the arguments of a function."""
    built = graph(name, 7, hosts=hosts_of(3, 4) if name == "hierarchical" else None)
    for one in (built, built.without([2])):
        again = pickle.loads(pickle.dumps(one))
        assert again == one and again.fingerprint == one.fingerprint and again.without([2]) == built.without([2])
        assert [again.into(r, 2) for r in range(7)] == [one.into(r, 2) for r in range(7)]

"""The graph "base": averages along it are exact after a period, at every size and degree."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import malt
from vol.graphs import consensus
from vol.graphs.builtin import graph


def test_after_a_period_all_ranks_have_the_mean():
    """In integers. The mean stays at every step, as both ends of an edge weigh each other alike."""
    for degree, size in itertools.product((1, 2, 3, 5), range(1, 26)):
        tables, shares = consensus.phases(size, degree), consensus.shares(size, degree)
        part = [[Fraction(own == rank) for own in range(size)] for rank in range(size)]
        for phase, table in enumerate(tables):
            of = [(1,) * (1 + len(peers)) if shares is None else shares[phase][r] for r, peers in enumerate(table)]
            weights = [
                {each: Fraction(share, sum(of[r])) for each, share in zip((r, *peers), of[r], strict=True)}
                for r, peers in enumerate(table)
            ]
            assert all(len(peers) <= degree for peers in table) and all(min(one) > 0 for one in of)
            assert all(weights[r][p] == weights[p][r] for r, peers in enumerate(table) for p in peers)
            part = [[sum(w * part[p][k] for p, w in weights[r].items()) for k in range(size)] for r in range(size)]
        assert all(one == Fraction(1, size) for row in part for one in row), (size, degree)


@pytest.mark.parametrize(
    ("size", "degree", "rounds"),
    [(5, 1, 5), (6, 1, 4), (7, 1, 5), (12, 1, 5), (24, 1, 6), (8, 1, 3), (6, 2, 2), (7, 2, 4), (12, 2, 3), (16, 3, 2)],
)
def test_the_rounds_of_known_sizes(size, degree, rounds):
    base = graph("base", size, degree=degree)
    assert base.rounds() == base.period == rounds and base.degree == degree and base.spectral_gap() == 1.0


def test_a_period_is_logarithmic_and_plain_means_have_no_weights():
    for degree, size in itertools.product((1, 2, 4), (*range(2, 70), 1000)):
        base = graph("base", size, degree=degree)
        assert base.period <= 2 * np.log(size) / np.log(degree + 1) + 2
    assert graph("base", 8).shares is None is graph("base", 12, degree=2).shares and graph("base", 6).shares
    assert graph("base", 8, degree=7) == graph("all", 8) == graph("base", 8, degree=20)
    assert graph("base", 6) == graph("base", 6, degree=1) != graph("base", 6, degree=2)


def test_weights():
    """At 6 ranks two pieces of 3 average first: 2 + 1, whose first two ranks are met by the third in turn."""
    base = graph("base", 6)
    for rank, step in itertools.product(range(6), range(1, 5)):
        terms = (rank, *base.into(rank, step))
        assert sum(base.weight(rank, each, step) for each in range(6)) == pytest.approx(1)
        assert all((base.weight(rank, each, step) > 0) == (each in terms) for each in range(6))
    assert (base.weight(2, 2, 2), base.weight(2, 0, 2), base.weight(0, 0, 2)) == (1 / 3, 2 / 3, 1 / 3)
    assert base.weight(2, 0, 6) == 2 / 3, "steps go on after the period"
    assert graph("exponential", 8).weight(0, 7) == graph("exponential", 8).weight(0, 0) == 1 / 4
    assert graph("exponential", 8).weight(0, 1) == 0.0
    for rank, sender, step in ((6, 0, 1), (0, 6, 1), (0, -1, 1), (0, 0, 0)):
        with pytest.raises(ValueError, match="ranks|rank must be|step must be"):
            base.weight(rank, sender, step)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_what_is_left_of_a_base_graph_has_plain_means(degree):
    """Also where ranks have not come so far, and the others average along the graph of fewer ranks."""
    for size, failed in ((6, [2]), (7, [0]), (7, [0, 3]), (12, [1, 5, 6]), (13, range(10)), (6, [3, 4, 5])):
        whole = graph("base", size, degree=degree)
        followed = replace(whole, smaller=lambda ranks: graph("base", ranks, degree=degree))
        for left in (whole.without(failed), followed.without(failed)):
            assert left.is_strongly_connected() and left.spectral_gap() > 0.01 and left.rounds() > 0
            for rank, step in itertools.product(left.remaining, range(1, left.period + 1)):
                terms = (rank, *left.into(rank, step))
                assert {left.weight(rank, each, step) for each in terms} == {1 / len(terms)}


def means(
    size: int, degree: int, rounds: int, kind: str = "dense", sync: str = "bsp", function: Any = malt.AVG
) -> np.ndarray:  # fmt: skip
    def live(rank: int) -> np.ndarray:
        start = np.random.default_rng(rank).normal(size=(3, 2))
        v = malt.vector(start.copy(), kind=kind, graph=malt.graph("base", size, degree=degree), sync=sync)
        for _ in range(rounds):
            v.scatter(rows=range(3) if kind == "sparse" else None)
            v.gather(function)
        return v.array.copy()

    return np.array(malt.simulate(live, size, seed=1))


@pytest.mark.parametrize(
    ("size", "degree"), [(6, 1), (5, 1), (12, 2), (10, 3)]
)
def test_vectors_agree_after_rounds(size, degree):
    mean = np.mean([np.random.default_rng(rank).normal(size=(3, 2)) for rank in range(size)], axis=0)
    rounds = malt.graph("base", size, degree=degree).rounds()
    for kind in ("dense", "sparse"):
        assert np.abs(means(size, degree, rounds, kind) - mean).max() < 1e-12
        assert np.abs(means(size, degree, rounds, kind, function=malt.MEAN) - mean).max() < 1e-12
        assert np.abs(means(size, degree, rounds - 1, kind) - mean).max() > 1e-6, "not earlier"


@pytest.mark.parametrize("average", ["model", "delta"])
@pytest.mark.parametrize(("size", "degree"), [(6, 1), (7, 1), (7, 2)])
def test_replicas_agree_after_rounds(size, degree, average):
    """Changes are weighed as models are: here those of the first step that has weights."""
    base = malt.graph("base", size, degree=degree)
    uneven = next(step for step, table in enumerate(base.shares, 1) if any(len(set(one)) > 1 for one in table))

    def live(rank: int) -> tuple[np.ndarray, np.ndarray]:
        w = np.zeros(4)
        replica = malt.Replica(w, graph=base, sync="bsp", average=average)
        replica.trust()
        for _ in range(uneven - 1 if average == "delta" else 0):
            replica.step()
        w += np.random.default_rng(rank).normal(size=4)
        first = w.copy()
        for _ in range(base.rounds() if average == "model" else 1):
            replica.step()
        return first, w

    starts, ends = zip(*malt.simulate(live, size), strict=True)
    for rank in range(size):
        weights = [base.weight(rank, sender, uneven) for sender in range(size)]
        wanted = np.mean(starts, axis=0) if average == "model" else np.dot(weights, starts)
        assert np.abs(ends[rank] - wanted).max() < 1e-12


def test_only_lockstep_has_weights():
    """Under asp a message may be of any step, so the mean is plain."""

    def live(rank: int) -> tuple[bool, float]:
        v = malt.vector(np.full(1, float(rank)), graph=malt.graph("base", 3), sync="notify-ack")
        for _ in range(2):  # ranks 0 and 1; then 0 and 2, which in lockstep weighs them by 2 to 1
            v.scatter()
            v.barrier()
            v.gather()
            v.barrier()
        return v.is_weighted, float(v.array[0])

    assert malt.simulate(live, 3)[2] == (False, 1.25)


def test_wire_along_weights_is_refused():
    def live(rank: int) -> None:
        malt.Replica(np.zeros(4), graph=malt.graph("base", 3), sync="bsp", average="delta", wire="int8")

    with pytest.raises(ValueError, match="the graph 'base' weighs changes"):
        malt.simulate(live, 3)

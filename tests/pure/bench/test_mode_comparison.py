"""bench.papers.modes: who waits beside a slow rank, who moves how much, and the page that says so."""

import copy
import math

import pytest
from measured import kept, quickly

from bench.papers.modes import __main__ as program
from bench.papers.modes import svm
from bench.papers.modes.training import SLOW, Pace, count
from bench.papers.modes.way import AVERAGES, GRAPHS, RANKS, WAYS, Way

pytestmark = pytest.mark.serial
ROW_S, MOST = 1e-6, 12


@pytest.fixture(scope="module")
def endless():
    """Rows whose objective is out of reach: a training ends after `MOST` exchanges of rank 0."""
    rows = copy.copy(svm.small())
    rows.target = -math.inf
    return rows


def trained(rows, graph, sync, slow=SLOW, most=MOST):
    found = count(rows, Way(graph, sync), Pace(ROW_S, slow), most)
    assert math.isinf(found.steps)
    return found


def test_beside_a_slow_rank_all_wait_but_under_asp(endless):
    asp, ack, bsp = (trained(endless, "all", sync) for sync in ("asp", "notify-ack", "bsp"))
    assert asp.waited_s == 0 and asp.epochs < bsp.epochs  # the slow rank is behind
    for one in (ack, bsp):
        assert one.seconds > 2 * asp.seconds
        assert one.waited_s > 0.4 * one.seconds  # 7 of 8 ranks wait for up to two thirds of the time
        assert one.overwritten == 0


def test_evenly_fast_ranks_wait_for_nobody_for_long(endless):
    bsp = trained(endless, "all", "bsp", slow=1.0)
    assert bsp.waited_s < bsp.seconds / 10
    assert bsp.most_lag == 0 and bsp.merged >= RANKS * (RANKS - 1) * (MOST - 1)


@pytest.mark.parametrize("staleness", [1, 4])
def test_ssp_bounds_the_lag(endless, staleness):
    found = trained(endless, "all", f"ssp:{staleness}")
    assert found.most_lag == staleness  # that of the slow rank's models
    assert found.most_lag < trained(endless, "all", "asp").most_lag


def test_what_the_hottest_rank_moves_in_an_exchange(endless):
    moved = {graph: trained(endless, graph, "bsp", 1.0).hottest / MOST / endless.nbytes for graph in GRAPHS}
    assert moved["all"] == pytest.approx(14, rel=0.1)  # a model to and from each of 7
    assert moved["halton"] == pytest.approx(6, rel=0.1)
    assert moved["star"] == pytest.approx(14, rel=0.1)  # rank 0; others 2
    averages = count(endless, AVERAGES, Pace(ROW_S, 1.0), 3).hottest / 3 / endless.nbytes
    assert averages == pytest.approx(3.5, rel=0.1)


def test_a_count_is_the_same_again(endless):
    assert trained(endless, "halton", "asp") == trained(endless, "halton", "asp")


def test_the_figures_of_the_page_are_those_of_a_whole_run():
    found = kept("modes")
    for one in found["counts"].values():
        slow = {row["way"]: row for row in one["slow"]}
        assert list(slow) == [way.name for way in WAYS]
        for graph in GRAPHS:
            asp, bsp = (slow[f"{sync}, {graph}"] for sync in ("asp", "bsp"))
            assert asp["waited_s"] == 0 < bsp["waited_s"]
            assert not isinstance(bsp["steps"], int) or asp["seconds"] < bsp["seconds"]


@pytest.mark.thorough
def test_a_quick_run_prints_its_tables(tmp_path):
    pytest.importorskip("sklearn")
    _, said = quickly("bench.papers.modes", tmp_path, program.tables)
    assert "... apps.mlp, slow, bsp, star: " in said

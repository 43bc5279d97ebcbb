"""bench.papers.ps2: what a step of Adam and a dot move in each way, and the page that says so."""

import numpy as np
import pytest
from measured import kept, quickly

import malt
from bench.papers import ps2
from bench.papers.ps2 import RANK_0, WAYS, WORKERS, ZIP, Vectors, Worker

pytestmark = pytest.mark.serial
LENGTH = 1000
MOVED_BY_ADAM = 7
"""Vectors that are moved where Adam is elsewhere: w, mean, variance and gradient there, and all but the last back."""


@pytest.fixture(scope="module", params=[2, 4])
def records(request):
    return {(one["operation"], one["way"]): one for one in ps2.modelled(request.param, LENGTH)}


def test_a_step_by_zip_moves_no_bytes_and_the_others_seven_values_a_parameter(records):
    ranks = records["adam", ZIP]["ranks"]
    assert records["adam", ZIP]["moved"] == [0] * ranks
    whole = 4 * MOVED_BY_ADAM * LENGTH
    workers, rank_0 = records["adam", WORKERS], records["adam", RANK_0]
    assert ps2.in_all(workers) == whole and workers["moved"] == [2 * whole // ranks] * ranks
    assert ps2.in_all(rank_0) == rank_0["moved"][0] == whole * (ranks - 1) // ranks


def test_a_dot_sends_a_number_to_each_other_rank(records):
    numbers = records["dot", ZIP]
    ranks = numbers["ranks"]
    assert numbers["sent"] == [8 * (ranks - 1)] * ranks and max(numbers["sent"]) <= 8 * ranks
    assert ps2.in_all(records["dot", WORKERS]) == 4 * 2 * LENGTH
    assert max(records["dot", RANK_0]["moved"]) == 4 * 2 * LENGTH * (ranks - 1) // ranks


def test_all_ways_make_the_same_step_and_find_the_same_dot():
    def run(rank, way):
        w = malt.sharded(30, "float64")
        vectors = Vectors(w, w.derive(), w.derive(), w.derive())
        for place, vector in enumerate(vectors):
            vector.local[:] = np.arange(30)[w.range] + place
        worker, dots = Worker(way, vectors), []
        for _ in range(2):
            malt.barrier()
            worker.adam()
            malt.barrier()
            dots.append(worker.dot())
        return [vector.pull() for vector in vectors], dots

    (state, dots), *others = (malt.simulate(lambda rank, way=way: run(rank, way), 3)[1] for way in WAYS)
    assert not np.allclose(state[0], np.arange(30))
    for theirs, their_dots in others:
        np.testing.assert_allclose(theirs, state)
        np.testing.assert_allclose(their_dots, dots)


def test_the_figures_of_the_page_are_those_of_a_whole_run():
    found = kept("ps2")
    sizes = {(one["length"], one["ranks"]) for one in found["records"]}
    assert sizes == {(length, ranks) for length in ps2.WHOLE.lengths for ranks in ps2.WHOLE.ranks}
    assert not any(one["sent"][0] for one in found["records"] if one["way"] == ZIP)


@pytest.mark.thorough
def test_a_quick_run_prints_its_tables(tmp_path):
    found, _ = quickly("bench.papers.ps2", tmp_path, ps2.tables)
    assert ps2.figures(found)["rounds"] == ps2.QUICK.rounds

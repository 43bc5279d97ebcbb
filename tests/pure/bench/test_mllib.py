"""bench.papers.mllib: who moves how many bytes, how many steps a way to train takes, and the page that says so."""

import math

import pytest
from measured import kept, quickly

from bench.papers.mllib import __main__ as program
from bench.papers.mllib import task, ways
from bench.papers.mllib.counting import RANKS, count, search
from bench.papers.mllib.ways import Setting


@pytest.fixture(scope="module")
def text():
    return task.task(task.rows(20_000, 2000, task.TEXT), 2000)


def hottest(text, way, most=4):
    """What the hottest rank moves in a step, in bytes of a model."""
    one = count(text._replace(optimum=-math.inf), way, Setting(0.25, 0.1), most)
    assert math.isinf(one.steps), "no step reaches this objective"
    return one.hottest / most / (4 * (text.n_features + 1)), one.bytes / most / (4 * (text.n_features + 1))


def test_the_hottest_rank_moves_a_quarter_by_reduce_scatter_of_what_it_does_at_a_star(text):
    scattered, star, tree = (hottest(text, way) for way in (ways.MLLIB_STAR, ways.MODEL_STAR, ways.MODEL_TREE))
    assert 3.4 <= scattered[0] <= 4.5  # 4 (k - 1) / k, rounded up to whole elements
    assert star[0] >= 14
    assert tree[0] == 6
    assert all(whole == pytest.approx(14, rel=0.01) for _, whole in (scattered, star, tree))  # 2 (k - 1)


def test_owners_move_as_much_as_reduce_scatter(text):
    moved, whole = hottest(text, ways.EPOCH_MEANS, most=20)
    assert 3.4 <= moved <= 4.5  # with one pull more than there are steps
    assert 14 <= whole <= 15


def test_models_take_a_tenth_of_the_steps_that_gradients_take(text):
    gradients = count(text, ways.MLLIB, Setting(256.0, 1.0), 300).steps  # the best of its grid
    assert 10 * count(text, ways.MLLIB_STAR, Setting(64.0, 1.0), 100).steps <= gradients < math.inf


def test_sums_diverge_where_rows_share_features_and_lead_where_they_do_not():
    shared, apart = task.task(*task.census()), task.task(task.rows(20_000, 20_000, task.RARE), 20_000)
    setting = Setting(0.25, 1.0)
    assert math.isnan(count(shared, ways.SUMS, setting, 20).steps)
    assert count(shared, ways.MLLIB_STAR, setting, 20).steps <= 5
    assert 2 * count(apart, ways.SUMS, setting, 20).steps <= count(apart, ways.MLLIB_STAR, setting, 20).steps


def test_a_search_gives_the_best_setting_and_the_same_count_again(text):
    way = ways.MLLIB_STAR._replace(steps=(64.0, 0.25, 4.0), shares=(1.0, 0.1))
    found = search(text, way, 20)
    each = [count(text, way, setting, 20) for setting in way.settings]
    assert found == min(each, key=lambda one: (math.isnan(one.steps), one.steps, one.seconds))
    assert len({one.steps for one in each}) > 1


def test_the_figures_of_the_page_are_those_of_a_whole_run():
    found = kept("mllib")
    assert len(found["counts"]) == len(ways.WAYS) and found["about"]["ranks"] == RANKS


@pytest.mark.thorough
def test_a_quick_run_prints_its_tables(tmp_path):
    found, _ = quickly("bench.papers.mllib", tmp_path, program.tables)
    assert program.figures(found)["most"] == program.QUICK.most

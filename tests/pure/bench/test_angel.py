"""bench.papers.angel: what apps.logistic moves through rank 0 and in parts, and the page that says so."""

import runpy
import sys

import pytest
from measured import kept, printed

pytest.importorskip("numba")

import malt
from bench.harness import jobs
from bench.papers import angel
from bench.papers.angel import OPTIMIZERS, PLACES, RANKS
from bench.papers.mllib import task
from malt.models.linear import NUMBERS


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("angel") / "rows.svm"
    assert 400 < task.write(path, 400, 5000) < 5000
    return path


@pytest.fixture(scope="module")
def taken(file):
    """What some iterations of L-BFGS take in each place."""
    return [angel.simulated(RANKS, file, "--epochs", 3, "--tolerance", 0, *words) for words in PLACES.values()]


def test_all_goes_through_rank_0_and_parts_move_less(file, taken):
    star, parts = (one["moved"] for one in taken)
    numbers = malt.open_svmlight(file).X.shape[1] + 1 + NUMBERS  # features, the intercept, what else is added up
    evaluations, rest = divmod(star[0], 2 * (RANKS - 1) * 8 * numbers)
    assert evaluations >= 5 and rest == 2 * (RANKS - 1) * 8 * NUMBERS, "what is measured needs no gradients"
    assert star[0] == max(star) == sum(star) // 2
    assert 3 * max(parts) < star[0] and max(parts) < 1.5 * min(parts)


def test_both_make_the_same_iterations(taken):
    star, parts = ([one["objective"] for one in made["report"]["epochs"]] for made in taken)
    assert star == pytest.approx(parts, rel=1e-9) and star[-1] < star[0]


def test_the_figures_of_the_page_are_those_of_a_whole_run():
    made = {(one["optimizer"], one["place"]): one for one in kept("angel")["rows"]}
    assert len(made) == len(OPTIMIZERS) * len(PLACES)
    for optimizer in OPTIMIZERS:
        star, parts = (made[optimizer.name, place] for place in PLACES)
        assert star["moved"][0] == max(star["moved"]) > 2 * max(parts["moved"])
        assert star["memory_mb"] > parts["memory_mb"] > 0


@pytest.mark.thorough
def test_a_quick_run_prints_its_tables(tmp_path, monkeypatch, capsys):
    """Of its jobs the first is one; the others are simulated."""
    report, kept_at, begun = jobs.report, tmp_path / "found.json", []

    def reported(ranks, module, train, *words):
        begun.append(words)
        return angel.simulated(ranks, *words) if begun[1:] else report(ranks, module, train, *words)

    monkeypatch.setattr(jobs, "report", reported)
    monkeypatch.setattr("sys.argv", ["bench.papers.angel", "--quick", "--json", str(kept_at)])
    monkeypatch.delitem(sys.modules, angel.__name__)
    runpy.run_module("bench.papers.angel", run_name="__main__")
    found = printed(kept_at, capsys.readouterr().out, angel.tables)
    assert angel.figures(found)["about_rounds"] == angel.QUICK.rounds and len(begun) == 3 * len(OPTIMIZERS)

"""bench.papers.angel: what apps.logistic moves through rank 0 and in parts, and the page that says so."""

from __future__ import annotations

import runpy
import sys

import pytest
from measured import kept, printed

pytest.importorskip("numba")

import malt
from bench.harness import jobs
from bench.papers.angel import __main__ as program
from bench.papers.angel import page, rows, training
from bench.papers.angel.comparison import OPTIMIZERS, PLACES
from malt.models.linear import NUMBERS

pytestmark = pytest.mark.serial
RANKS = 4


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("angel") / "rows.svm"
    assert 400 < rows.write(path, 400, 5000) < 5000
    return path


@pytest.fixture(scope="module")
def taken(file):
    """What some iterations of L-BFGS take in each place."""
    return [training.simulated(RANKS, file, "--epochs", 3, "--tolerance", 0, *place.words) for place in PLACES]


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
    found = kept("angel")
    made = {(one["optimizer"], one["place"], one["ranks"]): one for one in found["rows"]}
    assert len(made) == len(OPTIMIZERS) * len(PLACES) * len(program.WHOLE.ranks)
    for optimizer in OPTIMIZERS:
        for ranks in program.WHOLE.ranks:
            star, parts = (made[optimizer.name, place.name, ranks] for place in PLACES)
            assert star["moved"][0] == max(star["moved"]) > 2 * max(parts["moved"])
            assert star["most_mb"] - star["before_mb"] > parts["most_mb"] - parts["before_mb"] > 0


@pytest.mark.thorough
def test_a_quick_run_prints_its_tables(tmp_path, monkeypatch, capsys):
    """Of its jobs the first is one; the others are simulated."""
    report, kept_at, begun = jobs.report, tmp_path / "found.json", []

    def reported(ranks, module, *words):
        begun.append(words)
        return training.simulated(ranks, *words) if begun[1:] else report(ranks, module, *words)

    monkeypatch.setattr(jobs, "report", reported)
    monkeypatch.setattr("sys.argv", ["bench.papers.angel", "--quick", "--json", str(kept_at)])
    monkeypatch.delitem(sys.modules, program.__name__)
    runpy.run_module("bench.papers.angel", run_name="__main__")
    found = printed(kept_at, capsys.readouterr().out, page.tables)
    assert page.figures(found)["about_rounds"] == program.QUICK.rounds and len(begun) == 3 * len(OPTIMIZERS)

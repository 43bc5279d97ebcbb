"""bench.angel: what apps.logistic moves through rank 0 and in parts, and the page that says so."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from programs import ROOT

pytest.importorskip("numba")

import malt
from bench import bars
from bench.angel import __main__ as program
from bench.angel import page, rows, training
from bench.angel.comparison import OPTIMIZERS, PLACES
from malt.models.linear import NUMBERS

pytestmark = pytest.mark.serial
PAGE = ROOT / "docs/angel.md"
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


def test_the_page_is_that_of_its_figures():
    found = json.loads(PAGE.with_suffix(".json").read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page.text(found)
    made = {(one["optimizer"], one["place"], one["ranks"]): one for one in found["rows"]}
    assert len(made) == len(OPTIMIZERS) * len(PLACES) * len(program.WHOLE.ranks)
    for optimizer in OPTIMIZERS:
        for ranks in program.WHOLE.ranks:
            star, parts = (made[optimizer.name, place.name, ranks] for place in PLACES)
            assert star["moved"][0] == max(star["moved"]) > 2 * max(parts["moved"])
            assert star["most_mb"] - star["before_mb"] > parts["most_mb"] - parts["before_mb"] > 0


@pytest.mark.thorough
def test_a_quick_run_writes_a_page_and_its_pictures(tmp_path):
    path = tmp_path / "angel.md"
    words = [sys.executable, "-m", "bench.angel", "--quick", "--write", str(path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert path.read_text(encoding="utf-8") == page.text(found) and page.text(found) in done.stdout
    for name in program.CHARTS:
        assert (tmp_path / f"pictures/{name}.svg").read_text() == bars.CHARTS[name].draw(tmp_path)

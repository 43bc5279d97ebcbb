"""Tests of bench.rows and bench.timing: what is made of the times that were measured."""

from __future__ import annotations

import json
import time

import pytest

from bench import rows
from bench.rows import Row, timed
from bench.timing import alternate, ratio

pytestmark = pytest.mark.serial


def test_contenders_take_turns_and_are_timed_alike():
    calls = []

    def work(name, seconds):
        calls.append(name)
        time.sleep(seconds)

    times = alternate({"a": lambda: work("a", 0.001), "b": lambda: work("b", 0.004)}, rounds=4, calls=2)
    assert calls[:8] == ["a", "a", "b", "b", "b", "b", "a", "a"]  # the order rotates
    assert [len(taken) for taken in times.values()] == [4, 4]
    assert 2 < ratio(times["b"], times["a"]) < 5


def test_a_row_is_the_median_of_pairs():
    row = timed("what", "whom", 2.0, ours=[1.0, 1.0, 10.0], theirs=[3.0, 2.0, 20.0])
    assert (row.ratio, row.ours, row.theirs, row.outcome) == (2.0, 1.0, 3.0, "reached")
    assert timed("what", "whom", 2.5, [1.0], [2.0]).outcome == "**not reached**"


def test_a_row_that_was_not_measured_says_why():
    table = rows.table([Row("what", "whom", None, 2.0, note="not installed")])
    assert table.splitlines()[-1] == "| what | whom | - | - | - | 2 x | not measured: not installed |"


def test_numbers_have_a_unit_that_reads_well():
    shown = [rows.shown(x, "s") for x in (0, 2.5, 0.0312, 4.31e-6, 2e-8)]
    assert shown == ["-", "2.5 s", "31.2 ms", "4.31 us", "20 ns"]
    assert rows.shown(17_920_000, "1/s") == "1.792e+07 1/s"


def test_only_changes_beyond_noise_are_listed(tmp_path):
    def stored(*ratios):
        made = [Row(f"row {k}", "whom", one, 1.0, spread=0.1) for k, one in enumerate(ratios)]
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        file.write_text(json.dumps({"format": 1, "results": {"openmpi": {"rows": rows.to_json(made)}}}))
        return rows.read(file)["openmpi"]

    changed = rows.compare(stored(1.0, 2.0, None), stored(1.05, 2.5, 1.0))
    assert changed == ["row 1 against whom: 2.00 x -> 2.50 x (noise 10%)"]

"""bench.hosts.planning: how far predictions are off, and in which order they put ways."""

import pytest

from bench.hosts import page, planning


def row(mbit, graph, predicted, measured):
    return {"mbit": mbit, "way": f"bsp, {graph}", "predicted": predicted, "measured": measured, "compute_s": 2e-3}


ROWS = [row(10, "all", 10.0, 12.5), row(100, "all", 4.0, 4.0), row(100, "ring", 1.0, 2.0), row(30, "ring", 3.0, 3.0)]


def test_the_errors_and_the_order():
    assert [planning.error(one) for one in ROWS] == pytest.approx([0.2, 0.0, 0.5, 0.0])
    assert planning.summary(ROWS) == pytest.approx({"median": 0.1, "largest": 0.5, "in_order": 3, "rates": 3})
    assert planning.in_order(ROWS) == [10, 30, 100]
    assert planning.in_order([*ROWS[:2], row(100, "ring", 1.0, 4.5), ROWS[3]]) == [10, 30]
    assert planning.error(row(10, "all", 1.0, None)) == planning.error(row(10, "all", None, 1.0)) == float("inf")


def test_the_page_has_them():
    first = ["10 Mbit/s, all", "Open MPI", "2.00", "10.00", "12.50", "20%"]
    assert page.planned({"Open MPI": ROWS})[1] == first

"""Tables of docs/ drawn as bars."""

import re

import pytest

from bench.bars import CHARTS, Bar, number, picture, tables


def test_bars_are_as_long_as_their_numbers():
    rows = tables("text\n\n| a | b |\n|---|---|\n| *x* | 1,000.5 |\n| `y` | 2 |\n")
    assert rows == [[["a", "b"], ["x", "1,000.5"], ["y", "2"]]]
    drawn = picture([Bar("apps.svm", "1", "0.5, 2"), Bar("DDP", "4"), Bar("late", "3", "2, not reached"),
                     Bar("never", "not reached")], "s", title="Time")  # fmt: skip
    _, _, one, four, three = (float(width) for width in re.findall(r'<rect.*?width="([\d.]+)"', drawn))
    assert four == pytest.approx(4 * one, rel=0.01) and three == pytest.approx(3 * one, rel=0.01)
    assert drawn.count('class="ours"') == 2 and drawn.count('class="extent"') == 3 + 1, "with the legend"
    assert ">3 s (2, not reached)<" in drawn and ">not reached<" in drawn
    assert ">Time<" in drawn and ">s; shorter is better<" in drawn and 'class="one"' not in drawn
    speedups = picture([Bar("malt", "2")], "x", alone=True)
    assert ">x; longer is better<" in speedups and speedups.count('class="one"') == 1 + 1, "with the legend"


def test_every_chart_has_a_title():
    assert all(chart.title for chart in CHARTS.values())


def test_numbers_are_told_from_words():
    assert [number(text) for text in ("1,234.5", "7", "not reached", "7 s", "")] == [1234.5, 7.0, None, None, None]

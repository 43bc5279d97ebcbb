"""Ratios drawn as bars."""

from __future__ import annotations

import re

import pytest

from bench.bars import picture

pytestmark = pytest.mark.serial


def test_bars_are_as_long_as_their_numbers():
    drawn = picture({"DDP": 4.0, "LIBMF & more": 0.5}, "Speed")
    four, half = (float(width) for width in re.findall(r'<rect.*?width="([\d.]+)"', drawn))
    assert four == pytest.approx(8 * half, rel=0.01)
    line, beside = (float(re.findall(pattern, drawn)[0]) for pattern in (r'x1="([\d.]+)"', r'x="(\d+)"[^>]*>0.50 x<'))
    assert line - 400 == pytest.approx(2 * half, rel=0.01) and beside > line, "what it says is not across the line"
    assert ">4.0 x<" in drawn and ">Speed<" in drawn and "LIBMF &amp; more" in drawn

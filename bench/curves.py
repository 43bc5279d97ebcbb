"""Lines over time as a picture: an SVG that stands alone, of what `malt report` draws its charts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from malt.watch.trace import charts

_KINDS = ("first", "second", "third")
_STYLE = """
  text { font: 13px sans-serif; fill: #24292f } .end { text-anchor: end } .middle { text-anchor: middle }
  .grid { stroke: #d0d7de } .line { fill: none; stroke-width: 1.8 }
  .line.first { stroke: #8c959f } circle.first, text.first { fill: #8c959f }
  .line.second { stroke: #bc4c00 } circle.second, text.second { fill: #bc4c00 }
  .line.third { stroke: #7c4dff } circle.third, text.third { fill: #7c4dff }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #484f58 } }
"""
_RIGHT, _TOP, _LINE = 620, 30, 18


def picture(series: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str) -> str:
    """An SVG of three lines at most, by their names, each of points from left to right. Pure.

    `across`, `up`: what the axes mean.
    """
    kinds = dict(zip(series, _KINDS, strict=False))
    drawn = charts.lines([charts.Series(kinds[name], points) for name, points in series.items()], across, "")
    head, _, body = drawn.partition(">")
    names = [f'<text class="{kind} end" x="{_RIGHT}" y="{_TOP + _LINE * place}">{escape(name)}</text>'
             for place, (name, kind) in enumerate([(up, "up"), *kinds.items()])]  # fmt: skip
    svg = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{svg}><style>{_STYLE}</style>\n{''.join(names)}{body}\n"

"""Lines over time as a picture: an SVG that stands alone, of what `malt report` draws its charts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from malt.watch.trace import charts

_KINDS = ("first", "second", "third")
_STYLE = """
  text { font: 13px sans-serif; fill: #24292f } .end { text-anchor: end } .middle { text-anchor: middle }
  .title { font-weight: bold } .grid { stroke: #d0d7de } .line { fill: none; stroke: #7c4dff; stroke-width: 1.8 }
  circle { fill: #7c4dff } .second { stroke-dasharray: 7 4 } .third { stroke-dasharray: 2 3 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #484f58 } }
"""
_RIGHT, _TOP, _LINE = 620, 30, 18


def picture(series: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str, title: str) -> str:
    """An SVG of three of MALT's lines at most, by their names, each of points from left to right. Pure.

    `across`, `up`: what the axes mean. Lower is better. The lines are solid, dashed and dotted, as the legend says.
    """
    kinds = dict(zip(series, _KINDS, strict=False))
    drawn = charts.lines([charts.Series(kinds[name], points) for name, points in series.items()], across, "")
    head, _, body = drawn.partition(">")
    legend = [f'<text class="title end" x="{_RIGHT}" y="{_TOP}">{escape(title)}</text>',
              f'<text class="end" x="{_RIGHT}" y="{_TOP + _LINE}">{escape(up)}; lower is better</text>']  # fmt: skip
    for place, (name, kind) in enumerate(kinds.items(), 2):
        y = _TOP + _LINE * place
        legend.append(f'<text class="end" x="{_RIGHT - 46}" y="{y}">MALT, {escape(name)}</text>')
        legend.append(f'<path class="line {kind}" d="M{_RIGHT - 38},{y - 4} h38"/>')
    svg = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{svg}><style>{_STYLE}</style>\n{''.join(legend)}{body}\n"

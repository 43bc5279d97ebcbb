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
_WIDTH, _HIGH, _HEAD = 640, 240, 66
"""A chart of `malt report`, and the space above it."""


def picture(series: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str, title: str) -> str:
    """Return an SVG of at most three of MALT's lines, by their names, each of points from left to right. Pure.

    `across`, `up`: what the axes mean. Lower is better. Above the lines are the title and a legend: they are solid,
    dashed and dotted.
    """
    kinds = dict(zip(series, _KINDS, strict=False))
    drawn = charts.lines([charts.Series(kinds[name], points) for name, points in series.items()], across, "")
    body = drawn.partition("<svg ")[2].partition(">")[2].partition("</svg>")[0]
    legend = [f'<text class="title" x="4" y="17">{escape(title)}</text>',
              f'<text x="4" y="36">{escape(up)}; lower is better</text>']  # fmt: skip
    left = 4
    for name, kind in kinds.items():
        legend.append(f'<path class="line {kind}" d="M{left},54 h28"/>')
        legend.append(f'<text x="{left + 34}" y="58">MALT, {escape(name)}</text>')
        left += 84 + 7 * len(name)
    size = f'viewBox="0 0 {_WIDTH} {_HIGH + _HEAD}" width="{_WIDTH}" height="{_HIGH + _HEAD}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>\n{"".join(legend)}'
        f'<g transform="translate(0 {_HEAD})">{body}</g></svg>\n'
    )

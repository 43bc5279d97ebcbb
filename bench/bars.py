"""Draws ratios as bars: docs/pictures/peers.svg. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

_WIDTH, _LINE, _LEFT, _RIGHT, _HEAD = 760, 26, 400, 90, 58
_STYLE = """
  text { font: 13px sans-serif; fill: #24292f } .title { font-weight: bold } .bar { fill: #7c4dff }
  .one { stroke: #24292f; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .one { stroke: #e6edf3 } }
"""


def picture(ratios: Mapping[str, float], title: str) -> str:
    """An SVG of a bar for each ratio, by its name. A line marks 1, where both sides are equal."""
    scale, high = (_WIDTH - _LEFT - _RIGHT) / max(ratios.values()), _HEAD + _LINE * len(ratios)
    one = f"{_LEFT + scale:.1f}"
    lines = [
        f'<text class="title" x="4" y="17">{escape(title)}</text>', _words(4, 34, "x; longer is better", "start"),
        f'<line class="one" x1="{one}" x2="{one}" y1="{_HEAD - 6}" y2="{high}"/>',
        _words(_LEFT + scale, 42, "1 x", "middle"),
    ]  # fmt: skip
    for place, (name, ratio) in enumerate(ratios.items()):
        middle, long = _HEAD + _LINE * place + _LINE // 2, scale * ratio
        end = max(long, scale) if long < 2 * scale else long  # not across the line
        lines += [
            _words(_LEFT - 8, middle, name, "end"),
            f'<rect class="bar" x="{_LEFT}" y="{middle - 9}" width="{long:.1f}" height="18"/>',
            _words(_LEFT + end + 6, middle, f"{ratio:.1f} x" if ratio >= 1 else f"{ratio:.2f} x", "start"),
        ]
    size = f'viewBox="0 0 {_WIDTH} {high}" width="{_WIDTH}" height="{high}"'
    drawn = "\n".join(lines)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>\n{drawn}\n</svg>\n'


def _words(x: float, middle: int, text: str, anchor: str) -> str:
    """A line of text. `anchor`: its place that is at `x`."""
    return f'<text x="{x:.0f}" y="{middle + 5}" text-anchor="{anchor}">{escape(text)}</text>'

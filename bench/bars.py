"""Draws tables of docs/ as bars: docs/pictures/*.svg. What is drawn is read from the pages of their scripts.

python -m bench.fill does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[1] / "docs"


OTHERS = {
    "torch": "DDP", "mllib": "other ways to send", "ps2": "other ways to send", "angel": "through rank 0",
    "qjam": "Qjam", "modes": "averaging once per epoch",
}  # fmt: skip
"""By page, what the legend calls rows that are not MALT's: else other libraries."""
_OWN = "malt"
"""The page on which all rows are MALT's."""


class Chart(NamedTuple):
    """A column of a table of a page."""

    page: str
    table: str
    """The name of its mark."""
    column: str
    """The heading of the medians, or its beginning."""
    title: str
    unit: str = "s"
    extent: str = ""
    """The heading of the least and the largest. Empty: the table has none."""

    def draw(self, folder: Path = DOCS) -> str:
        """The chart of the page as it stands in `folder`. Local. LookupError, StopIteration: it has no such table, or
        column.
        """
        rows = marked((folder / f"{self.page}.md").read_text(encoding="utf-8"))[self.table]
        place = next(place for place, heading in enumerate(rows[0]) if heading.startswith(self.column))
        extents = [row[rows[0].index(self.extent)] for row in rows[1:]] if self.extent else [""] * (len(rows) - 1)
        values = ["not reached" if row[place] == "-" else row[place] for row in rows[1:]]
        bars = [Bar(row[0], *pair) for row, *pair in zip(rows[1:], values, extents, strict=True)]
        return picture(bars, self.unit, self.page == _OWN, self.title, OTHERS.get(self.page, "other libraries"))


_RANGE = "from, to"
CHARTS = {
    "network": Chart("network", "runs", "s to 0.98", "Training time to a test accuracy of 0.98", extent=_RANGE),
    "boosting": Chart("boosting", "a9a", "s", "Training time of 100 trees, a9a", extent=_RANGE),
    "boosting-rows": Chart("boosting", "rows", "s", "Training time of 20 trees, 1,000,000 rows", extent=_RANGE),
    "topics": Chart("topics", "runs", "seconds to perplexity ", "Training time to scikit-learn's final perplexity"),
    "torch": Chart("torch", "host", "seconds", "Training time"),
    "torch-bytes": Chart("torch", "host", "MB to 0.97", "Sent per rank to an accuracy of 0.97", "MB"),
    "mllib": Chart("mllib", "steps", "steps", "Steps to the objective", "steps"),
    "mllib-bytes": Chart("mllib", "steps", "busiest rank, MB", "Moved by the busiest rank to the objective", "MB"),
    "ps2": Chart("ps2", "adam", "ms", "Time of a step of Adam, 10^7 parameters", "ms"),
    "ps2-bytes": Chart("ps2", "adam", "busiest rank", "Moved by the busiest rank, 10^7 parameters", "MB"),
    "angel": Chart("angel", "runs", "seconds", "Training time to 0.001 above the optimum"),
    "angel-bytes": Chart("angel", "runs", "busiest rank, MB", "Moved by the busiest rank", "MB"),
    "angel-memory": Chart("angel", "runs", "memory of training", "Memory of training, rank 0", "MB"),
    "qjam": Chart("qjam", "iterations", "speedup of an iteration", "Speedup over one rank", "x"),
    "malt": Chart("malt", "speedup", "times as fast", "Speedup over one rank, 2 ranks", "x", _RANGE),
    "malt-hosts": Chart("malt", "hosts", "10 ranks", "Speedup over one rank, 10 hosts", "x"),
    "malt-bytes": Chart("malt", "bytes", "% of all", "Bytes of the rows touched, relative to all weights", "%"),
    "modes-svm": Chart("modes", "svm_slow", "ms to", "Time to the objective, one rank slow", "ms"),
    "modes-bytes": Chart("modes", "svm_slow", "busiest rank, MB", "Moved by the busiest rank to the objective", "MB"),
    "modes-mlp": Chart("modes", "mlp_slow", "ms to", "Time to the test loss, one rank slow", "ms"),
}
"""By the name of the picture."""


class Bar(NamedTuple):
    """A row of a chart, as its table has it."""

    name: str
    value: str
    """A number, or words such as `not reached`."""
    extent: str = ""
    """`least, largest`."""


_ONE = {"x": 1, "%": 100}
"""Of units of ratios, the number at which both sides are equal: a line marks it."""
_WIDTH, _LINE, _LEFT, _RIGHT, _HEAD = 760, 26, 300, 90, 58
_OURS = ("apps.", "malt", "gradients", "changes", "outer", "the same", "asp", "ssp", "bsp", "notify")
"""What the names of MALT's own rows begin with."""
_STYLE = """
  text { font: 13px sans-serif; fill: #24292f } .title { font-weight: bold } .ours { fill: #7c4dff }
  .peer { fill: #8c959f } .extent { stroke: #24292f; stroke-width: 1.5 } .one { stroke: #24292f; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .extent, .one { stroke: #e6edf3 } .peer { fill: #6e7681 }
  }
"""


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a page in Markdown, by rows, without what marks words. Pure."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[re.sub(r"(?<!\\)[`*]", "", cell.strip()).replace("\\*", "*") for cell in line.strip("|").split("|")]
                for line in block.splitlines()]  # fmt: skip
        found.append([rows[0], *rows[2:]])
    return found


def marked(text: str) -> dict[str, list[list[str]]]:
    """The tables of a page by the names of their marks. Pure."""
    found = re.findall(r"<!-- table: (.+?) -->\n(.*?)<!-- end -->", text, re.DOTALL)
    return {name: rows for name, block in found for rows in tables(block)[:1]}


def picture(
    bars: Sequence[Bar], unit: str, alone: bool = False, title: str = "", others: str = "other libraries",
    left: int = _LEFT,
) -> str:  # fmt: skip
    """An SVG of one bar per row, with its extent as a line. A row that is no number shows its words. Pure.

    Above the bars are the title, the unit, whether shorter or longer is better, and a legend. If the unit is
    one of ratios, a line marks where both sides are equal. `alone`: all rows are MALT's own. `left`: where bars begin.
    """
    extents = [[one for one in map(number, bar.extent.split(", ")) if one is not None] for bar in bars]
    most = max([number(bar.value) or 0.0 for bar in bars] + [one for extent in extents for one in extent])
    scale, high = (_WIDTH - left - _RIGHT) / (most or 1.0), _HEAD + _LINE * len(bars)
    whose = ["ours" if alone or bar.name.startswith(_OURS) else "peer" for bar in bars]
    has_extents = any(len(extent) == 2 for extent in extents)
    lines = _heading(title, unit, {"ours": "MALT", "peer": others}, whose, has_extents, left)
    if unit in _ONE:
        x = left + scale * _ONE[unit]
        lines.append(f'<line class="one" x1="{x:.1f}" x2="{x:.1f}" y1="{_HEAD - 6}" y2="{high}"/>')
    for place, (bar, extent) in enumerate(zip(bars, extents, strict=True)):
        lines += _row(bar, extent, _HEAD + _LINE * place + _LINE // 2, scale, whose[place], unit, left)
    return svg(_WIDTH, high, _STYLE, lines)


def svg(width: int, height: int, style: str, lines: Sequence[str]) -> str:
    """A picture of these lines. Pure."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>\n' + "\n".join(lines) + "\n</svg>\n"


def _heading(
    title: str, unit: str, legend: Mapping[str, str], whose: Sequence[str], has_extents: bool, left: int
) -> list[str]:  # fmt: skip
    """The title, the unit, and the legend of those classes that are in `whose`, and of extents."""
    better = "longer" if unit == "x" else "shorter"
    lines = [f'<text class="title" x="4" y="17">{escape(title)}</text>']
    lines.append(words(4, 34, f"{unit}; {better} is better", "start"))
    for kind, name in legend.items():
        if kind in whose:
            lines.append(f'<rect class="{kind}" x="{left}" y="28" width="12" height="12"/>')
            lines.append(words(left + 18, 34, name, "start"))
            left += 40 + 8 * len(name)
    if unit in _ONE:
        lines.append(f'<line class="one" x1="{left}" x2="{left + 18}" y1="34" y2="34"/>')
        lines.append(words(left + 24, 34, f"{_ONE[unit]} {unit}", "start"))
        left += 70
    if has_extents:
        lines.append(f'<line class="extent" x1="{left}" x2="{left + 18}" y1="34" y2="34"/>')
        lines.append(words(left + 24, 34, "range of the runs", "start"))
    return lines


def _row(
    bar: Bar, extent: Sequence[float], middle: int, scale: float, whose: str, unit: str, left: int
) -> list[str]:  # fmt: skip
    """A bar, its name and what it says."""
    lines, value = [words(left - 8, middle, bar.name, "end")], number(bar.value)
    end = max([scale * (value or 0.0), *(scale * one for one in extent if value is not None)])
    if unit == "x" and 0 < end < 2 * scale:
        end = max(end, scale)  # beside the line that marks 1
    if value is not None:
        lines.append(f'<rect class="{whose}" x="{left}" y="{middle - 9}" width="{scale * value:.1f}" height="18"/>')
        if len(extent) == 2:
            x1, x2 = (left + scale * one for one in extent)
            lines.append(f'<line class="extent" x1="{x1:.1f}" x2="{x2:.1f}" y1="{middle}" y2="{middle}"/>')
            lines += [f'<line class="extent" x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 4}" y2="{middle + 4}"/>'
                      for x in (x1, x2)]  # fmt: skip
    shown = f"{bar.value} {unit}" if value is not None else bar.value
    if value is not None and bar.extent and len(extent) < 2:
        shown += f" ({bar.extent})"  # some runs have not reached it
    return [*lines, words(left + end + 6, middle, shown, "start")]


def number(text: str) -> float | None:
    """The number that `text` is. None: it is none."""
    return float(text.replace(",", "")) if re.fullmatch(r"[\d,]+(\.\d+)?", text) else None


def words(x: float, middle: int, text: str, anchor: str) -> str:
    """A line of text. `anchor`: its place that is at `x`. Pure."""
    return f'<text x="{x:.0f}" y="{middle + 5}" text-anchor="{anchor}">{escape(text)}</text>'

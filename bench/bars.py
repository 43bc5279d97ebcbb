"""Draws tables of docs/ as bars or lines: docs/pictures/*.svg. What is drawn is read from the pages of their scripts.

python -m bench.bars
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from bench import curves

DOCS = Path(__file__).parents[1] / "docs"


class Chart(NamedTuple):
    """A column of a table of a page."""

    page: str
    table: int
    """Its place in the page."""
    column: str
    """The heading of the medians, or its beginning."""
    extent: str = ""
    """The heading of the least and the largest. Empty: the table has none."""
    unit: str = "s"
    alone: bool = False
    """Whether all rows are MALT's."""

    def draw(self, folder: Path = DOCS) -> str:
        """The chart of the page as it stands in `folder`. Local. LookupError, StopIteration: it has no such table, or
        column.
        """
        rows = tables((folder / f"{self.page}.md").read_text(encoding="utf-8"))[self.table]
        place = next(place for place, heading in enumerate(rows[0]) if heading.startswith(self.column))
        extents = [row[rows[0].index(self.extent)] for row in rows[1:]] if self.extent else [""] * (len(rows) - 1)
        return picture([Bar(row[0], row[place], one) for row, one in zip(rows[1:], extents, strict=True)], self.unit,
                       self.alone)  # fmt: skip


class Lines(NamedTuple):
    """Columns of a table of a page, each over the column on its left, whose heading is the name of the line."""

    page: str
    table: int
    columns: tuple[int, ...]
    """Their places, from 0."""
    across: str
    up: str

    def draw(self, folder: Path = DOCS) -> str:
        """The lines of the page as it stands in `folder`. Local. LookupError: it has no such table, or column."""
        heading, *rows = tables((folder / f"{self.page}.md").read_text(encoding="utf-8"))[self.table]
        series = {}
        for column in self.columns:
            points = [(number(row[column - 1]), number(row[column])) for row in rows]
            name = heading[column - 1].removesuffix(", s")
            series[name] = [(x, y) for x, y in points if x is not None and y is not None]
        return curves.picture(series, self.across, self.up)


CHARTS: dict[str, Chart | Lines] = {
    "network": Chart("network", 0, "s to 0.98", "from, to"),
    "boosting": Chart("boosting", 0, "s", "from, to"),
    "boosting-rows": Chart("boosting", 1, "s", "from, to"),
    "topics": Chart("topics", 0, "seconds to perplexity "),
    "torch": Chart("torch", 0, "seconds"),
    "torch-bytes": Chart("torch", 0, "MB to 0.97", unit="MB"),
    "mllib": Chart("mllib", 0, "steps", unit="steps"),
    "mllib-bytes": Chart("mllib", 0, "hottest rank, MB", unit="MB"),
    "ps2": Chart("ps2", 0, "ms", unit="ms"),
    "ps2-bytes": Chart("ps2", 2, "hottest rank", unit="MB"),
    "angel": Chart("angel", 0, "seconds"),
    "angel-bytes": Chart("angel", 0, "hottest rank, MB", unit="MB"),
    "angel-memory": Chart("angel", 0, "memory of training", unit="MB"),
    "qjam": Chart("qjam", 0, "speedup of an iteration", unit="x"),
    "malt": Chart("malt", 1, "times as fast", "from, to", unit="x", alone=True),
    "malt-hosts": Chart("malt", 2, "10 ranks", unit="x", alone=True),
    "malt-rcv1": Chart("malt", 3, "10 ranks", unit="x", alone=True),
    "malt-bytes": Chart("malt", 4, "% of all", unit="%", alone=True),
    "malt-graphs": Chart("malt", 5, "RCV1", unit="MB", alone=True),
    "malt-failure": Lines("malt", 6, (2, 4, 6), "seconds", "objective"),
    "modes-svm": Chart("modes", 1, "ms to", unit="ms"),
    "modes-bytes": Chart("modes", 1, "hottest rank, MB", unit="MB"),
    "modes-mlp": Chart("modes", 3, "ms to", unit="ms"),
}
"""By the name of the picture."""


class Bar(NamedTuple):
    """A row of a chart, as its table has it."""

    name: str
    value: str
    """A number, or words such as `not reached`."""
    extent: str = ""
    """`least, largest`."""


_WIDTH, _LINE, _LEFT, _RIGHT = 760, 26, 300, 90
_OURS = ("apps.", "malt", "gradients", "changes", "outer", "the same", "asp", "ssp", "bsp", "notify")
"""What the names of MALT's own rows begin with."""
_STYLE = """
  text { font: 13px sans-serif; fill: #24292f } .ours { fill: #7c4dff } .peer { fill: #8c959f }
  .extent { stroke: #24292f; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .extent { stroke: #e6edf3 } .peer { fill: #6e7681 } }
"""


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a page in Markdown, by rows, without what marks words. Pure."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[re.sub(r"(?<!\\)[`*]", "", cell.strip()).replace("\\*", "*") for cell in line.strip("|").split("|")]
                for line in block.splitlines()]  # fmt: skip
        found.append([rows[0], *rows[2:]])
    return found


def picture(bars: Sequence[Bar], unit: str, alone: bool = False) -> str:
    """An SVG of a bar a row, from 0 on, with its extent as a line. A row that is no number has its words. Pure.

    `alone`: all rows are MALT's own.
    """
    extents = [[one for one in map(number, bar.extent.split(", ")) if one is not None] for bar in bars]
    most = max([number(bar.value) or 0.0 for bar in bars] + [one for extent in extents for one in extent])
    scale = (_WIDTH - _LEFT - _RIGHT) / (most or 1.0)
    lines = []
    for place, (bar, extent) in enumerate(zip(bars, extents, strict=True)):
        middle, value = _LINE * place + _LINE // 2, number(bar.value)
        lines.append(_text(_LEFT - 8, middle, bar.name, "end"))
        end = max([scale * (value or 0.0), *(scale * one for one in extent if value is not None)])
        if value is not None:
            whose = "ours" if alone or bar.name.startswith(_OURS) else "peer"
            width = scale * value
            lines.append(f'<rect class="{whose}" x="{_LEFT}" y="{middle - 9}" width="{width:.1f}" height="18"/>')
            if len(extent) == 2:
                x1, x2 = (_LEFT + scale * one for one in extent)
                lines.append(f'<line class="extent" x1="{x1:.1f}" x2="{x2:.1f}" y1="{middle}" y2="{middle}"/>')
                lines += [f'<line class="extent" x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 4}" y2="{middle + 4}"/>'
                          for x in (x1, x2)]  # fmt: skip
        shown = f"{bar.value} {unit}" if value is not None else bar.value
        if value is not None and bar.extent and len(extent) < 2:
            shown += f" ({bar.extent})"  # some runs have not reached it
        lines.append(_text(_LEFT + end + 6, middle, shown, "start"))
    high = _LINE * len(bars)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {high}" width="{_WIDTH}" height="{high}">'
        f"<style>{_STYLE}</style>\n" + "\n".join(lines) + "\n</svg>\n"
    )


def number(text: str) -> float | None:
    """The number that `text` is. None: it is none."""
    return float(text.replace(",", "")) if re.fullmatch(r"[\d,]+(\.\d+)?", text) else None


def _text(x: float, middle: int, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{middle + 5}" text-anchor="{anchor}">{escape(text)}</text>'


def main() -> None:
    for name, chart in CHARTS.items():
        (DOCS / "pictures" / f"{name}.svg").write_text(chart.draw(), encoding="utf-8")


if __name__ == "__main__":
    main()

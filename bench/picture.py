"""Draws docs/pictures/peers.svg: for some rows of a page, how many times as long a peer takes as MALT."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from bench.rows import Row


class Bar(NamedTuple):
    """A row that is drawn, by the beginning of its name and its peer, and the words for both."""

    name: str
    against: str
    what: str
    peer: str


_SVM = "SVM on 300,000 rows to objective "
BARS = (
    Bar(_SVM, "LIBLINEAR, dual, hinge, 2 threads", "linear SVM, 300,000 rows", "LIBLINEAR, 2 threads"),
    Bar(_SVM, "scikit-learn SGDClassifier, 1 core", "", "scikit-learn SGD"),
    Bar(_SVM, "its kernel on 2 threads, one model", "", "the same kernel, Hogwild"),
    Bar(
        "logistic regression on rcv1-ccat to 0.2995, sgd, ", "scikit-learn, liblinear",
        "logistic regression, rcv1", "scikit-learn liblinear",
    ),
    Bar(
        "MF on jester, rank 16: time to test RMSE ", "LIBMF, 2 threads",
        "recommendations, jester", "LIBMF, 2 threads",
    ),
    Bar(
        "exchange of 100,000 floats, bsp, with numba", "MPI Allreduce",
        "an exchange of 100,000 floats", "MPI Allreduce",
    ),
)  # fmt: skip
_WIDTH, _LINE, _LEFT = 760, 26, 400
_STYLE = """
  text { font: 13px sans-serif; fill: #24292f } .peer { fill: #7c4dff } .ours { stroke: #7c4dff; stroke-width: 2 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }
"""


def picture(rows: Sequence[Row], bars: Sequence[Bar] = BARS) -> str:
    """An SVG of a bar a peer: its time over that of MALT on two ranks, which is a line at 1. Bars without a row are
    left out. Pure.
    """
    drawn = [(bar, ratio) for bar in bars if (ratio := _ratio(rows, bar)) is not None]
    step = (_WIDTH - _LEFT - 60) / max([1.0, *(ratio for _, ratio in drawn)])
    high = _LINE * (len(drawn) + 1)
    lines = [f'<line class="ours" x1="{_LEFT + step:.0f}" x2="{_LEFT + step:.0f}" y1="4" y2="{high - _LINE}"/>']
    lines.append(_text(_LEFT + step, high - 6, "MALT, 2 ranks: 1 x", "middle"))
    for number, (bar, ratio) in enumerate(drawn):
        middle = _LINE * number + 18
        width = step * ratio
        lines.append(_text(4, middle, bar.what, "start"))
        lines.append(_text(_LEFT - 8, middle, bar.peer, "end"))
        lines.append(f'<rect class="peer" x="{_LEFT}" y="{middle - 14}" width="{width:.0f}" height="18"/>')
        lines.append(_text(_LEFT + width + 6, middle, f"{ratio:.1f} x", "start"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {high}" width="{_WIDTH}" height="{high}">'
        f"<style>{_STYLE}</style>\n" + "\n".join(lines) + "\n</svg>\n"
    )


def _ratio(rows: Sequence[Row], bar: Bar) -> float | None:
    """That of the row of `bar`, where there is one: of several the last, which has most ranks."""
    found = [row.ratio for row in rows if row.name.startswith(bar.name) and row.against == bar.against]
    return found[-1] if found else None


def _text(x: float, y: int, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'

"""The headlines of docs/benchmarks.md: for some rows, how many times as long a peer takes as MALT; and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from bench.rows import NUMBA, Row, times


class Headline(NamedTuple):
    """A row that is shown, by the beginning of its name and its peer, and the words for both."""

    name: str
    against: str
    what: str
    peer: str
    is_compiled: bool = False
    """Whether the row itself is of a program whose kernels numba compiles, and there is none without."""


_SVM = "SVM on 300,000 rows to objective "
HEADLINES = (
    Headline(_SVM, "LIBLINEAR, dual, hinge, 2 threads", "linear SVM, 300,000 rows", "LIBLINEAR, 2 threads", True),
    Headline(_SVM, "scikit-learn SGDClassifier, 1 core", "linear SVM, 300,000 rows", "scikit-learn SGD", True),
    Headline(_SVM, "its kernel on 2 threads, one model", "linear SVM, 300,000 rows", "the same kernel, Hogwild", True),
    Headline(
        "logistic regression on rcv1-ccat to 0.2995, sgd, ", "scikit-learn, liblinear",
        "logistic regression, to 0.1 %", "scikit-learn liblinear", True,
    ),
    Headline(
        "logistic regression on rcv1-ccat to 0.3022, sgd, ", "scikit-learn SGDClassifier",
        "logistic regression, to 1 %", "scikit-learn SGD", True,
    ),
    Headline(
        "MF on jester, rank 16: time to test RMSE ", "LIBMF, 2 threads",
        "recommendations, jester", "LIBMF, 2 threads", True,
    ),
    Headline("exchange of 1,000 floats, bsp", "MPI Allreduce", "exchange, 1,000 floats", "MPI Allreduce"),
    Headline("exchange of 100,000 floats, bsp", "MPI Allreduce", "exchange, 100,000 floats", "MPI Allreduce"),
    Headline("exchange of 10,000,000 floats, bsp", "MPI Allreduce", "exchange, 10,000,000 floats", "MPI Allreduce"),
)  # fmt: skip
_WIDTH, _LINE, _LEFT, _HEAD = 760, 26, 400, 62
_STYLE = """
  text { font: 13px sans-serif; fill: #24292f } .title { font-weight: bold } .peer { fill: #8c959f }
  .ours { stroke: #7c4dff; stroke-width: 2 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .peer { fill: #6e7681 } }
"""


class Ratios(NamedTuple):
    """A headline's ratios: plainly and with numba."""

    headline: Headline
    plain: float | None
    compiled: float | None


def found(rows: Sequence[Row]) -> list[Ratios]:
    """The ratios of all headlines that have a row: of several the last, which has most ranks. Pure."""
    made = []
    for one in HEADLINES:
        ours = [row for row in rows if row.name.startswith(one.name) and row.against == one.against]
        plain = [row.ratio for row in ours if not row.name.endswith(NUMBA) and not one.is_compiled]
        compiled = [row.ratio for row in ours if row.name.endswith(NUMBA) or one.is_compiled]
        if ours:
            made.append(Ratios(one, *(ratios[-1] if ratios else None for ratios in (plain, compiled))))
    return made


def headlines(rows: Sequence[Row]) -> str:
    """The headlines as a table in Markdown. Pure."""
    lines = ["| task, 2 ranks | compared with | MALT without numba | MALT with numba |", "|---|---|---|---|"]
    lines += [f"| {one.headline.what} | {one.headline.peer} | {times(one.plain)} | {times(one.compiled)} |"
              for one in found(rows)]  # fmt: skip
    return "\n".join(lines)


def picture(rows: Sequence[Row]) -> str:
    """An SVG of a bar for each ratio: the time of a peer over that of MALT on two ranks, which is a line at 1. Pure."""
    bars = []
    for one in found(rows):
        for ratio, how in ((one.plain, ", plain"), (one.compiled, "" if one.headline.is_compiled else ", numba")):
            if ratio is not None:
                bars.append((one.headline.what + how, one.headline, ratio))
    step = (_WIDTH - _LEFT - 60) / max([1.0, *(ratio for *_, ratio in bars)])
    high, one_x = _HEAD + _LINE * len(bars), _LEFT + step
    lines = ['<text class="title" x="4" y="17">Time to the same result, as a multiple of MALT\'s on 2 ranks</text>']
    lines.append(_text(4, 38, "x; shorter is better", "start"))
    lines.append(f'<rect class="peer" x="{_LEFT}" y="28" width="12" height="12"/>')
    lines.append(_text(_LEFT + 18, 38, "other library", "start"))
    lines.append(f'<line class="ours" x1="{_LEFT + 130}" x2="{_LEFT + 146}" y1="34" y2="34"/>')
    lines.append(_text(_LEFT + 152, 38, "MALT: 1 x", "start"))
    for place, (what, headline, ratio) in enumerate(bars):
        middle, width = _HEAD + _LINE * place + 14, step * ratio
        lines.append(_text(4, middle, what, "start"))
        lines.append(_text(_LEFT - 8, middle, headline.peer, "end"))
        lines.append(f'<rect class="peer" x="{_LEFT}" y="{middle - 14}" width="{width:.0f}" height="18"/>')
        shown = f"{ratio:.1f} x" if ratio >= 1 else f"{ratio:.2f} x"
        lines.append(_text(max(_LEFT + width, one_x if ratio < 1 else 0) + 6, middle, shown, "start"))
    lines.append(f'<line class="ours" x1="{one_x:.0f}" x2="{one_x:.0f}" y1="{_HEAD - 6}" y2="{high}"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {high}" width="{_WIDTH}" height="{high}">'
        f"<style>{_STYLE}</style>\n" + "\n".join(lines) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'

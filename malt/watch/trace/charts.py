"""Charts as SVG, drawn for a page of HTML. Pure.

Text is text. Colours are classes of the page (page.py), so they follow its light or dark mode.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDE = 1280
"""The width of a chart that has a card of the whole page."""
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 64, 12, 10, 36
_ROW = 22
"""The height of a row of bars."""
_TICKS = 5
_MOST_BARS = 24
_NEAR = 1e-12
"""Values that differ by no greater part of them are drawn as one: others lie on either side of it."""


class Series(NamedTuple):
    """A line of a chart."""

    kind: str
    """The class that it is drawn in."""
    points: Sequence[tuple[float, float]]


def number(value: float) -> str:
    """A number with three digits, as short as it can be."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"


def lines(series: Sequence[Series], across: str, up: str) -> str:
    """Return a chart of lines. `across`, `up`: what the axes mean; the title of its card names `up`."""
    points = [point for one in series for point in one.points]
    height, bottom = 240, 240 - _BOTTOM
    x, x_ticks = _scale([point[0] for point in points], _LEFT, _WIDTH - _RIGHT)
    y, y_ticks = _scale([point[1] for point in points], bottom, _TOP)
    body = [_line(_LEFT, y(tick), _WIDTH - _RIGHT, y(tick), "grid") + _text(_LEFT - 6, y(tick) + 4, number(tick), "end")
            for tick in y_ticks]  # fmt: skip
    body += [_text(x(tick), bottom + 16, number(tick), "middle") for tick in x_ticks]
    body.append(_text((_LEFT + _WIDTH) / 2, height - 4, across, "middle dim"))
    for one in series:
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in one.points)
        body.append(f'<polyline class="line {one.kind}" points="{path}"/>')
        body += [f'<circle class="{one.kind}" cx="{x(at):.1f}" cy="{y(value):.1f}" r="2.5"><title>'
                 f"{escape(up)} {value:.6g} at {at:.6g}</title></circle>"
                 for at, value in one.points if len(one.points) <= 200]  # fmt: skip
    return _svg(body, height, f"{up} over {across}")


def heat(rows: Sequence[Sequence[float]], labels: Sequence[str], tip: Callable[[int, int], str]) -> str:
    """A matrix of cells, the darker the more; numbers where there are few. `tip`: what a cell says of itself."""
    count, most = len(labels), max((value for row in rows for value in row), default=0.0) or 1.0
    side = min(52.0, (_WIDTH - _LEFT - _RIGHT) / count)
    body = [_text(_LEFT, 12, "to rank", "dim"), _text(4, 12, "from", "dim")]
    every = max(1, math.ceil(18 / side))
    for place, label in enumerate(labels):
        if place % every == 0:
            body.append(_text(_LEFT + (place + 0.5) * side, 28, label, "middle"))
            body.append(_text(_LEFT - 6, 34 + (place + 0.5) * side + 4, label, "end"))
    for row, values in enumerate(rows):
        for column, value in enumerate(values):
            share = value / most
            at = (_LEFT + column * side, 34 + row * side)
            style = f' style="fill-opacity:{0.12 + 0.88 * share:.2f}"' if value else ""
            body.append(_rect(*at, side - 1, side - 1, "heat" if value else "none", tip(row, column), style))
            if side >= 40 and value:
                body.append(_text(at[0] + side / 2, at[1] + side / 2 + 4, number(value), "middle strong" if share > 0.5
                                  else "middle"))  # fmt: skip
    return _svg(body, 40 + count * side, "bytes by edge")


def bars(rows: Sequence[tuple[str, Sequence[tuple[str, float, str]]]], unit: str) -> str:
    """A bar for each row, of parts (class, value, tip) one after the other. `unit`: of the axis below."""
    most = max((sum(value for _, value, _ in parts) for _, parts in rows), default=0.0) or 1.0
    bottom = _TOP + _ROW * len(rows)
    x, ticks = _scale([0.0, most], _LEFT, _WIDTH - _RIGHT)
    body = [_line(x(tick), _TOP, x(tick), bottom, "grid") + _text(x(tick), bottom + 14, number(tick), "middle")
            for tick in ticks]  # fmt: skip
    for place, (label, parts) in enumerate(rows):
        top, at = _TOP + place * _ROW, 0.0
        body.append(_text(_LEFT - 6, top + _ROW / 2 + 4, label, "end"))
        for kind, value, tip in parts:
            body.append(_rect(x(at), top + 3, x(at + value) - x(at), _ROW - 6, kind, tip))
            at += value
    body.append(_text((_LEFT + _WIDTH) / 2, bottom + 30, unit, "middle dim"))
    return _svg(body, bottom + 36, unit)


def timeline(
    labels: Sequence[str], kinds: Sequence[str], shares: Sequence[Sequence[Sequence[float]]],
    ends: tuple[float, float], width: float = _WIDTH,
) -> str:  # fmt: skip
    """A row for each rank, of columns that show how a moment was spent. `shares`: by rank, kind and column."""
    bottom, body = _TOP + _ROW * len(labels), []
    columns = len(shares[0][0])
    step = (width - _LEFT - _RIGHT) / columns
    for row, label in enumerate(labels):
        body.append(_text(_LEFT - 6, _TOP + row * _ROW + _ROW / 2 + 4, label, "end"))
        paths: dict[str, list[str]] = {kind: [] for kind in kinds}
        for column in range(columns):
            top = _TOP + row * _ROW + 2.0
            for kind, values in zip(kinds, shares[row], strict=True):
                tall = values[column] * (_ROW - 4)
                if tall >= 0.1:  # a little wider and taller than it should be: else there are seams
                    left, wide = _LEFT + column * step, step + 0.5
                    paths[kind].append(f"M{left:.1f} {top:.1f}h{wide:.1f}v{tall + 0.2:.1f}h-{wide:.1f}z")
                top += tall
        body += [f'<path class="{kind}" d="{"".join(path)}"/>' for kind, path in paths.items() if path]
    x, ticks = _scale(list(ends), _LEFT, width - _RIGHT, exact=True)
    body += [_text(x(tick), bottom + 14, number(tick), "middle") for tick in ticks]
    body.append(_text((_LEFT + width) / 2, bottom + 30, "seconds since the start", "middle dim"))
    return _svg(body, bottom + 36, "what ranks do over time", width)


def binned(counts: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """Labels and counts, of each integer or of ranges of them: far numbers share a bar."""
    least, most = min(value for value, _ in counts), max(value for value, _ in counts)
    width = -(-(most - least + 1) // _MOST_BARS)
    found = [0] * ((most - least) // width + 1)
    for value, count in counts:
        found[(value - least) // width] += count
    firsts = [least + place * width for place in range(len(found))]
    return [(str(first) if width == 1 else f"{first}+", count) for first, count in zip(firsts, found, strict=True)]


# -- private ------------------------------------------------------------------------------------------------------


def _scale(
    values: Sequence[float], low: float, high: float, exact: bool = False
) -> tuple[Callable[[float], float], list[float]]:  # fmt: skip
    """Return the scale of values between the places `low` and `high`, and round values for ticks.

    `exact`: no room is added.
    """
    least, most = min(values), max(values)
    if most - least <= max(_NEAR * abs(least), sys.float_info.min):
        room = max(0.5, 0.5 * abs(least))
        least, most = least - room, most + room
    step = 10 ** math.floor(math.log10((most - least) / _TICKS))
    step *= next(times for times in (1, 2, 5, 10) if (most - least) / (step * times) <= _TICKS)
    if not exact:
        least, most = math.floor(least / step + 1e-9) * step, math.ceil(most / step - 1e-9) * step
    ticks = [n * step for n in range(math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9) + 1)]
    return lambda value: low + (value - least) / (most - least) * (high - low), ticks


def _svg(body: Sequence[str], height: float, label: str, width: float = _WIDTH) -> str:
    return (
        f'<div class="chart" style="--natural:{width:.0f}px">'
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">'
        f'{"".join(body)}</svg></div>'
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _rect(x: float, y: float, width: float, height: float, kind: str, tip: str, style: str = "") -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{max(0.0, height):.1f}"'
        f"{style}><title>{escape(tip)}</title></rect>"
    )

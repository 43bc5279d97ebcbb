"""Draws docs/pictures/scatter.svg, gather.svg and modes.svg: what a scatter, a gather and a mode of `sync` do.

python -m bench.pages.primitives
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
_STYLE = """
  text { font: 13px sans-serif; fill: #24292f } .quiet { fill: #8c959f } .box { fill: none; stroke: #8c959f }
  .own { fill: #7c4dff } .come { fill: #00a884 } .wait { fill: #d0d7de } .way { stroke: #00a884; fill: none }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .wait { fill: #484f58 } }
"""
_HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" class="come"/></marker>'
)


def scatter() -> str:
    """Four ranks along a ring: each writes its array into the queue that its neighbour keeps for it."""
    marks = []
    for rank in range(4):
        left = 20 + 185 * rank
        marks += [_box(left, 20, 145, 120), _text(left + 72, 14, f"rank {rank}")]
        marks += [_bar("own", left + 12, 36, 121, 22), _text(left + 72, 76, "v.array")]
        marks += [_bar("come", left + 12, 94, 121, 22), _text(left + 72, 133, f"from rank {(rank - 1) % 4}")]
        if rank < 3:
            marks.append(_way(f"M{left + 133},47 C{left + 175},47 {left + 155},105 {left + 197},105"))
    marks.append(_way("M708,47 C 757,47 757,165 700,165 L 60,165 C 8,165 2,105 32,105"))
    marks.append(
        _text(380, 184, "v.scatter() along a ring: into the memory of the next, which does nothing for it", "quiet")
    )
    return _picture(766, 194, marks)


def gather() -> str:
    """One rank merges what has come from two others."""
    marks = [_box(190, 20, 170, 150), _text(275, 14, "rank 0")]
    for number, sender in enumerate((1, 3)):
        top = 36 + 62 * number
        marks += [_text(70, top + 16, f"rank {sender}"), _way(f"M100,{top + 11} L198,{top + 11}")]
        marks += [_bar("come", 200, top, 150, 22), _text(275, top + 38, f"from rank {sender}, step 7")]
        marks.append(_way(f"M350,{top + 11} C400,{top + 11} 390,79 438,79"))
    marks += [_bar("own", 200, 146, 150, 14), _way("M350,153 C420,153 400,79 438,79")]
    marks += [_box(440, 62, 100, 34), _text(490, 84, "malt.AVG"), _way("M540,79 L598,79")]
    marks += [_bar("own", 600, 68, 121, 22), _text(660, 108, "v.array")]
    marks.append(_text(380, 194, "v.gather(malt.AVG): a message is checked before and after it is read", "quiet"))
    return _picture(766, 204, marks)


def modes() -> str:
    """The time of three ranks, of which one is slow, under bsp and asp."""
    marks = []
    for top, sync, step in ((24, "bsp", 150), (134, "asp", 0)):
        marks.append(_text(34, top + 42, f'"{sync}"'))
        for row, length in enumerate((90, 90, 150)):
            y, x = top + 28 * row, 140
            marks.append(_text(100, y + 15, f"rank {row}"))
            while x + length <= 742:
                marks.append(_bar("own", x, y, length - 4, 20))
                if step > length:
                    marks.append(_bar("wait", x + length - 3, y, step - length - 1, 20))
                x += step or length
    marks += [_bar("own", 140, 226, 14, 12), _text(180, 237, "trains"), _bar("wait", 220, 226, 14, 12)]
    marks += [_text(256, 237, "waits"), _text(520, 237, "rank 2 is slow; a gap is an exchange", "quiet")]
    return _picture(766, 248, marks)


PICTURES = {"scatter": scatter, "gather": gather, "modes": modes}


def _picture(width: int, height: int, marks: Iterable[str]) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>\n<defs>{_HEAD}</defs>\n'
        + "\n".join(marks) + "\n</svg>\n"
    )  # fmt: skip


def _bar(kind: str, x: int, y: int, width: int, height: int) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"/>'


def _box(x: int, y: int, width: int, height: int) -> str:
    return f'<rect class="box" rx="6" x="{x}" y="{y}" width="{width}" height="{height}"/>'


def _way(path: str) -> str:
    return f'<path class="way" marker-end="url(#head)" d="{path}"/>'


def _text(x: int, y: int, text: str, kind: str = "name") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="middle">{escape(text)}</text>'


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")

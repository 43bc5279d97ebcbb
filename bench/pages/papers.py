"""Writes docs/papers.md. Its figures are cells of tables of the other pages, so it says what they say.

    python -m bench.pages.papers [--write]

The text is bench/pages/papers.md. There `{ps2[0][malt: where they lie, 4 ranks][ms, 10^7]}` is a cell of the first
table of docs/ps2.md: that of the row and of the column whose names are these, or begin so. `{...:.0f}` rounds it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

from bench.bars import DOCS, number, tables

TEMPLATE = Path(__file__).with_suffix(".md")
PAGE = DOCS / "papers.md"
T = TypeVar("T")


class Cell(str):
    """What a table says. A format is for numbers alone: ValueError."""

    def __format__(self, form: str) -> str:
        if not form:
            return str(self)
        if (value := number(self)) is None:
            raise ValueError(f"{str(self)!r} is no number")
        return format(value, form)


class Named(Generic[T]):
    """Rows of a table, or cells of a row, by their names or what these begin with."""

    def __init__(self, items: Iterable[tuple[str, T]]) -> None:
        self._items = list(items)

    def __getitem__(self, name: str | int) -> T:
        """The item of this name, else the first whose name begins so. KeyError: there is none."""
        wanted = str(name)  # str.format makes an int of digits
        for is_meant in (wanted.__eq__, lambda one: one.startswith(wanted)):
            for one, item in self._items:
                if is_meant(one):
                    return item
        raise KeyError(f"{wanted!r} is none of: {'; '.join(one for one, _ in self._items)}")


def page() -> str:
    """The text of docs/papers.md, from the other pages as they stand. KeyError, IndexError: a cell is not there."""
    cells = {file.stem: _tables(file) for file in DOCS.glob("*.md") if file != PAGE}
    return TEMPLATE.read_text(encoding="utf-8").format(**cells)


def _tables(file: Path) -> list[Named[Named[Cell]]]:
    return [
        Named((row[0], Named(zip(headings, map(Cell, row), strict=True))) for row in rows)
        for headings, *rows in tables(file.read_text(encoding="utf-8"))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages.papers", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/papers.md")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()

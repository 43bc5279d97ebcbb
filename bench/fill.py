"""Fills the marked tables and figures of docs/*.md from the JSON of the measurements, and draws their pictures.

    python -m bench.fill [PAGE ...]

A mark is a comment of Markdown. All marks of a page end with <!-- end -->, but `holds`:

    <!-- table: NAME -->      what follows is this table; `listing`: this program
    <!-- figure: X:.1f -->    what follows is the value of X, formatted as by an f-string
    <!-- holds: X -->         what the sentence before says is true only where X is: otherwise the page is not filled

X is an expression of Python over figures, which the JSON has or a module of VIEWS finds in it, and over cells of
tables: adam["through rank 0, 2 ranks"]["ms, 10^7"] is one of this page, ps2["adam"][...][...] one of docs/ps2.md. Rows
and columns are found by their names or by what these begin with.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from bench import bars
from bench.harness.document import Tables, as_markdown

DOCS = Path(__file__).parents[1] / "docs"
VIEWS = {name: f"bench.papers.{name}.__main__" for name in ("malt", "mllib", "modes")}
VIEWS |= {name: f"bench.papers.{name}" for name in ("angel", "ps2", "qjam")}
VIEWS |= {"benchmarks": "bench.benchmarks.page", "examples": "bench.pages.lines", "hosts": "bench.hosts.page"}
"""By page, the module that makes tables and figures of its JSON. A page without one has both in its JSON."""
_LAST = "papers"
"""The page whose figures are cells of the others."""
_TABLE = re.compile(r"(<!-- (?:table|listing): (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"(<!-- figure: (.+?)(?::([^\]\"'\s]*))? -->).*?(<!-- end -->)")
_HOLDS = re.compile(r"<!-- holds: (.+?) -->", re.DOTALL)
_ILL_PLACED = re.compile(r"^(?: {0,3}| {4}.*)<!-- figure: .*", re.MULTILINE)
"""A figure that is first in its line, which would end the paragraph, or in code, where its mark would be seen."""
_BUILT_IN = {"__builtins__": {}, **{one.__name__: one for one in (abs, all, any, len, max, min, sum)}}
T = TypeVar("T")


class Unfilled(Exception):
    """A page that cannot be filled: a sentence of it is not true, or a name is not there."""


class Number(float):
    """A cell of a table that is a number. It is shown as the table has it, unless a format is given."""

    def __new__(cls, text: str) -> Number:
        made = super().__new__(cls, text.replace(",", ""))
        made.text = text
        return made

    text: str

    def __str__(self) -> str:
        return self.text


class Named(Generic[T]):
    """Rows of a table, or cells of a row, by their names or what these begin with."""

    def __init__(self, items: Iterable[tuple[str, T]]) -> None:
        self._items = list(items)

    def __getitem__(self, name: str) -> T:
        """The item of this name, else the first whose name begins so. KeyError: there is none."""
        for is_meant in (name.__eq__, lambda one: one.startswith(name)):
            for one, item in self._items:
                if is_meant(one):
                    return item
        raise KeyError(f"{name!r} is none of: {'; '.join(one for one, _ in self._items)}")

    def __iter__(self) -> Iterator[T]:
        return (item for _, item in self._items)


def cells(text: str) -> dict[str, Named[Named[Any]]]:
    """The tables of a page as it stands, by their names. Pure."""
    return {
        name: Named((row[0], Named(zip(heading, map(_cell, row), strict=True))) for row in rows)
        for name, (heading, *rows) in bars.marked(text).items()
    }


def _cell(text: str) -> Any:
    return text if bars.number(text) is None else Number(text)


def stored(page: str, docs: Path = DOCS) -> tuple[Tables, dict[str, Any]]:
    """The tables and the figures of the JSON of a page. A page without JSON has none. Local."""
    file = docs / f"{page}.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if page in VIEWS:
        view = import_module(VIEWS[page])
        return view.tables(found), view.figures(found)
    return found.get("tables", {}), found.get("figures", {})


def filled(text: str, tables: Tables, figures: Mapping[str, Any]) -> str:
    """The text of a page with its tables and figures. Pure. Unfilled: what is missing, and what does not hold."""
    wrong = [f"a figure is first in its line, or in code: {one}" for one in _ILL_PLACED.findall(text)]

    def value(expression: str) -> Any:
        try:
            return eval(expression, {**_BUILT_IN, **figures})
        except Exception as error:
            wrong.append(f"{expression}: {type(error).__name__}: {error}")

    def table(mark: re.Match[str]) -> str:
        if mark[2] not in tables:
            wrong.append(f"there is no table {mark[2]}, only {', '.join(tables)}")
            return mark[0]
        return f"{mark[1]}{as_markdown(tables[mark[2]])}\n{mark[3]}"

    def figure(mark: re.Match[str]) -> str:
        found = value(mark[2])
        return mark[0] if found is None else f"{mark[1]}{format(found, mark[3] or '')}{mark[4]}"

    made = _FIGURE.sub(figure, _TABLE.sub(table, text))
    for mark in _HOLDS.finditer(text):
        if not value(mark[1]):
            wrong.append(f"line {text.count(chr(10), 0, mark.start()) + 1}: it does not hold that {mark[1]}")
    wrong += [f"the page has no mark of the table {name}" for name in tables if f": {name} -->" not in text]
    if wrong:
        raise Unfilled("\n".join(wrong))
    return made


def pages(docs: Path = DOCS) -> list[str]:
    """The names of all pages that have marks, in the order in which they are filled. Local."""
    found = [file.stem for file in sorted(docs.glob("*.md")) if "<!-- end -->" in file.read_text(encoding="utf-8")]
    return sorted(found, key=lambda name: name == _LAST)


def page(name: str, docs: Path = DOCS) -> str:
    """The text of a page as it should be, by its JSON and by the other pages as they stand. Local. Unfilled."""
    tables, figures = stored(name, docs)
    around = {file.stem: cells(file.read_text(encoding="utf-8")) for file in docs.glob("*.md")}
    shown = {one: text for one, text in tables.items() if not isinstance(text, str)}
    own = cells("\n".join(f"<!-- table: {one} -->\n{as_markdown(rows)}\n<!-- end -->" for one, rows in shown.items()))
    text = (docs / f"{name}.md").read_text(encoding="utf-8")
    try:
        return filled(text, tables, {**around, **own, **figures})
    except Unfilled as error:
        raise Unfilled(f"docs/{name}.md: {error}") from None


def drawings(docs: Path = DOCS) -> dict[str, str]:
    """The pictures of all pages as they stand, by name. Local."""
    found = json.loads((docs / "benchmarks.json").read_text(encoding="utf-8"))
    peers = import_module(VIEWS["benchmarks"]).peers(found)
    return {**{name: chart.draw(docs) for name, chart in bars.CHARTS.items()}, "peers": peers}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fill", description=str(__doc__).splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="ps2, say. Without: all pages")
    wrong = []
    for name in parser.parse_args().pages or pages():
        try:
            (DOCS / f"{name}.md").write_text(page(name), encoding="utf-8")
        except Unfilled as error:
            wrong.append(str(error))
    for name, drawn in drawings().items():
        (DOCS / "pictures" / f"{name}.svg").write_text(drawn, encoding="utf-8")
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()

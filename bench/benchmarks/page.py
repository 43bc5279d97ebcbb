"""The tables, figures and picture of docs/benchmarks.md, from the JSON beside it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bench import bars
from bench.benchmarks import rows
from bench.benchmarks.rows import NUMBA, Row, times
from bench.harness.document import Measured, Table, Tables, as_markdown


class Headline(NamedTuple):
    """A row that is shown, by the beginning of its name and its peer, and the words for both."""

    name: str
    against: str
    what: str
    peer: str


_SVM, _LOGISTIC = "SVM on 300,000 rows to objective ", "logistic regression on rcv1-ccat to "
HEADLINES = (
    Headline(_SVM, "LIBLINEAR, dual, hinge, 2 threads", "linear SVM, 300,000 rows", "LIBLINEAR, 2 threads"),
    Headline(_SVM, "scikit-learn SGDClassifier, 1 core", "linear SVM, 300,000 rows", "scikit-learn SGD"),
    Headline(
        f"{_LOGISTIC}0.2995, sgd, ",
        "scikit-learn, liblinear",
        "logistic regression, to 0.1 %",
        "scikit-learn liblinear",
    ),
    Headline(
        f"{_LOGISTIC}0.3022, sgd, ", "scikit-learn SGDClassifier", "logistic regression, to 1 %", "scikit-learn SGD"
    ),
    Headline(
        "MF on jester, 16 factors: time to test RMSE ",
        "LIBMF, 2 threads",
        "recommendations, jester",
        "LIBMF, 2 threads",
    ),
    *(
        Headline(f"exchange of {size} floats, bsp", "MPI Allreduce", f"exchange, {size} floats", "MPI Allreduce")
        for size in ("1,000", "100,000", "10,000,000")
    ),
)
_NAMES = tuple(one.name for one in HEADLINES)
COMPILED = ("training", "logistic", "libmf", "straggler", "exchanges", "load")
"""The parts whose programs were run with numba."""
_LEFT = 400


class Ratios(NamedTuple):
    """A headline's ratios: plainly and with numba."""

    headline: Headline
    plain: float | None
    compiled: float | None


def headlines(some: Sequence[Row]) -> list[Ratios]:
    """The ratios of all headlines that have a row: of several the last, which has most ranks.

    A row has numba as its name says; or the program of all rows has it, if none of them says so.
    """
    made = []
    for one in HEADLINES:
        ours = [row for row in some if row.name.startswith(one.name) and row.against == one.against]
        compiled = [row for row in ours if row.name.endswith(NUMBA)] or ours
        plain = [row.ratio for row in ours if row not in compiled]
        if ours:
            made.append(Ratios(one, plain[-1] if plain else None, compiled[-1].ratio))
    return made


def tables(found: Measured) -> Tables:
    """The headlines, and the machine, the day and the rows of each part. Rows that are headlines come first."""
    made: dict[str, Table | str] = {"headlines": table(headlines(rows.every(found)))}
    for name, part in found.items():
        first = sorted((Row(**row) for row in part["rows"]), key=lambda row: not row.name.startswith(_NAMES))
        shown = as_markdown(rows.table(first, "MALT with numba" if name in COMPILED else "MALT"))
        made[name] = f"{part['machine']}; {part['measured']}\n\n{shown}"
    return made


def table(found: Sequence[Ratios]) -> Table:
    """The headlines."""
    heads = ["task, 2 ranks", "compared with", "MALT without numba", "MALT with numba"]
    return [heads, *([one.headline.what, one.headline.peer, times(one.plain), times(one.compiled)] for one in found)]


def figures(found: Measured) -> dict[str, Any]:
    """`ratio(what, against)` and `ours`: of the last row whose names begin so."""
    some = rows.every(found)

    def row(what: str, against: str, is_compiled: bool = True) -> Row:
        known = [one for one in some if is_compiled or not one.name.endswith(NUMBA)]
        return [one for one in known if one.name.startswith(what) and one.against.startswith(against)][-1]

    return {"ratio": lambda *names: row(*names).ratio, "ours": lambda *names: row(*names).ours}


def peers(found: Measured) -> str:
    """The picture of the headlines."""
    return picture(headlines(rows.every(found)))


def picture(found: Sequence[Ratios]) -> str:
    """An SVG of a bar for each ratio."""
    made = []
    for one in found:
        for ratio, how in ((one.plain, ", plain"), (one.compiled, "")):
            if ratio is not None:
                name = f"{one.headline.what}: {one.headline.peer}{how}"
                made.append(bars.Bar(name, f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"))
    title = "Speed of MALT on 2 ranks, as a multiple of the other library's; with numba unless plain"
    return bars.picture(made, "x", alone=True, title=title, left=_LEFT)

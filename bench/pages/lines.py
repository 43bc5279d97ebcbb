"""Counts the lines that make the programs of examples/ parallel, and writes docs/examples.md.

    python -m bench.pages.lines [--write]

Blank lines, docstrings and comments do not count.
"""

from __future__ import annotations

import argparse
import ast
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Example(NamedTuple):
    """A serial and a parallel program, and the results that they print."""

    title: str
    means: str
    """The means by which ranks exchange, for the page."""
    measure: str
    serial: float
    parallel: float
    """The result on two ranks."""


EXAMPLES = {
    "logistic": Example("Logistic regression", "`malt.Replica` around an array", "loss", 0.1485, 0.1454),
    "svm": Example("A linear SVM", "a vector of gradients, as in the MALT paper", "objective", 0.3554, 0.3553),
    "talk": Example(
        "The loop of the talk", "a sparse vector of gradients: the features of a row", "accuracy", 0.952, 0.9345
    ),
    "mf": Example("Matrix factorization", "a sparse vector, which sends the rows that changed", "RMSE", 0.3247, 0.3250),
    "mlp": Example("A neural network", "`malt.Replica` around a dict of layers", "accuracy", 0.996, 0.997),
    "cnn": Example("A network of PyTorch", "`malt.torch.Optimizer` around one of torch", "accuracy", 0.999, 0.995),
}  # fmt: skip
SHARDED = {
    "logistic_adam": "Logistic regression by Adam on sharded vectors",
    "logistic_lbfgs": "Logistic regression by L-BFGS, on arrays and on sharded vectors",
    "multiply_sum": "Multiply and sum, by map/reduce over numbers that rank 0 has",
}
"""Programs without a serial twin, and their titles."""
_TITLES = "| | lines, serial | parallel | added | changed | result, serial | on two ranks |"
PAGE = """# Examples

Each program of examples/ but the last three is there twice: serial, as it would be without MALT, and parallel. Run them
in the root of the checkout:

    python examples/svm_serial.py
    malt run -n 4 examples/svm_parallel.py

The matrix factorization needs numba, the network of PyTorch the extra torch. With `sync="bsp"` every run has the same
result, bit by bit. Without it no rank waits for another.

{table}

Only lines of code count: no blank lines, docstrings or comments. The table and the listings are made by

    python -m bench.pages.lines --write

The tests run all programs, the parallel ones on two ranks; the logistic regression on fewer rows.
"""
SECTION = """
## {title}

`malt run -n 2 examples/{name}_parallel.py` exchanges through {means}.

```diff
{listing}
```
"""


WHOLE = """
## {title}

`malt run -n 2 examples/{name}.py`

```python
{text}```
"""


class Change(NamedTuple):
    """The lines of code of a serial and a parallel program, and their difference."""

    serial: int
    parallel: int
    added: int
    changed: int


def source(name: str, kind: str) -> str:
    """The text of a program of examples/. `kind` is "serial" or "parallel"."""
    return (ROOT / "examples" / f"{name}_{kind}.py").read_text(encoding="utf-8")


def code(text: str) -> list[str]:
    """The lines of code of a program, without blank lines, docstrings and comments. Pure."""
    prose = set(_docstrings(text))
    lines = [line.split("  #")[0].rstrip() for number, line in enumerate(text.splitlines(), 1) if number not in prose]
    return [line for line in lines if line and not line.lstrip().startswith("#")]


def _docstrings(text: str) -> Iterator[int]:
    """Yield the line numbers of all docstrings."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def change(serial: str, parallel: str) -> Change:
    """The number of lines of code that `parallel` adds to `serial`, and of those that it changes. Pure."""
    before, after = code(serial), code(parallel)
    added = changed = 0
    for kind, first, last, start, stop in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            replaced = min(last - first, stop - start)
            changed, added = changed + replaced, added + stop - start - replaced
    return Change(len(before), len(after), added, changed)


def listing(serial: str, parallel: str) -> str:
    """Both programs in one text. Lines only in `serial` begin with "-", lines only in `parallel` with "+". Pure."""
    before, after = serial.splitlines(), parallel.splitlines()
    whole = len(before) + len(after)
    _, _, _, *lines = difflib.unified_diff(before, after, n=whole, lineterm="")  # the first three are a header
    return "\n".join(line.rstrip() for line in lines)


def table() -> str:
    """A table in Markdown, with a line per example."""
    lines = [_TITLES, "|---|---|---|---|---|---|---|"]
    for name, one in EXAMPLES.items():
        counts = " | ".join(map(str, change(source(name, "serial"), source(name, "parallel"))))
        lines.append(f"| {one.title} | {counts} | {one.measure} {one.serial:.4f} | {one.parallel:.4f} |")
    return "\n".join(lines)


def page() -> str:
    """The text of docs/examples.md."""
    sections = [
        SECTION.format(
            title=one.title, name=name, means=one.means,
            listing=listing(source(name, "serial"), source(name, "parallel")),
        )
        for name, one in EXAMPLES.items()
    ]  # fmt: skip
    for name, title in SHARDED.items():
        text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
        sections.append(WHOLE.format(title=title, name=name, text=text))
    return PAGE.format(table=table()) + "".join(sections)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages.lines", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/examples.md")
    options = parser.parse_args()
    print(table())
    if options.write:
        (ROOT / "docs" / "examples.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The lines that make the programs of examples/ parallel: tables and listings of docs/examples.md.

Blank lines, docstrings and comments do not count.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.harness.document import Measured, Table, Tables

ROOT = Path(__file__).parents[2]


class Example(NamedTuple):
    """A serial and a parallel program, and the results that they print."""

    title: str
    measure: str
    serial: float
    parallel: float
    """The result on two ranks."""


EXAMPLES = {
    "logistic": Example("Logistic regression", "loss", 0.1485, 0.1454),
    "svm": Example("A linear SVM", "objective", 0.3554, 0.3553),
    "talk": Example("The loop of the talk", "accuracy", 0.952, 0.9345),
    "mf": Example("Matrix factorization", "RMSE", 0.3247, 0.3250),
    "mlp": Example("A neural network", "accuracy", 0.996, 0.997),
    "cnn": Example("A PyTorch network", "accuracy", 0.999, 0.995),
    "trainer": Example("A Trainer of transformers", "loss", 1.2465, 1.2538),
    "lightning": Example("A Trainer of Lightning", "loss", 0.8386, 0.8342),
    "jax": Example("A network in JAX", "loss", 0.6653, 0.6664),
}  # fmt: skip
SHARDED = "logistic_adam", "logistic_lbfgs", "multiply_sum", "mlflow_reports"
"""Programs without a serial twin."""


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


def tables(_: Measured) -> Tables:
    """The table and the listings of the page, by the name of the program. Local."""
    heads = ["", "lines, serial", "parallel", "added", "changed", "result, serial", "on two ranks"]
    made: dict[str, Table | str] = {"lines": [heads, *map(_row, EXAMPLES)]}
    for name in EXAMPLES:
        made[name] = f"```diff\n{listing(source(name, 'serial'), source(name, 'parallel'))}\n```"
    for name in SHARDED:
        made[name] = f"```python\n{(ROOT / 'examples' / f'{name}.py').read_text(encoding='utf-8')}```"
    return made


def figures(_: Measured) -> dict[str, object]:
    """The sentences of the page have none."""
    return {}


def _row(name: str) -> list[str]:
    one, counts = EXAMPLES[name], change(source(name, "serial"), source(name, "parallel"))
    return [one.title, *map(str, counts), f"{one.measure} {one.serial:.4f}", f"{one.parallel:.4f}"]

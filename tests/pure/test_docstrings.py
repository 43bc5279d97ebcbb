"""Docstrings say what is returned or done: none refers to another one, or begins as a question."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.serial

ROOT = Path(__file__).parents[2]
REFERENCE = re.compile(r"As `")
QUESTION = re.compile(r"(Whether|What|How|Who|Whom|Whose|Which|When|Where|Why)\b")


def kinds(source: str) -> Counter[str]:
    """How many docstrings of modules, classes and functions are references, or begin as questions."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node) or ""
            found["references"] += bool(REFERENCE.match(text))
            found["questions"] += bool(QUESTION.match(text))
    return found


def test_no_docstring_refers_or_asks():
    files = [file for layer in ("dstorm", "vol", "malt", "apps") for file in sorted((ROOT / layer).rglob("*.py"))]
    assert len(files) > 400
    assert {str(file.relative_to(ROOT)): found for file in files if (found := +kinds(file.read_text()))} == {}


@pytest.mark.parametrize(("text", "kind"), [
    ("As `Window.put`. One-sided.", "references"), ("Whether it has closed.", "questions"),
    ("How many rows there are.", "questions"), ("Return whether it has closed.", None), ("Whatever comes.", None),
])  # fmt: skip
def test_they_are_seen(text, kind):
    found = kinds(f'def function():\n    """{text}"""\n')
    assert +found == Counter([kind] if kind else [])

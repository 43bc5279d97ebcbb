"""Docstrings say what is returned or done: those that refer to another one, or begin as a question, become fewer."""

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
CLEAN = ("dstorm/", "vol/")
NOT_YET = ("dstorm/membership/", "vol/returns/")
MOST = {"references": 16, "questions": 21}
"""Outside of the clean folders, in dstorm, vol, malt and apps. They may only fall: put lower numbers here."""


def kinds(source: str) -> Counter[str]:
    """How many docstrings of modules, classes and functions are references, or begin as questions."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node) or ""
            found["references"] += bool(REFERENCE.match(text))
            found["questions"] += bool(QUESTION.match(text))
    return found


def counted() -> tuple[list[str], Counter[str]]:
    """The modules of clean folders that have some; how many the others have."""
    unclean, total = [], Counter[str]()
    for file in (file for layer in ("dstorm", "vol", "malt", "apps") for file in sorted((ROOT / layer).rglob("*.py"))):
        name, found = str(file.relative_to(ROOT)), kinds(file.read_text())
        if not name.startswith(CLEAN) or name.startswith(NOT_YET):
            total += found
        elif found.total():
            unclean.append(name)
    return unclean, total


def test_docstrings_that_refer_or_ask_become_fewer():
    unclean, total = counted()
    assert unclean == []
    assert {kind: total[kind] for kind in MOST if total[kind] > MOST[kind]} == {}, total


@pytest.mark.parametrize(("text", "kind"), [
    ("As `Window.put`. One-sided.", "references"), ("Whether it has closed.", "questions"),
    ("How many rows there are.", "questions"), ("Return whether it has closed.", None), ("Whatever comes.", None),
])  # fmt: skip
def test_they_are_seen(text, kind):
    found = kinds(f'def function():\n    """{text}"""\n')
    assert {one for one in MOST if found[one]} == ({kind} if kind else set())

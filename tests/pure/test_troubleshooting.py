"""Each message of docs/troubleshooting.md is one that the code can print."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADINGS = re.findall(r"^### `(.*)`$", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)


def strings(node: ast.AST) -> Iterator[str]:
    """The strings of a module; in those that are formatted, a gap stands for each value."""
    for part in ast.walk(node):
        if isinstance(part, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "\0" for one in part.values)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


@cache
def printed() -> str:
    files = [file for layer in ("dstorm", "vol", "malt") for file in (ROOT / layer).rglob("*.py")]
    return "\1".join(text for file in files for text in strings(ast.parse(file.read_text())))


def test_there_are_messages():
    assert len(HEADINGS) > 20


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_message_is_in_the_code(heading):
    pieces = [piece for piece in re.split(r"\.\.\.|\d+", heading) if len(piece) > 4]
    assert pieces and [piece for piece in pieces if piece.strip() not in printed()] == []

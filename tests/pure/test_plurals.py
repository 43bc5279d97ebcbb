"""Messages name one rank as 1 rank: a number that may be 1 goes through `count`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from malt.watch import jobs

ROOT = Path(__file__).parents[2]
NOUN = re.compile(r"\0 (cores|names|ranks|slots)\b")
SEVERAL = {
    "{trace.size} ranks take turns", "{facts.ranks} ranks take turns", "{ranks} ranks take turns",
    "{facts['slots']} ranks on each host", "too few for {ranks} ranks", ", the first of {len(traces)} ranks,",
    "{self.size} ranks: make room", "each of the {size} ranks must send",
    '"1 rank" if len(beside) == 1 else f"{len(beside)} ranks"',
}  # fmt: skip
"""Where the number is not 1."""


def text(node: ast.JoinedStr) -> str:
    """The constant parts, with a gap for each value."""
    return "".join(str(one.value) if isinstance(one, ast.Constant) else "\0" for one in node.values)


def test_the_title_of_a_job_of_one_rank():
    assert jobs.title(7, 3.2, 1, "x.py") == "job 7, 3 s: 1 rank of x.py"


def test_numbers_that_may_be_one_are_in_the_singular():
    files = {file for layer in ("dstorm", "vol", "malt", "apps") for file in (ROOT / layer).rglob("*.py")}
    found = []
    for file in sorted(files):
        source = file.read_text()
        formatted = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)]
        for node in formatted:
            around = "\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno])
            if NOUN.search(text(node)) and not any(known in around for known in SEVERAL):
                found.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert found == []

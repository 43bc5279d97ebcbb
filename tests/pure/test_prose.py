"""What the code says: docstrings that state, one rank as 1 rank, and the messages of docs/troubleshooting.md."""

import ast
import re

import pytest
from sources import MODULES, ROOT, nodes, parsed, strings, text, where

from malt.watch import jobs

REFERENCE_OR_QUESTION = re.compile(r"As `|(Whether|What|How|Who|Whom|Whose|Which|When|Where|Why)\b")
"""How no docstring begins: it states what is returned or done."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def unstated(some_nodes):
    """The docstrings of modules, classes and functions that are references, or begin as questions."""
    texts = [ast.get_docstring(node) or "" for node in some_nodes if isinstance(node, DOCUMENTED)]
    return [one for one in texts if REFERENCE_OR_QUESTION.match(one)]


def test_no_docstring_refers_or_asks():
    assert len(MODULES) > 400
    assert where(lambda file: unstated(nodes(file))) == {}


@pytest.mark.parametrize(("docstring", "is_seen"), [
    ("As `Window.put`. One-sided.", True), ("Whether it has closed.", True), ("How many rows there are.", True),
    ("Return whether it has closed.", False), ("Whatever comes.", False),
])  # fmt: skip
def test_such_a_docstring_is_seen(docstring, is_seen):
    assert bool(unstated(parsed(f'def function():\n    """{docstring}"""\n'))) == is_seen


NOUN = re.compile(r"\0 (cores|names|ranks|slots)\b")
SEVERAL = {
    "{trace.size} ranks take turns", "{facts.ranks} ranks take turns", "{ranks} ranks take turns",
    "{facts['slots']} ranks on each host", "too few for {ranks} ranks", ", the first of {len(traces)} ranks,",
    "{self.size} ranks: make room", "each of the {size} ranks must send",
    '"1 rank" if len(beside) == 1 else f"{len(beside)} ranks"',
}  # fmt: skip
"""Where the number is not 1. Another one goes through `count`."""


def test_numbers_that_may_be_one_are_in_the_singular():
    def plurals(file):
        lines = text(file).splitlines()
        found = [node for said, node in strings(nodes(file)) if NOUN.search(said)]
        around = ["\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in found]
        return [one for one in around if not any(known in one for known in SEVERAL)]

    assert where(plurals) == {}
    assert jobs.title(7, 3.2, 1, "x.py") == "job 7, 3 s: 1 rank of x.py"


def test_the_messages_of_troubleshooting_are_in_the_code():
    headings = re.findall(r"^### `(.*)`$", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    printed = "\1".join(said for file in MODULES for said, _ in strings(nodes(file)))
    assert len(headings) > 20
    for heading in headings:
        pieces = [piece for piece in re.split(r"\.\.\.|\d+", heading) if len(piece) > 4]
        assert pieces and [piece for piece in pieces if piece.strip() not in printed] == [], heading

"""Few places ask who is alive, or whether ranks may fail: the membership view answers, and the rest is polymorphic."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.serial

ROOT = Path(__file__).parents[2]
MOST_CONDITIONS, MOST_MODULES = 25, 11

WORDS = (
    "alive living live lives dead died dies death deaths failed failure failures gone lost losses mortal buried bury "
    "survive survives survivor survivors tolerant fault_tolerant joined can_change"
)
"""Names that consist of one of these, or have one between underscores, ask for it. Old names and those in use."""
ASKS = re.compile(rf"(^|_)({'|'.join(WORDS.split())})($|_)")
VIEWS = {"view", "_view"}
"""What is looked up in the membership view asks for it, too."""

LAUNCHER = ("malt/commands/", "malt/launch/", "malt/watch/", "malt/runner/", "malt/session/running/running.py")
"""Not of a rank: it starts ranks, sees processes end, and has no view."""
HOMONYMS = {
    ("dstorm/transports/simulated/group.py", "dead"): "a greenlet's",
    ("dstorm/transports/simulated/group.py", "failed"): "simulated ranks that were killed; their views learn it",
    ("dstorm/transports/simulated/group.py", "failures"): "when a simulated rank is to be killed",
    ("malt/data/shards.py", "failed"): "an argument of malt.data.rows_of",
    ("apps/harness/shares.py", "lost"): "a malt.LostRank of the report",
}


def names(test: ast.expr) -> set[str]:
    """The names that `test` mentions."""
    return {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(test)
        if isinstance(node, (ast.Name, ast.Attribute))
    }


def conditions(tree: ast.AST) -> list[ast.expr]:
    """What is tested by if, while, assert, a ternary or a comprehension, and whatever is joined by and, or."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            found.append(node.test)
        elif isinstance(node, ast.comprehension):
            found += node.ifs
        elif isinstance(node, ast.BoolOp):
            found.append(node)
    inside = {part for one in found for part in ast.walk(one) if part is not one}
    return [one for one in dict.fromkeys(found) if one not in inside]


def asking(source: str, file: str = "") -> list[ast.expr]:
    """The conditions in `source` that ask who is alive, or whether ranks may fail."""
    return [
        test
        for test in conditions(ast.parse(source))
        if any((ASKS.search(name) or name in VIEWS) and (file, name) not in HOMONYMS for name in names(test))
    ]


def test_few_conditions_ask_who_is_alive():
    found = {}
    for file in (file for layer in ("dstorm", "vol", "malt", "apps") for file in sorted((ROOT / layer).rglob("*.py"))):
        name = str(file.relative_to(ROOT))
        if not name.startswith(LAUNCHER) and (tests := asking(file.read_text(), name)):
            found[name] = [f"{name}:{test.lineno}: {ast.unparse(test)}" for test in tests]
    listed = [line for lines in found.values() for line in lines]
    reports = "\n".join([f"{len(listed)} conditions in {len(found)} modules", *listed])
    assert len(listed) <= MOST_CONDITIONS and len(found) <= MOST_MODULES, reports


@pytest.mark.parametrize(
    "source",
    [
        "if rank in self.failed: pass",
        "while not transport.fault_tolerant: pass",
        "x = 1 if view.version == 3 else 2",
        "x = [rank for rank in ranks if rank not in failed]",
        "assert self._view.alive",
        "x = capacity < n and self.can_change",
        "if living != before: pass",
        "if alive and not gone: pass",
    ],
)
def test_such_a_condition_is_counted(source):
    assert len(asking(source)) == 1


@pytest.mark.parametrize("source", ["if aliveness: pass", "for rank in self.alive: pass", "x = set(all) - view.failed"])
def test_others_are_not(source):
    assert not asking(source)


INCARNATIONS = re.compile(r"(^|_)(incarnations?|generations?)($|_)|^came_in$")
MEMBERSHIP = (
    "dstorm/view.py", "dstorm/membership/", "dstorm/transports/tcp.py", "dstorm/transports/links/",
    "dstorm/transports/simulated/group.py",
)  # fmt: skip
"""These say who is meant: the view and the agreements behind it, and the connections between processes."""
PROCESSES = ("malt/session/resilience/", "malt/session/world/crew.py", "malt/session/world/tracing.py")
"""These begin the session of a process, which the launcher has given its incarnation, or name a file by it."""


def readers(source: str) -> list[str]:
    """The names in `source` of incarnations, or of what ranks agree on them by."""
    if not re.search("incarnation|generation|came_in", source):
        return []
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Name, ast.Attribute, ast.arg))]
    found = [getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", "") for node in nodes]
    return sorted({name for name in found if INCARNATIONS.search(name)})


def test_only_membership_reads_incarnations():
    """Vectors, blocks, sharded vectors, map_reduce and checkpoints ask the view: who is a newcomer, who is meant."""
    found, left_out = {}, (*MEMBERSHIP, *PROCESSES, *LAUNCHER)
    for file in (file for layer in ("dstorm", "vol", "malt", "apps") for file in sorted((ROOT / layer).rglob("*.py"))):
        if not (name := str(file.relative_to(ROOT))).startswith(left_out) and (names := readers(file.read_text())):
            found[name] = names
    assert not found


@pytest.mark.parametrize("source", ["view.incarnation(1)", "incarnations[2]", "word.generation", "x.incarnation = 1"])
def test_a_reader_is_found(source):
    assert readers(source)

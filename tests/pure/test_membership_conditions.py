"""Few places ask who is alive, or whether ranks may fail: the membership view answers, and the rest is polymorphic."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from sources import MODULES, ROOT, nodes, parsed, where

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


def names(some: list[ast.AST]) -> set[str]:
    """The names that nodes are, of variables, attributes and arguments."""
    return {getattr(node, field) for node in some for kind, field in NAMED.items() if isinstance(node, kind)}


def conditions(module: list[ast.AST]) -> list[ast.expr]:
    """What is tested by if, while, assert, a ternary or a comprehension, and whatever is joined by and, or."""
    found: list[ast.expr] = []
    for node in module:
        if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            found.append(node.test)
        elif isinstance(node, ast.comprehension):
            found += node.ifs
        elif isinstance(node, ast.BoolOp):
            found.append(node)
    inside = {part for one in found for part in ast.walk(one) if part is not one}
    return [one for one in dict.fromkeys(found) if one not in inside]


def asking(module: list[ast.AST], file: str = "") -> list[str]:
    """The conditions among the nodes of a module that ask who is alive, or whether ranks may fail."""

    def asks(name: str) -> bool:
        return bool(ASKS.search(name) or name in VIEWS) and (file, name) not in HOMONYMS

    found = [test for test in conditions(module) if any(map(asks, names(list(ast.walk(test)))))]
    return [f"line {test.lineno}: {ast.unparse(test)}" for test in found]


def test_few_conditions_ask_who_is_alive():
    found = where(lambda file: asking(nodes(file), str(file.relative_to(ROOT))), outside(LAUNCHER))
    count = sum(map(len, found.values()))
    assert count <= MOST_CONDITIONS and len(found) <= MOST_MODULES, f"{count} in {len(found)} modules: {found}"


CONDITIONS = {
    "if rank in self.failed: pass": 1, "while not transport.fault_tolerant: pass": 1,
    "x = 1 if view.version == 3 else 2": 1, "x = [rank for rank in ranks if rank not in failed]": 1,
    "assert self._view.alive": 1, "x = capacity < n and self.can_change": 1, "if living != before: pass": 1,
    "if alive and not gone: pass": 1,
    "if aliveness: pass": 0, "for rank in self.alive: pass": 0, "x = set(all) - view.failed": 0,
}  # fmt: skip
"""What counts as one, and what does not."""


@pytest.mark.parametrize("source", CONDITIONS)
def test_such_a_condition_is_counted(source):
    assert len(asking(parsed(source))) == CONDITIONS[source]


INCARNATIONS = re.compile(r"(^|_)(incarnations?|generations?)($|_)|^came_in$")
MEMBERSHIP = (
    "dstorm/view.py", "dstorm/membership/", "dstorm/transports/tcp.py", "dstorm/transports/links/",
    "dstorm/transports/simulated/group.py",
)  # fmt: skip
"""These say who is meant: the view and the agreements behind it, and the connections between processes."""
PROCESSES = ("malt/session/resilience/", "malt/session/world/crew.py", "malt/session/world/tracing.py")
"""These begin the session of a process, which the launcher has given its incarnation, or name a file by it."""


NAMED = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg"}


def outside(left_out: tuple[str, ...]) -> list[Path]:
    """The modules whose names do not begin so."""
    return [file for file in MODULES if not str(file.relative_to(ROOT)).startswith(left_out)]


def readers(module: list[ast.AST]) -> list[str]:
    """The names among nodes of incarnations, or of what ranks agree on them by."""
    return sorted(filter(INCARNATIONS.search, names(module)))


def test_only_membership_reads_incarnations():
    """Vectors, blocks, sharded vectors, map_reduce and checkpoints ask the view: who is a newcomer, who is meant."""
    assert where(lambda file: readers(nodes(file)), outside((*MEMBERSHIP, *PROCESSES, *LAUNCHER))) == {}


@pytest.mark.parametrize("source", ["view.incarnation(1)", "incarnations[2]", "word.generation", "x.incarnation = 1"])
def test_a_reader_is_found(source):
    assert readers(parsed(source))

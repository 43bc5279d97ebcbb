"""DESIGN.md and CONTRIBUTING.md name what there is: folders, files, functions, tests, mutants, headings."""

from __future__ import annotations

import ast
import re

import pytest
from sources import MODULES, ROOT, nodes, text

DESIGN = (ROOT / "DESIGN.md").read_text()
MOST_BYTES = {"DESIGN.md": 25_000, "CONTRIBUTING.md": 8_000}


def rows(heading: str) -> list[list[str]]:
    """The cells of the rows of a table of DESIGN.md, below the line that begins with `heading`."""
    (table,) = re.findall(rf"(?m)^{re.escape(heading)}.*\n\|---.*\n((?:\|.*\n)+)", DESIGN)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def functions(file: str) -> set[str]:
    """The functions of a module, and the methods of its classes by both names."""
    found = set()
    for node in nodes(ROOT / file)[0].body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


def test_the_design_lists_the_folders_that_there_are():
    """Each of dstorm/, vol/ and malt/. Those of apps/, bench/ and examples/ are alike."""
    folders = {f"{file.parent.relative_to(ROOT)}/" for file in MODULES if not file.is_relative_to(ROOT / "apps")}
    listed = [cells[0] for cells in rows("| folder | contents |")]
    assert sorted(listed) == sorted([*folders, "apps/", "bench/", "examples/"])


def test_each_decision_is_made_where_the_design_says():
    missing, named = [], 0
    for _, where in rows("| what is decided | where |"):
        for file, names in re.findall(r"([\w/]+\.py)((?:,? `[\w.]+`)+)", where):
            for name in re.findall(r"`([\w.]+)`", names):
                named += 1
                if not (ROOT / file).exists() or name not in functions(file):
                    missing.append(f"{file} {name}")
        assert re.sub(r"[\w/]+\.py(?:,? `[\w.]+`)+(?:; )?", "", where) == "", where
    assert missing == [] and named > 30


def test_the_tests_and_mutants_of_the_invariants_are_there():
    for _, file, mutants in rows("| invariant | test, in tests/pure | mutants |"):
        source = (ROOT / "tests" / "pure" / file).read_text()
        for mutant in filter(None, mutants.split(", ")):
            assert re.search(rf"def {re.escape(mutant)}\(|\"{re.escape(mutant)}\":", source), f"{file}: {mutant}"


def anchors(page: str) -> set[str]:
    """The anchors of the headings of a page, as a site has them."""
    titles = [title.replace("`", "") for title in re.findall(r"(?m)^#+ (.+)$", page)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", MOST_BYTES)
def test_a_page_is_short_and_its_links_lead_somewhere(page):
    assert (ROOT / page).stat().st_size <= MOST_BYTES[page]
    shown = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", shown):
        name, _, anchor = target.partition("#")
        if "://" not in target:
            assert not name or (ROOT / name).exists(), target
            assert not anchor or anchor in anchors((ROOT / name).read_text() if name else shown), target
    for path in re.findall(r"\b(?:dstorm|vol|malt|apps|bench|tests|docs)/[\w/]+\.(?:py|md|txt|sh)\b", shown):
        assert (ROOT / path).exists() or (ROOT / "tests" / "pure" / path).exists(), path


def test_headings_that_are_named_elsewhere_are_there():
    """As `"Invariants" in DESIGN.md`, or DESIGN.md#invariants."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    files = [*pages, *MODULES, *(ROOT / "bench").rglob("*.py")]
    naming = re.compile(r'"([^"\n]+)" in DESIGN\.md|DESIGN\.md, "([^"\n]+)"|DESIGN\.md#([\w-]+)')
    named = [
        (str(file.relative_to(ROOT)), heading)
        for file in files
        for pair in naming.findall(text(file))
        for heading in pair if heading
    ]  # fmt: skip
    there = anchors(DESIGN)
    assert [one for one in named if one[1].lower().replace(" ", "-") not in there] == []

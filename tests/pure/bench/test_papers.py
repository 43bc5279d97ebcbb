"""docs/papers.md: what each paper has, where it is here, and the command that shows it. All of it is there."""

import importlib.util
import re
from functools import reduce

import pytest
from programs import ROOT

import malt
from bench.bars import tables

PAGE = ROOT / "docs/papers.md"
WHOLE = PAGE.read_text(encoding="utf-8")
TEXT = re.sub(r"<!--.*?-->", "", WHOLE)
COLUMNS = ["in the paper", "in MALT", "see", "measured in the paper", "measured here"]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")]
COMMANDS = sorted(
    {code for code in re.findall(r"`([^`]+)`", TEXT) if code.startswith(("python ", "malt run", "make "))}
)
FILES = sorted(set(re.findall(r"(?<![(\w/.])(?:apps|bench|dstorm|examples|malt|tests|vol)/[\w/]+\.py", TEXT)))
NAMES = sorted(set(re.findall(r"\bmalt((?:\.[a-zA-Z_]+)+)(?!\w*/)", re.sub(r"\S+/\S+|\]\(\S+\)", "", TEXT))))


def test_each_paper_has_a_table_of_rows_that_say_where_to_look():
    papers = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert papers == ["MALT", r"MLlib\*", "PS2", "Spark on Angel", "Qjam"]
    assert ROWS.count(COLUMNS) == TEXT.count("Left out:") == len(papers)
    for theirs, here, see, _, ours in (row for row in ROWS if row != COLUMNS):
        assert theirs and here and (see or ours)
        assert "`" in see or "](" in see, theirs


def test_what_was_measured_is_looked_up():
    """No figure with a unit is typed into the last column: it could say other than the page that it is of."""
    text = re.sub(r"<!-- figure: .*?<!-- end -->", "", WHOLE)
    ours = [row[-1] for table in tables(text) for row in table[1:]]
    assert len(ours) == len(ROWS) - ROWS.count(COLUMNS)
    assert not [cell for cell in ours if re.search(r"\d (s|ms|us|MB|x|times)\b", cell)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_exists(command):
    words = command.split()
    sources = []
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    if "-m" in words:
        module = words[words.index("-m") + 1]
        assert importlib.util.find_spec(module), module
        if module == "bench":
            from bench.__main__ import PARTS

            assert not (named := words[words.index("--only") + 1 :]) or set(named) <= set(PARTS)
        package = ROOT / module.split(".")[0]
        sources = [file.read_text(encoding="utf-8") for file in package.rglob("*.py")]
    sources += [file.read_text(encoding="utf-8") for file in (ROOT / "malt/commands").rglob("*.py")]
    for word in words:
        if word.endswith(".py"):
            assert (ROOT / word).exists()
        if word.startswith("--"):
            assert any(f'"{word}"' in source for source in sources), word


@pytest.mark.parametrize("file", FILES)
def test_a_file_exists(file):
    assert (ROOT / file).is_file()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_exists(name):
    assert reduce(getattr, name.lstrip(".").split("."), malt) is not None


@pytest.mark.parametrize("page", sorted(set(re.findall(r"\]\(([\w/]+\.md)\)", TEXT))))
def test_a_page_exists(page):
    assert (ROOT / "docs" / page).is_file()

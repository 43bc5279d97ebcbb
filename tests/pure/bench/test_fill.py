"""bench.fill: the pages of measurements are those of their figures, and say nothing that these contradict."""

import json
import re
from xml.etree import ElementTree

import pytest

from bench import fill

pytestmark = pytest.mark.serial
TABLES = {"runs": [["", "s"], ["one", "1,000.5"], ["two", "not reached"]]}


@pytest.mark.parametrize("name", fill.pages())
def test_a_page_is_that_of_its_figures(name):
    assert (fill.DOCS / f"{name}.md").read_text(encoding="utf-8") == fill.page(name), "python -m bench.fill"


@pytest.mark.parametrize("name", drawn := fill.drawings())
def test_a_picture_is_that_of_its_page(name):
    assert (fill.DOCS / f"pictures/{name}.svg").read_text(encoding="utf-8") == drawn[name], "python -m bench.fill"
    assert any(f"(pictures/{name}.svg)" in file.read_text(encoding="utf-8") for file in fill.DOCS.glob("*.md"))
    ElementTree.fromstring(drawn[name])


def test_marks_are_filled_and_stay():
    table = "<!-- table: runs -->\nold\n<!-- end -->\n"
    sentence = "It is <!-- figure: x / 2:.1f -->{}<!-- end --> m.<!-- holds: x > 2 -->\n"
    made = fill.filled(table + sentence.format("?"), TABLES, {"x": 3})
    assert made.splitlines()[1:5] == ["| | s |", "| --- | --- |", "| one | 1,000.5 |", "| two | not reached |"]
    assert made.endswith("\n<!-- end -->\n" + sentence.format("1.5"))
    assert fill.filled(made, TABLES, {"x": 3}) == made
    assert "\n- a\n" in fill.filled("<!-- listing: list -->\n<!-- end -->", {"list": "- a"}, {})


@pytest.mark.parametrize(
    "text, why",
    [
        ("a\nIt is far.<!-- holds: x > 4 -->", "line 2: it does not hold that x > 4"),
        ("It is <!-- figure: y -->?<!-- end --> m.", "y: NameError"),
        ("<!-- table: none -->\n<!-- end -->", "there is no table none, only runs"),
        ("It is near.", "the page has no mark of the table runs"),
        ("so\n  <!-- figure: x -->?<!-- end --> m.", "a figure is first in its line"),
        ("so\n\n    run <!-- figure: x -->?<!-- end -->", "or in code"),
        ("It is <!-- figure: __import__ -->?<!-- end --> m.", "__import__: NameError"),
    ],
)
def test_what_is_missing_or_not_true_fails(text, why):
    with pytest.raises(fill.Unfilled, match=re.escape(why)):
        fill.filled(text, TABLES, {"x": 3})


def test_a_cell_is_found_by_its_names_or_what_they_begin_with():
    rows = fill.Named([("a", 1), ("10 ranks", 2), ("1", 3), ("1 rank", 4)])
    assert [rows[name] for name in ("a", "10", "1", "1 r")] == [1, 2, 3, 4] == list(rows)
    with pytest.raises(KeyError, match="'b' is none of: a; 10 ranks"):
        rows["b"]
    runs = fill.cells(fill.filled("<!-- table: runs -->\n<!-- end -->", TABLES, {}))["runs"]
    one = runs["one"]["s"]
    assert one > 1000 and f"{one}, {one:.0f}, {one + 0}" == "1,000.5, 1000, 1000.5"
    assert runs["two"]["s"] == "not reached"


def test_a_page_takes_figures_of_its_json_and_cells_of_other_pages(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"tables": {"runs": TABLES["runs"]}, "figures": {"x": 3}}))
    (tmp_path / "a.md").write_text("<!-- table: runs -->\n<!-- end -->\nIt is <!-- figure: x -->?<!-- end -->.\n")
    (tmp_path / "papers.md").write_text('See <!-- figure: a["runs"]["one"]["s"] -->?<!-- end -->.\n')
    assert fill.pages(tmp_path) == ["a", "papers"]
    for name in fill.pages(tmp_path):
        (tmp_path / f"{name}.md").write_text(fill.page(name, tmp_path))
    assert "-->1,000.5<!--" in (tmp_path / "papers.md").read_text() and "-->3<!--" in (tmp_path / "a.md").read_text()
    with pytest.raises(fill.Unfilled, match=r"docs/a\.md: b: NameError"):
        (tmp_path / "a.md").write_text("It is <!-- figure: b -->?<!-- end -->.")
        fill.page("a", tmp_path)

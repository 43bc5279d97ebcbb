"""bench.qjam: iterations on simulated hosts, and the page of the figures."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from programs import ROOT

from bench import bars
from bench.qjam import __main__ as program
from bench.qjam import page, runs

pytestmark = pytest.mark.serial
PAGE = ROOT / "docs/qjam.md"


def test_hosts_share_the_patches_and_chunks_travel_in_the_first_iteration_alone():
    one, four = (runs.modelled(20_000, ranks, patch_s=1e-5) for ranks in (1, 4))
    assert one["iteration_s"] == pytest.approx(0.2, rel=0.01)
    assert 0.2 / 4 < four["iteration_s"] < 0.2 / 3
    travel_s = 20_000 * 8 * runs.PIXELS * 3 / 4 / runs.BANDWIDTH
    assert four["first_s"] > travel_s + four["iteration_s"] / 2 and four["iteration_s"] < travel_s


def test_the_page_is_that_of_its_figures():
    found = json.loads(PAGE.with_suffix(".json").read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page.text(found)
    assert [one["patches"] for one in found["runs"][::3]] == list(program.WHOLE.patches)
    assert sum(one["later_bytes"] for one in found["runs"]) == 0 and found["error"] < 1e-6
    assert all(one["chunk_bytes"] > 0 for one in found["runs"] if one["ranks"] > 1)


def test_the_table_has_what_the_authors_report():
    rows = bars.tables(PAGE.read_text(encoding="utf-8"))[0]
    theirs = {row[0].split(", ")[-1]: row[1:] for row in rows if row[0].startswith("Qjam")}
    assert theirs["2 workers"] == ["2.13", "4,700.0", "2,350.00", "2.14"]
    assert theirs["4 workers"] == ["4.00", "2,500.0", "1,253.00", "4.01"]


@pytest.mark.thorough
def test_a_quick_run_writes_a_page_and_its_picture(tmp_path):
    file = tmp_path / "qjam.md"
    words = [sys.executable, "-m", "bench.qjam", "--quick", "--write", str(file)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    assert file.read_text(encoding="utf-8") == page.text(found) and page.text(found) in done.stdout
    assert (tmp_path / "pictures/qjam.svg").read_text() == bars.CHARTS["qjam"].draw(tmp_path)

"""bench.papers.qjam: iterations on simulated hosts, and the page of the figures."""

import pytest
from measured import kept, quickly

from bench.harness import jobs
from bench.papers import qjam


def test_hosts_share_the_patches_and_chunks_travel_in_the_first_iteration_alone():
    one, four = (qjam.modelled(20_000, ranks, patch_s=1e-5) for ranks in (1, 4))
    assert one["iteration_s"] == pytest.approx(0.2, rel=0.01)
    assert 0.2 / 4 < four["iteration_s"] < 0.2 / 3
    travel_s = 20_000 * 8 * qjam.PIXELS * 3 / 4 / jobs.GIGABIT[1]
    assert four["first_s"] > travel_s + four["iteration_s"] / 2 and four["iteration_s"] < travel_s


def test_the_figures_of_the_page_are_those_of_a_whole_run():
    found = kept("qjam")
    assert found["about"]["patches"] == qjam.WHOLE.patches
    assert sum(one["later_bytes"] for one in found["runs"]) == 0 and found["error"] < 1e-6
    assert all(one["chunk_bytes"] > 0 for one in found["runs"] if one["ranks"] > 1)


def test_the_table_has_what_the_authors_report():
    rows = qjam.tables(kept("qjam"))["iterations"]
    theirs = {row[0].split(", ")[-1]: row[1:] for row in rows if row[0].startswith("Qjam")}
    assert theirs["2 workers"] == ["2.13", "4,700.0", "2,350.00", "2.14"]
    assert theirs["4 workers"] == ["4.00", "2,500.0", "1,253.00", "4.01"]


@pytest.mark.thorough
def test_a_quick_run_prints_its_tables(tmp_path):
    found, _ = quickly("bench.papers.qjam", tmp_path, qjam.tables)
    assert qjam.figures(found)["rounds"] == qjam.QUICK.rounds

"""A row a rank: what is shown of its state, and who is named."""

from malt.watch.ranks import Shown
from malt.watch.record import Record
from malt.watch.table import lines, rows


def test_a_row_says_how_far_a_rank_is_and_in_what_state():
    waiting = Record(sent={1: 1_500}, read=7, waits_for=(1,), call="malt.barrier", wait_s=12, numbers={"loss": 0.25})
    busy = Record(
        sent={0: 20}, read=3, merged=1_000, start_s=1.23, training_s=75.0, waiting_s=2.0, every=1_500, progress=0.5,
        left_s=3725, examples_per_s=1_234,
    )  # fmt: skip
    shown = [
        Shown(0, "", waiting), Shown(1, "", busy), Shown(2, "failed", busy), Shown(3, "", busy, age_s=60.0),
        Shown(4, "", None, -1.0), Shown(5, "not started", None, -1.0),
    ]  # fmt: skip
    found = rows(shown)
    assert [row[-1] for row in found] == [
        "waits for rank 1 in malt.barrier (12 s)", "holds up rank 0", "failed", "no answer for 60 s", "starting",
        "not started",
    ]  # fmt: skip
    assert found[0][:7] == ("0", "", "", "0.25", "", "1.5 kB", "67 B")
    assert found[1][:9] == ("1", "50 %", "1:02:05", "", "1,234", "20 B", "1.5 kB", "", "1,000")
    assert found[2][:5] == ("2", "50 %", "", "", "")  # nothing is left to do where it has failed
    assert found[1][11:15] == ("1,500", "1.2 s", "1:15", "2.0 s")
    heading, first, *_ = lines(found).splitlines()
    assert "every" in heading and "every" not in lines(found[:1])
    assert "across" not in heading
    assert lines(rows([Shown(0, "", Record(sent={1: 20}, across=5))])).split().count("5") == 1
    assert heading.index("loss") + len("loss") == first.index("0.25") + len("0.25")

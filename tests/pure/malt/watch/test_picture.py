"""The picture of a job: what there is room for in a terminal."""

import pytest

from malt.watch.picture import picture
from malt.watch.ranks import Shown
from malt.watch.record import Record

WAITING = Record(sent={1: 1_500}, read=7, waits_for=(1,), call="malt.barrier", wait_s=12, numbers={"loss": 0.25})
BUSY = Record(
    sent={0: 20}, read=3, merged=1_000, start_s=1.2, training_s=75.0, every=1_500, progress=0.5, left_s=3725,
    examples_per_s=1_234,
)  # fmt: skip
FEW = [Shown(0, "", WAITING), Shown(1, "", BUSY), Shown(2, "failed", BUSY, 0.0, "ValueError:\x1b[J\nbad", 12.4)]


def test_columns_give_way_by_importance():
    full, wide, middle, narrow = (picture("job", FEW, columns, 24) for columns in (180, 110, 80, 50))
    assert full[1].text.split() == [
        "rank", "done", "left", "loss", "examples/s", "out", "in", "merged", "overwritten", "lag", "every", "start",
        "training", "waiting",
    ]  # fmt: skip
    assert wide[1].text.split() == [
        "rank", "done", "left", "loss", "examples/s", "every", "training", "waiting",
    ]  # fmt: skip
    assert middle[1].text.split() == ["rank", "done", "left", "loss", "examples/s"]
    assert narrow[1].text.split() == ["rank", "done"]
    assert [line.kind for line in wide] == ["title", "heading", "waiting", "slow", "failed"]
    assert middle[2].text.endswith("waits for rank 1 in malt.barrier (12 s)")
    assert narrow[2].text.endswith("waits for rank 1 in malt.barrier (12…")
    assert middle[3].text.endswith("holds up rank 0")
    assert wide[4].text.endswith("failed 12 s ago: ValueError: [J bad")  # what moves the cursor is no part of it
    columns = [picture("job", [Shown(0, "", record)], 80, 24)[1].text.split() for record in (WAITING, WAITING)]
    assert columns[0] == columns[1]


@pytest.mark.parametrize("columns", [1, 2, 10, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 3, 4, 5, 24])
def test_it_fits(columns, height):
    found = picture("a long title of a job", FEW * 20, columns, height)
    assert len(found) <= max(0, height - 2) and all(len(line.text) < columns or not line.text for line in found)


def test_of_many_ranks_those_are_shown_that_matter_and_the_others_are_counted():
    records = [Record(progress=(rank % 50) / 50, left_s=float(rank)) for rank in range(100)]
    shown = [Shown(rank, "", record) for rank, record in enumerate(records)]
    shown[7] = Shown(7, "failed", records[7])
    shown[20] = Shown(20, "", Record(progress=0.1, waits_for=(33,), wait_s=20.0))
    shown[40] = Shown(40, "finished", records[0])
    found = picture("job", shown, 100, 14)
    assert [line.text.split()[0] for line in found[2:-1]] == ["0", "1", "7", "33", "50"]  # 50 has done as little as 0
    assert found[-1].text == "and 95 more: 94 running, 1 finished, the last for 1:39"
    assert "more" not in picture("job", shown[:5], 100, 14)[-1].text

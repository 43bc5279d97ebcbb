"""The hash of what each rank has of a vector, by which all ranks know that they have the same model."""

import pytest

import malt
from malt.models import common, compared_parts

pytestmark = pytest.mark.single


def test_it_is_the_same_on_all_ranks_and_changes_with_each_part():
    def compared(changed=None):
        def on_rank(rank):
            w = malt.sharded(6)
            w.local[:] = 1 + (rank == changed)
            return compared_parts(w.local.tobytes(), w.owners)["parts"].tolist()

        one, *others = malt.simulate(on_rank, 3)
        assert all(other == one for other in others)
        return one

    before = compared()
    for rank in range(3):
        changed = [old != new for old, new in zip(before, compared(rank), strict=True)]
        assert changed == [one == rank for one in range(3)]


def test_where_a_part_is_missing_all_ranks_know_of_it(monkeypatch):
    def barrier():
        raise malt.PeerLost(1, "it has failed")

    monkeypatch.setattr(common, "allgather", lambda value: [value, None])
    monkeypatch.setattr(common, "barrier", barrier)
    with pytest.raises(malt.PeerLost, match="it has failed"):
        compared_parts(b"", (0, 1))

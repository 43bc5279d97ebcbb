"""malt.blocks over the ranks that there are, and its arguments: all ranks agree on them, or raise the same error."""

import numpy as np
import pytest

import malt


def test_blocks_go_round():
    ranks, sizes = malt.size(), [3, 0, 2, 4]
    rows = np.zeros((9, 2))
    with malt.blocks(rows, sizes, owners=[-1, -1, 0, -1, -1, -1, -1, -1, -1]) as b:
        for _ in range(20):
            assert sorted(visit.block for visit in b.round()) == [0, 1, 2, 3]
        for visit in b.round():
            rows[visit.rows] += [1, malt.rank()]
        found = b.common()
    assert b.array is rows and found.dtype == rows.dtype
    wanted = np.tile([ranks, ranks * (ranks - 1) / 2], (9, 1))
    wanted[2] = [1, 0]  # rank 0's own
    np.testing.assert_array_equal(found, wanted)
    totals = b.statistics()
    passes = sum(malt.allgather(totals.sent))
    assert passes == sum(malt.allgather(totals.gathered)) == 21 * 4 * (ranks - 1) and totals.overwritten == 0
    assert sum(malt.allgather(totals.bytes_sent)) == passes / 4 * 8 * rows[0].nbytes


ROWS = np.zeros((4, 2))
BAD = [
    (dict(init=8, sizes=[8]), "init must be a NumPy array, got 8"),
    (dict(init=np.zeros(3, complex), sizes=[3]), "complex128"),
    (dict(init=np.zeros(()), sizes=[]), "sizes must add up"),
    (dict(init=ROWS, sizes=[2, 1]), r"add up to the rows of init, of shape \(4, 2\); they add up to 3"),
    (dict(init=ROWS, sizes=[5, -1]), "sizes: a number of rows must be an integer of at least 0, got -1"),
    (dict(init=ROWS, sizes=4), "sizes must be a list of numbers of rows, got 4"),
    (dict(init=ROWS, sizes=[4], owners=[0, 0]), "owners must hold for each of the 4 rows a rank, from 0 to"),
    (dict(init=ROWS, sizes=[4], owners=[-1, -1, -1, 99]), "owners must hold"),
    (dict(init=ROWS, sizes=[2, 2], owners=[-1, 0, 0, -1]), "in block 1 a row of no owner stands behind one"),
    (dict(init=ROWS, sizes=[4], name=3), "name must be a string, got 3"),
]


@pytest.mark.parametrize(("arguments", "match"), BAD)
def test_bad_arguments(arguments, match):
    with pytest.raises((ValueError, TypeError), match=match) as raised:
        malt.blocks(**arguments)
    assert "\n" not in str(raised.value) and len(set(malt.allgather(str(raised.value)))) == 1


@pytest.mark.parallel
@pytest.mark.parametrize(
    ("other", "what"),
    [
        (dict(init=np.ones((4, 2)), sizes=[4]), "checksum of init"),
        (dict(init=ROWS, sizes=[2, 2]), "checksum of sizes"),
        (dict(init=ROWS, sizes=[4], owners=[-1, -1, 0, 0]), "checksum of owners"),
    ],
)
def test_arguments_that_differ(other, what):
    mine = other if malt.rank() == malt.size() - 1 else dict(init=ROWS, sizes=[4])
    with pytest.raises(ValueError, match=f"malt.blocks: ranks disagree on a {what}"):
        malt.blocks(**mine)

"""Another thread writes into the array of a sparse vector while a call is under way: in the end all ranks have it."""

import numpy as np
import pytest
from lines import before_lines

import malt

pytestmark = pytest.mark.serial
N = 40


CALLS = {
    "changed rows": lambda v: v.scatter(),
    "all rows by name": lambda v: v.scatter(rows=np.arange(N)),
    "some rows by name": lambda v: v.scatter(rows=[1, 2, N - 1]),
    "a merge": lambda v: v.gather(malt.REPLACE),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_write_is_lost(call):
    """Rows 1 and 2 get another value before a line, and row 2 has its former one again three lines later."""
    lines = [1]

    def live(rank):
        v, line = malt.vector(N, kind="sparse", depth=8), 0
        while line < lines[0]:
            if rank and call == "a merge":
                v.array[:3] = 10 * line + 5
                v.scatter()
            malt.barrier()
            if not rank:
                v.array[N // 4 :] = 10 * line + 1  # so many that their block is copied whole
                before = v.array[2].copy()

                def write(now, line=line, before=before):
                    if now == line:
                        v.array[1:3] = 10 * line + 7
                    elif now == line + 3:
                        v.array[2] = before

                lines[0] = before_lines(write, lambda: CALLS[call](v), ["/vol/sparse/"])
                v.scatter()  # nobody writes any more
            malt.barrier()
            v.gather(malt.REPLACE)
            arrays = malt.allgather(v.array)
            assert (arrays[0] == arrays[1]).all(), f"line {line}: {arrays[0][:4]} and {arrays[1][:4]}"
            line += 1

    malt.simulate(live, 2)
    assert lines[0] > 30

"""Multiply and sum, by map/reduce: rank 0 has the numbers, all ranks get the sums."""

import numpy as np

import malt

numbers = np.arange(1000.0) if malt.lowest() else None


def multiply_sum(theta, some):  # what a rank makes of a chunk; lists are added element by element
    return [(theta * some).sum(), len(some)]


for theta in (1, 2, 3):
    total, count = malt.map_reduce(multiply_sum, theta, numbers)
    traffic = malt.allgather(malt.init().chunk_statistics().bytes_sent)  # all that was sent until now
    if malt.lowest():
        print(f"{theta} x {count} numbers: {total:.0f}, bytes of chunks {sum(traffic):,}")

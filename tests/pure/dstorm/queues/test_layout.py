"""Nothing in a window overlaps, and its size follows the in-degree alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstorm import Layout, header


@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 300), st.randoms(use_true_random=False))
def test_cells_are_disjoint_and_inside(size, depth, capacity, random):
    edges = {(a, b) for a in range(size) for b in range(size) if a != b and random.random() < 0.5}
    into = [sorted(a for a, b in edges if b == rank) for rank in range(size)]
    out = [sorted(b for a, b in edges if a == rank) for rank in range(size)]
    layout = Layout(into.__getitem__, out.__getitem__, depth, capacity)
    for rank in range(size):
        cells = [(layout.acknowledgement(rank, peer), header.NBYTES) for peer in out[rank]]
        for peer in into[rank]:
            cells.append((layout.progress(peer, rank), header.NBYTES))
            cells += [(slot, header.NBYTES + capacity) for slot in layout.slots(peer, rank)]
        cells.sort()
        ends = [start + length for start, length in cells]
        assert all(end <= start for end, (start, _) in zip(ends, cells[1:], strict=False))
        assert max(ends, default=0) <= layout.window_nbytes(rank)


def test_memory_is_in_degree_times_depth_times_slot():
    ring = Layout(lambda rank: [(rank - 1) % 4], lambda rank: [(rank + 1) % 4], depth=2, capacity=4_000_000)
    assert ring.window_nbytes(0) == pytest.approx(2 * 4_000_000, rel=0.001)

"""malt.sharded over the ranks there are: pushes into one element under contention, bytes that travel, memory."""

import tracemalloc

import numpy as np
import pytest

import malt
from vol.sharded.layout import BLOCK_NBYTES


def test_pushes_of_all_ranks_into_one_element_are_exact():
    """Also while its owner, and the others, change and read the vector."""
    s = malt.sharded((100, 2), "float64")
    for turn in range(1500):
        s.push([[1.0, malt.rank()]], [57])
        if turn % 100 == 0:
            s.push([[2.0, 1.0], [3.0, 1.0]], [57, 57])
            s.zip(lambda part: part * 1)
            assert (s.pull([57])[0] >= 0).all()
    malt.barrier()
    ranks = np.arange(malt.size())
    wanted = [sum(1500 + 15 * 5 + 0 * ranks), sum(1500 * ranks + 15 * 2)]
    assert s.pull([57])[0].tolist() == wanted
    assert s.nnz() == np.count_nonzero(wanted)
    totals = malt.allgather([s.statistics().sent, s.statistics().gathered, s.statistics().pending])
    assert sum(sent for sent, _, _ in totals) == sum(gathered for _, gathered, _ in totals)
    s.close()


def test_large_vectors_travel_whole_or_not_at_all():
    n = 300_000 + malt.size()
    s, g = malt.sharded(n), malt.sharded(n)
    values = np.arange(n, dtype=np.float32) % 1000
    s.push(values)
    malt.barrier()
    g.copy(s)
    before = s.statistics().bytes_sent
    assert s.dot(g) == pytest.approx(malt.size() ** 2 * float(np.vdot(values, values.astype("f8"))), rel=1e-5)
    assert s.statistics().bytes_sent - before == 8 * (malt.size() - 1)
    s.axpy(1, g)
    malt.barrier()
    others = n - (s.range.stop - s.range.start)
    assert (s.pull() == 2 * malt.size() * values).all()
    assert s.statistics().bytes_read == 4 * others
    index = np.random.default_rng(malt.rank()).integers(0, n, size=20_000)
    assert (s.pull(index) == 2 * malt.size() * values[index]).all()
    with s, g:
        malt.barrier()


@pytest.mark.parallel
def test_a_pull_beside_a_busy_owner_is_never_half_done():
    """Each rank pulls from all others while it changes its own part itself."""
    s, ones = malt.sharded(malt.size() * 150_000), malt.sharded(malt.size() * 150_000)
    ones.fill(1)
    malt.barrier()
    out, starts = np.empty(s.shape, np.float32), np.arange(malt.size()) * 150_000
    for turn in range(12):
        s.axpy(1, ones) if turn % 3 else s.fill(turn)
        s.pull(out=out)
        for part in out.reshape(malt.size(), -1):
            for start in range(0, len(part), BLOCK_NBYTES // 4):
                block = part[start : start + BLOCK_NBYTES // 4]
                assert (block == block[0]).all()
        assert (s.pull(starts) >= 0).all()
    malt.barrier()
    assert s.pull([3])[0] == 9 + 2
    s.close()


def test_a_view_that_is_kept_stays_as_it_is():
    """After the close, beside new vectors."""
    s = malt.sharded(malt.size() * 300_000)
    s.fill(3)
    kept = s.local[-5:]
    s.close()
    later = [malt.sharded(malt.size() * 300_000) for _ in range(2)]
    for one in later:
        one.fill(7)
    assert (kept == 3).all()
    kept[:] = 0
    assert all(one.nnz() == one.shape[0] for one in later)
    for one in later:
        one.close()


def test_a_rank_holds_its_part_of_the_history_of_lbfgs():
    """2 m vectors, of which a rank has one part each; a few more while it works."""
    n, m, sizes = 400_000, 6, []
    w = malt.sharded(n, "float64")
    w.fill(1)
    curvature = w.copy()
    curvature.local[:] = np.linspace(1, 1000, n)[w.range]

    def function(w):
        gradient = curvature * w
        return w.dot(gradient) / 2, gradient

    part = 8 * len(w.local)
    tracemalloc.start()
    try:
        result = malt.optim.lbfgs(
            function, w, m=m, tolerance=0.0, max_iterations=12,
            callback=lambda _: sizes.append(tracemalloc.get_traced_memory()[0]),
        )  # fmt: skip
    finally:
        tracemalloc.stop()
    assert result.iterations == 12
    assert all(2 * m * part <= size <= (2 * m + 10) * part for size in sizes[m:])
    w.close()


def test_a_sparse_vector_grows_while_all_push_and_pull():
    """No value is lost, and none goes back; 200,000 keys up to 2**63."""
    keys = np.random.default_rng(0).integers(0, 1 << 63, 200_000)
    s, seen = malt.sharded(1 << 63, "float64", kind="sparse"), np.zeros(1000)
    for turn in range(1, 5):
        for some in np.array_split(keys[: 50_000 * turn], 3):
            s.push(np.ones(len(some)), some)
            now = s.pull(keys[:1000])
            assert (now >= seen).all() and (now <= malt.size() * turn).all()
            seen = now
        malt.barrier()
        assert (s.pull(keys) == malt.size() * np.repeat([turn - place for place in range(4)], 50_000).clip(0)).all()
        malt.barrier()
    assert s.touched() == s.nnz() == 200_000
    assert abs(len(s.local[0]) - 200_000 / malt.size()) < 2_000
    s.axpy(-1, s)
    assert s.norm() == 0
    s.close()


def test_under_ssp_a_pull_has_all_pushes_but_the_last_ones():
    """In each step each rank adds 1 to all elements."""
    size = malt.size()
    with malt.sharded(3 * size, "float64", sync="ssp:2") as s:
        for step in range(300):
            assert s.pull().min() >= size * (step - 2)
            s.push(np.ones(3 * size))
    assert s.statistics().sent > 0 or size == 1

"""The dirty rows of each peer are those of a slow twin, which keeps a set for each peer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vol.sparse import dirty
from vol.sparse.dirty import DirtyRows

PEERS = (1, 2, 4)


class Twin:
    """The dirty rows of each peer, as sets: pending ones and deferred ones."""

    def __init__(self, array):
        self.array, self.seen = array, array.copy()
        self.changed = set()
        self.pending = {peer: set() for peer in PEERS}
        self.late = {peer: set() for peer in PEERS}

    def find_changed(self, rows=None):
        for row in range(len(self.array)) if rows is None else rows:
            if self.array[row].tobytes() != self.seen[row].tobytes():
                self.seen[row] = self.array[row]
                self.changed.add(row)
                for peer in PEERS:
                    self.pending[peer].add(row)

    def skip(self, rows):
        for row in rows:
            self.seen[row] = self.array[row]

    def pass_on(self, rows):
        for row in rows:
            if self.array[row].tobytes() != self.seen[row].tobytes():
                self.seen[row] = self.array[row]
                for peer in PEERS:
                    if row not in self.changed:
                        self.late[peer].add(row)

    def clear(self):
        self.seen[:] = 0
        for rows in (self.changed, *self.pending.values(), *self.late.values()):
            rows.clear()

    def defer(self, peers):
        for peer in peers:
            self.late[peer] |= self.pending[peer] - self.changed
            self.pending[peer] &= self.changed

    def sent(self, peers, rows):
        self.find_changed(rows)
        self.changed -= set(rows)
        for peer in peers:
            self.pending[peer] -= set(rows)
            self.late[peer] -= set(rows)


def some_rows(rng, n):
    return np.flatnonzero(rng.random(n) < rng.choice([0.1, 0.5, 1.0]))


def scatter_all(rows, twin, peers, capacity):
    rows.find_changed()
    twin.find_changed()
    changed = rows.changed()
    pending = rows.pending(peers, changed, capacity)
    assert changed.tolist() == sorted(twin.changed)
    for some, theirs in pending:
        assert (np.diff(some) > 0).all()
        for peer in theirs:
            due, late = twin.pending[peer], twin.late[peer] - twin.pending[peer]
            assert due <= set(some.tolist()) <= due | late
            assert len(some) == len(due) + min(len(late), max(capacity - len(due), 0))
            twin.late[peer] -= set(some.tolist())
            due.clear()
    assert sorted(peer for _, theirs in pending for peer in theirs) == sorted(peers)
    rows.mark_sent(pending, changed)
    twin.changed.clear()


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(["write", "all", "some", "named", "gather", "gather all", "pass on", "defer", "clear"]),
        max_size=25,
    ),
    st.integers(0, 30), st.integers(1, 3), st.sampled_from(["f2", "f4", "f8", "i1"]), st.integers(0, 2**31),
)  # fmt: skip
def test_dirty_rows_are_those_of_the_twin(acts, n, width, dtype, seed):
    rng = np.random.default_rng(seed)
    array = np.zeros((n, width), dtype)
    rows, twin = DirtyRows(array, PEERS), Twin(array)
    for act in [*acts, "all"]:
        chosen = some_rows(rng, n)
        peers = [peer for peer in PEERS if rng.random() < 0.6]
        if act == "write":
            array[chosen] = rng.integers(-1, 2, (len(chosen), width))
        elif act == "all":
            scatter_all(rows, twin, PEERS, rng.integers(n + 1))
        elif act == "some":
            scatter_all(rows, twin, peers, rng.integers(n + 1))
        elif act == "named":
            rows.check(chosen)
            rows.mark_rows_sent(peers, chosen)
            twin.sent(peers, chosen.tolist())
        elif act == "defer":
            rows.defer(peers)
            twin.defer(peers)
        elif act == "clear":
            rows.clear()
            twin.clear()
        else:
            rows.check(chosen)
            twin.find_changed(chosen.tolist())
            rows.checked[chosen] += rng.integers(0, 2, (len(chosen), width)).astype(dtype)
            after = {
                "gather": (lambda rows, some: rows.pass_on(some, defers=False), twin.find_changed),
                "gather all": (DirtyRows.write_back, twin.skip),
                "pass on": (lambda rows, some: rows.pass_on(some, defers=True), twin.pass_on),
            }[act]
            after[0](rows, chosen)
            after[1](chosen.tolist())
            assert (array[chosen] == rows.checked[chosen]).all()


def dirty_rows(rows):
    rows.find_changed()
    return rows.changed().tolist()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_rows_are_compared_bit_by_bit(dtype, width):
    array = np.zeros((9, width), dtype)
    array[2] = np.nan
    rows = DirtyRows(array, PEERS)
    array[2] = np.nan
    assert dirty_rows(rows) == []
    array[4, -1] = -0.0
    array[2, -1] = -array[2, -1]  # another NaN
    assert dirty_rows(rows) == [2, 4]


def test_arrays_of_several_blocks():
    n = 3 * dirty._BLOCK + 5
    for width in (1, 7):
        array = np.zeros((n, width), np.float32)
        rows = DirtyRows(array, PEERS)
        changed = [0, dirty._BLOCK - 1, dirty._BLOCK, 2 * dirty._BLOCK + 3, n - 1]
        array[changed, -1] = 1
        assert dirty_rows(rows) == changed
        rows.mark_sent([(np.array(changed), PEERS)], np.array(changed))
        array[::2] = 3
        rows.check(np.arange(1, n, 2))
        assert rows.changed().tolist() == []
        rows.check(np.arange(0, n - 1, 2))
        assert rows.changed().tolist() == list(range(0, n - 1, 2))


def test_unaligned_memory():
    memory = np.zeros(4 * 8 + 2, np.uint8)
    array = memory[2:].view(np.float16).reshape(4, 4)
    assert array.ctypes.data % 8
    rows = DirtyRows(array, PEERS)
    array[3, 0] = 1
    assert dirty_rows(rows) == [3]


def test_peers_that_are_not_behind_share_one_set():
    array = np.zeros((5, 1))
    rows = DirtyRows(array, PEERS)
    array[2] = 1
    rows.find_changed()
    pending = lambda: rows.pending(PEERS, rows.changed(), 5)  # noqa: E731
    assert [peers for _, peers in pending()] == [list(PEERS)]
    rows.mark_sent(rows.pending([1, 2], rows.changed(), 5), rows.changed())
    assert [(pending.tolist(), peers) for pending, peers in pending()] == [([], [1, 2]), ([2], [4])]
    rows.mark_sent(rows.pending([4], rows.changed(), 5), rows.changed())
    assert [peers for _, peers in pending()] == [list(PEERS)]


def test_deferred_rows_go_in_turns():
    """Rows that change all the time do not hold up the others."""
    array = np.zeros((10, 1))
    rows = DirtyRows(array, PEERS)
    rows.checked[:] = 1
    rows.pass_on(np.arange(10), defers=True)
    sent = set()
    for _ in range(5):
        rows.checked[:3] += 1
        rows.pass_on(np.arange(10), defers=True)
        pending = rows.pending([2], rows.changed(), 2)
        sent.update(pending[1][0].tolist())
        rows.mark_sent(pending, rows.changed())
    assert sent == set(range(10))

"""malt.map_reduce: the same bits on any number of ranks, chunks that travel once, errors that all ranks raise."""

import dataclasses
import operator
import random
import re
from collections import Counter

import numpy as np
import pytest
import scipy.sparse
from ranks import run_failing

import malt
from malt.data.mapreduce import results
from malt.data.mapreduce.assignment import assign, travels
from malt.files.values import joined, pack, parted

ROWS = np.random.default_rng(0).normal(size=(1003, 7))
RANKS = [1, 3, 4]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Results of more than 200 bytes are added in parts."""
    monkeypatch.setattr(results, "WHOLE_NBYTES", 200)


@pytest.mark.parametrize("ranks, count", [(1, 5), (2, 32), (3, 32), (4, 3), (5, 64)])
def test_chunks_are_dealt_evenly_and_stay_where_they_are(ranks, count):
    owners = [{0} for _ in range(count)]
    for alive in (range(ranks), range(ranks - 1), range(ranks - 1)):
        given = assign(range(count), owners, list(alive) or [0])
        assert sorted(chunk for mine in given.values() for chunk in mine) == list(range(count))
        assert max(map(len, given.values())) <= -(-count // len(given))
        way = travels(given, owners)
        assert all(one.sender in owners[one.chunk] and one.receiver not in owners[one.chunk] for one in way)
        for one in way:
            owners[one.chunk].add(one.receiver)
        assert not travels(assign(range(count), owners, list(alive) or [0]), owners)


VALUES = [
    None, True, 3, 10**30, 0.1, float("inf"), "text\0", [], (), [1, (2.5, "x")], {"a": np.arange(3)},
    {1: "b"}, np.float32(0.1), np.zeros(()), np.zeros((0, 2), ">f4"), np.array(["ab", "c"]),
    np.arange(6).reshape(2, 3).T, slice(2, 5),
    slice(9, None, -2), slice(np.int64(2), 5), np.eye(2)[:, :1].view(np.matrix), np.datetime64("2026-11-30"),
    np.timedelta64(3, "s"), np.complex64(3 + 4j), np.complex128(1j), np.longdouble(1) / 3,
    3 + 4j, Counter({"a": 2, 3: 1, (1, None): 4}), Counter(),
]  # fmt: skip


def test_values_arrive_as_they_were():
    for value, other in zip(VALUES, parted(joined([pack(one) for one in VALUES])), strict=True):
        assert type(value) is type(other) and repr(value) == repr(other)
    array = scipy.sparse.random_array((9, 4), density=0.5, format="csr", rng=1)
    for matrix in (array, scipy.sparse.csr_matrix(array)):
        [other] = parted(joined([pack(matrix)]))
        assert (matrix != other).nnz == 0 and other.shape == (9, 4) and type(other) is type(matrix)


@pytest.mark.parametrize("value", [object(), {(1,): 2}, np.array([object()]), Counter({b"x": 1}), {3}, np.ma.zeros(3)])
def test_other_values_are_refused(value):
    with pytest.raises(TypeError, match="cannot be exchanged"):
        pack(value)


def moments(theta, rows):
    """Sums of which the order of additions shows in the last bits."""
    scaled = rows * theta
    return float(scaled.sum()), [scaled.sum(0), (scaled.T @ scaled, np.float32(scaled.sum()))], len(rows)


def bits(value):
    return b"".join(array.tobytes() for array in pack(value).arrays) + pack(value).text.encode()


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("who", ["all", "0", "last two"])
def test_the_bits_do_not_depend_on_the_ranks(ranks, who):
    def live(rank):
        has = {"all": True, "0": rank == 0, "last two": rank >= ranks - 2}[who]
        return bits(malt.map_reduce(moments, np.arange(7.0), ROWS if has else None))

    [alone] = malt.simulate(lambda rank: malt.map_reduce(moments, np.arange(7.0), ROWS), 1)
    assert malt.simulate(live, ranks) == [bits(alone)] * ranks
    total, [sums, (products, single)], count = alone
    assert (count, type(total), type(single)) == (len(ROWS), float, np.float32)
    np.testing.assert_allclose(sums, (ROWS * np.arange(7)).sum(0))
    np.testing.assert_allclose(products, (ROWS * np.arange(7)).T @ (ROWS * np.arange(7)))
    assert products.flags.writeable and total == pytest.approx(sums.sum()) == pytest.approx(float(single), rel=1e-4)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csr_array, np.matrix])
def test_chunks_are_of_one_class_on_all_ranks(kind):
    """What * means depends on it."""

    def live(rank):
        rows = np.arange(64.0).reshape(32, 2)
        dataset = None if rank else rows.view(kind) if kind is np.matrix else kind(rows)
        return malt.map_reduce(lambda _, rows: Counter([type(rows).__name__]), None, dataset)

    assert malt.simulate(live, 2) == [{kind.__name__: 32}] * 2


class Halves:
    """A dataset of two chunks, which counts how often they are read."""

    def __init__(self, *chunks):
        self.data, self.reads = chunks, 0

    def chunks(self):
        return len(self.data)

    def slice(self, i):
        self.reads += 1
        return self.data[i]


def datasets(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    (tmp_path / "rows.svm").write_text("".join(f"{row % 2 * 2 - 1} 1:{row} 3:1\n" for row in range(80)))
    (tmp_path / "ratings").write_text("".join(f"{user} {user % 7} {user % 5}\n" for user in range(80)))
    file, ratings = str(tmp_path / "rows.svm"), str(tmp_path / "ratings")
    return [
        (lambda: np.load(tmp_path / "rows.npy", mmap_mode="r"), lambda rows: rows.sum(), ROWS.sum()),
        (lambda: list(range(100)), sum, 4950),
        (lambda: range(1, 100), lambda some: Counter(one % 3 for one in some), Counter({0: 33, 1: 33, 2: 33})),
        (lambda: range(9), lambda some: ["".join(map(str, some)), 1j * len(some)], ["012345678", 9j]),
        (lambda: [np.ones(3)] * 40, lambda some: np.sum(some), 120.0),
        (lambda: scipy.sparse.csr_array(ROWS), lambda rows: rows.sum(), ROWS.sum()),
        (lambda: malt.open_svmlight(file), lambda rows: float(rows.X.sum() + rows.y.sum()), 3240.0),
        (lambda: malt.open_ratings(ratings), lambda some: float(some.ratings.sum()), 160.0),
        (lambda: Halves({"a": 3}, {"a": 4}), operator.itemgetter("a"), 7),
    ]  # fmt: skip


def test_datasets(tmp_path):
    def live(rank):
        found = []
        for make, function, _ in datasets(tmp_path):
            whole = make()
            for dataset in (whole, whole if rank == 1 else None):
                found.append(malt.map_reduce(lambda theta, some, f=function: f(some), None, dataset))
        return found

    for found in malt.simulate(live, 3):
        for one, (*_, wanted) in zip(found, [each for each in datasets(tmp_path) for _ in range(2)], strict=True):
            assert one == (pytest.approx(wanted) if np.isscalar(wanted) else wanted)


def test_chunks_travel_once_and_again_only_where_they_have_changed():
    def live(rank):
        rows, nbytes = ROWS.copy(), []
        for change in (None, None, 1000, 1000, None):
            if change:
                rows[change] += 1
            malt.map_reduce(moments, np.ones(7), rows if rank == 0 else None)
            traffic = malt.init().chunk_statistics()
            nbytes.append((traffic.bytes_sent, traffic.bytes_read))
        return np.diff(nbytes, axis=0, prepend=[(0, 0)]).tolist()

    first, *others = malt.simulate(live, 4)
    sent = [pair[0] for pair in first]
    assert sent[0] > 0.7 * ROWS.nbytes and sent[1] == sent[4] == 0 < sent[2] == sent[3] < ROWS.nbytes / 25
    assert [sum(pairs) for pairs in zip(*([pair[1] for pair in one] for one in others), strict=True)] == sent


def test_what_stays_the_same_is_hashed_once():
    def live(rank):
        data = Halves(np.ones(3), np.ones(3) * 2)
        for _ in range(3):
            assert malt.map_reduce(moments, 1.0, data if rank == 0 else None)[0] == 9
        return data.reads

    assert malt.simulate(live, 2) == [2 + 1 + 3, 0]  # hashed; sent; done here


def file_of_rows(tmp_path):
    (tmp_path / "rows.svm").write_text("".join(f"{row % 2 * 2 - 1} 1:{row} 3:1\n" for row in range(80)))
    return str(tmp_path / "rows.svm")


def with_targets(path):
    return dataclasses.replace(malt.open_svmlight(path), y=np.ones(80, np.float32))


def set_targets(data):
    data.y[:] = 10


def set_values(data):
    data.X.data = data.X.data * 10
    data.X.data.flags.writeable = False


def set_frozen(data):
    data.flags.writeable = True
    data[:] = 10


def frozen_bytes(path):
    """An array that cannot be written to, of memory that can."""
    memory = bytearray(np.ones(80).tobytes())
    data = np.frombuffer(memoryview(memory).toreadonly())
    return data, lambda _: memory.__setitem__(slice(None), np.full(80, 10.0).tobytes())


CHANGES = {
    "other targets": lambda path: (with_targets(path), set_targets),
    "other values": lambda path: (malt.open_svmlight(path), set_values),
    "an array that was frozen": lambda path: (frozen(np.ones(80)), set_frozen),
    "memory of others": frozen_bytes,
    "a matrix": lambda path: (frozen_matrix(), lambda data: setattr(data, "data", frozen(data.data * 10))),
}


def frozen(array):
    array.flags.writeable = False
    return array


def frozen_matrix():
    matrix = scipy.sparse.csr_array(np.ones((80, 1)))
    for name in ("data", "indices", "indptr"):
        setattr(matrix, name, frozen(getattr(matrix, name).copy()))
    return matrix


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_between_two_calls_counts(tmp_path, change):
    """Ranks that were sent the rows before must not add them as they were."""
    path = file_of_rows(tmp_path)

    def total(_, rows):
        return float(rows.X.sum() + rows.y.sum()) if hasattr(rows, "X") else float(rows.sum())

    def live(rank):
        data, made = CHANGES[change](path)
        found = []
        for step in range(2):
            if step and rank == 0:
                made(data)
            found.append(malt.map_reduce(total, None, data if rank == 0 else None))
        return found

    first = {"other targets": 3240.0 + 80, "other values": 3240.0}.get(change, 80.0)
    later = {"other targets": 3240.0 + 800, "other values": 32400.0}.get(change, 800.0)
    assert malt.simulate(live, 3) == [[first, later]] * 3


@pytest.mark.parametrize("change", [set_targets, set_values])
def test_ranks_whose_rows_differ_anywhere_are_told(tmp_path, change):
    path = file_of_rows(tmp_path)

    def live(rank):
        data = with_targets(path)
        if rank == 1:
            change(data)
        return malt.map_reduce(lambda _, rows: float(rows.y.sum()), None, data)

    kind, text = errors(3, live)
    assert kind == "ValueError" and re.search("rank 0 has rows 0 to 80 of a file, checksum .*, rank 1 has rows", text)


def test_the_order_of_a_function_of_the_users():
    def live(rank):
        return malt.map_reduce(lambda theta, some: {"words": list(some)}, None, list("abcde"),
                               lambda left, right: {"words": left["words"] + right["words"]})  # fmt: skip

    assert malt.simulate(live, 3) == [{"words": ["a", "b", "c", "d", "e"]}] * 3


def test_a_function_may_return_the_same_array_each_time():
    out = np.zeros(7)

    def total(theta, rows):
        out[:] = rows.sum(0)
        return out

    for found in malt.simulate(lambda rank: malt.map_reduce(total, None, ROWS), 2):
        np.testing.assert_allclose(found, ROWS.sum(0))


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_function_that_makes_a_collective_call_is_told(ranks):
    """32 chunks of 3 ranks: one rank made fewer calls, and took the bytes of the others for its own."""

    def live(rank):
        with pytest.raises(RuntimeError, match="^malt.map_reduce: chunk 0 on rank 0: function makes a collective call"):
            malt.map_reduce(lambda theta, rows: malt.allreduce(rows.sum(), "sum"), None, np.arange(100.0))
        return malt.allreduce(rank, "sum")

    assert malt.simulate(live, ranks) == [sum(range(ranks))] * ranks


def test_chunks_cannot_be_written_to():
    def write(theta, rows):
        rows[0] = 0

    with pytest.raises(ValueError, match="chunk 0 on rank 0: .*read-only"):
        malt.simulate(lambda rank: malt.map_reduce(write, None, ROWS if rank == 0 else None), 2)


def errors(ranks, call):
    """What each rank raised."""

    def live(rank):
        with pytest.raises(Exception) as caught:
            call(rank)
        assert malt.allgather(rank) == list(range(ranks))  # all go on
        return type(caught.value).__name__, str(caught.value)

    found = malt.simulate(live, ranks)
    assert len(set(found)) == 1, found
    return found[0]


@pytest.mark.parametrize("ranks", RANKS)
def test_an_error_of_the_function_is_raised_on_all(ranks):
    def broken_function(theta, rows):
        if rows[0, 0] in ROWS[900:, 0]:
            raise FloatingPointError("too large")
        return 0

    kind, text = errors(ranks, lambda rank: malt.map_reduce(broken_function, None, ROWS))
    place = ranks - 1
    assert kind == "FloatingPointError"
    assert text.startswith(f"malt.map_reduce: chunk 29 on rank {place}: too large\n\nTraceback (most recent call last)")
    assert "in broken_function" in text and "malt/data/mapreduce" not in text


def never_sliced(rank):
    dataset = Halves(np.ones(3), object())
    return malt.map_reduce(lambda theta, rows: 0, None, dataset if rank == 0 else None)


CALLS = {
    "function must be callable, got 3": lambda rank: malt.map_reduce(3, None, ROWS),
    "reduce must be callable, got 3": lambda rank: malt.map_reduce(len, None, ROWS, 3),
    "on rank 2: dataset must be an array, .* got dict": lambda rank: malt.map_reduce(
        len, None, {} if rank == 2 else ROWS),
    "dataset is empty": lambda rank: malt.map_reduce(len, None, []),
    "dataset is None on all ranks": lambda rank: malt.map_reduce(len, None, None),
    "disagree on theta: rank 0 has one of SHA-256": lambda rank: malt.map_reduce(len, np.arange(rank + 3), ROWS),
    "disagree on reduce": lambda rank: malt.map_reduce(len, None, ROWS, None if rank else min),
    "or None: rank 0 has a list of 3, checksum ........, rank 1 has a list of 3": lambda rank: malt.map_reduce(
        sum, None, random.Random(rank).sample(range(9), 3)),
    "disagree on theta: rank 0 has a set, checksum": lambda rank: malt.map_reduce(sum, {rank}, [1]),
    r"or None: rank 0 has an array of shape \(1003, 7\) of float64, checksum ........, rank 1 has an array":
        lambda rank: malt.map_reduce(len, None, ROWS + rank),
    "chunk 1 on rank 0: a value of type object cannot be exchanged": never_sliced,
    "chunk 0 on rank 0: a value of type object cannot be exchanged": lambda rank: malt.map_reduce(
        lambda theta, rows: object(), None, ROWS),
    "results of type dict cannot be added: pass reduce=": lambda rank: malt.map_reduce(
        lambda theta, rows: {}, None, ROWS),
    "results of dtype bool cannot be added: astype": lambda rank: malt.map_reduce(
        lambda _, rows: rows[:1] > 3, 0, np.arange(40.0)),
    "results must be alike to be added, got a list of 0 and a list of 1": lambda rank: malt.map_reduce(
        lambda theta, rows: [0] * int(rows[0, 0] > ROWS[0, 0]), None, ROWS[[0] * 32 + [ROWS[:, 0].argmax()] * 16]),
    r"results must be alike to be added, got an array of shape \(3,\) .* and an array of shape \(1,\)": lambda rank:
        malt.map_reduce(lambda theta, rows: np.zeros(3 - 2 * int(rows[0])), None, np.repeat([0.0, 1.0], 16)),
    "results must be alike to be added, but their arrays": lambda rank: malt.map_reduce(
        lambda theta, rows: np.zeros(100 if rows[0, 0] == 0 else 101), None, np.repeat([0.0, 1.0], 16)[:, None]),
}  # fmt: skip


@pytest.mark.parametrize("message", CALLS)
def test_bad_input_is_one_line_on_all_ranks(message):
    ranks = 2 if "but their arrays" in message else 3
    kind, text = errors(ranks, CALLS[message])
    assert kind in ("ValueError", "TypeError") and text.startswith("malt.map_reduce: ") and "\n" not in text
    assert re.search(message, text)


@pytest.mark.parametrize("turn", range(3, 210, 11))
def test_a_rank_fails(turn):
    """Its chunks are done by others, with the same bits; without the only rank that has the data all raise PeerLost."""
    [alone] = malt.simulate(lambda rank: bits(malt.map_reduce(moments, np.ones(7), ROWS)), 1)

    def live(rank):
        malt.allgather(0)
        found = []
        for has in (True, rank == 0):
            try:
                found += [bits(malt.map_reduce(moments, np.ones(7), ROWS if has else None)) for _ in range(2)]
            except malt.PeerLost as error:
                found.append(error.rank)
        return found

    fails = turn % 3
    lists, failed = run_failing(3, turn, {fails: turn}, live)
    ends = [lists[rank] for rank in range(3) if rank not in failed]
    assert all(end == ends[0] for end in ends)
    assert [one for one in ends[0] if one != alone] in ([], [0] if 0 in failed else [])

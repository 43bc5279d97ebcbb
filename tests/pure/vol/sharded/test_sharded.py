"""Sharded vectors of simulated ranks, against NumPy twins: arithmetic, scalars, pulls, pushes, and what is refused."""

import math
import operator
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from ranks import error_everywhere, same_on_all

import malt
from dstorm import ClosedError, PeerLost
from vol.sharded import ShardedVector, Temporary, dots, push
from vol.sharded.layout import ShardLayout
from vol.sharded.part import Parts

SIZES = [1, 3, 4]
SHAPES = [(0,), (1,), (2,), (37,), (6, 3)]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Parts of several blocks, and pushes of several messages."""
    monkeypatch.setattr("vol.sharded.layout.BLOCK_NBYTES", 32)
    monkeypatch.setattr("vol.sharded.push.MESSAGE_NBYTES", 40)


def filled(vector, values):
    """`vector`, a sharded one, with these values."""
    vector.local[...] = values[vector.range]
    malt.barrier()
    return vector


def changes(random):
    """A change of s by x, and by the number a: the same for sharded vectors and for arrays."""
    return random.choice(
        [
            lambda s, x, a: operator.iadd(s, x), lambda s, x, a: operator.isub(s, x * a),
            lambda s, x, a: operator.imul(s, a), lambda s, x, a: operator.itruediv(s, 2 + x * x),
            lambda s, x, a: operator.iadd(s, a * (x - 1) / 2), lambda s, x, a: operator.isub(s, -x + (1 - x)),
            lambda s, x, a: operator.isub(s, 1 / (x * x + 1)),
        ]
    )  # fmt: skip


METHODS = {
    "axpy": (lambda s, x, a: s.axpy(a, x), lambda s, x, a: s + a * x),
    "scale": (lambda s, x, a: s.scale(a), lambda s, x, a: s * a),
    "sub": (lambda s, x, a: s.sub(x), lambda s, x, a: s - x),
    "mul": (lambda s, x, a: s.mul(x), lambda s, x, a: s * x),
    "fill": (lambda s, x, a: s.fill(a), lambda s, x, a: np.full_like(s, a)),
    "copy": (lambda s, x, a: s.copy(x), lambda s, x, a: x),
    "a copy": (lambda s, x, a: s.copy(s.copy()), lambda s, x, a: s),
    "zip": (lambda s, x, a: s.zip(lambda mine, other: mine * other + a, x), lambda s, x, a: s * x + a),
}
SCALARS = {
    "dot": (lambda s, x: s.dot(x), np.vdot),
    "@": (lambda s, x: (s - x) @ x, lambda s, x: np.vdot(s - x, x)),
    "norm": (lambda s, x: s.norm(), lambda s, x: np.linalg.norm(s)),
    "sum": (lambda s, x: (s + 1).sum(), lambda s, x: (s + 1).sum()),
    "nnz": (lambda s, x: s.nnz(), lambda s, x: np.count_nonzero(s)),
    "max": (lambda s, x: s.max(), lambda s, x: s.max()),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arithmetic_is_that_of_arrays(size, dtype, shape):
    random = np.random.default_rng([size, len(shape), shape[0]])
    s, x = random.normal(size=(2, *shape)).astype(dtype)
    s[:1] = 0
    steps = [(name, round(float(random.normal()), 2)) for name in random.permutation([*METHODS, *"....."])]
    operators = [changes(random) for _ in steps]

    def program():
        mine, other = filled(malt.sharded(shape, dtype), s), filled(malt.sharded(shape, dtype), x)
        twin, found, wanted = s.copy(), [], []
        for (name, a), change in zip(steps, operators, strict=True):
            if name in METHODS:
                METHODS[name][0](mine, other, a)
                twin = METHODS[name][1](twin, x, a).astype(dtype)
            else:
                assert change(mine, other, a) is mine
                change(twin, x, a)
            malt.barrier()
            np.testing.assert_array_equal(mine.pull(), twin, strict=True)
            if math.prod(shape):
                found += [scalar(mine, other) for scalar, _ in SCALARS.values()]
                wanted += [float(scalar(twin, x)) for _, scalar in SCALARS.values()]
        np.testing.assert_allclose(found, wanted, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-5)
        return found

    same_on_all(program, size)


@pytest.mark.parametrize("size", SIZES)
def test_products_with_a_matrix(size):
    random = np.random.default_rng(size)
    matrix, x, y = random.normal(size=(7, 3)), random.normal(size=3), random.normal(size=7)

    def program():
        m, v = filled(malt.sharded((7, 3), "float64"), matrix), filled(malt.sharded(7, "float64"), y)
        v += m.matvec(x)
        malt.barrier()
        np.testing.assert_allclose(v.pull(), y + matrix @ x)
        np.testing.assert_allclose(m.rmatvec(v), matrix.T @ (y + matrix @ x))
        for call in (lambda: m.rmatvec(m), lambda: v.rmatvec(v), lambda: m.rmatvec(y)):
            assert type(error_everywhere(call)) is ValueError
        with pytest.raises(ValueError, match=r"matvec: a matrix of shape \(7, 3\) and a vector of shape \(7,\)"):
            m.matvec(y)
        return m.rmatvec(v).tobytes()

    same_on_all(program, size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_pushes_and_pulls_are_those_of_arrays(size, shape, seed):
    """Also while all push at once, more than the queues take."""

    def program():
        random = np.random.default_rng([seed, malt.rank()])
        s, twin = malt.sharded(shape, "float64"), np.zeros(shape)
        for _ in range(4):
            index = random.integers(0, max(shape[0], 1), size=random.integers(0, 40) if shape[0] else 0)
            some = random.integers(-9, 9, size=(len(index), *shape[1:])).astype(float)
            s.push(some, index)
            np.add.at(twin, index, some)
            whole = random.integers(-9, 9, size=shape)
            s.push(whole)
            twin += whole
            some = slice(*sorted(random.integers(-3, shape[0] + 2, size=2).tolist()))
            s.push(whole[some], some)
            twin[some] += whole[some]
        malt.barrier()
        malt.allreduce(twin, "sum")
        np.testing.assert_array_equal(s.pull(), twin)
        np.testing.assert_array_equal(s.pull(index), twin[index])
        np.testing.assert_array_equal(s.pull(some), twin[some])
        out = np.empty_like(twin)
        assert s.pull(out=out) is out
        np.testing.assert_array_equal(out, twin)
        np.testing.assert_array_equal(s.local, twin[s.range])
        malt.barrier()
        total = s.statistics()
        assert total.refused == total.overwritten == total.pending == 0 and total.bytes_read >= 0
        return malt.allgather([total.sent, total.gathered])

    totals = same_on_all(program, size, seed)
    assert sum(sent for sent, _ in totals) == sum(gathered for _, gathered in totals)
    assert size == 1 or not shape[0] or totals[0][0] > 0


@pytest.mark.parametrize("seed", range(10))
def test_after_a_barrier_all_pushes_are_in(seed):
    """All of them, in the first barriers, which exchange more, and in later ones: where some ranks have pushed since
    the ranks met last and others have not, or none has."""

    def live(rank):
        s, random = malt.sharded(7), np.random.default_rng(seed)
        for _ in range(40 * (seed % 2)):
            malt.barrier()
        total = 0
        for _ in range(12):
            early, late, meets = random.random((3, 3)) < 0.5
            for pushes in (early, late):
                if pushes[rank]:
                    s.push(np.ones(7))
                total += int(pushes.sum())
                if pushes is early and meets[0]:
                    malt.allreduce(np.ones(1))
            malt.barrier()
            assert s.pull().tolist() == [total] * 7
            malt.barrier()

    malt.simulate(live, 3, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_ranks_that_push_to_each_other_never_wait_in_a_circle(seed):
    """Also to different vectors; and what an owner computes meanwhile keeps what comes."""

    def program():
        first, second = malt.sharded(8), malt.sharded(8)
        mine, other = (first, second) if malt.rank() % 2 else (second, first)
        for turn in range(12):
            mine.push(np.ones(8))
            if turn % 3 == 0:
                other.zip(lambda part: (malt.rank(), part + 1)[1])
        malt.barrier()
        other.push(np.ones(8))
        malt.barrier()
        return (first.pull() + second.pull()).tolist()

    assert same_on_all(program, 3, seed) == [3 * 12 + 4 + 3] * 8


@pytest.mark.parametrize("call", [
    lambda s, v: malt.rank(), lambda s, v: malt.shard(10), lambda s, v: v.scatter(), lambda s, v: s.fill(0),
    lambda s, v: s.pull([0]), lambda s, v: s.push([0], [0]), lambda s, v: s + 1, lambda s, v: (s + 1) * 2,
])  # fmt: skip
def test_pushes_come_in_with_any_call_of_the_owner(call):
    done = []

    def program():
        s, v = malt.sharded(4), malt.vector(2)
        transport = malt.init().transport

        def await_(step):
            while step not in done:
                transport._group.switch(transport.rank)

        if transport.rank == 0:
            await_("made")
            s.push([1.0], [3])
            done.append("pushed")
        else:
            done.append("made")
            await_("pushed")
            assert s.statistics().pending == 1
            call(s, v)
            assert s.statistics().pending == 0
        malt.barrier()

    same_on_all(program, 2)


def test_scalars_alone_are_exchanged_and_several_at_once():
    def program():
        s, x = (malt.sharded(40_000, "float64") for _ in range(2))
        s.local[:], x.local[:] = (np.random.default_rng(seed).normal(size=40_000)[s.range] for seed in (1, 2))
        others, before = malt.size() - 1, s.statistics().bytes_sent
        wanted = [s.dot(x), x.dot(x), (s + x).dot(s)]
        assert s.statistics().bytes_sent - before == 2 * 8 * others, "those of x are sent by x"
        assert dots([(s, x), (x, x), (s + x, s)]) == wanted
        assert s.statistics().bytes_sent - before == 5 * 8 * others
        s.axpy(2, x)
        s.zip(lambda mine, other: (mine + 1, other), x)
        x *= s
        assert [one.statistics().bytes_sent for one in (s, x)] == [before + 5 * 8 * others, 8 * others]
        error = error_everywhere(lambda: dots([(s, x)] * (1 + malt.rank() % 2)))
        assert type(error) is ValueError and "ranks exchange 1 and 2 numbers" in str(error)
        for text in ("x" * length for length in range(9)):
            assert str(error_everywhere(lambda text=text: s._scalars.of_all("dot", lambda: refuse(text)))) == text
        return s.statistics().bytes_read

    def refuse(text):
        raise ValueError(text)

    assert same_on_all(program, 2) == 0


REFUSED = [
    (lambda s: s.pull([0, 10]), IndexError, "index 10 is out of range: there are 10 rows"),
    (lambda s: s.pull([-1]), IndexError, "index -1 is out of range"),
    (lambda s: s.pull([0.0]), TypeError, "index must be a list of integers"),
    (lambda s: s.pull([True] * 10), TypeError, "index must be a list of integers"),
    (lambda s: s.pull([[1]]), TypeError, "index must be a list of integers"),
    (lambda s: s.pull(slice(0, 9, 2)), ValueError, "a slice must have step 1"),
    (lambda s: s.push([1.0], slice(0, 2)), ValueError, r"values must have shape \(2,\), got \(1,\)"),
    (lambda s: s.pull(out=np.zeros(10)), TypeError, "out must be an array of float32"),
    (lambda s: s.pull([1], out=np.zeros(2, "f4")), ValueError, r"out must be .* of shape \(1,\)"),
    (lambda s: s.pull(out=np.zeros(20, "f4")[::2]), ValueError, "out must be C-contiguous"),
    (lambda s: s.push(np.ones(9)), ValueError, r"values must have shape \(10,\), got \(9,\)"),
    (lambda s: s.push([1.0], [1, 2]), ValueError, r"values must have shape \(2,\), got \(1,\)"),
    (lambda s: s.push([1j], [1]), TypeError, "values of complex128 cannot be added to float32"),
    (lambda s: s.push(["a"], [1]), TypeError, "cannot be added to float32"),
    (lambda s: s.push([1.0], [10]), IndexError, "index 10 is out of range"),
    (lambda s: s.push(np.ma.masked_equal(np.ones(10), 1)), TypeError, "values must not be a masked array"),
    (lambda s: s.push([1.0], np.ma.masked_equal([1], 1)), TypeError, "index must not be a masked array"),
    (lambda s: s.pull(out=np.ma.zeros(10, "f4")), TypeError, "out must be an array of float32"),
    (lambda s: s.axpy("1", s), TypeError, "a must be a number, got '1'"),
    (lambda s: s.axpy(1, np.ones(10)), TypeError, "axpy takes a sharded vector"),
    (lambda s: s.scale(None), TypeError, "a must be a number, got None"),
    (lambda s: s.fill(s), TypeError, "value must be a number"),
    (lambda s: s + np.ones(10), TypeError, "operand"),
    (lambda s: np.ones(10) * s, TypeError, "operand"),
    (lambda s: operator.iadd(s, "a"), TypeError, "unsupported operand"),
    *((lambda s, call=call: call(s), TypeError, "its method pull gathers one, and local is this rank's part")
      for call in (np.asarray, lambda s: np.cumsum(s + 1), lambda s: np.zeros_like(s, int), np.where,
                   lambda s: np.sum(s, axis=0), lambda s: np.float32(s), lambda s: np.asarray(s + 1))),
    *((call, ValueError, "w is neither true nor false: np.any or np.all")
      for call in (bool, lambda s: s and 1, lambda s: 1 if s > 0 else 2, lambda s: s in [s + 1])),
    (lambda s: (s + 1).pull(), TypeError, "a temporary of w has only local memory"),
    (lambda s: (s + s - 1).push([1.0], [1]), TypeError, "a temporary of w has only local memory"),
    (lambda s: s.zip(lambda part: part[:0]), ValueError, "an array of shape .* should be returned, got shape"),
    (lambda s: s.zip(lambda part: 3), ValueError, "should be returned, got 3"),
    (lambda s: s.zip(lambda part: (part, part)), ValueError, "2 arrays were returned for 1 vectors"),
    (lambda s: s.zip(lambda part: part * 1j), TypeError, "complex64 was returned for w of float32"),
    (lambda s: s.zip(lambda part: part.fill(7) or 1 / 0), ZeroDivisionError, "division"),
]  # fmt: skip


@pytest.mark.parametrize("call, kind, text", REFUSED)
def test_what_is_wrong_is_refused_on_the_caller_alone_and_changes_nothing(call, kind, text):
    def program():
        s = malt.sharded(10, name="w")
        s.fill(3)
        malt.barrier()
        if malt.rank() == 1:
            with pytest.raises(kind, match=text):
                call(s)
        malt.barrier()
        assert s.statistics().sent == 0
        return s.pull().tolist()

    assert same_on_all(program, 3) == [3] * 10


@pytest.mark.parametrize("call", [
    lambda s, other: s.axpy(1, other), lambda s, other: s.sub(other), lambda s, other: s.mul(other),
    lambda s, other: s.copy(other), lambda s, other: s.zip(lambda a, b: None, other), lambda s, other: s + other,
    lambda s, other: operator.isub(s, other + 1),
])  # fmt: skip
def test_layouts_that_differ_are_named(call):
    def program():
        s, other = malt.sharded(10, name="w"), malt.sharded((10, 1), name="m")
        with pytest.raises(ValueError) as caught:
            call(s, other)
        assert "w has shape (10,) on ranks 0, 1" in str(caught.value)
        assert "has shape (10, 1) on ranks 0, 1" in str(caught.value)

    same_on_all(program, 2)


def test_collective_calls_raise_the_same_error_on_all_ranks():
    def program():
        s, other = malt.sharded(10, name="w"), malt.sharded(11)
        is_odd = malt.rank() == 1
        for call, kind, text in (
            (lambda: s.dot(other), ValueError, "w.dot: the layouts differ"),
            (lambda: s.dot(other if is_odd else s), ValueError, "on rank 1: w.dot: the layouts differ"),
            (lambda: s @ (s if is_odd else s + 1) - s.dot(3 if is_odd else s), TypeError, "on rank 1: w.dot takes"),
            (lambda: s @ (np.ones(10) if is_odd else s), TypeError, "on rank 1: w.dot takes"),
            (lambda: malt.sharded(0).max(), ValueError, "has no elements"),
            (lambda: malt.sharded(3 if is_odd else 4), ValueError, "ranks disagree on shape: rank 0 has [4]"),
            (lambda: malt.sharded(-1), ValueError, "n must be a length of at least 0"),
            (lambda: malt.sharded((3, 0)), ValueError, "n must be a length of at least 0, or a shape"),
            (lambda: malt.sharded((3, 1, 1)), ValueError, "n must be a length"),
            (lambda: malt.sharded(2.0), ValueError, "n must be a length, or a shape"),
            (lambda: malt.sharded(3, "int32" if is_odd else "f4"), ValueError, "on rank 1: dtype must be float32 or"),
        ):
            error = error_everywhere(call)
            assert type(error) is kind and text in str(error)

    same_on_all(program, 3)


def test_numbers_of_numpy_and_what_is_not_finite():
    def program():
        s = malt.sharded(6)
        s += np.float64(2)
        t = np.float32(3) * s
        assert t.dtype == np.float32 and (np.array(3.0) / s).dtype == np.float64
        s.local[:] = [np.inf, -np.inf] * 3 if malt.size() == 1 else [np.inf, -np.inf, np.nan][malt.rank()]
        return [s.sum(), s.norm(), s.max(), s @ s, s.nnz()]

    assert same_on_all(program, 3)[-1] == 6


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", ["mean", "sum", "max"])
def test_reduce_scatter(size, op, monkeypatch):
    monkeypatch.setattr("vol.sharded.vector.PIECE_NBYTES", 50)
    everyone = np.random.default_rng(1).normal(size=(size, 11, 2)).astype("f4")
    total = everyone[0].copy()
    for other in everyone[1:]:
        total = np.maximum(total, other) if op == "max" else total + other
    wanted = total / np.float32(size) if op == "mean" else total

    def program():
        mine = everyone[malt.rank()].copy()
        s = malt.reduce_scatter(mine, op=op)
        assert (mine == everyone[malt.rank()]).all()
        np.testing.assert_array_equal(s.pull(), wanted, strict=True)
        assert malt.reduce_scatter(np.empty(0)).sum() == 0
        moved = malt.init().statistics()
        assert moved.bytes_sent == 8 * (11 - len(s.local))
        for array, text in ((np.ones(3, "i4"), "dtype must be"), ([1.0], "NumPy array"), (np.ones(()), "n must be")):
            assert text in str(error_everywhere(lambda given=array: malt.reduce_scatter(given)))
        assert "op must be" in str(error_everywhere(lambda: malt.reduce_scatter(mine, "median")))
        error = error_everywhere(lambda: malt.allreduce(mine, algorithm="mpi"))
        assert type(error) is ValueError and "MPI's own collectives" in str(error)

    same_on_all(program, size)


def test_close_is_collective_and_twins_go_on():
    def program():
        with malt.sharded(5) as s:
            twin = s.derive()
            s.fill(1)
            s.push(np.ones(5))
        assert s.closed
        s.close()
        for call in (lambda: s.local, lambda: s.fill(0), lambda: s.pull(), lambda: s.push(np.ones(5)), lambda: s + 1):
            with pytest.raises(ClosedError, match="sharded 1 is closed"):
                call()
        assert type(error_everywhere(lambda: s.sum())) is ClosedError
        again = malt.sharded(5)
        assert again.sum() == twin.sum() == 0 and s.statistics().sent == malt.size() - 1
        with pytest.raises(KeyError), again:
            raise KeyError
        malt.allgather(again.closed)
        if malt.rank() == 0:
            twin.leave()
        malt.allgather(0)
        if malt.rank() == 1:
            with pytest.raises(PeerLost, match="rank 0"):
                twin.push(np.ones(5))
        return twin.range.stop - twin.range.start if malt.size() == 1 else 0

    same_on_all(program, 3)


def test_few_ranks_push_in_longer_messages(monkeypatch):
    monkeypatch.undo()

    def capacity(size):
        return push.queue_layout(ShardLayout((1 << 20, 1), tuple(range(size)), np.dtype("float64"))).capacity

    assert [capacity(size) >> 10 for size in (2, 4, 8, 16)] == [256, 128, 64, 64]


def test_a_push_that_no_sender_would_make_is_not_read():
    layout = ShardLayout((10, 2), (0, 1), np.dtype("float32"))
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    (sound,) = push.ranges(1, 2, values, 100)
    (some,) = push.listed(1, np.array([4, 0, 4]), values, 100)
    body = np.concatenate([some.body, some.tail])

    def read(payload, encoding):
        return push.read(SimpleNamespace(payload=payload, encoding=encoding), layout, 1)

    rows, found = read(sound.body, 2)
    assert rows == slice(2, 5) and (found == values).all()
    rows, found = read(body, push.LISTED)
    assert rows.tolist() == [4, 0, 4] and (found == values).all()
    for payload, encoding in (
        (sound.body, 3), (sound.body, -2), (sound.body[:-4], 2), (body[:-4], push.LISTED),
    ):  # fmt: skip
        assert read(payload, encoding) is None
    body[:8] = np.array([5]).view(np.uint8)
    assert read(body, push.LISTED) is None
    body[:8] = np.array([-1]).view(np.uint8)
    assert read(body, push.LISTED) is None


def test_what_the_numbers_of_a_push_raise_does_not_reach_the_owner():
    def program():
        s = malt.sharded(8)
        with np.errstate(all="raise"):
            for _ in range(10):  # more than a queue takes
                s.push(np.full(8, np.finfo(np.float32).max))
            malt.barrier()
        return s.max(), s.statistics().refused

    assert same_on_all(program, 2) == (math.inf, 0)


@pytest.mark.parametrize("call", [
    lambda s, x: s.axpy(2.0, x), lambda s, x: operator.iadd(s, x),
    lambda s, x: s.zip(lambda a, b: (a + 1, np.where(b > 2, np.float64(1e300), b)), x),
], ids=["axpy", "operator", "zip"])  # fmt: skip
def test_a_change_in_which_numpy_raises_changes_no_block(call):
    """Nor the other vector of a zip."""

    def program():
        s, x = (malt.sharded(40) for _ in range(2))
        for vector in (s, x):
            vector.local[:] = 1
            vector.local[-1] = np.finfo(np.float32).max
        with np.errstate(over="raise"), pytest.raises(FloatingPointError):
            call(s, x)
        for vector in (s, x):
            assert (vector.local[:-1] == 1).all() and vector.local[-1] == np.finfo(np.float32).max
        assert (s._parts._versions % 2 == 0).all()

    same_on_all(program, 2)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_rank_that_has_left_a_vector_alone_still_meets_the_others_in_barriers(kind):
    def program():
        s = malt.sharded(100, kind=kind)
        s.push(np.ones(60), np.arange(60))
        malt.init().transport.barrier()
        if malt.rank() == 0:
            s.leave()
        for _ in range(3):
            malt.barrier()
        return malt.allgather(malt.rank())

    assert same_on_all(program, 3) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_what_is_pushed_while_a_vector_is_made_is_added_once_it_is(kind, monkeypatch):
    """Another rank has it already; another thread of this one calls malt."""

    def parts(window, *arguments):
        if malt.rank() == 0:
            for _ in range(200):  # until it has come
                window.sync()
            malt.init().transport.attend()  # as another thread does in a wait
        return Parts(window, *arguments)

    monkeypatch.setattr("vol.sharded.owned.Parts", parts)

    def program():
        s = malt.sharded(2, kind=kind)
        if malt.rank() == 1:
            s.push(np.ones(2), np.arange(2))
        malt.barrier()
        return s.sum()

    assert same_on_all(program, 2) == 2


def test_a_vector_is_a_key_and_differs_from_what_is_neither_vector_nor_number():
    def program():
        s = malt.sharded(8)
        assert {s: 1}[s] == 1 and s in [s] and s != None and s != "x"  # noqa: E711

    same_on_all(program, 2)


X, Y = (np.random.default_rng(seed).standard_normal(11).round(1).astype("f8") for seed in (1, 2))
NUMPY = {
    "dot": lambda x, y: np.dot(x, y), "inner": lambda x, y: np.inner(x, y + 1), "vdot": lambda x, y: np.vdot(x, y),
    "norm": lambda x, y: np.linalg.norm(x - y), "norm 1": lambda x, y: np.linalg.norm(x, 1),
    "norm of a mask": lambda x, y: np.linalg.norm(x > 0),
    "largest": lambda x, y: np.linalg.norm(x, np.inf), "sum": lambda x, y: np.sum(x), "mean": lambda x, y: np.mean(y),
    "max": lambda x, y: np.max(x), "min": lambda x, y: np.min(np.abs(x)), "nonzero": lambda x, y: np.count_nonzero(x),
    "all": lambda x, y: np.all(x > -9) and not np.all(x > 0),
    "any": lambda x, y: np.any(x >= 0), "len": lambda x, y: len(x), "scaled": lambda x, y: np.dot(x, 2),
    "shape": lambda x, y: (*np.shape(x), np.ndim(x), np.size(x)), "matmul": lambda x, y: np.matmul(x, y),
    "sqrt": lambda x, y: np.sqrt(np.square(x) + 1),
    "power": lambda x, y: abs(x) ** 2.5 + 2.0**y, "where": lambda x, y: np.where(x < y, x, 0),
    "numpy's number": lambda x, y: np.float64(2) * x - np.float64(1) / (3 + x * x),
    "clip": lambda x, y: np.clip(x, -0.5, 0.5), "clip below": lambda x, y: np.clip(x, None, 0.5),
    "clip above": lambda x, y: np.clip(x, y, None), "clip by name": lambda x, y: np.clip(x, a_min=0, a_max=y),
    "equal": lambda x, y: np.where(x == 0.3, 1, x), "not equal": lambda x, y: (np.sign(x) != np.sign(y)) * x,
    "number": lambda x, y: np.sum(x == 0.3) + np.sum(np.float64(0.3) != x),
    "least truth": lambda x, y: np.min(x < y), "largest integer": lambda x, y: np.max((x < y) * 2),
    "full": lambda x, y: np.full_like(x, fill_value=3),
    "ones": lambda x, y: np.ones_like(x) + np.full_like(y, 3), "sign": lambda x, y: np.sign(x) * (y <= 0),
    "copy": lambda x, y: np.copy(x), "maximum": lambda x, y: np.maximum(x, y), "add": lambda x, y: np.add(x, y, out=x),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMPY)
def test_numpys_functions_are_those_of_arrays(name):
    def program():
        x, y = malt.sharded(11, "float64"), malt.sharded(11, "float64")
        x.local[:], y.local[:] = X[x.range], Y[y.range]
        found, wanted = NUMPY[name](x, y), NUMPY[name](X.copy(), Y.copy())
        if isinstance(found, (Temporary, ShardedVector)):
            wanted, found = wanted[x.range], found.local
        np.testing.assert_allclose(found, wanted)
        assert np.shape(found) == np.shape(wanted)

    same_on_all(program, 2)


def test_the_mean_of_no_elements_is_that_of_numpy():
    def program():
        with pytest.warns(RuntimeWarning, match="divide"):
            assert np.isnan(np.mean(malt.sharded(0)))

    same_on_all(program, 2)


def textbook_lbfgs(function, w, memory=5, iterations=10):
    """L-BFGS as a textbook has it, for arrays of NumPy: two loops, and a step that backtracks."""
    value, gradient = function(w)
    pairs = []
    for _ in range(iterations):
        way, factors = np.copy(gradient), []
        for s, y in reversed(pairs):
            factors.append(np.dot(s, way) / np.dot(y, s))
            way = way - factors[-1] * y
        if pairs:
            s, y = pairs[-1]
            way = np.dot(s, y) / np.dot(y, y) * way
        for (s, y), factor in zip(pairs, reversed(factors), strict=True):
            way = way + (factor - np.dot(y, way) / np.dot(y, s)) * s
        step = 1.0 if pairs else 1 / np.linalg.norm(gradient)
        while (found := function(w - step * way))[0] > value - 1e-4 * step * np.dot(gradient, way) and step > 1e-9:
            step /= 2
        pairs = [*pairs, (-step * way, found[1] - gradient)][-memory:]
        w, (value, gradient) = w - step * way, found
    return value


def test_an_optimizer_that_was_written_for_arrays_runs_unchanged():
    def rosenbrock(w):
        return np.sum((w - 1) ** 2 + 10 * np.sqrt(1 + w**4)), 2 * (w - 1) + 20 * w**3 / np.sqrt(1 + w**4)

    def program():
        return textbook_lbfgs(rosenbrock, malt.sharded(11, "float64") + 3.0)

    assert same_on_all(program, 3) == pytest.approx(textbook_lbfgs(rosenbrock, np.full(11, 3.0)), rel=1e-12)


def test_scalars_are_refused_when_the_session_is_over():
    def program():
        s = malt.sharded(8)
        temporary = s + 1
        malt.finalize()
        for call in (s.norm, temporary.norm, temporary.nnz):
            with pytest.raises(ClosedError, match="the session is over in this process"):
                call()

    same_on_all(program, 2)


@pytest.mark.parametrize("meets", [False, True])
def test_after_a_barrier_pushes_are_in_also_where_a_thread_of_the_owner_is_at_work(meets):
    """The thread's zip goes on until the owner waits for it in the barrier. `meets`: all have met after the push."""
    entered, may_end = threading.Event(), threading.Event()

    def program():
        s, transport = malt.sharded(8), malt.init().transport
        pause = transport.pause
        if malt.rank() == 1:
            while not entered.is_set():
                pause(1)
            s.push(np.ones(8))
            malt.allreduce(np.ones(1)) if meets else None
            malt.barrier()
            return
        thread = threading.Thread(target=s.zip, args=[lambda part: (entered.set(), may_end.wait(9), part * 1)[-1]])
        thread.start()
        entered.wait(9)
        malt.allreduce(np.ones(1)) if meets else None
        transport.pause = lambda polls: (may_end.set(), pause(polls))
        try:
            malt.barrier()
            assert s.local.tolist() == [1] * 4
        finally:
            may_end.set()
            thread.join()

    same_on_all(program, 2)


def test_a_rank_in_finalize_takes_pushes():
    """Until all ranks are there, more than its queue holds."""

    def program():
        s = malt.sharded(8)
        if malt.rank() == 0:
            return malt.finalize()
        for _ in range(50):
            s.push([1.0], [0])
        while s.pull([0]) != 50:
            malt.init().transport.pause(1)

    same_on_all(program, 2)


def test_memory_is_freed_once_no_rank_keeps_a_view():
    def program():
        s = malt.sharded(8)
        s.fill(3)
        kept = s.local[1:2] if malt.rank() == 1 else None
        s.close()
        later = malt.sharded(1)
        assert id(s) in map(id, malt.init().vectors)
        assert kept is None or kept == 3
        del kept
        malt.sharded(1)
        assert id(s) not in map(id, malt.init().vectors) and id(later) in map(id, malt.init().vectors)

    same_on_all(program, 2)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("count", [0, 1, 4, 7, 100])
def test_each_row_has_one_owner(size, count):
    layout = ShardLayout((count,), tuple(range(0, 2 * size, 2)), np.dtype("float32"))
    owned = [layout.rows(rank) for rank in range(2 * size)]
    assert [row for rows in owned for row in range(rows.start, rows.stop)] == list(range(count))
    counts = [layout.count(rank) for rank in layout.ranks]
    assert max(counts) - min(counts) <= 1
    rows = np.random.default_rng(0).permutation(count)
    dealt = [(places, theirs + owned[rank].start) for rank, places, theirs in layout.dealt(rows)]
    assert sorted(place for places, _ in dealt for place in places) == list(range(count))
    assert all((rows[places] == theirs).all() for places, theirs in dealt)

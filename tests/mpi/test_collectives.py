"""malt.allreduce, broadcast, allgather, lowest, together: all ranks get the same result, or the same error."""

import hashlib
import math

import numpy as np
import pytest
from ranks import error_everywhere

import malt
from dstorm.transports.watchdog import Watchdog
from malt.session import collectives

DTYPES = ["?", "i1", "i8", "u4", "f2", "f4", "f8", ">f4", "c8"]
SHAPES = [(), (0,), (3, 0, 2), (1,), (70_001,)]
CASES = [*((dtype, (3, 5)) for dtype in DTYPES), *(("f4", shape) for shape in SHAPES)]


def filled(shape, dtype, rank):
    """Return the array of `rank`: different for each rank, the same at each call."""
    values = np.random.default_rng([rank, len(shape)]).normal(size=shape) * 50
    return np.asarray(values).astype(dtype)


def same_everywhere(array):
    """Whether the array has the same bytes on all ranks."""
    return len(set(malt.allgather(hashlib.sha256(array.tobytes()).hexdigest()))) == 1


def expected(op, arrays):
    wide = np.float32 if arrays[0].dtype == np.float16 else arrays[0].dtype
    total = arrays[0].astype(wide)
    for array in arrays[1:]:
        combine = {"max": np.maximum, "min": np.minimum}.get(op, np.add)
        total = combine(total, array.astype(wide))
    if op == "mean":
        total = total / np.asarray(len(arrays), total.dtype)
    return np.asarray(total).astype(arrays[0].dtype)


class TestReduceRows:
    @pytest.mark.parametrize(("dtype", "shape"), [("i8", (7, 3, 2)), ("f4", (501,)), ("f2", (3, 4)), ("f8", (0, 2))])
    def test_the_rows_of_all_ranks_are_those_of_allreduce(self, dtype, shape, monkeypatch):
        monkeypatch.setattr("dstorm.reduction.PIECE_NBYTES", 100)
        everyone = [filled(shape, dtype, rank) for rank in range(malt.size())]
        own = everyone[malt.rank()].copy()
        for op in ("sum", "max", *["mean"] * (dtype != "i8")):
            rows = malt.allgather(malt.reduce_rows(own, op))
            assert [len(some) for some in rows] == np.diff(
                [place * shape[0] // malt.size() for place in range(malt.size() + 1)]
            ).tolist()
            assert np.concatenate(rows).tobytes() == expected(op, everyone).tobytes(), op
        assert own.tobytes() == everyone[malt.rank()].tobytes()

    def test_bad_arguments(self):
        assert "array has no rows" in str(error_everywhere(lambda: malt.reduce_rows(np.array(1.0))))
        assert type(error_everywhere(lambda: malt.reduce_rows(np.ones(3, int)))) is TypeError
        assert "op must be" in str(error_everywhere(lambda: malt.reduce_rows(np.ones(3), "median")))


def test_on_one_host_no_wait_is_one_of_mpi_which_keeps_the_core(monkeypatch):
    transport = malt.init().transport
    if hasattr(transport, "_by_mpi"):  # not a world of one
        monkeypatch.setattr(transport._by_mpi, "_comm", None)
    array = np.full(100_000, 1.0 + malt.rank())
    malt.allreduce(array, "max")
    assert (array == malt.size()).all() and len(malt.allgather(array)) == malt.size()
    malt.broadcast(array)


class TestAllreduce:
    @pytest.mark.parametrize("is_small", [True, False])
    @pytest.mark.parametrize("dtype, shape", CASES)
    def test_every_dtype_and_shape(self, dtype, shape, is_small, monkeypatch):
        monkeypatch.setattr(collectives, "_SUMMED_NBYTES", 1 << 30 if is_small else -1)
        everyone = [filled(shape, dtype, rank) for rank in range(malt.size())]
        for op in ("mean", "sum", "max", "min"):
            if op == "mean" and np.dtype(dtype).kind in "biu":
                continue
            array = everyone[malt.rank()].copy()
            assert malt.allreduce(array, op) is None
            assert array.tobytes() == expected(op, everyone).tobytes(), op

    @pytest.mark.parametrize("algorithm", ["reduce-scatter", "tree", "star", "mpi"])
    def test_algorithms(self, algorithm, monkeypatch):
        monkeypatch.setattr("dstorm.reduction.PIECE_NBYTES", 2000)
        monkeypatch.setattr("dstorm.transports.mpi.collectives._BROADCAST_NBYTES", 2000)
        is_ordered = algorithm in ("reduce-scatter", "star")
        for dtype, shape in [("f4", (3, 500)), ("f2", (2,)), ("i8", (0,)), (">f4", (3,)), ("f8", ())]:
            everyone = [filled(shape, dtype, rank) for rank in range(malt.size())]
            for op in ("sum", "max", "min", *["mean"] * (dtype != "i8")):
                array = everyone[malt.rank()].copy()
                malt.allreduce(array, op, algorithm)
                wanted = expected(op, everyone)
                assert same_everywhere(array) and array.dtype == dtype
                if is_ordered:
                    assert array.tobytes() == wanted.tobytes(), (op, dtype)
                near = 2e-3 if dtype == "f2" else 1e-4
                np.testing.assert_allclose(array.astype("f8"), wanted.astype("f8"), rtol=near)
        array = np.full(5, malt.rank() + 1.0 if malt.rank() else np.nan)
        malt.allreduce(array, weight=malt.rank() + (malt.size() == 1), algorithm=algorithm)
        ranks = range(1, malt.size())
        if malt.size() > 1:
            assert np.allclose(array, sum(rank * (rank + 1) for rank in ranks) / sum(ranks))
        assert same_everywhere(array)
        if algorithm == "mpi" and malt.size() > 1:
            error = error_everywhere(lambda: malt.allreduce(np.ones(3, "c8"), "sum", algorithm="mpi"))
            assert "MPI_Reduce cannot combine complex64" in str(error)

    def test_no_rank_is_hot_but_the_driver(self):
        hottest = {}
        for algorithm in ("reduce-scatter", "tree", "star"):
            before = malt.init().statistics()
            malt.allreduce(np.ones(2520, np.float32), algorithm=algorithm)
            after = malt.init().statistics()
            moved = after.bytes_sent + after.bytes_read - before.bytes_sent - before.bytes_read
            hottest[algorithm] = max(malt.allgather(moved)) / (4 * 2520)
        size = malt.size()
        levels = (size - 1).bit_length()
        assert hottest == {"reduce-scatter": 4 * (size - 1) / size, "tree": 2 * levels, "star": 2 * (size - 1)}

    def test_in_many_pieces(self, monkeypatch):
        monkeypatch.setattr("dstorm.transports.mpi.collectives._REDUCE_NBYTES", 4096)
        everyone = [filled((50_000,), "f4", rank) for rank in range(malt.size())]
        array = everyone[malt.rank()].copy()
        malt.allreduce(array)
        assert array.tobytes() == expected("mean", everyone).tobytes()

    def test_views_and_other_orders(self):
        whole = np.full((6, 8), float(malt.rank()))
        for view in (whole[::2, 1::3], whole.T[1:3], np.asfortranarray(whole), whole[::-1]):
            view[...] = malt.rank()
            malt.allreduce(view, "sum")
            assert (view == sum(range(malt.size()))).all()
        assert np.count_nonzero(whole) in (0, 48)

    @pytest.mark.parametrize("shape", [(5,), ()])
    def test_weights(self, shape):
        array = np.full(shape, malt.rank() + 1, np.float32)
        malt.allreduce(array, weight=malt.rank() + 1)
        ranks = range(1, malt.size() + 1)
        assert np.allclose(array, sum(rank * rank for rank in ranks) / sum(ranks))
        assert same_everywhere(array)

    def test_a_rank_of_weight_0_does_not_count(self):
        array = np.full(5, 3.0 if malt.lowest() else np.nan)
        malt.allreduce(array, weight=malt.lowest() * 1)
        assert (array == 3).all()

    def test_infinity_and_nan_are_passed_on(self):
        array = np.array([np.nan, np.inf, np.inf * (-1) ** malt.rank(), 1e38], np.float32)
        with np.errstate(all="raise"):
            malt.allreduce(array, "sum")
        assert np.isnan(array[0]) and np.isinf(array[1])
        assert np.isnan(array[2]) or malt.size() == 1
        assert same_everywhere(array)

    @pytest.mark.parametrize("options, text", [
        (dict(op="median"), "op must be 'mean' or 'sum' or 'max' or 'min', got 'median'"),
        (dict(op=["sum"]), "op must be"), (dict(op=np.zeros(2)), "op must be"),
        (dict(algorithm="ring"), "algorithm must be 'auto' or 'reduce-scatter' or 'tree' or 'star' or 'mpi', got"),
        (dict(weight=-1), "weight must be a number of at least 0, got -1"),
        (dict(weight=math.nan), "weight must be a number of at least 0, got nan"),
        (dict(weight=math.inf), "weight must be a number of at least 0, got inf"),
        (dict(weight="1"), "weight must be a number, got '1'"),
        (dict(weight=2, op="max"), "weight is for op='mean', got weight=2 with op='max'"),
        (dict(weight=0), "all weights are zero"),
    ])  # fmt: skip
    def test_bad_options(self, options, text):
        array = np.ones(3)
        error = error_everywhere(lambda: malt.allreduce(array, **options))
        assert type(error) is ValueError and str(error).startswith(f"malt.allreduce: {text}")
        assert (array == 1).all()

    @pytest.mark.parametrize("array", [
        [1.0, 2.0], 3j, True, "3", np.bool_(True), None, np.array(["a"]),
        np.array([None]), np.ma.ones(3), np.zeros(3, "f4,f4"),
    ])  # fmt: skip
    def test_what_is_not_an_array_of_numbers(self, array):
        assert type(error_everywhere(lambda: malt.allreduce(array))) is ValueError

    def test_read_only(self):
        array = np.ones(3)
        array.flags.writeable = False
        assert "array is read-only" in str(error_everywhere(lambda: malt.allreduce(array)))

    @pytest.mark.parametrize("dtype", ["i4", "u1", "?"])
    def test_a_mean_of_integers(self, dtype):
        array = np.ones(3, dtype)
        assert type(error_everywhere(lambda: malt.allreduce(array))) is TypeError
        assert (array == 1).all()

    @pytest.mark.parallel
    @pytest.mark.parametrize("differing", [
        lambda odd: malt.allreduce(np.ones(4 if odd else 3)),
        lambda odd: malt.allreduce(np.ones((1, 3) if odd else 3)),
        lambda odd: malt.allreduce(np.ones(3, "f4" if odd else "f8")),
        lambda odd: malt.allreduce(np.ones(3, "i8" if odd else "f8")),
        lambda odd: malt.allreduce(np.ones(3), "max" if odd else "sum"),
        lambda odd: malt.allreduce(np.ones(3), weight=-1 if odd else 1),
        lambda odd: malt.allreduce(None if odd else np.ones(3)),
        lambda odd: malt.broadcast(np.ones(4 if odd else 3)),
        lambda odd: malt.broadcast(np.ones(3), root=1 if odd else 0),
        lambda odd: malt.allgather(np.ones(3, "f4" if odd else "f8")),
        lambda odd: malt.allgather(3 if odd else np.ones(3)),
        lambda odd: malt.allgather({3} if odd else None),
    ])  # fmt: skip
    def test_arguments_that_differ(self, differing):
        error = error_everywhere(lambda: differing(malt.rank() == 1))
        assert type(error) is ValueError and "rank 1" in str(error)


class TestNumbers:
    @pytest.mark.parametrize("kind", [float, int, np.float32, np.float64, np.int8])
    @pytest.mark.parametrize("algorithm", ["auto", "star"])
    def test_a_number_is_returned_as_a_float(self, kind, algorithm):
        ranks = range(1, malt.size() + 1)
        for op, expected in (("mean", sum(ranks) / len(ranks)), ("sum", sum(ranks)), ("max", len(ranks)), ("min", 1)):
            found = malt.allreduce(kind(malt.rank() + 1), op, algorithm=algorithm)
            assert type(found) is float and found == expected
        found = malt.allreduce(kind(malt.rank() + 1), weight=malt.rank() + 1)
        assert found == pytest.approx(sum(rank * rank for rank in ranks) / sum(ranks))

    def test_means_by_name(self):
        rank, size = malt.rank(), malt.size()
        values = dict(loss=0.1 * (rank + 1), accuracy=np.float32(rank), rows=np.array(rank))
        means = malt.mean(**(values if rank % 2 else dict(reversed(values.items()))), weight=rank + 1)
        weights = np.arange(1, size + 1)
        assert means == pytest.approx(
            dict(
                loss=np.average(0.1 * weights, weights=weights),
                **dict.fromkeys(("accuracy", "rows"), np.average(weights - 1, weights=weights)),
            )
        )
        assert {type(one) for one in means.values()} == {float}
        assert list(means) == (list(values) if rank % 2 else list(reversed(values)))
        assert len({one["loss"] for one in malt.allgather(means)}) == 1, "the same bits"
        assert malt.mean(loss=math.nan if rank else 0.5, weight=float(rank == 0)) == {"loss": 0.5}

    @pytest.mark.parametrize("values, text", [
        (dict(loss="low"), "loss must be a number, got 'low'"),
        (dict(loss=np.ones(2)), "loss must be a number, got array"),
        (dict(loss=1.0, weight=-1), "weight must be a number of at least 0, got -1"),
        (dict(loss=1.0, weight=0), "all weights are zero"),
        (dict(), "it takes values by name, as in malt.mean(loss=loss)"),
    ])  # fmt: skip
    def test_bad_values(self, values, text):
        error = error_everywhere(lambda: malt.mean(**values))
        assert type(error) is ValueError and str(error).startswith(f"malt.mean: {text}")

    @pytest.mark.parallel
    @pytest.mark.parametrize("odd, text", [
        (dict(loss=1.0, hits=2), "hits is given on rank 1, and not on rank 0"),
        (dict(accuracy=1.0), "accuracy is given on rank 1, and not on rank 0"),
        (dict(loss=None), "on rank 1: loss must be a number, got None"),
    ])  # fmt: skip
    def test_values_that_differ(self, odd, text):
        error = error_everywhere(lambda: malt.mean(**(odd if malt.rank() == 1 else dict(loss=1.0))))
        assert type(error) is ValueError and str(error) == f"malt.mean: {text}"


class TestBroadcast:
    @pytest.mark.parametrize("dtype, shape", [*CASES, ("U5", (4,)), ("S3", (4,)), ("M8[s]", (4,))])
    def test_every_dtype_and_shape(self, dtype, shape):
        for root in {0, malt.size() - 1}:
            array = filled(shape, "i4", malt.rank()).astype(dtype)
            assert malt.broadcast(array, root=root) is None
            assert array.tobytes() == filled(shape, "i4", root).astype(dtype).tobytes()

    def test_in_many_pieces(self, monkeypatch):
        """For each of them MPI has the whole deadline."""
        watched, watching = [], Watchdog.watching
        monkeypatch.setattr("dstorm.transports.mpi.collectives._BROADCAST_NBYTES", 1000)
        monkeypatch.setattr(Watchdog, "watching", lambda self, what: watched.append(what) or watching(self, what))
        array, transport = filled((5_001,), "f8", malt.rank()), malt.init().transport
        getattr(transport, "_by_mpi", transport).broadcast(array, np.int64(malt.size() - 1))  # as between hosts
        assert array.tobytes() == filled((5_001,), "f8", malt.size() - 1).tobytes()
        assert watched.count("MPI_Bcast") == (41 if malt.size() > 1 else 0)

    def test_views(self):
        whole = np.full((4, 6), malt.rank(), np.int16)
        malt.broadcast(whole[1::2, ::3])
        assert (whole[1::2, ::3] == 0).all() and (whole[0] == malt.rank()).all()

    @pytest.mark.parametrize("root", [-1, 99, "0", True, 0.0, None])
    def test_a_bad_root(self, root):
        array = np.ones(3)
        error = error_everywhere(lambda: malt.broadcast(array, root))
        assert type(error) is ValueError and str(error).startswith("malt.broadcast: root")


class TestAllgather:
    @pytest.mark.parametrize("value", [
        None, True, 0, -(10**40), 0.1, math.inf, -0.0, "", "Übung\n\ud800", [], [1, [2.5, None]], {},
        {"a": {"b": [True]}, "": 1},
    ])  # fmt: skip
    def test_values(self, value):
        everyone = malt.allgather([malt.rank(), value])
        assert everyone == [[rank, value] for rank in range(malt.size())]
        assert repr(everyone[0][1]) == repr(value)
        assert malt.allgather(value) == [value] * malt.size()

    def test_nan(self):
        assert all(math.isnan(one) for one in malt.allgather(math.nan))

    def test_values_are_returned_as_those_of_python(self):
        given = (np.float32(0.1), np.int8(3), np.bool_(True), np.str_("a"), np.float64(2))
        (*_, mine) = malt.allgather(given)
        assert mine == [float(np.float32(0.1)), 3, True, "a", 2.0]
        assert [type(one) for one in mine] == [float, int, bool, str, float]

    def test_entries_are_copies(self):
        given = {"a": [1]}
        malt.allgather(given)[malt.rank()]["a"].append(2)
        assert given == {"a": [1]}
        array = np.zeros(3)
        malt.allgather(array)[malt.rank()][:] = 1
        assert (array == 0).all()

    @pytest.mark.parametrize("dtype", [*DTYPES, "U5", "m8[ns]"])
    def test_shapes_may_differ(self, dtype):
        def array(rank):
            return filled([(), (0, 3), (4, 1), (3, 2, 2), (100_000,)][rank % 5], "i4", rank).astype(dtype)

        for rank, one in enumerate(malt.allgather(array(malt.rank()))):
            assert one.dtype == np.dtype(dtype) and one.shape == array(rank).shape
            assert one.tobytes() == array(rank).tobytes() and one.flags.writeable

    @pytest.mark.parametrize("small_nbytes", [0, 3000, 1 << 18])
    def test_in_many_pieces(self, monkeypatch, small_nbytes):
        """Also where some arrays are small, or all."""
        monkeypatch.setattr(collectives, "_GATHER_NBYTES", 1001)
        monkeypatch.setattr(collectives, "_SMALL_NBYTES", small_nbytes * malt.size())
        mine = filled((500 * malt.rank() + 7,), "f4", malt.rank())[::-1]
        for rank, one in enumerate(malt.allgather(mine)):
            assert one.tobytes() == filled((500 * rank + 7,), "f4", rank)[::-1].tobytes()

    def test_what_is_not_a_value(self):
        deep, loop = None, []
        for _ in range(101):
            deep = [deep]
        loop.append(loop)
        bad = [b"bytes", {1: 2}, {"a": {3}}, 1j, object(), np.array([None]), np.longdouble(1), deep, loop]
        for value in bad:
            assert type(error_everywhere(lambda given=value: malt.allgather(given))) is ValueError
        assert malt.allgather(deep[0]) == [deep[0]] * malt.size()


class TestTogether:
    def test_each_rank_gets_its_own_result(self):
        assert malt.together(lambda: malt.rank() * 2) == malt.rank() * 2

    def test_all_ranks_raise_the_error_of_one(self):
        def work():
            if malt.rank() == malt.size() - 1:
                raise FileNotFoundError(2, "No such file", "data.svm")

        error = error_everywhere(lambda: malt.together(work))
        assert type(error) is FileNotFoundError and (error.errno, error.filename) == (2, "data.svm")

    def test_what_is_not_callable(self):
        assert type(error_everywhere(lambda: malt.together(3))) is TypeError


def test_lowest():
    assert malt.lowest() == (malt.rank() == 0)
    assert malt.allgather(malt.lowest()).count(True) == 1

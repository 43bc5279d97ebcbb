"""malt.Replica: replicas start equal, exchange on the way, and end equal."""

from __future__ import annotations

import numpy as np
import pytest

import malt
from dstorm.transports import shm_space


class Tensor:
    """The attributes by which a tensor of torch differs from an array."""

    detach = numpy = None


class Module:
    """The attributes by which a module of torch differs from a function."""

    state_dict = None

    def __call__(self):
        raise AssertionError("a forward pass")


def shared(data: bytes) -> set[bytes]:
    return set(malt.init().transport.allgather(data))


@pytest.mark.parametrize("sync", ["asp", "bsp", "ssp:2", "notify-ack"])
@pytest.mark.parametrize("average", ["model", "delta"])
@pytest.mark.parametrize(
    "wrap", [lambda a, b: a, lambda a, b: [a, b], lambda a, b: {"w": a, "b": b}], ids=["array", "list", "dict"]
)
def test_all_ranks_end_with_one_model(sync, average, wrap):
    a, b = np.full((3, 4), 1.0 + malt.rank(), np.float32), np.full(2, 5.0 + malt.rank())
    params = wrap(a, b)
    arrays = (
        [params] if isinstance(params, np.ndarray) else list(params.values() if isinstance(params, dict) else params)
    )
    with malt.Replica(params, every=3, average=average, sync=sync) as replica:
        assert a[0, 0] == 1.0, "all start from rank 0's"
        exchanged = 0
        for _ in range(10 + malt.rank()):
            for array in arrays:
                array += 0.5 + malt.rank()
            exchanged += replica.step()
        assert exchanged == (10 + malt.rank()) // 3
    for array in arrays:
        assert len(shared(array.tobytes())) == 1
    assert 1.0 < a[0, 0] < 1.0 + 13 * (0.5 + malt.size())


def test_delta_averages_changes_exactly_under_bsp():
    w = np.zeros(2)
    replica = malt.Replica(w, average="delta", graph="all", sync="bsp")
    for step in range(1, 4):
        w += 1 + malt.rank()
        replica.step()
        np.testing.assert_allclose(w, step * (malt.size() + 1) / 2)
    replica.finish()


@pytest.mark.parametrize("options", [
    dict(), dict(average="delta"), dict(sync="notify-ack"), dict(average="delta", sync="bsp", wire="int8", top=0.5),
])  # fmt: skip
def test_all_ranks_agree_and_go_on(options):
    w = np.zeros(500)
    replica = malt.Replica([w[:200], w[200:]], every=2, **options)
    for _ in range(3):
        for _ in range(7):
            w += malt.rank()
            replica.step()
        mean = np.mean(malt.allgather(w), axis=0)
        replica.agree()
        np.testing.assert_allclose(w, mean)
        assert len(shared(w.tobytes())) == 1
        assert replica.vectors[0].statistics().pending == 0
        malt.barrier()
    if malt.rank() == 0:  # it is left out, and waits
        replica.finish()
    else:
        w += 1
        replica.agree()
        np.testing.assert_allclose(w, mean + 1)
        replica.finish()
    np.testing.assert_allclose(w, mean + (malt.size() - 1) / malt.size())
    assert len(shared(w.tobytes())) == 1


def test_step_counts_examples():
    w = np.zeros(2)
    replica = malt.Replica(w, every=10)
    assert [replica.step(4) for _ in range(5)] == [False, False, True, False, True]
    assert replica.vectors[0].step == 2
    replica.finish()
    replica.finish()


def test_an_exception_in_the_loop_is_not_swallowed_and_closes_without_a_common_model():
    w = np.zeros(2)
    replica = malt.Replica(w)
    with pytest.raises(KeyError), replica:
        w += malt.rank()
        raise KeyError("mine")
    assert replica.vectors[0].closed and (w == malt.rank()).all()
    malt.barrier()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (dict(params=[1.0, 2.0]), r"params\[0\] must be a NumPy array"),
        (dict(params=np.zeros(3, int)), r"params must be a NumPy array of floating-point numbers, got an array of int"),
        (dict(params={"w": np.zeros(3, int)}), "params holds no arrays of floating-point"),
        (dict(params=[]), "no arrays"),
        (
            dict(params=[Tensor()]),
            r"params\[0\] must be a NumPy array, got a test_replica tensor: pass its .detach\(\).num",
        ),
        (
            dict(params=Module()),
            r"params is a Module, which holds tensors: pass \{name: tensor.numpy\(\) for name, tensor",
        ),
        (
            dict(params=np.zeros(3), set=print),
            "set must be a function that takes new values, and params one that returns",
        ),
        (dict(params=lambda: np.zeros(3)), "params: the function returns a new copy at each call.*: give set="),
        (dict(params=np.zeros(3), name=3), "name must be a string, got 3"),
        (dict(params=np.zeros((4, 4)).T[:2]), "C-contiguous.*: np.ascontiguousarray makes a copy, which the loop must"),
        (dict(params=[np.frombuffer(bytes(24))]), r"params\[0\] must be writable.*: its copy\(\) makes a copy"),
        (dict(params={"w": np.ma.zeros(3)}), r"params\['w'\] is a MaskedArray"),
        (dict(params=np.zeros(3, np.longdouble)), "params must be of float16, 32 or 64"),
        (dict(params=np.zeros(3, ">f8")), "native byte order"),
        (dict(params=np.zeros(3), every=0), "every must be an integer of at least 1, got 0"),
        (dict(params=np.zeros(3), every=1.5), "every must be an integer of at least 1, got 1.5"),
        (dict(params=np.zeros(3), every=True), "every must be an integer of at least 1, got True"),
        (dict(params=np.zeros(3), average="median"), "got 'median'"),
        (dict(params=np.zeros(3), graph="halo"), "no graph is called 'halo'"),
        (dict(params=np.zeros(3), sync="bps"), "sync 'bps' is not valid"),
        (dict(params=np.zeros(3), sync=None), "sync must be a string"),
        (dict(params=np.zeros(3), outer=malt.optim.nesterov()), 'outer is for changes: average="delta"'),
        (
            dict(params=np.zeros(3), average="delta", outer=0.7),
            "outer must be a step.w, .state, gradient., as malt",
        ),
        (dict(params=np.zeros(3), average="delta", outer=malt.optim.nesterov), "outer must be a step.*, got <func"),
        (dict(params=np.zeros(3), average="delta", outer=malt.optim.ftrl()), "outer must not be malt.optim.ftrl"),
        (dict(params=np.zeros(3), check_finite=1), "check_finite must be True or False, got 1"),
        (dict(params=np.zeros(3), fragments=0), "fragments must be an integer of at least 1, got 0"),
        (dict(params=np.zeros(3), average="delta", wire="int8"), 'wire needs sync="bsp" or "notify-ack"'),
        (dict(params=np.zeros(3), sync="bsp", wire="int8"), 'wire of models needs sync="asp" or "ssp:S"'),
        (dict(params=np.zeros(3), top=0.5), 'top is for changes: average="delta"'),
        (dict(params=np.zeros(3), average="delta", sync="bsp", wire="int4"), "wire must be .*, got 'int4'"),
        (dict(params=np.zeros(3), average="delta", sync="bsp", top=1.5), "top must be above 0 and at most 1, got 1.5"),
    ],
)
def test_bad_arguments(bad, message):
    mine = bad if malt.rank() == malt.size() - 1 else dict(params=np.zeros(3))
    with pytest.raises(ValueError, match="malt.Replica: .*" + message):
        malt.Replica(**mine)


@pytest.mark.parallel
def test_ranks_with_different_outer_steps():
    outer = malt.optim.nesterov(0.7 if malt.rank() else 0.5, 0.9)
    with pytest.raises(ValueError, match=r"ranks disagree on outer: rank 0 has nesterov.*0.5.*, rank 1 has .*0.7"):
        malt.Replica(np.zeros(3), average="delta", outer=outer)


@pytest.mark.parametrize("bad", [dict(graph="halo"), dict(sync="bps"), dict(graph={0: [99]})])
def test_a_bad_argument_changes_nothing(bad):
    w = np.full(3, 1.0 + malt.rank())
    with pytest.raises(ValueError, match="malt.Replica"):
        malt.Replica(w, **(bad if malt.rank() == 0 else {}))
    assert (w == 1.0 + malt.rank()).all()


@pytest.mark.parallel
def test_a_lack_of_memory_changes_nothing(monkeypatch):
    a, b = np.full(3, 1.0 + malt.rank()), np.full(1_000_000, 1.0 + malt.rank(), np.float32)
    before = [one for one in malt.init().vectors if not one.closed]  # other tests may have left some
    monkeypatch.setattr(shm_space, "free_nbytes", lambda: 1_000_000)
    with pytest.raises(MemoryError):
        malt.Replica([a, b])
    assert (a == 1.0 + malt.rank()).all() and (b == 1.0 + malt.rank()).all()
    monkeypatch.undo()
    made = malt.vector(1)
    assert malt.init().vectors == [*before, made], "the vector that was made for a is freed"
    made.close()


@pytest.mark.parametrize(("n", "error"), [("x", TypeError), (1.5, TypeError), (True, TypeError), (-1, ValueError)])
def test_bad_numbers_of_examples(n, error):
    with malt.Replica(np.zeros(2), every=3) as replica:
        with pytest.raises(error, match="n must be an integer of at least 0, got"):
            replica.step(n)
        assert [replica.step(np.int64(2)), replica.step(0), replica.step()] == [False, False, True]


def test_a_matrix():
    w = np.array([[1.0, 2.0]]).view(np.matrix) + malt.rank()
    with malt.Replica([w, np.zeros(3)], sync="bsp") as replica:
        replica.step()
    assert w.tolist() == [[1.0, 2.0]]


class Parameter:
    """A parameter as in torch: it holds its array as `data`, which may be replaced."""

    def __init__(self, values):
        self.data = values

    def take(self, new):
        self.data = new


HOLDERS = {
    "dict": lambda p: {"params": vars(p)},
    "function": lambda p: {"params": lambda: p.data},
    "function of a dict": lambda p: {"params": lambda: {"p": p.data}},
    "function of a copy": lambda p: {"params": lambda: p.data.copy(), "set": p.take},
    "function of a list of copies": lambda p: {"params": lambda: [p.data.copy()], "set": lambda new: p.take(*new)},
}


@pytest.mark.parametrize("average", ["model", "delta"])
@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_arrays_that_the_loop_replaces_are_found(holder, average):
    p = Parameter(np.full((2, 3), 7.0 + malt.rank()))
    replica = malt.Replica(**holder(p), average=average, graph="all", sync="bsp")
    means = 7 + np.arange(1, 4) * (malt.size() + 1) / 2
    for mean in means:
        before, was = p.data, p.data.copy()
        p.data = p.data + (1 + malt.rank())
        assert replica.step()
        np.testing.assert_allclose(p.data, mean)
        assert (before == was).all(), "an array that the loop has left is nobody's to write into"
    p.data = p.data + malt.rank()
    replica.finish()
    np.testing.assert_allclose(p.data, means[-1] + (malt.size() - 1) / 2)
    assert len(shared(p.data.tobytes())) == 1


def test_an_array_of_another_shape_is_refused_before_anything_is_sent():
    params = [np.zeros(2), np.zeros(3)]
    replica = malt.Replica(params, sync="bsp")
    params[1] = np.zeros(4)
    wrong = (
        r"params\[1\] was <f8\[3\] when the Replica was created, and is now <f8\[4\]: entries, shapes and dtypes"
    )
    with pytest.raises(ValueError, match=wrong):
        replica.step()
    assert replica.vectors[0].step == 0
    if malt.rank() > 0:
        params[1] = np.zeros(3)
    place = "" if malt.size() == 1 else "on rank 0: "
    with pytest.raises(ValueError, match="Replica.finish: " + place + wrong):
        replica.finish()
    params[1] = np.full(3, float(malt.rank()))
    replica.finish()
    np.testing.assert_allclose(params[1], (malt.size() - 1) / 2)


def test_integers_start_equal_and_are_not_averaged():
    state = {"w": np.zeros(3), "batches": np.array(5 + malt.rank()), "mask": np.full(2, malt.rank() > 0)}
    with malt.Replica(state, sync="bsp") as replica:
        assert state["batches"] == 5 and not state["mask"].any()
        for _ in range(3):
            state["w"] += 1
            state["batches"] += 1 + malt.rank()
            replica.step()
    assert state["batches"] == 8 + 3 * malt.rank()


@pytest.mark.parametrize("exchanges", [0, 2, 3, 5])
def test_an_array_that_the_loop_replaces_is_warned_about(exchanges, capfd):
    w = np.zeros(3)
    with malt.Replica(w, every=10, sync="bsp") as replica:
        for _ in range(10 * exchanges + 1):
            w = w + 1
            replica.step()
        warnings = capfd.readouterr().err
        assert bool(warnings) == (exchanges >= 3 and malt.rank() == 0)
    warnings += capfd.readouterr().err
    assert warnings.count("malt: Replica") == warnings.count(": params did not change") == (malt.rank() == 0)


def test_arrays_that_change_are_not_warned_about(capfd):
    model = {"w": np.zeros(3), "late": np.zeros(3), "frozen": np.zeros(3), "none": np.zeros(0)}
    with malt.Replica(model, sync="bsp") as replica:
        for step in range(5):
            model["w"] += step == 0
            model["late"] += step == 2
            replica.step()
    assert (": params['frozen'] did not change" in capfd.readouterr().err) == (malt.rank() == 0)
    with malt.Replica(model, sync="bsp"):
        pass  # a replica without steps need not change anything
    malt.barrier()
    assert capfd.readouterr().err == ""


@pytest.mark.parallel
@pytest.mark.parametrize("works", [True, False])
def test_a_set_that_has_no_effect_is_warned_about(works, capfd):
    p = Parameter(np.zeros(3))
    with malt.Replica(lambda: p.data, graph="all", sync="bsp", set=p.take if works else lambda new: None) as replica:
        for _ in range(3):
            p.data = p.data + malt.rank()
            replica.step()
    warning = ": set= was given new values, and the function still returns the old ones"
    assert capfd.readouterr().err.count(warning) == (malt.rank() == 0 and not works)


@pytest.mark.parallel
def test_replicas_that_are_finished_in_another_order():
    a, b = (malt.Replica(np.full(2, float(malt.rank())), name=name) for name in "ab")
    first, second = (b, a) if malt.rank() == 1 else (a, b)
    with pytest.raises(ValueError, match="^Replica.finish: ranks disagree on name: rank 0 has a, rank 1 has b$"):
        first.finish()
    with pytest.raises(ValueError, match="^Replica.finish: ranks disagree on name: rank 0 has b, rank 1 has a$"):
        second.finish()
    a.finish()
    b.finish()


@pytest.mark.parallel
def test_replicas_that_are_made_in_another_order():
    names = ("b", None) if malt.rank() == 1 else (None, "b")
    with pytest.raises(
        ValueError, match=r"malt.Replica: ranks disagree on name: rank 0 has Replica \d+, rank 1 has b$"
    ):
        malt.Replica(np.zeros(2), name=names[0])


@pytest.mark.parallel
def test_a_rank_without_steps_does_not_count():
    w = np.zeros(2)
    with malt.Replica(w, every=1000) as replica:
        if malt.rank() == 1:
            w += 10
            replica.step()
    assert w.tolist() == [10, 10]


def test_a_linear_model_of_scikit_learn():
    """Its partial_fit makes a new intercept_ at each call."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = linear_model.SGDClassifier(random_state=malt.rank())
    rng = np.random.default_rng(malt.rank())
    X = rng.standard_normal((60, 4)) + 1
    y = X[:, 0] > 1
    model.partial_fit(X[:2], [False, True], classes=[False, True])
    with malt.Replica(lambda: [model.coef_, model.intercept_], graph="all", sync="bsp") as replica:
        for first in range(0, 60, 20):
            model.partial_fit(X[first : first + 20], y[first : first + 20])
            replica.step()
            # scikit-learn trains coef_ in place, and makes a new intercept_
            assert len(shared(model.coef_.tobytes() + model.intercept_.tobytes())) == 1
    assert len(shared(model.predict(np.eye(4)).tobytes())) == 1


class TestAfterTheEnd:
    def test_a_replica_neither_finished_nor_closed_is_named(self, capfd):
        def train(name, end):
            w = np.zeros(2)
            replica = malt.Replica(w, name=name)
            w += 1
            end(replica)

        malt.finalize()
        capfd.readouterr()
        train("lost", lambda replica: replica.step())
        train("later", lambda replica: (replica.step(), replica.agree(), replica.step()))
        train("idle", lambda replica: None)
        train("left", lambda replica: (replica.step(), replica.close()))
        train("ended", lambda replica: (replica.step(), replica.finish()))
        train("agreed", lambda replica: (replica.step(), replica.agree()))
        malt.finalize()
        warning = "malt: lost, later: neither finish() nor close() was called: every rank has a model of its own\n"
        assert capfd.readouterr().err == (warning if malt.rank() == 0 else "")

    def test_step_after_finish(self):
        replica = malt.Replica(np.zeros(2), every=10)
        replica.finish()
        with pytest.raises(malt.ClosedError, match="Replica.step"):
            replica.step()

    @pytest.mark.parametrize("average", ["model", "delta"])
    def test_after_finalize(self, average):
        replica = malt.Replica(np.zeros(2), average=average)
        malt.finalize()
        for call in (replica.finish, replica.step, replica.finish):
            with pytest.raises(malt.ClosedError, match="malt.finalize"):
                call()
        replica.close()
        assert replica.vectors[0].statistics().sent == 0

    def test_finished_then_finalized(self):
        replica = malt.Replica(np.zeros(2))
        replica.finish()
        malt.finalize()
        replica.finish()

    def test_vectors_after_finalize(self):
        v = malt.vector(3, sync="bsp")
        v.scatter()
        v.gather()
        malt.finalize()
        for call in (v.scatter, v.gather, v.barrier):
            with pytest.raises(malt.ClosedError, match="is closed"):
                call()
        v.close()
        assert v.statistics().sent == v.statistics().gathered == malt.size() - 1

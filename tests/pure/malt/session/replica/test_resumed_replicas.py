"""A Replica that goes on from what an earlier job has kept: bit by bit as if it had not been stopped."""

import copy

import numpy as np
import pytest

import malt

STEPS = 14
STOPS = (0, 5, 7, 10)
"""All remainders of the steps between two exchanges, 2 to 4, are among them."""
CASES = {
    "one array": ({"every": 3}, [2]),
    "several arrays": ({"every": 3}, [1, 4]),
    "a graph that changes": ({"every": 1, "graph": "one-peer"}, [4]),
    "a graph with weights": ({"every": 2, "graph": "base"}, [3]),
    "changes": ({"every": 2, "average": "delta", "outer": malt.optim.nesterov(0.7, 0.9, warmup=1)}, [1, 2]),
    "a step that counts": ({"every": 3, "average": "delta", "fragments": 2}, [2]),
    "gossip": (
        {"every": 2, "average": "delta", "graph": "pairs", "outer": malt.optim.nesterov(0.7, 0.5, warmup=1)}, [4]
    ),
    "what is left out": ({"every": 2, "average": "delta", "top": 0.3, "wire": "int8"}, [2]),
    "fragments": ({"every": 3, "fragments": 3}, [2]),
    "fragments of changes": ({"every": 4, "fragments": 2, "average": "delta", "top": 0.5}, [2]),
}  # fmt: skip


def parameters(case):
    if case == "one array":
        return np.zeros(300)
    return {"a": np.zeros(200, np.float32), "b": np.zeros((3, 5)), "whole": np.zeros(2, np.int64)}


def trained(case, ranks, stopped_at=None, kept=None, **more):
    """What each rank has at the end, before and after finish; or what it keeps at the step `stopped_at`."""
    options = {"sync": "bsp", **CASES[case][0], **more}

    def run(rank):
        rng, w = np.random.default_rng([7, rank]), parameters(case)
        arrays = [w] if case == "one array" else [w["a"], w["b"]]
        outer = {"outer": malt.optim.adam(0.1, warmup=1)} if case == "a step that counts" else {}
        replica, first = malt.Replica(w, **options, **outer), 0
        if kept is not None:
            state, rng.bit_generator.state, first = kept[rank]
            replica.load_state_dict(state)
        for step in range(first, STEPS):
            if step == stopped_at:
                return copy.deepcopy((replica.state_dict(), rng.bit_generator.state, step))
            for array in arrays:
                array += (0.1 * (rng.normal(size=array.shape) - 0.3 * array)).astype(array.dtype)
            replica.step()
        own = [array.tobytes() for array in arrays]
        replica.finish()
        return own, [array.tobytes() for array in arrays]

    return malt.simulate(run, ranks)


@pytest.mark.parametrize(("case", "ranks"), [(case, ranks) for case, (_, some) in CASES.items() for ranks in some])
def test_the_bits_are_those_of_a_job_that_was_not_stopped(case, ranks):
    whole = trained(case, ranks)
    for stop in STOPS:
        assert trained(case, ranks, kept=trained(case, ranks, stop)) == whole, stop


def test_it_is_stopped_twice():
    case = "fragments of changes"
    assert trained(case, 2, kept=trained(case, 2, 9, trained(case, 2, 5))) == trained(case, 2)


def test_a_state_that_is_asked_for_changes_nothing():
    def run(rank, asks):
        w, rng = np.zeros(40), np.random.default_rng(rank)
        with malt.Replica({"w": w}, 4, sync="bsp", average="delta", fragments=2) as replica:
            for _ in range(STEPS):
                w += rng.normal(size=40)
                replica.step()
                if asks:
                    replica.state_dict()
        return w.tobytes()

    assert malt.simulate(lambda rank: run(rank, True), 2) == malt.simulate(lambda rank: run(rank, False), 2)


@pytest.mark.parametrize("sync", ["asp", "ssp:2", "notify-ack"])
@pytest.mark.parametrize("average", ["model", "delta"])
def test_ranks_take_the_mean_where_messages_may_be_under_way(sync, average):
    def run(rank):
        w = np.full(3, float(rank))
        replica = malt.Replica(w, every=2, sync=sync, average=average)
        w[:] = rank
        replica.step()
        state = copy.deepcopy(replica.state_dict())
        replica.close()
        again = np.zeros(3)
        other = malt.Replica(again, every=2, sync=sync, average=average)
        other.load_state_dict(state)
        for _ in range(3):
            again += rank
            other.step()
        other.finish()
        return state["arrays"][0].tolist(), state["count"], again.tolist()

    found = malt.simulate(run, 3)
    assert [one[:2] for one in found] == [([1, 1, 1], 1)] * 3
    assert found[0][2] == found[1][2] == found[2][2] and 2 < found[0][2][0] < 6


@pytest.mark.parametrize("is_due", [True, False])
def test_ranks_of_ssp_save_after_different_numbers_of_exchanges(is_due, tmp_path):
    """A rank that waits in the save makes no steps for which one that is further ahead could wait."""

    def run(rank):
        w = np.zeros(3)
        replica = malt.Replica(w, every=1, sync="ssp:1")
        checkpoint, saved = malt.Checkpoint(tmp_path / "train.ckpt"), []
        for epoch in range(3):
            for _ in range([0, 9, 4][(rank + epoch) % 3]):
                w += 1
                replica.step()
            saved.append(checkpoint.save({"epoch": epoch}, force=is_due, mine={"replica": replica}))
        replica.finish()
        return saved

    assert malt.simulate(run, 3) == [[is_due] * 3, [False] * 3, [False] * 3]


def test_on_other_ranks_it_begins_at_what_the_lowest_one_has():
    def run(rank):
        w = np.zeros(3)
        replica = malt.Replica(w, every=1, sync="bsp", average="delta")
        w[:] = 5 + rank
        replica.begin_anew()
        assert w.tolist() == [5] * 3
        w += rank
        replica.step()
        replica.close()
        return w.tolist()

    assert malt.simulate(run, 3) == [[6, 6, 6]] * 3


def as_float64(kept, name):
    """The states, in which a parameter has another dtype: it would be rounded, or wrap."""
    arrays = copy.deepcopy(kept)
    for state, *_ in arrays:
        place = ["a", "b", "whole"].index(name)
        state["arrays"][place] = state["arrays"][place].astype(np.float64)
    return arrays


@pytest.mark.parametrize(("of", "case", "change", "more", "message"), [
    ("one array", "several arrays", None, {}, "the state does not match: it belongs to a Replica"),
    ("one array", "changes", None, {}, "the state does not match: it belongs to a Replica"),
    ("several arrays", "several arrays", lambda kept: as_float64(kept, "a"), {}, "a Replica with other parameters"),
    ("several arrays", "several arrays", lambda kept: as_float64(kept, "whole"), {}, "a Replica with other parameters"),
    ("several arrays", "several arrays", None, {"average": "delta"}, "'params' belongs to a Replica with another"),
    ("several arrays", "several arrays", lambda kept: [kept[0], trained("several arrays", 2, 9)[1]], {},
     "ranks disagree on exchanges: rank 0 has 1, rank 1 has 3"),
])  # fmt: skip
def test_a_state_that_does_not_fit_is_refused_on_all_ranks(of, case, change, more, message):
    kept = trained(of, 2, 3)
    with pytest.raises(ValueError, match=rf"load_state_dict: .*{message}"):
        trained(case, 2, kept=change(kept) if change else kept, **more)


def test_a_state_that_comes_late_is_refused():
    def run(rank):
        replica = malt.Replica(np.zeros(3), every=1, sync="bsp")
        state = replica.state_dict()
        replica.step()
        with pytest.raises(ValueError, match="the state is loaded before the first exchange"):
            replica.load_state_dict(state)
        replica.close()

    malt.simulate(run, 2)


def test_a_replica_that_has_left_has_no_state():
    def run(rank):
        replica = malt.Replica(np.zeros(3), sync="bsp")
        state = replica.state_dict()
        replica.finish()
        for call in (replica.state_dict, lambda: replica.load_state_dict(state)):
            with pytest.raises(malt.ClosedError, match="finish, close or malt.finalize was called before: create"):
                call()

    malt.simulate(run, 2)


def test_ranks_that_have_agreed_on_an_interval_keep_it():
    def run(rank):
        replica = malt.Replica(np.zeros(3), every=(2, 9), sync="bsp")
        state = {**replica.state_dict(), "every": 5}
        replica.load_state_dict(state)
        exchanged = [replica.step() for _ in range(10)]
        replica.finish()
        return exchanged

    assert malt.simulate(run, 2) == [[False] * 4 + [True] + [False] * 4 + [True]] * 2


@pytest.mark.parametrize("kind", ["a dict", "a function with set="])
def test_arrays_that_the_loop_has_made_since_the_exchange_are_kept(kind):
    def run(rank, stop, kept=None):
        held, rng = {"w": np.zeros(30)}, np.random.default_rng(rank)

        def take(new):
            held["w"] = new["w"]

        source = (held,) if kind == "a dict" else (lambda: {"w": held["w"]},)
        replica = malt.Replica(*source, every=4, sync="bsp", **({} if kind == "a dict" else {"set": take}))
        held["w"] = held["w"] + 0  # the array that is restored is another one
        if kept:
            replica.load_state_dict(kept[rank])
            rng.standard_normal((10, 30))
        for step in range(10 if kept else 0, STEPS):
            if step == stop:
                return copy.deepcopy(replica.state_dict())
            held["w"] = held["w"] + rng.standard_normal(30)
            replica.step()
        replica.finish()
        return held["w"].tobytes()

    kept = malt.simulate(lambda rank: run(rank, 10), 2)
    whole, rest = (malt.simulate(lambda rank, kept=kept: run(rank, None, kept), 2) for kept in (None, kept))
    assert rest == whole

"""Replica.agree: all ranks go on from the mean, and nothing from before it comes after it."""

import numpy as np
import pytest
from ranks import run_failing
from returning import Job

import malt
from dstorm import SimulatedTransport

N, RANKS = 192, 3
SYNCS = ["asp", "ssp:4", "bsp", "notify-ack"]
SMOOTH = dict(average="delta", outer=malt.optim.nesterov(0.7, 0.5, 1))
WAYS = {
    **{f"{average}, {sync}": dict(average=average, sync=sync) for average in ("model", "delta") for sync in SYNCS},
    **{f"outer, {sync}": dict(**SMOOTH, sync=sync) for sync in SYNCS},
    "outer, pairs": dict(**SMOOTH, sync="bsp", graph="pairs"),
    "int8": dict(average="delta", sync="bsp", wire="int8"),
    "top": dict(average="delta", sync="notify-ack", top=0.3),
    "int8 and top, outer": dict(**SMOOTH, sync="bsp", wire="int8", top=0.3),
    "models in fragments": dict(fragments=2, every=2, sync="bsp"),
    "fragments": dict(average="delta", fragments=2, every=2, sync="bsp"),
    "fragments, asp": dict(average="delta", fragments=2, every=2, sync="asp"),
    "fragments, int8": dict(average="delta", fragments=2, every=2, sync="notify-ack", wire="int8"),
}


def same_bits(arrays):
    return len({array.tobytes() for array in arrays}) == 1


def moved(rank, step):
    return np.random.default_rng([rank, step]).standard_normal(N)


@pytest.mark.parametrize("is_lone", [True, False])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("way", WAYS)
def test_all_ranks_go_on_from_the_mean(way, seed, is_lone):
    def live(rank):
        w = np.full(N, 1.0)
        replica = malt.Replica(w if is_lone else [w[:64], w[64:]], **{"graph": "all", **WAYS[way]})
        seen = []
        for _ in range(2):
            for step in range(3):
                w += moved(rank, step)
                replica.step()
            w += rank
            seen.append(w.copy())
            replica.agree()
            seen.append(w.copy())
            malt.barrier()
            after = [vector.statistics() for vector in replica.vectors]
            seen.append(after)
            malt.barrier()
        assert replica.step(0) is False, "the count goes on"
        for step in range(4):
            w += moved(rank, step)
            replica.step()
        replica.finish()
        return seen, w

    everyone = malt.simulate(live, RANKS, seed=seed)
    for first in (0, 3):
        before, agreed, after = ([seen[first + more] for seen, _ in everyone] for more in range(3))
        assert same_bits(agreed) and not same_bits(before)
        np.testing.assert_allclose(agreed[0], np.mean(before, axis=0))
        for edges in zip(*after, strict=True):
            assert sum(one.pending for one in edges) == 0, "nothing from before is left"
            assert sum(one.sent for one in edges) == sum(one.gathered + one.overwritten for one in edges) > 0
    assert same_bits([w for _, w in everyone])


@pytest.mark.parametrize("way", [way for way in WAYS if WAYS[way].get("graph") != "pairs"])
def test_what_was_sent_before_is_not_merged_and_what_waits_to_be_sent_is_dropped(way):
    """Nobody changes anything after it: so no exchange does."""

    def live(rank):
        w = np.full(N, 1.0)
        options = {**WAYS[way], "outer": None}
        replica = malt.Replica([w[:64], w[64:]], graph="all", **options)
        for step in range(3):
            w += moved(rank, step)
            replica.step()
        replica.agree()
        agreed = w.copy()
        for _ in range(4):
            replica.step()
        replica.close()
        return agreed, w

    for agreed, w in malt.simulate(live, RANKS, seed=5):
        np.testing.assert_allclose(w, agreed, rtol=1e-13)


@pytest.mark.parametrize("sync", ["asp", "notify-ack"])
@pytest.mark.parametrize("average", ["model", "delta"])
def test_a_message_that_nobody_has_merged_counts_as_overwritten(average, sync):
    def live(rank):
        w = np.zeros(4)
        replica = malt.Replica(w, average=average, sync=sync, graph="all")
        if rank == 0:
            w += 8
            replica.step()
        replica.agree()
        agreed = w.copy()
        if rank == 1:
            replica.step()
        replica.close()
        return agreed.tolist(), w.tolist(), replica.vectors[0].statistics()

    for rank, (agreed, w, found) in enumerate(malt.simulate(live, RANKS)):
        assert agreed == w == [8.0 if average == "model" else 8 / 3] * 4, "only rank 0 has counted a step"
        assert (found.gathered, found.overwritten) == ((0, 1) if rank else (0, 0))


def test_changes_count_from_the_mean_and_the_outer_state_stays():
    """The mean change is 1 in each exchange but the last; that of the parameters at the call is no part of one."""

    def live(rank):
        w = np.zeros(2)
        outer = malt.optim.momentum(0.5, 0.5, warmup=0)
        replica = malt.Replica(w, average="delta", outer=outer, sync="bsp", graph="all")
        for _ in range(2):
            w += rank
            replica.step()
        w += 10 * rank
        replica.agree()
        before = w.copy()
        w += rank
        replica.step()
        replica.step()
        replica.close()
        return w - before

    for moved_by in malt.simulate(live, RANKS):  # velocities of 0.5 and 0.75 before it, of 0.875 and 0.4375 after it
        np.testing.assert_allclose(moved_by, 0.875 + 0.4375)


@pytest.mark.parametrize("graph", ["all", "ring", "one-peer", "star"])
@pytest.mark.parametrize("sync", ["ssp:0", "ssp:2", "notify-ack"])
@pytest.mark.parametrize("fragments", [1, 2])
def test_a_rank_that_waits_for_others_does_not_hold_up_their_exchanges(sync, graph, fragments):
    """Ranks make different numbers of exchanges before, as with an interval of their own, and again after it."""

    def live(rank):
        w = np.zeros(N)
        replica = malt.Replica([w[:64], w[64:]], every=fragments, fragments=fragments, sync=sync, graph=graph)
        seen = []
        for epoch in range(4):
            for step in range([0, 9, 4][(rank + epoch) % RANKS] * fragments):
                w += moved(rank, step)
                replica.step()
            replica.agree()
            seen.append(w.copy())
        replica.finish()
        return *seen, w

    for arrays in zip(*malt.simulate(live, RANKS), strict=True):
        assert same_bits(arrays)


CALLS = {
    "mean": lambda replica: malt.mean(loss=1), "barrier": lambda replica: malt.barrier(),
    "by_speed": lambda replica: malt.shard(9, by_speed=True), "vector": lambda replica: malt.vector(3).close(),
    "barrier of a vector": lambda replica: replica.vectors[0].barrier(),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_ranks_of_ssp_make_other_calls_after_different_numbers_of_exchanges(call):
    def live(rank):
        w = np.zeros(N)
        replica = malt.Replica(w, every=1, sync="ssp:1")
        for epoch in range(3):
            CALLS[call](replica)
            for step in range([0, 9, 4][(rank + epoch) % RANKS]):
                w += moved(rank, step)
                replica.step()
        replica.finish()
        return w

    assert same_bits(malt.simulate(live, RANKS))


@pytest.mark.parametrize(("beside", "schedule"), [("ssp:0", 0), ("bsp", 1), ("bsp", 11), ("bsp", 14)])
def test_ranks_whose_numbers_of_exchanges_are_equal_do_not_skip_any(beside, schedule):
    """One that leaves a call late sees exchanges of those that have left it. If it went on to them, it would be one
    ahead in the Replica, and wait there for ranks that wait for it in the other one, or in the vector."""

    def live(transport):
        w, u = np.zeros(4), np.zeros(4)
        first = malt.Replica(w, every=1, sync="ssp:0")
        second = malt.Replica(u, every=1, sync=beside)
        for _ in range(4):
            malt.barrier()
            for _ in range(3):
                w += 1
                u += 1
                first.step()
                second.step()
                transport.pause(14)
        steps = first.vectors[0].step, second.vectors[0].step
        first.finish()
        second.finish()
        return steps

    assert Job(3, schedule, {}, {}).run(live) == [(12, 12)] * 3


def test_a_rank_skips_no_exchange_in_the_midst_of_one(monkeypatch):
    """Another thread of it may be in a collective call meanwhile."""
    monkeypatch.setattr(SimulatedTransport, "lacks_ranks", property(lambda transport: True))

    def live(rank):
        w, u = np.zeros(4), np.zeros(3, np.float32)
        replica = malt.Replica([w, u], every=1, sync="ssp:0")
        for _ in range(6):
            w += 1
            replica.step()
        steps = [vector.step for vector in replica.vectors]
        replica.finish()
        return steps

    assert malt.simulate(live, 2) == [[6, 6]] * 2


def test_a_rank_that_finishes_is_left_out_and_waits():
    """Of two Replicas, too: it waits in the first, while others agree on both."""

    def live(rank):
        a, b = np.full(3, float(rank)), np.full((2, 2), float(rank), np.float32)
        one, two = malt.Replica(a, name="one"), malt.Replica({"b": b}, name="two")
        a[:], b[:] = rank, 2 * rank
        one.step(), two.step()
        a[:], b[:] = rank, 2 * rank
        seen = []
        for _ in range(2 * (rank > 0)):
            one.agree(), two.agree()
            seen.append((a[0], b[0, 0]))
        one.finish(), two.finish()
        return seen, a, b

    first, *others = malt.simulate(live, 4)
    assert first[0] == [] and [seen for seen, _, _ in others] == [[(2.0, 4.0)] * 2] * 3
    for _, a, b in (first, *others):
        assert (a == (0 + 3 * 2) / 4).all() and (b == (0 + 3 * 4) / 4).all()


@pytest.mark.parametrize("usual, steps_of_0, is_told", [(False, 3, True), (True, 3, False), (False, 4, False)])
def test_a_rank_that_agrees_alone_is_told_once_unless_it_trains_for_longer(capfd, usual, steps_of_0, is_told):
    """As under `if malt.lowest()`, where the others make all their steps meanwhile. `usual`: all have agreed before."""

    def live(rank):
        w = np.zeros(2)
        replica = malt.Replica(w, name="one")
        for epoch in range(steps_of_0 if rank == 0 else 3):
            w += rank + 1
            replica.step(10)
            if (usual and epoch == 0) or (rank == 0 and epoch in ((1, 2) if steps_of_0 == 3 else (3,))):
                replica.agree()
        replica.finish()

    malt.simulate(live, 3)
    line = "malt: one: rank 0 called agree() and no other rank did: they wait in finish(). "
    told = line + "So it continues with its own model: call agree() on all ranks\n"
    assert capfd.readouterr().err == (told if is_told else "")


def test_a_model_weighs_the_examples_since_the_mean():
    """Between hosts: the square root of 25 of them against that of 100."""

    def live(rank):
        w = np.zeros(2)
        replica = malt.Replica(w, every=100, graph="hierarchical")
        replica.step(0 if rank else 75)
        replica.agree()
        w += 3 * rank
        if rank == 0:
            assert replica.step(25)
        malt.barrier()
        if rank == 1:
            assert replica.step(100)
        malt.barrier()
        replica.close()
        return w.tolist()

    assert malt.simulate(live, 2, network=malt.Network(1e-3, 1e9, ["a", "b"])) == [[0.0] * 2, [2.0] * 2]


@pytest.mark.parametrize("turn", range(60, 460, 80))
@pytest.mark.parametrize("options", [dict(), dict(average="delta"), dict(average="delta", sync="bsp", wire="int8")])
def test_the_ranks_that_live_agree(turn, options):
    """Rank `turn` mod 3 fails at its so many-th turn: before, in and after agree."""

    def live(rank):
        w, seen = np.zeros(40), []
        replica = malt.Replica([w[:10], w[10:]], graph="all", **options)
        for _ in range(3):
            for _ in range(3):
                w += rank + 1
                replica.step()
            replica.agree()
            seen.append(w.tobytes())
        replica.finish()
        return seen, w.tobytes()

    found, failed = run_failing(3, turn, {turn % 3: turn}, live)
    first, *others = [one for rank, one in enumerate(found) if rank not in failed]
    assert all(one == first for one in others)


def test_ranks_agree_on_one_replica_after_as_many_exchanges_under_bsp():
    def live(rank):
        one = malt.Replica([np.zeros(3), np.zeros(3)], name="one", every=2, sync="bsp", fragments=2)
        two = malt.Replica(np.zeros(3), name="two")
        with pytest.raises(
            ValueError, match=r"^Replica.agree: ranks disagree on name: rank 0 has one, rank 1 has two$"
        ):
            (two if rank else one).agree()
        if rank == 0:
            one.step()
        with pytest.raises(
            ValueError, match=r"^Replica.agree: ranks disagree on exchanges: rank 0 has 1, rank 1 has 0$"
        ):
            one.agree()
        if rank == 1:
            one.step()
        one.agree()
        one.finish()
        with pytest.raises(malt.ClosedError, match=r"Replica.agree: finish, close or malt.finalize"):
            one.agree()
        two.finish()

    malt.simulate(live, 2)


def test_new_values_are_delivered_and_a_callback_cannot_agree():
    class Model:
        values = np.zeros(2)

    def live(rank):
        model = Model()
        errors = []

        def put(new):
            model.values = new
            if is_stepping and not errors:
                with pytest.raises(RuntimeError, match="within an exchange of this Replica") as raised:
                    replica.agree()
                errors.append(raised.value)

        is_stepping = False
        replica = malt.Replica(lambda: model.values, set=put)
        model.values = model.values + rank
        if rank:
            replica.step()
            model.values = np.full(2, float(rank))
        replica.agree()
        agreed = model.values.copy()
        is_stepping = True
        replica.step()
        is_stepping = False
        replica.finish()
        return agreed, bool(errors)

    everyone = malt.simulate(live, 3)
    assert all((agreed == 1.5).all() and has_failed for agreed, has_failed in everyone), (
        "only ranks 1 and 2 have counted a step"
    )

"""Ranks that fail at any moment and come back: the others admit them, and go on with them."""

import importlib.util
import random
import sys

import numpy as np
import pytest
from covering import pairs
from returning import Job

import malt
from dstorm.membership.barriers.barrier import Barrier
from dstorm.membership.resilient import SurvivingTransport
from dstorm.membership.returns import returns
from dstorm.membership.returns.returns import Returns
from dstorm.queues.waits.waiting import Awaited, Waiting
from dstorm.view import Member
from malt.session import session
from vol.returns.returning import Returning

STEPS = 30


def trained(transport, sync="bsp", graph="all"):
    """A training that is over once the vector has made so many steps; None where the others had closed it before."""
    v = malt.vector(np.zeros(4), sync=sync, graph=graph)
    merged, arrays = {}, {v.step: v.array.tobytes()}
    while v.step < STEPS and not v.closed:
        v.array += 1
        v.scatter()
        gathered = v.gather()
        merged[v.step], arrays[v.step] = gathered.senders, v.array.tobytes()
        assert sync != "bsp" or set(gathered.steps) <= {v.step}
        transport.pause(14)
    if v.step < STEPS:
        return None
    if sync == "notify-ack":
        v.close()  # a rank that waits here takes no messages, which others would wait for
    malt.barrier()
    return v.step, arrays, v.statistics().peers, merged


def check(found, back=None, sync="bsp", graph="all"):
    """All that live have made all steps; accounts are exact; under bsp they have the same array in the end.

    `back`: the only rank that has failed. From its first step on all have merged its messages, and it theirs.
    """
    ends = {rank: one for rank, one in enumerate(found) if isinstance(one, tuple)}
    assert len(ends) >= 2 and all(one[0] >= STEPS for one in ends.values()), found
    for rank, one in enumerate(found):
        assert rank in ends or one is None or str(one).startswith("out: malt: rank"), one
    for rank, (_, _, peers, _) in ends.items():
        for peer in ends.keys() & peers.keys() if sync != "notify-ack" else ():
            mine, its = peers[peer], ends[peer][2].get(rank)  # None: it never had this rank as an out-neighbour
            received = mine.gathered + mine.overwritten + mine.refused + mine.pending
            assert received == (0 if its is None else its.sent)
    if (sync, graph) == ("bsp", "all"):
        began = min(ends[back][1]) if back in ends else 0  # with the array of another rank after that step
        for step in (began, STEPS) if began else (STEPS,):
            assert len({one[1][step] for one in ends.values() if step in one[1]}) == 1, step
        for step, merged in ends[back][3].items() if back in ends else ():
            assert merged == tuple(rank for rank in range(len(found)) if rank != back)
            assert all(back in one[3][step] for rank, one in ends.items() if rank != back)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("sync", "graph"), [("bsp", "all"), ("asp", "all"), ("ssp:1", "ring"), ("notify-ack", "ring")])
def test_a_rank_comes_back(sync, graph, seed):
    """At any moment, whichever rank it is: the lowest one too."""
    turn = [45, 3, 20, 31, 40, 57, 70, 86, 110, 140, 180, 220][seed]
    job = Job(3, turn, {turn % 3: turn}, {turn % 3: [0]})
    found = job.run(lambda transport: trained(transport, sync, graph))
    check(found, turn % 3, sync, graph)
    is_back = job.group.incarnations[turn % 3] > 0 and isinstance(found[turn % 3], tuple)
    assert job.ready == [(turn % 3, False)] or not (is_back or job.ready), "it is ready once it has what they have"


@pytest.mark.parametrize("seed", range(0, 12, 2))
@pytest.mark.parametrize(("sync", "graph"), [("bsp", "all"), ("asp", "all"), ("ssp:1", "ring"), ("notify-ack", "ring")])
def test_a_rank_comes_that_was_not_there(sync, graph, seed):
    """And another one after it; nobody was told that they had failed."""
    job = Job(4, seed, {2: 20 + 9 * seed, 3: 40 + 17 * seed}, {2: [0], 3: [0]}, absent=(2, 3))
    found = job.run(lambda transport: (trained(transport, sync, graph), session.world().transport.view.reported))
    check([one if isinstance(one, str) or one is None else one[0] for one in found], None, sync, graph)
    changes = found[0][1]
    assert not any(member.incarnation == 0 for change in changes for member in change.failed)
    assert {member.rank for change in changes for member in change.joined} <= {2, 3}


@pytest.mark.parametrize("seed", range(12))
def test_one_that_comes_back_counts_in_a_mean_from_its_first_scatter(seed):
    """The others merge the step at which it begins without it, whenever each of them has heard of it."""

    def live(transport):
        v, means = malt.vector(np.zeros(4), kind="sparse", sync="bsp"), {}
        began = v.step
        while v.step < STEPS and not v.closed:
            v.clear()
            v.array[transport.rank] = 6
            v.scatter()
            v.gather(malt.MEAN)
            means[v.step] = v.array.tolist()
            transport.pause(14)
        malt.barrier()
        return began, means

    seed = (seed + 7) % 12  # with 7 the two others hear of it at different steps
    back = seed % 3
    found = Job(3, seed, {back: 31 + 7 * seed}, {back: [0]}).run(live)
    began, mine = found[back]
    one, other = (means for rank, (_, means) in enumerate(found) if rank != back)
    assert began > 1 and mine.keys() == {*range(began + 1, STEPS + 1)}
    assert one[began] == other[began] == [0 if rank in (back, 3) else 3 for rank in range(4)]
    assert all(one[step] == other[step] == mine[step] == [2, 2, 2, 0] for step in mine)


JOBS = {
    "it fails again as it comes back": lambda turn: Job(3, turn, {1: 40}, {1: [turn, turn // 2, 0]}),
    "the rank that admits it fails": lambda turn: Job(4, turn, {1: 40, 0: 60 + turn}, {1: [0], 0: [0]}),
    "two at once": lambda turn: Job(4, turn, {1: 40, 2: 40 + turn % 4}, {1: [0], 2: [0]}),
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("what", JOBS)
def test_several_failures(what, seed):
    check(JOBS[what](1 + 37 * seed % 90).run(trained))


@pytest.mark.parametrize(("job", "sync", "graph"), [
    ((3, 78, {1: 35}, {1: [100, 19, 0]}), "bsp", "all"),  # half a message of a former incarnation
    # It waits in a scatter for a former incarnation, to whose next slot its message would go.
    ((4, 3649, {1: 79, 3: 21}, {1: [50, 26, 0], 3: [0]}), "bsp", "ring"),
    # It comes back once all had closed the vector. They are in another call, one of them admitted after it.
    ((5, 2838, {0: 44, 4: 70}, {0: [37, 69, 0], 4: [0]}), "notify-ack", "all"),
])  # fmt: skip
def test_moments_that_were_found_by_chance(job, sync, graph):
    check(Job(*job).run(lambda transport: trained(transport, sync, graph)), None, sync, graph)


@pytest.mark.parametrize("turn", range(60, 200, 20))
@pytest.mark.parametrize("sync", ["bsp", "ssp:1", "notify-ack"])
def test_the_rank_that_gives_the_values_fails(sync, turn):
    """Another one does, whatever waits there are. Only where nobody else knows of its admission it stays out."""
    found = Job(4, turn, {1: 60, 0: turn}, {1: [0]}).run(lambda transport: trained(transport, sync))
    check(found, None, sync)
    assert isinstance(found[1], tuple) or found[1].endswith("the rank that admitted it has failed"), found[1]


def test_one_that_is_admitted_begins_once_its_flushes_wait(monkeypatch):
    """As where its words come before the news of the agreement, from another host."""
    looks, begin = [], Returns._begin

    def transport(job, rank):
        made = make(job, rank)
        made.returns.is_member = lambda: looks.append(rank) or len(looks) > 100
        return made

    def begin_late(returns, words):
        assert len(looks) > 100
        return begin(returns, words)

    make = Job.transport
    monkeypatch.setattr(Job, "transport", transport)
    monkeypatch.setattr(Returns, "_begin", begin_late)
    check(Job(3, 20, {1: 20}, {1: [0]}).run(trained), 1)
    assert {*looks} == {1}


def test_one_whose_request_is_lost_asks_again(monkeypatch):
    """As where the rank that is to admit it has come back after the request, on another host."""
    asked, ask = [], Barrier.ask
    monkeypatch.setattr(returns, "_AGAIN_S", 0.0)
    monkeypatch.setattr(Barrier, "ask", lambda *one: asked.append(one) if not asked else ask(*one))
    found = Job(3, 20, {1: 20}, {1: [0]}).run(trained)
    check(found, 1)
    assert len(asked) == 1 and isinstance(found[1], tuple)


@pytest.mark.parametrize("turns", [(150, 30, 80), (220, 30, 120)])
def test_all_ranks_come_back_one_after_the_other(turns, monkeypatch):
    """The last one to ranks of which each has come back itself."""
    monkeypatch.setattr(sys.modules[__name__], "STEPS", 60)
    job = Job(3, 1, dict(enumerate(turns)), {rank: [0] for rank in range(3)})
    found = job.run(trained)
    check(found)
    assert all(isinstance(one, tuple) for one in found), found


def test_a_rank_comes_back_to_ranks_that_came_back_while_it_was_away(monkeypatch):
    """Their words in its memory are not those of ranks that ask, which could not admit it."""
    monkeypatch.setattr(sys.modules[__name__], "STEPS", 200)
    job = Job(3, 1, {2: 60, 0: 90, 1: 300}, {rank: [0] for rank in range(3)})

    def late(transport):
        """As `trained`; rank 2 comes back after the others."""
        if transport.rank == 2 and job.group.incarnations[2]:
            job.away.add(2)
            while len(job.ready) < 2:  # the others have come back
                transport.pause(14)
            job.away.discard(2)
        return trained(transport)

    found = job.run(late)
    assert all(isinstance(one, tuple) for one in found), found


@pytest.mark.parametrize("turn", [55, 60, 90])
@pytest.mark.parametrize("sync", ["asp", "bsp"])
def test_ranks_that_come_back_stay_out_where_nobody_has_the_values_any_more(sync, turn):
    """They do not take the vector for one that was closed."""
    job = Job(3, turn, {1: 30, 2: 34, 0: turn}, {1: [0], 2: [0]})
    found = job.run(lambda transport: trained(transport, sync))
    assert all(isinstance(one, tuple) or str(one).startswith("out: malt: rank") for one in found[1:]), found


def exchanged(transport, syncs, order, before=lambda place, made: None, opens=lambda: None, graph="all"):
    """Exchange vectors of these modes until the last has made all steps: their steps, and the seconds to open them.

    `order`: of their scatters and gathers, in turn. before(place, made) is called before each, opens() before the
    second vector is opened.
    """
    start, made = transport.clock(), []
    for number, sync in enumerate(syncs.split()):
        if number == 1:
            opens()
        made.append(malt.vector(np.zeros(2), sync=sync, graph=graph))
    opened_s = transport.clock() - start
    while made[-1].step < STEPS:
        for place, which in enumerate(order):
            before(place, made)
            v = made[int(which)]
            v.gather() if order[:place].count(which) % 2 else v.scatter()
        transport._place.pause(14)  # as code of the user: it looks at nothing
    return [v.step for v in made], opened_s


@pytest.mark.parametrize(
    ("order", "graph", "sync", "seed"),
    pairs(["0011", "0101", "1001", "1010"], ["ring", "exponential", "one-peer", "star"], ["bsp", "ssp:1"], range(4)),
)
def test_a_rank_comes_back_to_several_vectors_along_any_graph(sync, order, graph, seed):
    """Ranks that do not gather from it would go on, while it opens one vector after the other."""
    job = Job(5, seed, {seed % 5: 80 + 9 * seed}, {seed % 5: [0]})
    found = job.run(lambda transport: exchanged(transport, f"{sync} {sync}", order, graph=graph))
    assert [steps for steps, _ in found] == [[STEPS] * 2] * 5


@pytest.mark.parametrize(
    ("sync", "average", "graph", "seed"), pairs(["bsp", "notify-ack"], ["delta", "model"], ["all", "ring"], range(4))
)
def test_a_rank_comes_back_to_a_replica_and_a_vector(sync, average, graph, seed):
    """Ranks that hold are at the end of an exchange of the Replica: they can give its values. Who waits for an
    acknowledgement in the Replica does not come to where the newcomer gets the vector: so nobody does."""

    def live(transport):
        w = {"a": np.zeros(4, np.float32)}
        replica = malt.Replica(w, sync=sync, average=average, graph=graph)
        v = malt.vector(np.zeros(2), sync="bsp", graph=graph)
        opened_at = transport.clock()
        while v.step < STEPS:
            w["a"] += 1
            replica.step()
            v.scatter()
            v.gather()
            transport._place.pause(14)  # as code of the user: it looks at nothing
        if sync == "notify-ack":
            replica.vectors[0].close()  # a rank that waits here takes no messages, which others would wait for
        return v.step, replica.vectors[0].step, opened_at

    found = Job(4, seed, {seed % 4: 90 + 7 * seed}, {seed % 4: [0]}).run(live)
    assert [one[0] for one in found] == [STEPS] * 4 and max(one[2] for one in found) < 1.0
    assert sync != "bsp" or [one[1] for one in found] == [STEPS] * 4


@pytest.mark.parametrize("closes", [False, True])
def test_one_that_opens_not_all_holds_up_nobody(closes):
    """It has come back, and ends, or closes the first vector, before it has made the second one."""
    ended = []

    def live(transport):
        a = malt.vector(np.zeros(2), sync="bsp")
        if a.step and closes:
            a.close()
            while len(ended) < 3:
                transport._place.pause(14)  # as code of the user: it looks at nothing
        if a.step:
            return "back"
        b = malt.vector(np.zeros(2), sync="bsp")
        while a.step < STEPS:
            for v in (a, b):
                v.scatter()
                v.gather()
            transport.pause(14)
        ended.append(transport.rank)
        return "ended"

    found = Job(4, 5, {1: 60}, {1: [0]}).run(live)
    assert [found[rank] for rank in (0, 2, 3)] == ["ended"] * 3, found


@pytest.mark.parametrize(
    ("syncs", "stays_out"),
    [("bsp bsp", True), ("ssp:0 bsp", True), ("ssp:1 ssp:1", False), ("ssp:1 bsp", False), ("bsp ssp:1", False)],
)
def test_one_whose_loop_begins_with_another_vector_than_the_first_holds_up_nobody(syncs, stays_out):
    """The others hold before the exchange of the first one. Of equal steps it would wait for them, and they for it."""
    found = Job(3, 1, {1: 100}, {1: [0]}).run(lambda transport: exchanged(transport, syncs, "1100")[0][1])
    out = "out: malt: rank 1 stays out: its first exchange is of another vector than the next one of the others"
    assert found == [STEPS, out if stays_out else STEPS, STEPS]


@pytest.mark.parametrize("sync", ["asp", "ssp:1", "notify-ack"])
def test_what_a_rank_gets_that_comes_back_may_grow_while_it_waits(sync):
    """A copy of it is made when the rank asks, and another one of the step at which it begins."""

    def live(transport):
        v = malt.vector(np.zeros(4), sync=sync)
        brought = v.accompany(lambda: {"steps": np.arange(v.step)})
        began = v.step
        while v.step < STEPS and not v.closed:
            v.scatter()
            v.gather()
            transport.pause(14)
        v.close()  # a rank that waits here takes no messages, which others would wait for
        malt.barrier()
        return brought is not None and (began, brought["steps"].tolist())

    _, _, (began, steps) = Job(3, 20, {2: 20}, {2: [0]}).run(live)
    assert 0 < began <= len(steps) and steps == list(range(len(steps)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("meets", [False, True])
def test_two_ranks_come_back_to_several_vectors_at_once(meets, seed):
    """Neither waits for the other to hold, nor twice; nor do they where the others wait for them in a barrier."""

    def live(transport):
        return exchanged(transport, "bsp bsp bsp", "001122", lambda place, _: place or not meets or malt.barrier())

    found = Job(5, seed, {1: 60, 3: 60 + seed}, {1: [0], 3: [0]}).run(live)
    assert [steps for steps, _ in found] == [[STEPS] * 3] * 5 and max(opened_s for _, opened_s in found) < 1.0


def await_newcomer(v, transport):
    """Return once a rank has opened `v` again, and some time later: it opens the next vector if it may."""
    while not v.returning.is_held:
        transport.pause(14)
    for _ in range(20):
        transport.pause(14)


def test_a_rank_comes_back_between_the_exchanges_of_two_vectors():
    """It opens the second vector when the others have exchanged both equally often."""

    def live(transport):
        def before(place, made):
            if place == 2 and made[0].step == 3:
                await_newcomer(made[0], transport)

        return exchanged(transport, "bsp bsp", "0011", before)[0]

    assert Job(3, 1, {1: 200}, {1: [0]}).run(live) == [[STEPS] * 2] * 3


def test_a_rank_that_is_behind_goes_on_to_the_step_at_which_a_newcomer_begins():
    """Rank 3 waits for its message of that step; rank 0, which gives the values of the second vector, for rank 3."""

    def live(transport):
        def before(place, made):
            if transport.rank == 2 and place == 0 and made[0].step == 3:
                await_newcomer(made[0], transport)

        return exchanged(transport, "bsp bsp", "0011", before, graph="ring")[0]

    assert Job(4, 1, {1: 200}, {1: [0]}).run(live) == [[STEPS] * 2] * 4


def test_ranks_that_close_a_vector_after_a_rank_has_come_back_to_it_are_not_waited_for():
    """It opens the second vector before they close that, too."""

    def live(transport):
        first, second = malt.vector(np.zeros(2), sync="bsp"), malt.vector(2)
        if not first.step:
            first.scatter()
            first.gather()
            await_newcomer(first, transport)
            first.close()
        while second.step < STEPS:
            second.scatter()
            transport.pause(14)
        return first.step

    assert Job(3, 1, {1: 200}, {1: [0]}).run(live) == [1] * 3


def test_one_that_comes_to_a_barrier_before_it_has_opened_all_holds_up_nobody():
    """In the end it is left out: it has come to one barrier more than the others since then."""

    def live(transport):
        first, second = malt.vector(np.zeros(2), sync="bsp"), None
        malt.barrier()
        while first.step < STEPS:
            first.scatter()
            malt.barrier()
            first.gather()
            second = second or malt.vector(2)
            if first.step == 3:
                await_newcomer(first, transport)
        return first.step

    found = Job(3, 1, {1: 300}, {1: [0]}).run(live)
    assert found[::2] == [STEPS] * 2 and "it is in malt.barrier, and the others in malt.finalize" in found[1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("meets", "call"), [("scatter", "malt.vector"), ("gather", "gather")])
def test_one_that_waits_for_ranks_which_wait_for_it_in_a_barrier_stays_out(seed, meets, call):
    """The others meet amid an exchange, or after it, where a rank that comes back has its first one before it."""

    def live(transport):
        v = malt.vector(np.zeros(2), sync="bsp")
        while v.step < STEPS:
            for name in ("scatter", "gather"):
                getattr(v, name)()
                if name == meets:
                    malt.barrier()
            transport.pause(14)
        return v.step

    found = Job(3, seed, {1: 100 + 10 * seed}, {1: [0]}).run(live)
    out = f"out: malt: rank 1 stays out: it is in {call}, and the others in malt.barrier"
    assert found == [STEPS, out, STEPS]


@pytest.mark.parametrize("sends", [True, False])
def test_who_sends_or_has_never_failed_may_wait_for_ranks_in_a_barrier(sends):
    """Rank 1 comes back, and waits for what it sends; or has never failed, and waits for what others send."""

    def live(transport):
        v = malt.vector(np.zeros(2))
        while sends and not malt.rejoined() and not transport.view.incarnation(1):
            transport.pause(14)
        if malt.rank() == 1:
            start = transport.clock()
            others = [Awaited(rank, heard_at=start) for rank in (0, 2)]
            waiting = Waiting(transport, 5.0, lambda: None)

            def missing():
                return others if transport.clock() < start + 2 else []

            if sends:
                waiting.until_none("scatter", missing, None, transport.clock)
            else:
                waiting.until_none("gather", missing)
        malt.barrier()
        return v.step

    assert Job(3, 1, {1: 100} if sends else {}, {1: [0]}).run(live) == [0] * 3


@pytest.mark.parametrize("turn", [20, 36, 52])
def test_ranks_that_have_finished_go_before_one_that_has_come_back_to_another_call(turn):
    """They are at the end of the session. It is the one that is left out, in a line."""

    def live(transport):
        v = malt.vector(np.zeros(4), sync="asp")
        if v.closed or v.step:
            malt.barrier()
            return "came"
        for _ in range(8):
            v.scatter()
            v.gather()
            transport.pause(14)
        v.close()
        for _ in range(30):
            transport.attend()
            transport.pause(14)
        return "ended"

    job = Job(3, turn, {2: turn}, {2: [0]})
    found = job.run(live)
    assert not job.left
    assert found[:2] == ["ended", "ended"], found
    assert found[2] is None or str(found[2]).startswith("out: malt: rank 2 stays out: "), found


@pytest.mark.parametrize("seed", range(30))
def test_ranks_fail_and_come_back_at_random(seed):
    choose = random.Random(seed)
    size = choose.randrange(3, 6)
    doomed = choose.sample(range(size), choose.randrange(1, size - 1))
    turns = lambda: int(2 ** choose.uniform(3, 8))  # noqa: E731
    again = {rank: [turns() for _ in range(choose.randrange(3))] + [0] for rank in doomed}
    job = Job(size, seed, {rank: turns() for rank in doomed}, again)
    sync, graph = choose.choice(["bsp", "asp", "ssp:0", "ssp:2", "notify-ack"]), choose.choice(["all", "ring"])
    check(job.run(lambda transport: trained(transport, sync, graph)), None, sync, graph)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", [
    {"sync": "bsp"}, {"sync": "asp"}, {"sync": "asp", "average": "delta"}, {"sync": "bsp", "average": "delta"},
    {"sync": "bsp", "average": "delta", "outer": malt.optim.nesterov(0.7, 0.9)}, {"sync": "bsp", "fragments": 2},
    {"sync": "ssp:0", "average": "delta", "fragments": 2},
])  # fmt: skip
def test_a_replica_comes_back_with_the_model_of_the_others(options, seed):
    """The parameters count the exchanges, about: a rank that began anew would be far behind."""

    def live(transport):
        w = {"a": np.zeros(5), "b": np.zeros(3, np.float32), "n": np.array([1 + transport.rank])}
        replica = malt.Replica(w, every=2, **options)
        first = w["a"][0]
        try:
            for _ in range(2 * STEPS - 2 * replica.vectors[0].step):
                w["a"] += 0.5
                w["b"] += 0.5
                replica.step()
                transport.pause(14)
        except malt.ClosedError:
            return None
        replica.finish()
        return first, w["a"].tobytes() + w["b"].tobytes(), int(w["n"][0]), transport.view.incarnation(1)

    found = Job(3, seed, {1: 90 + 20 * seed}, {1: [0]}).run(live)
    ends = [one for one in found if isinstance(one, tuple)]
    assert len(ends) >= 2 and len({one[1] for one in ends}) == 1 and {one[2] for one in ends} == {1}
    if isinstance(found[1], tuple) and found[1][3]:
        assert 1 < found[1][0] <= STEPS + 1


@pytest.mark.parametrize("turn", [100, 180])
def test_a_rank_that_comes_back_begins_at_the_fragment_whose_turn_it_is(turn):
    """The others wait for it in a barrier, perhaps after an odd number of exchanges."""

    def live(transport):
        w = [np.zeros(4), np.zeros(4)]
        replica = malt.Replica(w, every=2, fragments=2, sync="ssp:0")
        steps = [vector.step for vector in replica.vectors]
        exchanges = sum(steps)
        while exchanges < 2 * STEPS:
            for _ in range(3):
                w[0] += 1
                w[1] += 1
                replica.step()
                transport.pause(14)
            malt.barrier()
            exchanges = sum(vector.step for vector in replica.vectors)
        replica.finish()
        return steps, w[0].tobytes() + w[1].tobytes()

    found = Job(3, 0, {1: turn}, {1: [0]}).run(live)
    assert len({model for _, model in found}) == 1
    assert found[1][0] == {100: [5, 4], 180: [9, 9]}[turn]


@pytest.mark.parametrize("seed", range(4))
def test_a_rank_that_comes_back_makes_the_outer_steps_of_the_others(seed):
    """Its count of them is theirs, too: the first steps of adam are other ones."""

    def live(transport):
        w = np.zeros(5)
        replica = malt.Replica(w, every=1, sync="bsp", average="delta", outer=malt.optim.adam(0.1, warmup=1))
        try:
            for step in range(replica.vectors[0].step, STEPS):
                w += step
                replica.step()
                transport.pause(14)
        except malt.ClosedError:
            return None
        own = w.tobytes()
        replica.finish()
        return own, transport.view.incarnation(1)

    found = Job(3, seed, {1: 90 + 20 * seed}, {1: [0]}).run(live)
    ends = [one for one in found if isinstance(one, tuple)]
    assert len(ends) >= 2 and len(set(ends)) == 1


@pytest.mark.parametrize(("size", "seed", "failures", "again"), [
    # Rank 0 comes back while it is the lowest, and is asked for values before it has them itself.
    (5, 500_006, {0: 8, 1: 22, 4: 24}, {0: [87, 136, 0], 1: [183, 0], 4: [9, 0]}),
    # Until the first sum that comes after its return a rank has no sum but its own.
    (4, 525_325, {2: 26}, {2: [180, 0]}),
])  # fmt: skip
def test_moments_that_were_found_by_chance_in_a_replica(size, seed, failures, again):
    def live(transport):
        w = {"a": np.zeros(5), "b": np.zeros(3, np.float32), "n": np.array([1 + transport.rank])}
        replica = malt.Replica(w, every=2, graph="ring", average="delta")
        for _ in range(2 * STEPS - 2 * replica.vectors[0].step):
            w["a"] += 0.5
            w["b"] += 0.5
            replica.step()
            transport.pause(14)
        replica.finish()
        return w["a"].tobytes(), w["b"].tobytes(), int(w["n"][0])

    found = Job(size, seed, failures, again).run(live)
    assert len({one for one in found if isinstance(one, tuple)}) == 1, found


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra torch")
@pytest.mark.parametrize("seed", range(3))
def test_a_rank_comes_back_to_an_optimizer_of_torch(seed):
    """It gets parameters, averaged buffers, and what is not exchanged, which rank 0 gave at the start."""
    import torch

    def live(transport):
        torch.manual_seed(10 * transport.rank + job.group.incarnations[transport.rank])
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
        model[0].bias.requires_grad_(False)
        optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
        optimizer = malt.torch.Optimizer(optimizer, model, every=1)
        fixed = model[0].bias.tolist()
        while len(malt.alive()) == 3 and not malt.rejoined() and optimizer.vectors[0].step < 300:
            one_step(model, optimizer, transport)
        for _ in range(20):
            one_step(model, optimizer, transport)
        optimizer.finish()
        return malt.rejoined(), fixed, [one.tolist() for one in model.state_dict().values()]

    def one_step(model, optimizer, transport):
        optimizer.zero_grad()
        model(torch.ones(4, 2) * torch.arange(4)[:, None]).sum().backward()
        optimizer.step()
        transport.pause(14)

    job = Job(3, seed, {1: 150 + 11 * seed}, {1: [0]})
    found = job.run(live)
    assert [one[0] for one in found] == [False, True, False], found
    assert found[0][1:] == found[1][1:] == found[2][1:], found


@pytest.mark.parametrize(("length", "meets", "why"), [
    (5, False, "malt.vector: shape is [5], and the others have [4]"),
    (4, True, "malt.barrier must be called before malt.vector and malt.Replica"),
])  # fmt: skip
def test_another_call_is_refused_in_a_line(length, meets, why):
    """The others go on."""

    def live(transport):
        is_outside = transport.returns.barrier.is_outside
        if is_outside and meets:
            malt.barrier()
        v = malt.vector(length if is_outside else 4)
        while v.step < STEPS:
            v.scatter()
            transport.pause(14)
        return v.step

    found = Job(3, 1, {1: 60}, {1: [0]}).run(live)
    assert found == [STEPS, f"out: malt: rank 1 stays out: {why}", STEPS]


def test_vectors_that_were_closed_are_closed_and_later_ones_are_made_together():
    def live(transport):
        first = malt.vector(4, name="first")
        while first.step < 10 and not first.closed:
            first.scatter()
            transport.pause(14)
        first.close()
        second, third = malt.vector(8, name="second"), malt.vector(8, name="third")
        while second.step < STEPS:
            second.scatter()
            third.scatter()
            transport.pause(14)
        last = malt.vector(4, name="last")
        malt.barrier()
        last.array[:] = malt.rank()
        last.scatter()
        malt.barrier()
        last.gather(malt.SUM)
        return last.array.tolist(), len(transport.taken)

    found = Job(3, 1, {1: 150}, {1: [0]}).run(live)
    assert found[0] == found[1] == found[2] and found[0][0] == [3.0] * 4


@pytest.mark.parametrize("seed", range(6))
def test_a_rank_comes_back_amid_collectives(seed):
    """Results are the same on all that are in them. Where it is in another call than the others, it ends, not they."""

    def live(transport):
        v, step = malt.vector(4), 0
        while step < STEPS:
            v.scatter()
            total = np.full(3, 2.0**transport.rank)
            malt.allreduce(total, "sum")
            step = max(value for value in malt.allgather(v.step) if value is not None)
            transport.pause(14)
        return total[0], malt.allgather(total[0])

    turn = 4 + 3 * seed
    back = turn % 3
    found = Job(3, turn, {back: 5 * turn}, {back: [0]}).run(live)
    ends = [one for one in found if isinstance(one, tuple)]
    assert len(ends) >= 2 and len({str(one) for one in ends}) == 1
    assert all(
        one is None or "stays out: it is in malt." in one or "have ended" in one for one in found if one not in ends
    )


def test_one_that_asks_amid_an_exchange_gets_the_values_of_its_end():
    """Rank 0 copies its values while it waits for rank 2 in a gather, and again when that is over."""
    vectors = {}

    def live(transport):
        v = vectors[transport.rank] = malt.vector(np.zeros(4), sync="bsp")
        began, arrays = v.step, {v.step: v.array.tolist()}
        while transport.rank == 2 and v.step < 3:
            one_exchange(transport, v, arrays)
        while transport.rank == 2 and not (v.returning.is_held and vectors[0].returning._copies):
            transport.pause(14)
        while v.step < STEPS:
            one_exchange(transport, v, arrays)
        return began, arrays

    def one_exchange(transport, v, arrays):
        v.array += transport.rank
        v.scatter()
        v.gather()
        arrays[v.step] = v.array.tolist()

    found = Job(3, 1, {1: 200}, {1: [0]}).run(live)
    began, arrays = found[1]
    assert began == 4 and arrays[began] == found[0][1][began] == found[2][1][began]


def test_one_that_comes_back_waits_until_the_rank_that_gives_the_values_has_made_the_step_of_the_others():
    """Under ssp rank 2 is a step ahead of rank 0, and neither is in an exchange."""
    vectors = {}

    def live(transport):
        while transport.rank == 1 and job.group.incarnations[1] and vectors[2].step < 4:
            transport._place.pause(14)
        v = vectors[transport.rank] = malt.vector(np.zeros(4), sync="ssp:1")
        began, arrays = v.step, {v.step: v.array.tolist()}
        while v.step < STEPS:
            if transport.rank == 2 and v.step == 4:
                await_newcomer(v, transport)
            while transport.rank == 0 and v.step == 3 and getattr(v.returning._opening(1), "asked", -1) < 4:
                transport.pause(14)
            for _ in range(20 if transport.rank == 0 and v.step == 3 else 0):
                transport.pause(14)
            v.array += 1
            v.scatter()
            v.gather()
            arrays[v.step] = v.array.tolist()
        return began, arrays

    job = Job(3, 1, {1: 200}, {1: [0]})
    found = job.run(live)
    began, arrays = found[1]
    assert began == 4 and arrays[began] == found[0][1][began]


def test_one_that_comes_back_begins_in_no_vector_amid_an_exchange_of_another_one():
    """Two exchanges of the first vector are within each of the second one. It is told when that is over, at once."""

    def live(transport):
        def before(place, made):
            if place in (3, 5) and made[0].step in (7, 8):
                await_newcomer(made[0], transport)

        return exchanged(transport, "bsp bsp", "100001", before)

    found = Job(3, 1, {1: 300}, {1: [0]}).run(live)
    assert [steps for steps, _ in found] == [[2 * STEPS, STEPS]] * 3 and found[1][1] < 1.0


def test_a_rank_goes_on_to_where_others_have_begun_the_exchange_that_encloses_the_next_one_of_the_first_vector():
    """The step of that one is the same on all. Rank 2 waits for the message of rank 0 amid an exchange of the last."""

    def live(transport):
        def before(place, made):
            if transport.rank == 0 and place == 0 and made[2].step == 3:
                await_newcomer(made[0], transport)

        return exchanged(transport, "bsp bsp bsp", "211002", before)

    found = Job(3, 1, {1: 200}, {1: [0]}).run(live)
    assert [steps for steps, _ in found] == [[STEPS] * 3] * 3 and found[1][1] < 1.0


def test_one_that_has_opened_all_holds_for_the_next_one_before_its_first_exchange():
    """It has made none so far, within which those of the first vector begin. The others hold before that."""

    def live(transport):
        def opens():
            if transport.rank == 1 and job.group.incarnations[1]:
                while Member(3, 1) not in session.world().vectors[0].returning._told:
                    transport.pause(14)
                for _ in range(20):  # rank 3 opens all meanwhile
                    transport.pause(14)

        return exchanged(transport, "bsp bsp bsp", "211002", opens=opens)

    job = Job(4, 1, {1: 100, 3: 100}, {1: [0], 3: [0]})
    found = job.run(live)
    assert [steps for steps, _ in found] == [[STEPS] * 3] * 4 and max(opened_s for _, opened_s in found) < 1.0


def test_nobody_sends_to_one_that_opens_vectors_still_amid_an_exchange_of_those():
    """Who waited there for its acknowledgement would not come to the end of that exchange."""

    def live(transport):
        def opens():
            for _ in range(6 if transport.rank == 1 and job.group.incarnations[1] else 0):
                transport._place.pause(14)  # as code of the user: it looks at nothing

        (_, steps), opened_s = exchanged(transport, "notify-ack bsp", "1001", opens=opens)
        session.world().vectors[0].close()  # a rank that waits here takes no messages, which others would wait for
        return steps, opened_s

    job = Job(3, 1, {1: 100}, {1: [0]})
    found = job.run(live)
    assert [steps for steps, _ in found] == [STEPS] * 3 and found[1][1] < 1.0


def test_what_a_former_incarnation_was_told_of_a_vector_is_void():
    """Rank 2 has told it that it is between two exchanges of the second vector. It is amid one when the next asks."""
    made = {}

    def live(transport):
        life = job.group.incarnations[transport.rank]
        first = malt.vector(np.zeros(2), sync="asp")
        while life == 2 and made[2].returning.progress() != (4, False):
            transport._place.pause(14)
        second = malt.vector(np.zeros(2), sync="bsp")
        while life == 1:  # until rank 0 has it fail
            transport.pause(14)
        made[transport.rank], began = second, second.step
        while second.step < STEPS:
            first.scatter()
            if not life and second.step == 3:
                await_the_next(transport, first, second)
            second.scatter()
            if transport.rank == 2 and second.step == 4:
                for _ in range(20):
                    transport._place.pause(14)  # as code of the user: it looks at nothing
            second.gather()
        return began

    def await_the_next(transport, first, second):
        """Both are told to the one that comes back, which then fails; the next one has opened the first vector."""
        while Member(1, 1) not in second.returning._told:
            transport.pause(14)
        job.group._turns_left[1] = 1
        while Member(1, 2) not in first.returning._told:
            transport.pause(14)
        while transport.rank == 0 and Member(1, 2) not in second.returning._told:
            transport.pause(14)
        for _ in range(10 if transport.rank == 0 else 0):
            transport.pause(14)

    job = Job(3, 1, {1: 200}, {1: [0, 0]})
    found = job.run(live)
    assert found[0] == found[2] == 0 and found[1] in (4, 5)


def test_who_closes_a_vector_before_it_takes_a_newcomer_up_answers_it_later():
    """In a barrier it may read last that the newcomer has opened the vector. It has answered the former incarnation."""
    lives = []

    def live(transport):
        v = malt.vector(np.zeros(2), sync="asp")
        lives.append(job.group.incarnations[transport.rank])
        while v.step < STEPS and not v.closed:
            while transport.rank == 1 and job.group.incarnations[1] == 1:  # until rank 2 has it fail
                transport.pause(14)
            while transport.rank == 0 and v.step == 10 and 2 not in lives:
                transport.pause(14)
            v.scatter()
            if transport.rank == 2 and v.step == 3:
                await_the_next(transport, v)
                transport.returns.barrier.check()  # as between two polls of a barrier
                v.close()
            transport.pause(14)
        return v.step

    def await_the_next(transport, v):
        while Member(1, 1) not in v.returning._told:
            transport.pause(14)
        job.group._turns_left[1] = 1
        while not transport.view.has(1, 2):
            transport.pause(14)
        while not transport.returns._board.read(1)["open"]:
            transport._place.pause(14)  # as code of the user: it looks at nothing

    job = Job(3, 1, {1: 100}, {1: [0, 0]})
    assert job.run(live) == [STEPS, STEPS, 3]


def test_one_that_is_in_takes_up_who_has_opened_the_vector_meanwhile_before_it_goes_on(monkeypatch):
    """Rank 2 opens it while rank 1 copies the values. It has seen no more of rank 1 when it finds all in one step."""
    announce, read, answers = Returning.announce, SurvivingTransport.read, Returns.answers
    at = set()

    def announced(self, born):
        """Rank 2 opens the vector when rank 1, which knows of its admission, has the values but for a copy."""
        at.add(self._rank)
        while not {1, 2} <= at:
            self._transport.pause(14)
        while self._rank == 2 and "reads" not in at:
            self._transport._place.pause(6)
        announce(self, born)

    def copied(self, *args):
        at.add("reads")
        while self.rank == 1 and "asks" not in at:
            self._place.pause(1)  # it is not to look again soon
        return read(self, *args)

    def found(self, place):
        """Rank 2 loses the core until all have answered, after it has read who is in."""
        if self._rank == 2 and "asks" not in at:
            at.add("asks")
            while len(answers(self, place)) < 3:
                self.arena._place.pause(8)
        return answers(self, place)

    monkeypatch.setattr(Returning, "announce", announced)
    monkeypatch.setattr(SurvivingTransport, "read", copied)
    monkeypatch.setattr(Returns, "answers", found)
    found = Job(4, 1, {1: 100, 2: 100}, {1: [0], 2: [0]}).run(trained)
    check(found)
    assert at == {1, 2, "reads", "asks"}
    for rank, (_, _, _, merged) in enumerate(found):
        assert all(merged[step] == tuple({0, 1, 2, 3} - {rank}) for step in found[2][3])


def test_a_rank_is_new_to_a_vector_whose_last_barrier_another_rank_leaves_after_its_admission(monkeypatch):
    """Rank 2 has made it with rank 0, which admits rank 1 at once; and learns both from the same word."""
    decision, made = Barrier._decision, set()

    def late(self, number, what):
        while self._rank == 2 and number == last.get(2) and not self.membership.words[0].generation.number:
            self._read([0])
            self._transport._place.pause(14)
        return decision(self, number, what)

    def live(transport):
        if job.group.incarnations[transport.rank]:
            job.away.add(1)
            while 0 not in made:
                transport._place.pause(14)
            job.away.discard(1)
        before = transport.meetings
        first = malt.vector(np.zeros(2), sync="asp")
        last[transport.rank] = 2 * transport.meetings - before
        while 1 in transport.view.alive and 0 not in made:
            transport.pause(14)
        second = malt.vector(np.zeros(2), sync="bsp")
        made.add(transport.rank)
        while second.step < STEPS:
            second.scatter()
            second.gather()
            transport.pause(14)
        return first.step, transport.clock() < 2.0

    last = {}
    monkeypatch.setattr(Barrier, "_decision", late)
    job = Job(3, 1, {1: 100}, {1: [0]})
    assert job.run(live) == [(0, True)] * 3

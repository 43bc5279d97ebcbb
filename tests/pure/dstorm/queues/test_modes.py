"""Every mode, over every graph, in the simulator; and the planted faults that these tests catch."""

import numpy as np
import pytest
from covering import pairs
from graphnames import GRAPHS
from mutation import plant

import malt
from dstorm import Queues
from dstorm.queues.consistency import Consistency
from dstorm.queues.receiving.in_edge import InEdge
from dstorm.queues.receiving.receiver import Inbox
from dstorm.queues.sending.near import NearEdges
from dstorm.queues.sending.sender import Outbox
from vol import DenseVector, Vector

MODES = ["asp", "ssp:0", "ssp:2", "bsp", "notify-ack"]
SEEDS = range(10)
DEADLINE_S = 1.0
"""Virtual seconds: a healthy rank waits for some milliseconds."""


class Broken(AssertionError):
    """A promise of a mode was not kept."""


def promise(kept, what):
    if not kept:
        raise Broken(what)


def is_quiet(rank, step):
    """Now and then a rank scatters to nobody."""
    return (rank + step) % 4 == 0


def skips_gather(rank, step):
    """Now and then a rank does not gather: under bsp it then never merges the updates of that step."""
    return rank == 3 and step == 2


def live(graph, sync, depth, steps, begun):
    """A rank's loop; `begun` holds the step that each rank has begun."""

    def on_rank(rank):
        malt.init(deadline_s=DEADLINE_S)
        with malt.vector(6, graph=graph, sync=sync, depth=depth) as v:
            mesh = malt.graph(graph, malt.size())
            for step in range(1, steps[rank] + 1):
                begun[rank] = step
                v.array[:] = 1000 * rank + step
                v.scatter(to=[] if is_quiet(rank, step) else None)
                if sync == "bsp" and depth > 1 and skips_gather(rank, step):
                    continue
                seen = []

                def whole(own, updates, seen=seen):
                    malt.init().transport.pause(3)  # a merge takes its time
                    for update in updates:
                        promise((update.values == 1000 * update.sender + update.step).all(), "a mixed update")
                        seen.append((update.sender, update.step))

                v.gather(whole)
                _check_step(sync, mesh, rank, step, seen, begun, steps)
            malt.init().transport.pause(12)  # others may be waiting already for what never comes
            statistics = v.statistics()
            promise(sync != "asp" or statistics.waited_s == 0, "asp waited")
            promise(sync != "notify-ack" or statistics.overwritten == 0, "overwritten")
        return statistics

    return on_rank


def _check_step(sync, mesh, rank, step, seen, begun, steps):
    if sync == "bsp":
        peers = [peer for peer in mesh.into(rank, step) if step <= steps[peer] and not is_quiet(peer, step)]
        promise(seen == [(peer, step) for peer in peers], f"at step {step} of {peers} came {seen}")
    if sync.startswith("ssp"):
        bound = int(sync[4:])
        behind = [peer for peer in mesh.sources(rank) if begun[peer] < min(step - bound, steps[peer])]
        promise(not behind, f"{behind} are more than {bound} behind")


def play(graph, sync, seed, size=5, depth=2, steps=None):
    steps = steps or [7] * size
    begun = [0] * size
    try:
        malt.simulate(live(graph, sync, depth, steps, begun), size, seed)
    except malt.DeadlinePassed as error:
        raise Broken(f"waited for ever: {error}") from error


@pytest.mark.parametrize(("graph", "sync", "seed"), pairs(GRAPHS, MODES, range(0, len(SEEDS), 2)))
def test_promises_hold_on_every_graph(graph, sync, seed):
    for each in SEEDS[seed : seed + 2]:
        play(graph, sync, each)


@pytest.mark.parametrize("sync", MODES)
@pytest.mark.parametrize("graph", ["all", "ring", "one-peer"])
def test_promises_hold_for_uneven_loops(graph, sync):
    for seed in range(5):
        play(graph, sync, seed, steps=[1, 3, 9, 20, 20])


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_gather_now_and_then_lets_the_senders_on(graph, every):
    """Under bsp what was sent in the steps between is dropped, along whichever edges it came."""

    def on_rank(rank):
        with malt.vector(4, graph=graph, sync="bsp", depth=every) as v:
            for step in range(1, 19):
                v.scatter()
                if step % every == 0:
                    promise(set(v.gather().steps) <= {step}, "an update of another step")

    for seed in range(2):
        malt.simulate(on_rank, 5, seed)


MERGING = "self._gathered_at = self._step\n"
BSP, SSP, ACKNOWLEDGED = ("bsp",), ("ssp:0", "ssp:2"), ("bsp", "notify-ack")
MUTANTS = {
    "acknowledges_before_merging": (
        ACKNOWLEDGED,  # the other modes merge copies
        (Vector, "_collect", (MERGING, MERGING + "    self._queues.acknowledge([])\n")),
        # A user's function is given copies: let it see the window, as built-in functions do.
        (DenseVector, "_updates", ("content.copy()", "content")),
    ),
    "waits_for_the_done": (
        (*SSP, *BSP),
        (InEdge, "is_seen_at", ("self.step >= step or self.done:", "self.step >= step:"),
         ("return self.done", "return False")),
    ),
    "sends_to_the_done": (ACKNOWLEDGED, (Outbox, "_may_send", ("return edge.done or ", "return "))),
    "accepts_the_next_step": (
        BSP, (Inbox, "take", ("seen.step == self.step", "seen.step <= self.step + 1"))
    ),
    "accepts_the_last_step": (
        BSP,
        (Inbox, "_next", (">= step", ">= step - 1")),
        (Inbox, "take", ("seen.step == self.step", "seen.step <= self.step")),
    ),
    "ssp_lets_one_more_behind": (
        SSP, (Consistency, "awaited_step", ("step - self.staleness", "step - self.staleness - 1"))
    ),
    "publishes_no_step_without_a_message": (
        ("bsp", "ssp:0"), (NearEdges, "send", ("if edge not in edges:", "if False:"))
    ),
    "no_flow_control": (
        ACKNOWLEDGED,
        (Outbox, "_may_send", ("return edge.done or edge.ring.may_send(self._in_flight)", "return True")),
    ),
    "one_more_in_flight": (
        ACKNOWLEDGED,
        (Consistency, "unacknowledged", ("self.in_flight or depth", "(self.in_flight or depth) + 1")),
    ),
    "never_acknowledges": (
        ACKNOWLEDGED, (Queues, "acknowledge", ("if self.consistency.acknowledges and not self.closed:", "if False:"))
    ),
}  # fmt: skip
"""The modes in which some schedule catches the mutant; the changes that make it: a function, old and new text."""


def is_caught(sync):
    """Whether some schedule breaks a promise."""
    for graph in ("all", "one-peer", "ring"):
        for seed in SEEDS:
            for depth in (1, 2):
                try:
                    play(graph, sync, seed, depth=depth, steps=[2, 7, 7, 7, 6])
                except (Broken, RuntimeError):
                    return True
    return False


@pytest.mark.thorough(but="never_acknowledges-bsp")
@pytest.mark.parametrize(("mutant", "sync"), [(name, sync) for name in MUTANTS for sync in MUTANTS[name][0]])
def test_some_schedule_catches(mutant, sync, monkeypatch):
    for owner, method, *changes in MUTANTS[mutant][1:]:
        plant(monkeypatch, owner, method, *changes)
    assert is_caught(sync)


@pytest.mark.thorough(but="bsp")
@pytest.mark.parametrize("sync", MODES)
def test_no_schedule_catches_the_healthy(sync):
    assert not is_caught(sync)


def test_bsp_ends_as_the_serial_reduction_in_rank_order():
    def on_rank(rank):
        values = np.random.default_rng(rank).standard_normal(1000).astype(np.float32)
        with malt.vector(values, sync="bsp") as v:
            for _ in range(5):
                v.scatter()
                v.gather()
            return v.array

    parallel = malt.simulate(on_rank, 4, seed=1)
    serial = [np.random.default_rng(rank).standard_normal(1000).astype(np.float32) for rank in range(4)]
    for _ in range(5):
        mean = (((serial[0] + serial[1]) + serial[2]) + serial[3]) / np.float32(4)
        serial = [mean] * 4
    assert all(array.tobytes() == serial[0].tobytes() for array in parallel)

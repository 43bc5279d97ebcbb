"""Direct calls against the calls that they stand for: the same arrays and counters, whatever arrives when."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from carried import run_carried
from mutation import plant

import malt
from dstorm import DeadlinePassed, parse
from dstorm.queues.calls import direct
from dstorm.queues.calls.direct import DirectCalls, Writer
from dstorm.queues.sending.sender import Outbox
from vol.dense import DenseVector

pytestmark = pytest.mark.serial
STEPS = 12


def own(values, updates):
    """A user's function."""
    return values + sum(one.values for one in updates) / 7


def live(seed, hosts, graph, dtype, length, used):
    """Scatters and gathers of a rank: some steps have two scatters, a gather too many, or messages to some peers."""

    def function(transport):
        shared, chance = random.Random(seed), random.Random(seed * 97 + transport.rank)
        array = np.random.default_rng(transport.rank).standard_normal(length).astype(dtype)
        v = DenseVector(array, transport, malt.graph(graph, len(hosts)), parse("bsp"), deadline_s=2.0)
        used.append(type(v._at_once))
        for step in range(1, STEPS + 1):
            v.array[:1] += step
            peers = v._topology.seen.out(step)
            v.scatter(to=[peer for peer in peers if chance.random() < 0.6] if chance.random() < 0.2 else None)
            if shared.random() < 0.1:
                v.scatter()
            for _ in range(2 if chance.random() < 0.1 else 1):
                v.gather(chance.choice([malt.AVG, malt.MEAN, malt.SUM, own]))
            if shared.random() < 0.2:
                v.barrier()
            if step == STEPS // 2:
                v.adopt(v.array.copy())
        transport.barrier()
        totals = v.statistics()
        edges = {peer: replace(edge, waited_s=0.0) for peer, edge in totals.peers.items()}
        v.close()
        return v.array.tobytes(), v.step, edges

    return function


def play(seed, at_once, monkeypatch):
    """What came of it, by rank, with direct calls or without."""
    chance, used = random.Random(seed), []
    hosts, graph = chance.choice(["ab", "abc", "aab", "aabb"]), chance.choice(["all", "all", "ring"])
    dtype, length = chance.choice(["f", "d"]), chance.choice([1, 10, 512])
    with monkeypatch.context() as patches:
        if not at_once:
            patches.setattr(direct, "calls", lambda *_: None)
        found = run_carried(live(seed, hosts, graph, dtype, length, used), hosts, seed)
    assert (DirectCalls in used) == at_once
    return found


@pytest.mark.parametrize("seed", range(25))
def test_they_change_nothing(seed, monkeypatch):
    assert play(seed, True, monkeypatch) == play(seed, False, monkeypatch)


def counted(monkeypatch):
    """How often the direct calls have done their work, by name; a list of those that have not."""
    done, passed = {"send": 0, "merge": 0}, []
    for name in done:
        call = getattr(DirectCalls, name)

        def noting(self, *given, name=name, call=call):
            found = call(self, *given)
            if isinstance(found, tuple):
                done[name] += 1
            else:
                passed.append(name)
            return found

        monkeypatch.setattr(DirectCalls, name, noting)
    return done, passed


def test_they_do_usual_exchanges(monkeypatch):
    done, _ = counted(monkeypatch)

    def function(transport):
        v = DenseVector(np.ones(10, np.float32), transport, malt.graph("all", 3), parse("bsp"))
        for _ in range(8):
            v.scatter()
            v.gather()
        v.close()

    run_carried(function, "aab")
    assert done == {"send": 24, "merge": 24}


@pytest.mark.parametrize("why", ["long", "one slot", "no carrier", "one host", "asp", "checked", "changing graph"])
def test_there_are_none(why):
    options = {"depth": 1} if why == "one slot" else {"check_finite": True} if why == "checked" else {}
    graph = "one-peer" if why == "changing graph" else "all"

    def function(transport):
        size, sync = (1025 if why == "long" else 10), ("asp" if why == "asp" else "bsp")
        v = DenseVector(np.ones(size, np.float32), transport, malt.graph(graph, 4), parse(sync), **options)
        v.close()
        return v._at_once

    assert run_carried(function, "aaaa" if why == "one host" else "aabb", carried=why != "no carrier") == [None] * 4


def test_nothing_is_sent_into_a_slot_that_was_not_taken():
    def function(transport):
        v = DenseVector(np.ones(10, np.float32), transport, malt.graph("all", 2), parse("bsp"))
        v.scatter()
        v.scatter()
        found = v._at_once.send(3, 1.0, 1.0)
        transport.barrier()
        v.gather()
        v.close()
        return found, v.statistics().sent

    assert run_carried(function) == [(None, 2)] * 2


MUTANTS = [
    (DirectCalls, "merge", "its_step != step", "False"),
    (DirectCalls, "merge", "seen is None or seen[0] <= taken", "seen[0] < taken"),
    (DirectCalls, "send", "self._deferred.settle()", "pass"),
    (DirectCalls, "_take", "edge.lag.note(0)", "pass"),
    (DirectCalls, "_take", "self._deferred.acknowledge(", "len("),
    (Writer, "write", "0, taken, at", "0, 0, at"),
    (Outbox, "note_acknowledgement", "in edge.carried", "in ()"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one[1]}: {one[2]}")
def test_some_run_catches(mutant, monkeypatch):
    owner, name, healthy, sick = mutant
    plant(monkeypatch, owner, name, (healthy, sick))
    with pytest.raises((AssertionError, RuntimeError, DeadlinePassed, TypeError)):
        for seed in range(25):
            assert play(seed, True, monkeypatch) == play(seed, False, monkeypatch)

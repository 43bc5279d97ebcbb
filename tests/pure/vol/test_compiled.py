"""Compiled calls against the calls in Python: the same bytes in all windows, the same arrays, the same counters."""

import hashlib
import random
import sys

import mapped
import numpy as np
import pytest
from mapped import group

import malt
from dstorm import header
from dstorm.queues.calls import compiled
from dstorm.queues.calls.compiled import CompiledCalls
from dstorm.view import FaultTolerantView

pytestmark = pytest.mark.serial
numba = pytest.importorskip("numba")


def state(parts, vectors):
    """All that one call may change. Of memory a digest: the states of a game are many."""
    windows = [hashlib.sha1(part).digest() for part in parts.values()]
    counters = [(v.statistics(), v.step, v._mass, v._gathered_at, v._transport.steps) for v in vectors]
    rings = [
        [(e.peer, e.ring.sent) for e in v._queues.outbox.edges.values()]
        + [(e.peer, e.ring.taken, e.acknowledged, e.lag.record()) for e in v._queues.inbox.edges.values()]
        for v in vectors
    ]
    return [windows, [hashlib.sha1(v.array).digest() for v in vectors], counters, rings]


def calls(chance, vectors, rounds):
    """Scatters and gathers of all ranks, in an order in which none has to wait."""
    mode, late = vectors[0]._consistency, set()
    for turn in range(rounds):
        order = chance.sample([v._rank for v in vectors], len(vectors))
        if mode.waits:
            yield from (("scatter", rank) for rank in order)
            may_be_late = mode.in_flight != 1  # else its senders would wait; here, too, if it were late twice in turn
            late = {rank for rank in order if may_be_late and rank not in late and chance.random() < 0.1}
            yield from (("gather", rank) for rank in order if rank not in late)
        else:
            yield from (chance.choice([("scatter", rank), ("gather", rank)]) for rank in order)
        if turn == rounds // 2 and chance.random() < 0.3:
            vectors[order[0]].array[-1] = chance.choice([np.nan, np.inf, -np.inf])
        if turn == rounds - 3 and not mode.waits:
            yield "close", order[0]
            vectors = [v for v in vectors if not v.closed]


def play(seed, kernels, monkeypatch):
    """What each call returned, and what came of it."""
    monkeypatch.setattr(compiled, "kernels", kernels)
    chance = random.Random(seed)
    size, sync = chance.choice([2, 2, 3, 5]), chance.choice(["asp", "bsp", "ssp:1", "notify-ack"])
    length, dtype = chance.choice([1, 7, 1000, 20_000]), chance.choice(["f4", "f8", "f2"])
    depth = chance.choice([2, 3] if sync == "bsp" else [1, 2, 3])
    made = chance.choice(["all", "all", "ring"])
    parts, vectors = group(size, length, dtype, sync, depth, made, check_finite=chance.random() < 0.5)
    log = []
    for call, rank in calls(chance, vectors, 12):
        v, unusual = vectors[rank], chance.random() < 0.15
        if call == "scatter":
            to = v._topology.seen.targets[:1] if unusual and sync == "asp" else None
            log.append(v.scatter(weight=chance.choice([1.0, 0.1, 0.0, 7.0]), to=to))
            v.array[:1] *= 1.5
        elif call == "gather":
            function = chance.choice([malt.SUM, malt.REPLACE, malt.WEIGHTED, malt.PUSH_SUM, malt.TRAINED])
            log.append(v.gather(function if unusual else chance.choice([malt.AVG, malt.MEAN])))
        else:
            v.close()
        log.append(state(parts, vectors))
    return log


@pytest.mark.parametrize("seed", range(4))
def test_they_do_what_the_calls_in_python_do(seed, monkeypatch):
    done = []
    assert compiled.load("f") and compiled.load("d")
    for name in ("send", "merge"):
        call = getattr(CompiledCalls, name)

        def noted(*args, call=call, name=name):
            result = call(*args)
            done.append((name, isinstance(result, tuple)))
            return result

        monkeypatch.setattr(CompiledCalls, name, noted)
    for game in range(8 * seed, 8 * seed + 8):
        with np.errstate(all="ignore"):
            ours, theirs = (play(game, kernels, monkeypatch) for kernels in (compiled.load, lambda kind: None))
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert one == other, f"seed {game}, place {place}"
    for name in ("send", "merge"):
        assert sum(is_done for call, is_done in done if call == name) > 20


@pytest.mark.parametrize("kernels", [compiled.load, lambda kind: None], ids=["compiled", "plain"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("size", [2, 3])
def test_of_nans_of_two_signs_all_ranks_keep_the_same(size, dtype, kernels, monkeypatch):
    """In blocks of the processor and in what is left of them."""
    monkeypatch.setattr(compiled, "kernels", kernels)
    for length in (1, 2, 7, 37, 1001):
        _, vectors = group(size, length, dtype, "bsp")
        for v in vectors:
            signs = np.random.default_rng(v._rank).choice([-1, 1], length)
            v.array[:] = np.copysign(np.nan, signs)
            v.scatter()
        for v in vectors:
            v.gather()
        assert len({v.array.tobytes() for v in vectors}) == 1, length
        assert np.isnan(vectors[0].array).all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("place", [0, 8191, 8192, 20_002])
def test_a_message_that_is_not_finite_is_left_to_the_calls_in_python(place, dtype, monkeypatch):
    monkeypatch.setattr(compiled, "kernels", compiled.load)
    _, (v, other) = group(2, 20_003, dtype, "asp", check_finite=True)
    before = v.array.copy()
    other.scatter()
    assert v._compiled.merge(v._sources, True)[0] == (1,) and (v.array == (before + other.array) / 2).all()
    for bad in (np.nan, np.inf, -np.inf):
        before, other.array[place] = v.array.copy(), bad
        other.scatter()
        assert v._compiled.merge(v._sources, True) is None
        np.testing.assert_array_equal(v.array, before)
        assert v.gather().senders == ()
        np.testing.assert_array_equal(v.array, before)
    assert v.statistics().refused == 3


def test_they_are_used_where_the_program_has_imported_numba(monkeypatch):
    monkeypatch.undo()
    assert compiled.kernels("f") is compiled.load("f")
    monkeypatch.delitem(sys.modules, "numba")
    assert compiled.kernels("f") is None


@pytest.mark.parametrize("kernels", [compiled.load, lambda kind: None], ids=["compiled", "plain"])
@pytest.mark.parametrize("length", [9_000, 70_000, 600_001])
def test_a_merge_of_a_message_that_is_overwritten_meanwhile_is_undone(kernels, length, monkeypatch):
    """The array lies over the header of the newest message, so a merge destroys it. At last a copy is merged."""
    monkeypatch.setattr(compiled, "kernels", kernels)
    _, (v, other) = group(2, length, "f4", "asp")
    other.scatter()
    other.scatter()
    [edge] = v._queues.inbox.edges.values()
    end = edge.slots[1] + header.NBYTES
    v.adopt(v._queues.window.memory[end - v.array.nbytes : end].view(np.float32))
    expected = (v.array + other.array) / 2
    for found in (
        v._average_in_place(malt.AVG, None), v._compiled and v._compiled.merge(v._sources, True),
    ):  # fmt: skip
        assert found is None
        np.testing.assert_array_equal((v.array + other.array) / 2, expected)
    assert v.gather().steps == (2,)
    np.testing.assert_array_equal(v.array, expected)
    assert edge.ring.torn_retries == (4 if v._compiled else 2)


def test_they_end_with_the_first_failure(monkeypatch):
    monkeypatch.setattr(compiled, "kernels", compiled.load)
    monkeypatch.setattr(mapped, "View", FaultTolerantView)
    _, (v, other, _) = group(3, 5, "f4", "bsp")
    for rank in (0, 1):
        (v, other)[rank]._transport.view.change(failed=[2])
    assert v.scatter() == other.scatter() == v.array.nbytes
    assert v._compiled is None
    assert v.gather().senders == (1,) and other.gather().senders == (0,)

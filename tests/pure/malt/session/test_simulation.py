"""Simulated ranks: the same seed gives the same run; other seeds give other interleavings."""

import signal
import subprocess
import sys
import threading
import traceback
from contextvars import ContextVar, copy_context

import numpy as np
import pytest

import malt
from dstorm import Group, SimulatedTransport


def train(rank):
    """Some asynchronous work. Returns everything that an interleaving can change."""
    v = malt.vector(np.full(20, float(rank)), graph="exponential")
    seen = []
    for _ in range(10):
        v.array += rank
        v.scatter()
        merged = v.gather()
        seen.append((merged.senders, merged.steps))
    v.close()
    return v.array.tobytes(), v.statistics(), seen


def test_a_seed_decides_everything():
    first, again, other = (malt.simulate(train, 6, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        *((lambda n=bad: malt.simulate(lambda rank: rank, n), ValueError, "ranks must be an integer of at least 1")
          for bad in (0, -1, 1.5, True, "4", None)),
        *((lambda n=bad: malt.simulate(lambda rank: rank, 2, seed=n), ValueError, "seed must be an integer of at least")
          for bad in (None, -1, 1.5, True, "4")),
        (lambda: malt.simulate(4, 2), TypeError, "function must be callable"),
    ],
)  # fmt: skip
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_sixty_four_ranks_end_with_one_model():
    def live(rank):
        w = np.zeros(30, np.float32)
        with malt.Replica(w, every=5, graph="auto", sync="bsp") as replica:
            rng = np.random.default_rng(rank)
            for _ in range(20):
                w += rng.standard_normal(30, dtype=np.float32)
                replica.step()
        return w.tobytes(), replica.vectors[0].statistics().bytes_sent

    found = malt.simulate(live, 64, seed=3)
    assert len({model for model, _ in found}) == 1
    assert {sent for _, sent in found} == {4 * 6 * 30 * 4}  # exchanges x log2(64) peers x bytes


def test_a_rank_sees_its_world():
    assert malt.simulate(lambda rank: (malt.rank() == rank, malt.size(), malt.shard(10)), 2) == [
        (True, 2, slice(0, 5)),
        (True, 2, slice(5, 10)),
    ]
    assert malt.size() == 1


def test_an_exception_stops_the_others_and_names_the_rank():
    went_on = []

    def live(rank):
        if rank == 2:
            raise KeyError("mine")
        malt.barrier()
        went_on.append(rank)

    with pytest.raises(KeyError, match="mine") as raised:
        malt.simulate(live, 4)
    assert not went_on
    assert "simulated rank 2 of 4 failed" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("is_given", [True, False])
def test_the_error_that_another_one_comes_from_is_kept(is_given):
    """Its cause where it is given, else its context."""

    def live(rank):
        try:
            {}["key"]
        except KeyError as error:
            if is_given:
                raise ValueError("mine") from error
            raise ValueError("mine")  # noqa: B904

    with pytest.raises(ValueError, match="mine") as raised:
        malt.simulate(live, 2)
    assert isinstance(raised.value.__context__, KeyError) and (raised.value.__cause__ is not None) == is_given
    text = "".join(traceback.format_exception(raised.value))
    places = [text.index(part) for part in ("simulated rank", "KeyError: 'key'", "ValueError: mine")]
    assert places[1] < places[2] and (not is_given or places[0] < places[1])


@pytest.mark.parametrize("ranks, busy", [
    (1, "sum(range(9))"), (3, "malt.init().transport.pause(1)"), (3, "malt.rank() or malt.barrier()"),
])  # fmt: skip
def test_ctrl_c(ranks, busy):
    program = f"""
import os, signal, threading, malt
timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
def live(rank):
    timer.ident or timer.start()  # all is imported
    while True:
        {busy}
try:
    malt.simulate(live, {ranks})
except KeyboardInterrupt:
    print("interrupted", malt.simulate(lambda rank: rank, 2), flush=True)
    raise
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.stdout == "interrupted [0, 1]\n", done.stderr
    assert done.returncode == -signal.SIGINT and done.stderr.strip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Checkpoint.load", lambda path: malt.Checkpoint(path).load()),
        ("Checkpoint.due_together", lambda path: malt.Checkpoint(path).due_together()),
        ("malt.load_svmlight", lambda path: malt.load_svmlight(path)),
        ("malt.load_ratings", lambda path: malt.load_ratings(path)),
        ("malt.Replica", lambda path: malt.Replica(np.zeros(3))),
        ("Replica.finish or agree", lambda path: (malt.Replica(np.zeros(3)).agree(), malt.barrier())),
        ("malt.allreduce", lambda path: malt.allreduce(np.ones(3))),
        ("malt.broadcast", lambda path: malt.broadcast(np.ones(3))),
        ("malt.allgather", lambda path: malt.allgather(1)),
        ("malt.together", lambda path: malt.together(int)),
        ("malt.barrier", lambda path: malt.barrier()),
        ("malt.finalize", lambda path: None),
    ],
)
def test_ranks_in_two_calls_are_reported_by_the_names_that_they_used(tmp_path, name, call):
    def live(rank):
        if "finish" in name and rank:
            malt.Replica(np.zeros(3))
        return malt.vector(3) if rank else call(tmp_path / "file")

    with pytest.raises(RuntimeError) as raised:
        malt.simulate(live, 2)
    first = f"rank 0 is in {name} while rank 1 is in malt.vector"
    other = f"rank 1 is in malt.vector while rank 0 is in {name}"
    assert str(raised.value).split(":")[0] in (first, other)


def test_without_greenlet(monkeypatch):
    monkeypatch.setitem(sys.modules, "greenlet", None)
    with pytest.raises(ImportError, match="simulated ranks need the library greenlet: pip install greenlet"):
        malt.simulate(lambda rank: rank, 2)
    assert malt.simulate(lambda rank: rank, 1) == [0]


def test_context_variables_are_those_of_the_rank():
    mine = ContextVar("mine")
    mine.set("the caller's")

    def live(rank):
        seen = [mine.get()]
        mine.set(rank)
        malt.barrier()
        return [*seen, mine.get()]

    assert malt.simulate(live, 3) == [["the caller's", rank] for rank in range(3)]
    assert mine.get() == "the caller's"


def test_a_thread_in_a_copy_of_the_context_is_on_the_rank():
    def live(rank):
        found = []
        thread = threading.Thread(target=copy_context().run, args=(lambda: found.append((malt.rank(), malt.shard(9))),))
        thread.start()
        thread.join()
        return found == [(rank, slice(3 * rank, 3 * rank + 3))]

    assert all(malt.simulate(live, 3))


def test_a_thread_of_a_rank_sends_and_counts_but_does_not_wait():
    def live(rank):
        v, reports = malt.vector(3, graph="ring"), []

        def work():
            v.scatter()
            reports.append(v.statistics().sent)
            with pytest.raises(RuntimeError, match="a thread that a simulated rank has started cannot wait"):
                v.barrier()
            reports.append("refused")

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        malt.barrier()
        return reports

    assert malt.simulate(live, 3) == [[1, "refused"]] * 3


def test_ranks_unwind_where_one_has_failed():
    unwound = []

    def live(rank):
        try:
            malt.barrier() if rank else 1 // 0
        finally:
            unwound.append(rank)
            if rank == 2:
                malt.barrier()
            unwound.append("on")

    with pytest.raises(ZeroDivisionError):
        malt.simulate(live, 4, seed=5)
    assert unwound[0] == 0 and unwound.count("on") == len(set(unwound) - {2, "on"})


def test_the_work_of_a_turn_does_not_grow_with_the_ranks(monkeypatch):
    """A turn checks the ranks with Puts under way. They are few, however many ranks there are."""
    looked_at, deliver_some = [], Group._deliver_some

    def counted(group):
        looked_at.append(len(group._sending))
        deliver_some(group)

    def live(rank):
        v = malt.vector(np.full(10, float(rank), np.float32), graph="exponential")
        for _ in range(2):
            v.scatter()
            v.gather()

    monkeypatch.setattr(Group, "_deliver_some", counted)
    malt.simulate(live, 64)
    assert sum(looked_at) / len(looked_at) < 8 and max(looked_at) < 32


def test_not_inside_itself():
    with pytest.raises(RuntimeError, match="cannot be called inside a simulated rank"):
        malt.simulate(lambda rank: malt.simulate(lambda inner: inner, 2), 2)


def test_numbers_of_numpy():
    assert malt.simulate(train, np.int64(3), seed=np.int32(1)) == malt.simulate(train, 3, seed=1)


def test_a_put_arrives_in_pieces_and_not_before_its_flush_at_the_latest():
    """Between a Put and its flush a receiver can see old and new bytes, mixed."""

    def live(seed):
        group = Group(2, seed)
        mixed = []

        def on_rank(rank):
            transport = SimulatedTransport(group, rank)
            window = transport.window(16)
            if rank == 0:
                source = np.full(16, 7, np.uint8)
                window.put(source, 1, 0)
                window.flush([1])
                transport.barrier()
            else:
                for _ in range(6):
                    transport.pause(0)
                    mixed.append(0 < int((window.memory == 7).sum()) < 16)
                transport.barrier()
                assert (window.memory == 7).all()

        group.run(on_rank)
        return any(mixed)

    assert any(live(seed) for seed in range(60))


def test_a_session_that_is_finalized_twice_is_finalized_once():
    """As in a real session: a program may do so in `finally`, too."""

    def live(rank):
        malt.barrier()
        malt.finalize()
        malt.finalize()
        with pytest.raises(malt.ClosedError, match="this simulated rank has called malt.finalize"):
            malt.barrier()
        return rank

    assert malt.simulate(live, 2) == [0, 1]

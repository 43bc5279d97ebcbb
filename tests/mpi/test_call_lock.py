"""Calls of several threads: refused if they overlap, accepted if they take turns."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import malt
from dstorm import SoloTransport
from dstorm.call_lock import CallLock
from dstorm.errors import OverlappingCalls
from dstorm.queues.consistency import parse
from dstorm.queues.waits.waiting import Awaited
from malt.session import session
from malt.session.replica import consensus
from malt.session.world.world import World
from vol import DenseVector, as_graph

pytestmark = pytest.mark.serial


def in_thread(function):
    """Run function() in another thread; return its result or its error."""
    found = []

    def run():
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return SimpleNamespace(join=lambda: (thread.join(60), found[0])[1], is_alive=thread.is_alive)


def test_an_overlapping_call_is_refused_and_a_nested_one_is_not():
    lock = CallLock()
    with lock.taken("this"), lock.taken("this, called back"):
        assert isinstance(in_thread(lambda: lock.insist("that")).join(), OverlappingCalls)
    assert in_thread(lambda: lock.insist("that")).join() is None


def test_a_call_waits_while_the_lock_is_lent():
    lock, entered, done = CallLock(), threading.Event(), []

    def take():
        if not lock.lock.acquire(False):
            entered.set()
            lock.insist("that")
        done.append("then")
        lock.lock.release()

    with lock.lent() as is_free:
        assert is_free
        with lock.lent() as is_free:
            assert is_free
        taking = in_thread(take)
        assert entered.wait(60)
        done.append("first")
    taking.join()
    assert done == ["first", "then"]
    with lock.taken("this"):

        def borrow():
            with lock.lent() as is_free:
                return is_free

        assert in_thread(borrow).join() is False


@pytest.fixture
def vector():
    return DenseVector(np.zeros(3), SoloTransport(), as_graph("all", 1), parse("bsp"), name="v")


def test_a_scatter_over_another_is_refused_and_does_nothing(vector, monkeypatch):
    entered, going_on, send = threading.Event(), threading.Event(), vector._send

    def slow(*arguments):
        entered.set()
        assert going_on.wait(60)
        return send(*arguments)

    monkeypatch.setattr(vector, "_send", slow)
    scattering = in_thread(vector.scatter)
    assert entered.wait(60)
    for call in (vector.scatter, vector.gather):
        with pytest.raises(RuntimeError, match=f"v.{call.__name__}: another thread of this rank is in such a call"):
            call()
    assert vector.step == 0 and vector.statistics().sent == 0
    closing = in_thread(vector.close)
    assert not vector.closed
    going_on.set()
    assert scattering.join() == 0 and closing.join() is None and vector.closed and vector.step == 1


def test_an_exchange_over_another_is_refused(monkeypatch):
    entered, going_on = threading.Event(), threading.Event()
    replica = malt.Replica(np.zeros(3), every=2)

    def slow(**_):
        entered.set()
        assert going_on.wait(60)

    monkeypatch.setattr(replica.vectors[0], "scatter", slow)
    stepping = in_thread(lambda: replica.step(2))
    assert entered.wait(60)
    assert replica.step() is False
    with pytest.raises(RuntimeError, match=r"Replica \d+.step: another thread of this rank is in such a call"):
        replica.step()
    going_on.set()
    assert stepping.join() is True
    replica.close()


def test_an_exchange_of_another_thread_ends_before_the_mean_is_taken(monkeypatch):
    entered, going_on, order = threading.Event(), threading.Event(), []
    replica = malt.Replica(np.zeros(3))
    gather, mean = replica.vectors[0].gather, consensus.mean

    def slow(*arguments):
        entered.set()
        going_on.wait(0.05)  # time to take the mean here
        order.append("merged")
        return gather(*arguments)

    def taken(*arguments, **options):
        order.append("mean")
        going_on.set()
        return mean(*arguments, **options)

    monkeypatch.setattr(replica.vectors[0], "gather", slow)
    monkeypatch.setattr(consensus, "mean", taken)
    stepping = in_thread(replica.step)
    assert entered.wait(60)
    replica.finish()
    assert isinstance(stepping.join(), malt.ClosedError) and order == ["merged", "mean"]


def test_a_close_ends_the_wait_of_another_thread(vector, monkeypatch):
    entered, edge = threading.Event(), Awaited(0, heard_at=0.0)

    def missing():
        entered.set()
        return [edge]

    monkeypatch.setattr(vector, "_send", lambda *_: vector._queues.waiting.until_none("scatter", missing, None))
    scattering = in_thread(vector.scatter)
    assert entered.wait(60)
    vector.close()
    assert isinstance(scattering.join(), malt.ClosedError)


def test_the_first_use_by_several_threads_makes_one_world(monkeypatch):
    entered, going_on, made = threading.Event(), threading.Event(), []

    def opened(*_):
        made.append(World(SoloTransport()))
        entered.set()
        assert going_on.wait(60)
        return made[-1]

    monkeypatch.setattr(session, "_world", None)
    monkeypatch.setattr(session, "opened", opened)
    threads = [in_thread(malt.init) for _ in range(4)]
    assert entered.wait(60)
    going_on.set()
    assert [thread.join() for thread in threads] == made * 4 and len(made) == 1


PROGRAM = """
import pathlib, threading, time
import malt
start, lock, refused = threading.Barrier(4), threading.Lock(), []

def first():
    start.wait()
    assert malt.size() == 2

def scatter(in_turn):
    start.wait()
    for _ in range(200):
        try:
            if in_turn:
                with lock:
                    v.scatter()
            else:
                v.scatter()
        except RuntimeError:
            refused.append(1)

def own(vector):
    start.wait()
    for _ in range(200):
        vector.scatter(), vector.gather()

def all_at_once(function, arguments):
    threads = [threading.Thread(target=function, args=words) for words in arguments]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

all_at_once(first, [()] * 4)
v = malt.vector(1000)
all_at_once(scatter, [(True,)] * 4)
assert v.step == 800 and not refused
all_at_once(scatter, [(False,)] * 4)
assert v.step + len(refused) == 1600
vectors = [malt.vector(1000) for _ in range(4)]
all_at_once(own, [(one,) for one in vectors])
assert [one.step for one in vectors] == [200] * 4
go = pathlib.Path(__file__).with_name("go")
if malt.rank() == 0:
    thread = threading.Thread(target=malt.barrier)
    thread.start()
    while not malt.init().transport._barrier._is_inside:
        time.sleep(0.001)
    collectives = (lambda: malt.allreduce(v.array), lambda: malt.broadcast(v.array), lambda: malt.allgather(1),
                   lambda: malt.together(int))
    for call in (malt.barrier, malt.finalize, lambda: malt.vector(3), *collectives):
        try:
            call()
            raise SystemExit(f"{call} was not refused")
        except RuntimeError as error:
            assert "another thread" in str(error)
    go.touch()
    thread.join()
else:
    while not go.exists():
        time.sleep(0.001)
    malt.barrier()
for one in (v, *vectors):
    edge = one.statistics().peers[1 - malt.rank()]
    print(edge.sent, edge.gathered + edge.overwritten + edge.refused + edge.pending)
"""


def test_threads_of_a_job(malt_run):
    done = malt_run(PROGRAM)
    assert (done.returncode, done.stderr) == (0, "")
    mine, theirs = zip(*(map(int, line.split()) for line in done.stdout.splitlines()), strict=True)
    assert sorted(mine) == sorted(theirs) and len(mine) == 10  # no update is missing

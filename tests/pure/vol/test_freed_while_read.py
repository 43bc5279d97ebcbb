"""Memory that one thread frees while another reads it, or is about to: it is read before it is freed, or not at all."""

import threading

import numpy as np
import pytest

import malt
from dstorm import ClosedError, SoloTransport
from dstorm.queues.consistency import parse
from malt.session import session
from malt.session.world.world import World
from vol import DenseVector, as_graph


@pytest.fixture(autouse=True)
def alone():
    """A world of one, whose transport knows no other rank."""
    session.enter_simulation(World(SoloTransport()))
    yield
    session.replace_world(None)


def dense():
    return DenseVector(np.zeros(3), SoloTransport(), as_graph("all", 1), parse("bsp"), name="v")


def sparse_sharded():
    made = malt.sharded(100, kind="sparse")
    made.push(np.ones(3), [5, 7, 9])
    return made


def is_read_first(monkeypatch, call, owner, name, window, free):
    """Whether `call` has read when free() frees the window. Another thread makes it; `name`, of `owner`, is what it
    calls with the memory in hand."""
    order, inside, freed = [], threading.Event(), threading.Event()
    real_read, real_free = getattr(owner, name), window.free

    def slow(*arguments):
        if not inside.is_set():
            inside.set()
            freed.wait(0.05)  # time to free it here
            order.append("read")
        return real_read(*arguments)

    monkeypatch.setattr(window, "free", lambda: (order.append("freed"), freed.set(), real_free()))
    monkeypatch.setattr(owner, name, slow)
    reading = threading.Thread(target=call)
    reading.start()
    assert inside.wait(5)
    free()
    reading.join()
    return order == ["read", "freed"]


def leave_and_free(vector):
    vector.leave()
    vector.free()


@pytest.mark.parametrize("make", [dense, sparse_sharded])
def test_statistics_are_read_before_the_memory_is_freed(make, monkeypatch):
    vector = make()
    window = vector._queues.window
    assert is_read_first(monkeypatch, vector.statistics, window, "sync", window, lambda: leave_and_free(vector))


def test_what_has_arrived_is_read_before_the_memory_is_freed(monkeypatch):
    vector = sparse_sharded()
    read, inbox = vector._absorb, vector._queues.inbox
    assert is_read_first(monkeypatch, read, inbox, "_sync", vector._queues.window, lambda: leave_and_free(vector))


def test_entries_are_read_before_their_table_is_freed(monkeypatch):
    """As the vector is freed, and as the table grows."""
    vector = sparse_sharded()
    window = vector._queues.window
    free, grow = (lambda: leave_and_free(vector)), vector.grow
    vector.grow()
    assert is_read_first(monkeypatch, lambda: vector.local, vector._table, "entries", vector._window, grow)
    assert vector.local[0].tolist() == [5, 7, 9]
    assert is_read_first(monkeypatch, lambda: vector.local, vector._table, "entries", window, free)


def test_a_vector_is_freed_only_once_its_totals_are_known(monkeypatch):
    """Another thread has closed it, and is about to find its totals: they are read in its memory."""
    vector = dense()
    found = []
    monkeypatch.setattr(vector, "_statistics", lambda: found.append((vector.closed, vector.can_free)))
    vector.leave()
    assert found == [(True, False)]


def test_nothing_is_acknowledged_once_it_is_closed(monkeypatch):
    """A thread that has looked for duties before calls one of the closed vector."""
    vector = dense()
    vector._transport.view.version = 1
    monkeypatch.setattr(vector._queues.inbox, "make_way", lambda: pytest.fail("it was closed"))
    monkeypatch.setattr(vector._queues.inbox, "acknowledge", lambda: pytest.fail("it was closed"))
    vector.close()
    vector._queues._make_way()
    vector._queues.acknowledge([])
    with pytest.raises(ClosedError, match="scatter: the vector was closed meanwhile"):
        vector._queues.send_each([], 1)
    for receive in (vector._queues.look, vector._queues.receive):
        with pytest.raises(ClosedError, match="gather: the vector was closed meanwhile"):
            receive(tuple, **({} if receive == vector._queues.look else {"newest": True}))

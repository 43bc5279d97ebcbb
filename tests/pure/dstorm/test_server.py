"""A server hears those who know its token, each in a thread of its own, and sends the others away."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading

import pytest

from dstorm.transports.links.server import AuthenticatedServer, hello

pytestmark = pytest.mark.serial


@pytest.fixture
def server():
    made = AuthenticatedServer("a test's server")
    yield made
    made.stop()
    made.drain(10)


@pytest.fixture
def connect(server):
    """connect(said): a connection over which that was said."""
    with contextlib.ExitStack() as stack:

        def call(reports):
            made = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            made.settimeout(10)
            made.sendall(reports)
            return made

        yield call


def is_ended(connection):
    with contextlib.suppress(ConnectionResetError):  # it had said more
        return connection.recv(1) == b""
    return True


def test_what_follows_the_first_line_is_left_to_who_serves(server, connect):
    server.start(lambda number, caller: caller.sendall(b"%d %s" % (number, caller.recv(4))))
    caller = connect(hello(server.token, 7) + b"more")
    assert caller.recv(6, socket.MSG_WAITALL) == b"7 more"
    assert is_ended(caller)


@pytest.mark.parametrize(
    "reports", ["{wrong} 2\n", "{token} two\n", "{token} -2\n", "{token}\n", "{token} " + 100 * "2", "\u00fc 2\n", "\n"]
)
def test_strangers_are_sent_away(reports, server, connect):
    served = []
    server.start(lambda *caller: served.append(caller))
    assert is_ended(connect(reports.format(token=server.token, wrong="0" * len(server.token)).encode()))
    assert served == []


def test_callers_do_not_wait_for_one_another(server, connect):
    both_are_served = threading.Barrier(3)

    def serve(number, caller):
        both_are_served.wait(10)

    server.start(serve)
    for reports in (b"", hello(server.token, 0), hello(server.token, 1)):
        connect(reports)
    both_are_served.wait(10)


def test_a_connection_that_is_kept_stays(server, connect):
    kept = queue.SimpleQueue()
    server.start(lambda number, caller: kept.put(caller) or True)
    caller = connect(hello(server.token, 3))
    with kept.get(timeout=10) as connection:
        server.stop()
        server.send(b"to all")
        assert caller.recv(6, socket.MSG_WAITALL) == b"to all"
        caller.sendall(b"x")
        assert connection.recv(1) == b"x"
    with pytest.raises(ConnectionRefusedError):
        connect(b"")


def test_what_was_said_by_then_is_served_to_its_end(server, connect):
    begun, served = threading.Event(), []

    def serve(number, caller):
        begun.set()
        while data := caller.recv(1):
            served.append(data)

    server.start(serve)
    caller = connect(hello(server.token, 3))
    assert begun.wait(10)
    caller.sendall(b"abc")
    server.stop()
    server.drain(10)
    assert b"".join(served) == b"abc"
    assert "a test's server" not in {thread.name for thread in threading.enumerate()}

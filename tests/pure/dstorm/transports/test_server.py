"""A server hears those who know its key, each in a thread of its own, and sends the others away."""

import contextlib
import queue
import socket
import struct
import threading
import time

import pytest

from dstorm.transports.links import handshake, server
from dstorm.transports.links.calling import NotAdmitted, received
from dstorm.transports.links.server import AuthenticatedServer, call

pytestmark = pytest.mark.serial
NAME, KEY, OTHER_KEY = "a test's server", "0f" * 32, "f0" * 32


@pytest.fixture
def open_server():
    made = AuthenticatedServer(NAME, KEY, ["127.0.0.1"])
    yield made
    made.stop()
    made.drain(10)


@pytest.fixture
def connect(open_server):
    """connect(number): the connection of that caller. connect(): that of a stranger, and the challenge."""
    with contextlib.ExitStack() as stack:

        def made(number=None, key=KEY, name=NAME):
            where = ("127.0.0.1", open_server.port)
            if number is not None:
                caller = stack.enter_context(call(where, key, name, number, 10))
                caller.settimeout(10)
                return caller
            caller = stack.enter_context(socket.create_connection(where))
            return caller, received(caller, handshake.CHALLENGE_NBYTES, time.monotonic() + 10)

        yield made


def is_ended(connection):
    with contextlib.suppress(ConnectionResetError):  # it had said more
        return connection.recv(1) == b""
    return True


def test_what_follows_the_handshake_is_left_to_who_serves(open_server, connect):
    open_server.start(lambda number, caller: caller.sendall(b"%d %s" % (number, caller.recv(4))))
    caller = connect(7)
    caller.sendall(b"more")
    assert caller.recv(6, socket.MSG_WAITALL) == b"7 more"
    assert is_ended(caller)


def test_the_last_line_arrives_of_a_caller_that_ends_and_has_not_read_all(open_server, connect):
    """As of a process that has ended well. Its end resets the connection, and drops what has not left."""
    heard, has_ended, turns = [], threading.Event(), 8

    def serve(number, caller):
        with contextlib.suppress(ConnectionResetError):
            for turn in range(turns):  # from now on acknowledgements are late, as an answer may take them along
                heard.append(caller.recv(1000))
                caller.sendall(b"answer" + b"unread" * (turn == turns - 1))
            while line := caller.recv(1000):
                heard.append(line)
        has_ended.set()

    open_server.start(serve)
    caller = connect(7)
    for _ in range(turns):
        caller.sendall(b"x" * 400)
        assert received(caller, 6, time.monotonic() + 10) == b"answer"
        time.sleep(0.02)
    time.sleep(0.05)
    for line in (b"x" * 400, b"finished"):
        caller.send(line)
    caller.close()
    assert has_ended.wait(10) and b"".join(heard).endswith(b"finished")


@pytest.mark.parametrize("what", ["key", "name"])
def test_a_caller_that_knows_another_is_refused(what, open_server, connect):
    """It learns that it was, and the server from where it has called."""
    served, refused = [], queue.SimpleQueue()
    open_server.refused = refused.put
    open_server.start(lambda *caller: served.append(caller))
    with pytest.raises(NotAdmitted):
        connect(2, **{what: {"key": OTHER_KEY, "name": "another server"}[what]})
    assert served == [] and refused.get(timeout=10) == "127.0.0.1"


def test_one_of_the_given_ports_is_taken_that_is_free(open_server):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    made = AuthenticatedServer(NAME, KEY, ["127.0.0.1"], [open_server.port, port])
    assert made.port == port
    with pytest.raises(OSError, match="in use"):
        AuthenticatedServer(NAME, KEY, ["127.0.0.1"], [open_server.port, port])
    made.stop()


def replayed(recorded, challenge):
    return recorded


@pytest.mark.parametrize(
    "answer",
    [
        replayed,
        lambda recorded, challenge: b"GET / HTTP/1.1\r\n\r\n" + bytes(200),
        lambda recorded, challenge: bytes(handshake.HELLO_NBYTES),
        lambda recorded, challenge: struct.pack("<Q", 3) + handshake.Caller(KEY, NAME, 2).hello(challenge)[8:],
    ],
    ids=["replayed", "garbage", "zeros", "another number"],
)
def test_an_answer_that_proves_nothing_is_refused(answer, open_server, connect):
    """And the server goes on."""
    served = queue.SimpleQueue()
    open_server.start(lambda number, caller: served.put(number))
    recorded = handshake.Caller(KEY, NAME, 2).hello(handshake.new_challenge())
    stranger, challenge = connect()
    stranger.sendall(answer(recorded, challenge))
    stranger.settimeout(60)
    assert is_ended(stranger)
    connect(4)
    assert served.get(timeout=10) == 4 and served.empty()


def test_a_server_that_does_not_know_the_key_is_not_believed():
    """It sends a challenge, and sends what it gets back."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def pretend():
            caller = listening.accept()[0]
            with caller:
                caller.sendall(handshake.new_challenge())
                caller.sendall(caller.recv(handshake.HELLO_NBYTES)[-handshake.PROOF_NBYTES :])
                caller.recv(1)

        pretender = threading.Thread(target=pretend)
        pretender.start()
        with pytest.raises(ConnectionRefusedError, match="another server"):
            call(listening.getsockname(), KEY, NAME, 1, 10)
        pretender.join()


def test_callers_do_not_wait_for_strangers(open_server, connect, monkeypatch):
    """One says nothing, one a byte now and then; more than there may be are sent away, from the first on."""
    monkeypatch.setattr(server, "_MOST_STRANGERS", 2)
    both_are_served = threading.Barrier(3)
    open_server.start(lambda number, caller: both_are_served.wait(10) and None)
    first, second = connect()[0], connect()[0]
    second.sendall(b"x")
    connect(0), connect(1)
    both_are_served.wait(10)
    first.settimeout(60)
    assert is_ended(first)


def test_a_stranger_that_is_slow_is_sent_away(open_server, connect, monkeypatch):
    monkeypatch.setattr(server, "_HELLO_S", 0.2)
    open_server.start(lambda *caller: pytest.fail("it is served"))
    stranger, _ = connect()
    stranger.settimeout(60)
    began = time.monotonic()
    while time.monotonic() < began + 5:  # each byte is in time
        with contextlib.suppress(socket.timeout, OSError):
            stranger.sendall(b"x")
        stranger.settimeout(0.15)
        try:
            if stranger.recv(1) == b"":
                return
        except TimeoutError:
            continue
        except ConnectionError:
            return
    pytest.fail("it is still connected")


def test_a_connection_that_is_kept_stays(open_server, connect):
    kept = queue.SimpleQueue()
    open_server.start(lambda number, caller: kept.put(caller) or True)
    caller, (stranger, _) = connect(3), connect()
    with kept.get(timeout=10) as connection:
        open_server.send(b"to all")
        open_server.stop()
        assert caller.recv(6, socket.MSG_WAITALL) == b"to all"
        caller.sendall(b"x")
        assert connection.recv(1) == b"x"
        assert is_ended(stranger)
    with pytest.raises(ConnectionRefusedError):
        connect(4)


def test_what_was_said_by_then_is_served_to_its_end(open_server, connect):
    begun, served = threading.Event(), []

    def serve(number, caller):
        begun.set()
        while data := caller.recv(1):
            served.append(data)

    open_server.start(serve)
    caller = connect(3)
    assert begun.wait(10)
    caller.sendall(b"abc")
    open_server.stop()
    open_server.drain(10)
    assert b"".join(served) == b"abc"
    assert NAME not in {thread.name for thread in threading.enumerate()}


def test_it_listens_at_its_addresses_alone():
    made = AuthenticatedServer(NAME, KEY, ["127.0.0.1", "127.0.0.3"])
    try:
        for address in ("127.0.0.1", "127.0.0.3"):
            socket.create_connection((address, made.port), 5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", made.port), 5)
    finally:
        made.stop()


def test_callers_that_have_gone_are_forgotten(open_server, connect):
    open_server.start(lambda number, caller: None)
    for number in range(3):
        assert is_ended(connect(number))
    assert len(open_server._callers) == 1

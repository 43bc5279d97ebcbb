"""Ranks that connect to each other, and strangers that try."""

import contextlib
import os
import signal
import socket
import time
from functools import partial

import pytest
from processes import wait_for
from ranks import at_once

from dstorm.errors import DeadlinePassed
from dstorm.transports.links import endpoints
from dstorm.transports.links.endpoints import Exchange

pytestmark = pytest.mark.serial
JOB = "5a" * 32, "session-1"


@pytest.fixture
def exchanges(monkeypatch):
    monkeypatch.setattr(endpoints, "own_addresses", lambda: ("127.0.0.1",))
    made = [Exchange(rank, *JOB) for rank in range(4)]
    yield made
    for one in made:
        one._server.stop()


@pytest.fixture
def joined(exchanges):
    """What has joined rank 0, to which rank 1 may call."""
    made = []
    exchanges[0].join_by(lambda *one: made.append(one))
    exchanges[0].listen([1], {})
    return made


def check_ways(here, there):
    """Each end has a way to the other one, and one from it."""
    here[0].sendall(b"to")
    there[0].sendall(b"from")
    assert there[1].recv(4) == b"to" and here[1].recv(4) == b"from"


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    """No connection outlives its test."""
    made, calls = [], (endpoints.call, endpoints._take, socket.create_connection)

    def noting(function):
        def call(*args, **kwargs):
            found = function(*args, **kwargs)
            made.append(args[3] if function is calls[1] else found)
            return found

        return call

    monkeypatch.setattr(endpoints, "call", noting(calls[0]))
    monkeypatch.setattr(endpoints, "_take", noting(calls[1]))
    monkeypatch.setattr(socket, "create_connection", noting(calls[2]))
    yield
    for one in made:
        one.close()


def connect_all(exchanges, ranks):
    endpoints = {rank: exchanges[rank].endpoint for rank in ranks}
    found = {}

    def connect(rank):
        others = {other: endpoint for other, endpoint in endpoints.items() if other != rank}
        found[rank] = exchanges[rank].connect(others, 10.0)

    at_once(connect, ranks)
    return found


def test_all_are_connected_both_ways(exchanges):
    found = connect_all(exchanges, range(4))
    for rank, (out, into) in found.items():
        assert out.keys() == into.keys() == set(range(4)) - {rank}
        for peer, connection in out.items():
            connection.sendall(b"%d" % rank)
            assert found[peer][1][rank].recv(1) == b"%d" % rank


def test_the_end_of_a_rank_shows_while_its_forked_child_lives(exchanges):
    found = connect_all(exchanges, [0, 1])
    ends = [found[1][1][0], found[1][0][0]]  # from rank 0, and to it
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    try:
        found[0][0][1].sendall(b"it still works")
        assert ends[0].recv(14) == b"it still works"
        for connection in (*found[0][0].values(), *found[0][1].values()):
            connection.close()
        for end in ends:
            end.settimeout(60)
            assert end.recv(1) == b""
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("later", [(), (1,)])
def test_it_listens_only_where_ranks_may_call_later(exchanges, later):
    exchanges[0].connect({}, 10.0, later)
    with contextlib.nullcontext() if later else pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", exchanges[0].endpoint.port))


def test_one_that_does_not_call_is_named(exchanges):
    exchanges[1]._server.stop()
    endpoints = {1: exchanges[1].endpoint}
    with pytest.raises(DeadlinePassed, match="TCP connections between hosts.*rank 1"):
        exchanges[0].connect(endpoints, 0.3)


def test_a_stranger_is_sent_away(exchanges):
    port = exchanges[0].endpoint.port
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
    strangers[1].sendall(bytes(72))
    strangers[2].close()
    found = connect_all(exchanges, [0, 1])
    assert [found[rank][1].keys() for rank in (0, 1)] == [{1}, {0}]
    for stranger in strangers[:2]:
        stranger.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            stranger.recv(32, socket.MSG_WAITALL)  # the challenge
            assert stranger.recv(1) == b""


def test_an_address_that_is_somebody_elses_is_passed_over(exchanges):
    exchanges[2]._server.start(lambda number, caller: pytest.fail("it is served"))
    with pytest.raises(OSError, match="nobody answers"):
        exchanges[0]._call(1, exchanges[2].endpoint)


def test_it_listens_on_the_interfaces_towards_the_hosts_of_the_job(monkeypatch):
    towards = {"b": "10.0.0.1", "c": "10.1.0.1", "self": "127.0.1.1"}

    class Routed:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def connect(self, where):
            if where[0] not in towards:
                raise socket.gaierror(-2, "Name or service not known")
            self._to = where[0]

        def getsockname(self):
            return towards[self._to], 1

    monkeypatch.setattr(endpoints.socket, "socket", Routed)
    monkeypatch.setattr(endpoints, "own_addresses", lambda: ("10.0.0.1", "172.17.0.1"))
    assert endpoints.interfaces(["self", "b", "c", "b"]) == ("10.0.0.1", "10.1.0.1")
    assert endpoints.interfaces(["b", "an alias of ssh"]) == ("10.0.0.1", "172.17.0.1")
    assert endpoints.interfaces([]) == ("10.0.0.1", "172.17.0.1")


def test_addresses_that_do_not_answer_cost_no_time(exchanges):
    into = {}
    exchanges[1]._server.start(partial(endpoints._take, into, {0}))
    port = exchanges[1].endpoint.port
    silent = [f"127.0.0.{number}" for number in range(2, 12)]
    with contextlib.ExitStack() as stack:
        for address in silent:
            stack.enter_context(socket.create_server((address, port)))
        began = time.monotonic()
        exchanges[0]._call(1, exchanges[1].endpoint._replace(addresses=(*silent, "127.0.0.1")))
        assert time.monotonic() - began < len(silent) / 2 * endpoints._ANSWER_S
        wait_for(lambda: into.keys() == {0})
        time.sleep(endpoints._ANSWER_S)  # what came second is closed


def test_a_rank_that_was_started_again_connects_both_ways(exchanges):
    """Rank 0 stays to be called; rank 1 calls again twice, once before rank 0 knows what to do with it."""
    joined = []
    exchanges[0].listen([1], {})
    for incarnation in (1, 2):
        again = Exchange(1, *JOB)
        found = again.call_again({0: exchanges[0].endpoint, 2: exchanges[2].endpoint}, {1: incarnation})
        again._server.stop()
        assert found.keys() == {0}  # rank 2 does not answer
        if incarnation == 1:
            exchanges[0].join_by(lambda *one: joined.append(one))
        wait_for(lambda made=incarnation: len(joined) == made)
        assert joined[-1][:2] == (1, incarnation)
        check_ways(found[0], joined[-1][2:])


def test_a_connection_is_used_only_where_both_ends_have_taken_it(exchanges, joined, monkeypatch):
    """The one that was called waits too long for the word that the first connection is used, and closes it."""
    late, confirmed = [1.0], endpoints._confirmed
    monkeypatch.setattr(endpoints, "_ANSWER_S", 0.5)
    monkeypatch.setattr(
        endpoints, "_confirmed", lambda made: [time.sleep(late.pop() if late else 0), confirmed(made)][1]
    )
    calls = 0
    while not (found := exchanges[1].call_again({0: exchanges[0].endpoint}, {1: 1})):
        calls += 1
    assert calls == 1
    wait_for(lambda: joined)
    check_ways(found[0], joined[0][2:])


def test_one_that_has_no_part_in_the_session_is_sent_away(exchanges, joined):
    assert exchanges[3].call_again({0: exchanges[0].endpoint}, {3: 1}) == {} and not joined


def test_of_two_that_were_started_again_and_call_each_other_one_connects(exchanges):
    found = {}

    def call(rank):
        other = {1 - rank: exchanges[1 - rank].endpoint}
        while 1 - rank not in found.get(rank, ()):
            found[rank] = exchanges[rank].call_again(other, {0: 1, 1: 2})
        exchanges[rank].end_calls()

    for rank in range(2):
        exchanges[rank].listen([1 - rank], {0: 1, 1: 2})
    at_once(call, range(2))
    check_ways(found[0][1], found[1][0])
    joined = []
    for one in exchanges[:2]:
        one.join_by(lambda *one: joined.append(one))
    assert not joined


def test_one_that_is_started_again_while_it_is_called_need_not_wait(exchanges):
    """The one that calls its former incarnation may have others to call still."""
    incarnations, joined = {0: 1, 1: 1}, []
    exchanges[0].listen([1], incarnations)
    assert exchanges[1].call_again({0: exchanges[0].endpoint}, incarnations) == {}
    incarnations[1] = 2
    found = exchanges[1].call_again({0: exchanges[0].endpoint}, incarnations)
    assert found.keys() == {0}
    exchanges[0].join_by(lambda *one: joined.append(one[:2]))
    wait_for(lambda: joined == [(1, 2)])  # a thread notes the second connection after its caller has it


def test_the_half_of_a_former_incarnation_is_closed(exchanges):
    exchanges[0].listen([1], {})
    half = exchanges[1]._call(0, exchanges[0].endpoint, 1)
    wait_for(lambda: exchanges[0]._halves.get((1, 1)))
    exchanges[1]._call(0, exchanges[0].endpoint, 2)
    half.settimeout(60)
    assert half.recv(1) == b""


def test_a_half_that_is_answered_while_the_next_incarnation_calls_is_closed(exchanges, joined, monkeypatch):
    """It has made the other one before."""
    take = endpoints._take
    exchanges[1]._call(0, exchanges[0].endpoint, 1)
    wait_for(lambda: exchanges[0]._halves.get((1, 1)))

    def late(*args):
        monkeypatch.setattr(endpoints, "_take", take)
        exchanges[1]._call(0, exchanges[0].endpoint, 2)
        wait_for(lambda: exchanges[0]._halves.get((1, 2)))
        return take(*args)

    monkeypatch.setattr(endpoints, "_take", late)
    half = exchanges[1]._call(0, exchanges[0].endpoint, 1, endpoints._FROM)
    half.settimeout(60)
    assert half.recv(1) == b"" and not joined

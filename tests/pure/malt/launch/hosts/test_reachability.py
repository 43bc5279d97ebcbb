"""Whether the network of a host that says nothing answers, and which hosts are cut off."""

import contextlib
import socket
import threading
from types import SimpleNamespace

import pytest
from processes import wait_for

from malt.launch.hosts import reachability, remote
from malt.launch.hosts.agent import agent
from malt.launch.hosts.reachability import Probe, answers

HERE = "127.0.0.1"
UNHEARD_S = 0.3


@pytest.fixture
def drops():
    """A port at which the kernel answers nothing: the connections that wait there are too many."""
    with contextlib.ExitStack() as opened:
        server = opened.enter_context(socket.create_server((HERE, 0), backlog=0))
        for _ in range(3):
            one = opened.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def refuses():
    with socket.create_server((HERE, 0)) as server:
        return server.getsockname()[1]


def test_a_host_answers_where_it_takes_a_connection_or_refuses_it(drops):
    with socket.create_server((HERE, 0)) as server:
        assert answers([HERE], server.getsockname()[1], UNHEARD_S)
    port = refuses()
    assert answers([HERE], port, UNHEARD_S) and not answers([HERE], drops, UNHEARD_S)
    assert answers(["192.0.2.1", HERE], port, UNHEARD_S)  # one of its addresses


def test_questions_are_asked_in_a_thread_one_at_a_time(drops):
    asked = Probe([HERE], drops, UNHEARD_S)
    assert not asked.ask()
    before = threading.active_count()
    assert not asked.ask() and threading.active_count() == before
    wait_for(asked.ask)
    asked.forget()
    assert not asked.ask()


def test_an_answer_to_a_question_of_before_counts_no_more(monkeypatch):
    answer = threading.Event()
    monkeypatch.setattr(reachability, "answers", lambda *words: not answer.wait(10))
    asked = Probe([HERE], 1)
    asked.ask()
    thread = asked._thread
    asked.forget()
    answer.set()
    thread.join()
    assert not asked._is_unanswered


def test_without_an_address_nothing_is_asked():
    asked = Probe()
    assert not asked.ask() and asked._thread is None


@pytest.mark.parametrize(
    ("silent_s", "unanswered", "is_cut_off"),
    [(2.9, True, False), (5.9, True, False), (6.1, True, True), (6.1, False, False), (29.0, False, False),
     (agent.SILENCE_S + 0.1, False, True)],
)  # fmt: skip
def test_a_host_is_cut_off_where_neither_it_nor_its_network_answers(silent_s, unanswered, is_cut_off):
    asked = []
    host = SimpleNamespace(silence=SimpleNamespace(seconds=lambda: silent_s), probe=Probe())
    host.probe.ask = lambda: asked.append(1) or unanswered
    host.probe.forget = asked.clear
    assert remote._is_cut_off(host) == is_cut_off and bool(asked) == (silent_s > 3)

"""A session of ranks of several hosts, of which this test has one: what it asks its links for."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dstorm.errors import Refused
from dstorm.transports import shm_space
from dstorm.transports.links.handshake import new_key
from dstorm.transports.links.links import Links
from dstorm.transports.solo import LoneTransport
from malt.files import atomic
from malt.launch.reports import control
from malt.runner import departure, reporting
from malt.runner.program import JOB_DIR
from malt.runner.roster import Roster
from malt.session.resilience import hosts, joining
from malt.session.resilience.process_group import ProcessGroup


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What the links of the transport were asked for, in order; the transport."""
    found = []
    monkeypatch.setenv(JOB_DIR, str(tmp_path / "malt-job"))
    monkeypatch.setattr(reporting, "job_key", new_key)
    monkeypatch.setattr(atomic, "_confirm", atomic._confirm)
    monkeypatch.setattr(hosts, "_gather", lambda session, ranks, mine, deadline_s: {0: json.loads(json.dumps(mine))})
    for name in ("confirm", "settle"):
        monkeypatch.setattr(Links, name, lambda links, name=name: found.append(name))
    made, _ = hosts.transport("session-1", ProcessGroup(0, 1), 10.0, None)
    yield found, made
    made.close()


def test_a_file_gets_its_name_once_a_quorum_has_confirmed_its_writer(asked, tmp_path):
    found, _ = asked
    found.clear()
    path = tmp_path / "file"
    atomic.write(path, lambda file: (file.write(b"1"), found.append("written")))
    assert found == ["written", "confirm"] and path.read_bytes() == b"1"


def test_a_call_waits_until_it_is_decided_who_goes_on(asked):
    found, made = asked
    found.clear()
    made.poll_failures()
    assert found == ["settle"]


def test_what_is_being_written_is_no_publication_of_another_incarnation(monkeypatch, tmp_path):
    """A listing of the folder may find it: a rank and the number of a process would be an incarnation."""
    names = []
    monkeypatch.setattr(os, "replace", lambda written, path: names.append(Path(written).name))
    reporting.write(tmp_path / hosts.PUBLISHED.format("session-1", 1), "text")
    assert len(names) == 1 and not control._PUBLISHED.fullmatch(names[0]) and not hosts._NAME.fullmatch(names[0])


def test_one_that_is_started_again_meanwhile_is_not_called_any_more():
    """Nobody answers where its former incarnation listened. It calls by itself."""
    started, called = {}, []

    def call(endpoints, incarnations):
        started[1] = 1
        called.append([*endpoints])
        return {}

    exchange = SimpleNamespace(call_again=call, end_calls=lambda: None)
    known = SimpleNamespace(newest={0: 1}, ended=dict, started=lambda: dict(started))
    assert hosts._call_again(exchange, {1: None}, known) == ({}, {}) and called == [[1], []]


def test_rank_0_of_torchrun_goes_on_once_the_others_have_taken_what_it_has_sent(monkeypatch):
    """It is their control server. Nothing is sent after that, and so not the rest of a list of many ranks either."""
    polls, text = [], json.dumps(["a"])
    monkeypatch.setattr(departure, "published", lambda name: text)
    monkeypatch.setattr(joining, "pass_on", lambda: polls.append(1) or len(polls) > 5)
    assert hosts._gather("session-1", ProcessGroup(0, 2), ["a"], 60.0) == {0: ["a"], 1: ["a"]} and len(polls) == 6
    monkeypatch.setattr(joining, "pass_on", lambda: False)  # one takes nothing any more
    assert hosts._gather("session-1", ProcessGroup(0, 2), ["a"], 0.05).keys() == {0, 1}


@pytest.fixture
def memory(monkeypatch, tmp_path):
    """memory(rank): that of a rank which comes later, of a host with two such, or with ranks 0 and 1; file(rank)."""
    monkeypatch.setenv(JOB_DIR, str(tmp_path))
    job, free = Roster.of(2, 1, 4), {0: 1 << 24, 1: 1 << 24}

    def place(rank):
        return LoneTransport(rank, ["a", "a", "b", "b"])

    yield (
        lambda rank: hosts._memory("session-1", place(rank), ProcessGroup(rank, 4, True, 1, job), free),
        lambda rank: hosts._path("session-1", place(rank)),
    )
    for rank in range(4):
        hosts._path("session-1", place(rank)).unlink(missing_ok=True)


def test_ranks_that_come_at_once_to_a_host_that_had_none_share_its_memory(memory):
    """One may find the file that the other has made, and has not given its length yet."""
    made, file = memory
    file(2).touch(0o600)
    first, second = made(3), made(2)
    first.put(np.full(8, 7, np.uint8), 2, 0)
    assert second.memory[:8].tolist() == [7] * 8 and first.memory.nbytes == second.memory.nbytes == 1 << 22


def test_a_rank_does_not_come_back_where_the_memory_of_its_host_is_gone_or_is_not_to_be_had(memory, monkeypatch):
    made, _ = memory
    with pytest.raises(Refused, match="the memory of the ranks of its host is gone"):
        made(1)
    monkeypatch.setattr(shm_space, "free_nbytes", lambda: (1 << 23) - 1)
    with pytest.raises(Refused, match="less shared memory than the others give each rank"):
        made(2)

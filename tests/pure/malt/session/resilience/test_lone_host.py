"""A session of ranks of several hosts, of which this test has one: what it asks its links for."""

from __future__ import annotations

import json

import pytest

from dstorm.transports.links.handshake import new_key
from dstorm.transports.links.links import Links
from malt.files import atomic
from malt.runner import reporting
from malt.runner.program import JOB_DIR
from malt.session.resilience import hosts
from malt.session.resilience.process_group import ProcessGroup

pytestmark = pytest.mark.serial


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

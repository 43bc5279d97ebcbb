"""Ranks of several hosts find rank 0 at one of the ports that follow torch's, and tell it from another job."""

import contextlib
import re
import socket
import time

import pytest

from dstorm import DeadlinePassed
from malt.launch.reports.control import ControlServer
from malt.session.resilience import joining, torchrun
from malt.session.resilience.torchrun import Started

SECRET = "0123456789abcdef"


@pytest.fixture
def one():
    """Rank 2 of 4, the first of its host, where the ports are free that follow that of torch."""
    while True:
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        if port + len(Started(2, 4, range(2, 4), "", "", "", port).ports) < 1 << 16:
            return Started(2, 4, range(2, 4), "name", "job", "localhost", port)


@pytest.fixture
def opened(one, tmp_path):
    """opened(job=, secret=): the control server of a job."""
    with contextlib.ExitStack() as stack:

        def made(job="job", secret=SECRET):
            key = torchrun.job_key(one._replace(job=job), secret)
            server = ControlServer(tmp_path, key, [one.address], one.ports, joining._Drops())
            return stack.enter_context(contextlib.closing(server))

        yield made


def connected(one, secret=SECRET, deadline_s=20.0):
    return contextlib.closing(joining._connected(one, torchrun.job_key(one, secret), deadline_s))


def test_rank_0_is_found_behind_another_job(one, opened, capfd):
    """That one has the same secret, and says who was wrong there."""
    before, own = opened(job="another"), opened()
    assert before.port in one.ports and own.port in one.ports
    with connected(one) as connection:
        assert connection.getpeername()[1] == own.port
    said = "malt: rank 0 has dropped a connection from .* with a wrong MALT_KEY"
    assert len(re.findall(said, capfd.readouterr().err)) == 1


def test_a_rank_with_another_key_says_so_long_before_the_deadline(one, opened, monkeypatch, capfd):
    monkeypatch.setattr(joining, "_REFUSED_S", 0.3)
    port, began = opened().port, time.monotonic()
    said = f"rank 0 at localhost:{port} has dropped the connection of rank 2: it has another MALT_KEY"
    with pytest.raises(RuntimeError, match=said), connected(one, SECRET[::-1], 100.0):
        pass
    assert time.monotonic() - began < 20
    assert capfd.readouterr().err.count("with a wrong MALT_KEY") == 1  # it has tried several times


def test_a_rank_that_nobody_answers_names_rank_0(one):
    said = f"rank 2 has come, and calls localhost at the ports {one.port + 1} to"
    with pytest.raises(DeadlinePassed, match=said) as error:
        joining._connected(one, torchrun.job_key(one, SECRET), 0.3)
    assert [*error.value.missing] == [0]


def test_rank_0_says_where_it_cannot_listen(one, opened, tmp_path):
    for _ in one.ports:
        opened()
    with pytest.raises(RuntimeError, match="rank 0 can listen at none of the ports .*: give torchrun another port"):
        joining._meet(one._replace(rank=0, ranks=range(2)), tmp_path, torchrun.job_key(one, SECRET), 1.0)

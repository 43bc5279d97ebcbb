"""The limit of open files: it is raised as far as the system lets it, and else named in a line."""

import resource
from dataclasses import replace

import pytest

from malt.commands import command_line
from malt.launch import job
from malt.launch.command import Job, Line
from malt.launch.machine import open_files
from malt.launch.machine.mpi_library import LaunchError
from malt.session.resilience import hosts


@pytest.fixture
def limits(monkeypatch):
    """The limits of a system that lets this process open 64 files, and raise that to 400."""
    found = [64, 400]
    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(found))
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: found.__setitem__(slice(None), both))
    return found


def test_the_limit_is_raised_where_the_system_lets_it(limits):
    assert open_files.allow(50) is None and limits == [64, 400]
    assert open_files.allow(200) is None and limits == [200, 400]
    assert open_files.allow(401) == 400 and limits == [200, 400]
    limits[:] = [100, resource.RLIM_INFINITY]
    assert open_files.allow(10**6) is None and limits[0] == 10**6


def test_more_ranks_than_files_are_refused_in_a_line(limits, capsys):
    assert command_line.main(["run", "-n", "300", "-c", ""]) == 2
    assert capsys.readouterr().err == (
        "malt run: a job of 300 ranks needs 696 open files here, and the limit is 400: raise it (ulimit -n 696), or "
        "start fewer ranks\n"
    )


def test_connections_of_ranks_count(limits):
    line = Line({}, [], Job(100, ()))
    job._allow_files(line)
    assert limits[0] == 2 * 100 + open_files.OTHERS
    with pytest.raises(LaunchError, match="100 ranks needs 602 open files"):
        job._allow_files(replace(line, remote_ranks=(("b", tuple(range(50))), ("c", tuple(range(50, 100))))))
    with pytest.raises(RuntimeError, match=r"need 496 open files, and the limit on \S+ is 400: raise it there"):
        hosts._allow_files(2 * 200)

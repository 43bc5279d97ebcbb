"""Ranks of a job of plain processes, on the launcher's host or on another: how they meet, and how they end."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from reported import add, reported

from dstorm import DeadlinePassed
from malt.launch.command import STARTER
from malt.launch.reports import control
from malt.launch.reports.control import ControlServer
from malt.launch.reports.follower import Follower
from malt.runner import reporting
from malt.runner.events import Stream
from malt.runner.program import FAILURE_DIR, JOB_DIR
from malt.session.resilience import start as start_of_session
from malt.session.resilience.process_group import ProcessGroup

KEY = "3c" * 32
LIMIT_S = 60


@pytest.fixture
def job(tmp_path, monkeypatch):
    """job(ranks, program, is_away): the end of the starter, and what is reported in the launcher's folder."""
    monkeypatch.setattr(control, "interfaces", lambda hosts: ("127.0.0.1",))
    ours, theirs = tmp_path / "malt-ours", tmp_path / "malt-theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / reporting.KEY).write_text(f"{KEY}\nlocalhost")

    def run(ranks, program, is_away):
        with contextlib.closing(ControlServer(ours, KEY)) as server:
            state = Follower(Stream(ours), ranks, is_spread=True)
            state.report_ended = server.tell
            folder = str(theirs if is_away else ours)
            words = [sys.executable, STARTER, ",".join(map(str, range(ranks))), str(ranks), "-c", program]
            environ = {**os.environ, FAILURE_DIR: folder, JOB_DIR: folder, "MALT_SURVIVE": "best-effort"}
            environ |= {reporting.CONTROL_SERVER: server.endpoint("another" if is_away else os.uname().nodename)}
            if is_away:
                words = [sys.executable, "-c", AGENT.format(folder=folder, ranks=list(range(ranks)), program=program)]
            process = subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True)
            try:
                while process.poll() is None:
                    state.status()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.05)
            finally:
                process.kill()
                errors = process.communicate()[1]
        printed = "".join(path.read_text() for path in sorted(theirs.glob("printed-*")))
        return state.status(), printed + errors, reported(ours)

    return run


AGENT = """
import os, sys, time
from malt.launch.command import RUNNER
from malt.launch.hosts.agent.ranks import Ranks

ranks = Ranks({{
    "ranks": {ranks!r}, "size": len({ranks!r}), "words": [sys.executable, RUNNER, "-c", {program!r}],
    "folder": {folder!r}, "cwd": "/", "environment": dict(os.environ),
}}, lambda line: None, False)
while ranks.look_after(time.monotonic()):
    time.sleep(0.02)
"""
"""What an agent does on another host."""
MEETS = """
import malt
malt.init(deadline_s=60)
v = malt.vector(4, sync="asp")
v.array += malt.rank()
v.scatter()
malt.barrier()
print("ends", malt.rank(), malt.alive(), flush=True)
"""


def test_ranks_that_are_all_on_one_other_host_meet(job):
    status, output, _ = job(2, MEETS, True)
    assert status == 0 and output.count("(0, 1)") == 2, output


def test_ranks_that_never_start_are_named(tmp_path):
    alone = ProcessGroup(0, 2)
    add(tmp_path, "started-0", f"{os.getpid()} -1")
    with pytest.raises(DeadlinePassed, match="rank 1"):
        start_of_session._of_one_host(Path(tmp_path), "session", alone, 0.05, None)


@pytest.mark.parametrize("is_away", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("raise OSError('disk full')", 1)])
def test_a_failure_after_the_session_is_that_of_the_job(end, status, is_away, job):
    found, output, names = job(1, f"import sys, malt; malt.init(); malt.finalize(); {end}", is_away)
    assert found == status, (output, names)
    assert "status-0" in names and "left-0" not in names

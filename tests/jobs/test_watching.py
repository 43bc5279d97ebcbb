"""`malt status` and `malt stacks`: what another terminal shows of a job."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import wait_for
from programs import ROOT
from reported import add

from dstorm.membership.processes import handles, this_process
from malt.commands import command_line
from malt.launch.reports import observer
from malt.runner.program import STACKS_SIGNAL
from malt.watch import jobs, ranks, stacks
from malt.watch.record import Record

pytestmark = pytest.mark.serial

HANGING = """
import threading, malt
malt.init()
malt.report(loss=0.5)
def hang():
    lock = threading.Lock()
    lock.acquire()
    print("hangs", flush=True)
    lock.acquire()
if malt.rank() == 1:
    hang()
malt.barrier()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which the folders of jobs are looked for."""
    made = tmp_path / "jobs"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def test_a_rank_that_hangs_in_a_lock_shows_where(tmp_path, folder, job_environment, capsys):
    program = tmp_path / "hanging.py"
    program.write_text(HANGING)
    environment = job_environment | {"TMPDIR": str(folder)}
    command = [sys.executable, "-m", "malt", "run", "-n", "2", str(program)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        try:
            assert job.stdout.readline() == b"hangs\n"
            hangs = re.compile(rf'"{program}", line 9 in hang\n.*"{program}", line 11 in <module>')
            wait_for(lambda: hangs.search(shown_stacks(job, capsys)[1]))  # it may still be printing
            zero, one = shown_stacks(job, capsys)
            assert re.search(rf'^rank 0:(?s:.*)"{program}", line \d+ in <module>', zero) and hangs.search(one)
            assert "answers.py" not in zero + one
            while "waits for rank 1 in malt.barrier" not in (status := shown(capsys)):
                assert job.poll() is None
        finally:
            job.send_signal(signal.SIGTERM)
    assert re.match(rf"job {job.pid}, \d+ s: 2 ranks of {program}\n", status)
    assert status.splitlines()[3].split()[:2] == ["1", "0.5"]
    assert command_line.main(["status"]) == 2
    assert "malt status: no job of this user runs on this machine" in capsys.readouterr().err


def shown_stacks(job, capsys):
    assert command_line.main(["stacks", str(job.pid)]) == 0
    return capsys.readouterr().out.split("rank 1:")


def shown(capsys):
    assert command_line.main(["status"]) == 0
    return capsys.readouterr().out


def test_the_status_as_json(folder, capsys):
    """For a script that watches a job: also while its loss is not finite, which JSON cannot express."""
    job, own = folder / "malt-a", this_process()
    job.mkdir(mode=0o700)
    jobs.publish(job, 2, ["x.py"])
    add(job, "started-0", f"{own.number} {own.started}")
    record = Record(sent={1: 40}, merged=3, waits_for=(1,), numbers={"loss": float("nan"), "epoch": 2}, progress=0.5)
    (job / "shown-0").write_text(record.text())
    assert command_line.main(["status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    zero, one = found.pop("ranks")
    assert found == {"job": os.getpid(), "program": "x.py", "seconds": found["seconds"]} and found["seconds"] > 0
    assert zero.pop("age_s") >= 0
    expected = {"rank": 0, "state": "running", "sent": {"1": 40}, "merged": 3, "waits_for": [1], "progress": 0.5,
                "numbers": {"loss": None, "epoch": 2}, "why": None, "failed_s": None, "lag": 0}  # fmt: skip
    assert zero.items() >= expected.items()
    assert one == {"rank": 1, "state": "not started", "why": None, "failed_s": None, "age_s": None}


def test_the_launcher_reports_a_long_wait_once(folder, monkeypatch, capsys):
    monkeypatch.setattr(observer, "_SELDOM_S", 0.01)
    own, looks = this_process(), []
    monkeypatch.setattr(observer, "look", lambda *job: looks.append(0) or ranks.look(*job))
    for rank, record in enumerate([Record(waits_for=(1,), call="malt.barrier", wait_s=31.0), Record()]):
        add(folder, f"started-{rank}", f"{own.number} {own.started}")
        (folder / f"shown-{rank}").write_text(record.text())
    watching = observer.Observer(folder, 2, ["x.py"], SimpleNamespace(screen=lambda: None), False)
    watching.start()
    wait_for(lambda: len(looks) > 2)
    assert watching.close() == []
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "malt run: rank 0 waits for rank 1 in malt.barrier (31 s)",
        f"malt run: `malt stacks {os.getpid()}` prints all threads of all ranks; of those that are waited for:",
        "rank 1:",
    ]
    assert sum("waits for rank 1" in line for line in lines) == 1


def test_an_error_of_the_view_does_not_end_the_job(folder, monkeypatch, capsys):
    monkeypatch.setattr(observer, "_VIEW_S", 0.01)
    screen = SimpleNamespace(size=lambda: 1 / 0, show=None)
    watching = observer.Observer(folder, 2, ["x.py"], SimpleNamespace(screen=lambda: screen), True)
    watching.start()
    wait_for(lambda: not watching._thread.is_alive())
    assert watching.close() == []
    assert capsys.readouterr().err == "malt run: the ranks are no longer shown: ZeroDivisionError('division by zero')\n"


def test_one_of_several_jobs_must_be_named(folder, monkeypatch):
    for name in ("malt-a", "malt-b"):
        (folder / name).mkdir(mode=0o700)
        jobs.publish(folder / name, 2, ["-c", f"print(1)\nprint('{name}\udcff')"])
    with pytest.raises(LookupError, match=r"2 jobs are running: select one by .*\n.* 2 ranks  -c print\(1\) print"):
        jobs.chosen(None)
    (folder / "malt-b").chmod(0o755)  # others could have written it
    assert jobs.chosen(os.getpid()).folder == folder / "malt-a"
    own = this_process()
    (folder / "malt-a" / "job").write_text(json.dumps([own.number, own.started - 1, 2, "x"]))
    with pytest.raises(LookupError, match="no job of this user runs"):  # a later process has its number
        jobs.chosen(None)


@pytest.mark.parametrize("odd", ["3", '["{0}", {1}, 2, "x", 0]', "[{0}, {1}, 2, 4, 0]", '{{"a":1,"b":2,"c":3,"d":4}}'])
def test_a_folder_of_another_program_is_no_job(odd, folder):
    own = this_process()
    (folder / "malt-a").mkdir(mode=0o700)
    (folder / "malt-a" / "job").write_text(odd.format(own.number, own.started))
    assert jobs.running() == []


def test_a_process_that_would_die_of_the_signal_is_not_asked(folder):
    with subprocess.Popen(["sleep", "100"]) as other:
        try:
            start = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
            add(folder, "started-0", f"{other.pid} {start}")
            found = stacks.stacks(folder, range(2))
            assert other.poll() is None
        finally:
            other.kill()
    assert "no longer runs a Python program" in found[0] and "not started" in found[1]
    assert [one.state for one in ranks.look(folder, 2)] == ["failed", "not started"]


ENDS = """
import ctypes, sys
from malt.runner import program, reporting
reporting.start(sys.argv[1], ())
program.write_stacks_when_asked(sys.argv[1])
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.pause, None, None)  # what is called once the interpreter has ended
print("registered", flush=True)
"""


def test_a_rank_whose_interpreter_has_just_ended_outlives_the_signal(folder):
    """The end comes between the look at its handlers and the signal."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MALT_RANK": "0"}
    command = [sys.executable, "-c", ENDS, str(folder)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as rank:
        try:
            assert rank.stdout.readline() == b"registered\n"
            wait_for(lambda: not handles(this_process()._replace(number=rank.pid), STACKS_SIGNAL))
            os.kill(rank.pid, STACKS_SIGNAL)
            with pytest.raises(subprocess.TimeoutExpired):
                rank.wait(0.3)
        finally:
            rank.kill()


@pytest.mark.parametrize(("ends", "why"), [
    ({"ended": "3"}, "status 3"), ({"left": "1", "ended": "3"}, "status 1"), ({"ended": "137"}, "killed"),
    ({}, "killed"),
])  # fmt: skip
def test_how_a_rank_has_failed_is_shown(folder, ends, why):
    with subprocess.Popen(["true"]) as other:
        other.wait()
    add(folder, "started-0", f"{other.pid} 1")
    for kind, text in ends.items():
        add(folder, f"{kind}-0", text)
    (found,) = ranks.look(folder, 1)
    assert (found.state, found.why, found.failed_s is not None) == ("failed", why, bool(ends))

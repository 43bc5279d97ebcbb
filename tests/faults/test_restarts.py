"""Jobs that failed as a whole are run again: how often, when not, and with nothing left of the run before."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import is_alive, wait_for

from malt.launch import job
from malt.launch.environment import RESTART
from malt.launch.job import End

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.serial


@pytest.fixture
def attempts(monkeypatch):
    """attempts(ends, restarts): the status, and for each run MALT_RESTART in its line and in its environment."""

    def attempts(ends, count, environ=None):
        seen = []

        def run(line, environ, grace_s, remote):
            seen.append((line, environ.get(RESTART)))
            return End(*ends[len(seen) - 1])

        monkeypatch.setattr(job, "run", run)
        return job.run_again(lambda environ: environ.get(RESTART), environ or {}, count), seen

    return attempts


@pytest.mark.parametrize(
    ("ends", "count", "status", "runs"),
    [
        ([(0,)], 3, 0, 1),
        ([(1,)], 0, 1, 1),
        ([(137,), (0,)], 3, 0, 2),
        ([(137,), (1,), (9,)], 2, 9, 3),
        ([(2,)], 3, 2, 1),
        ([(1,), (2,)], 3, 2, 2),
        ([(130, True)], 3, 130, 1),
        ([(1,), (143, True)], 3, 143, 2),
        ([(143,), (0,)], 1, 0, 2),
        ([(1, False, True)], 3, 1, 1),
        ([(1, False, False, True)], 3, 1, 1),
    ],
)
def test_which_jobs_are_run_again(attempts, capsys, ends, count, status, runs):
    ended, seen = attempts(ends, count)
    assert ended == status and seen == [(None, None), ("1", "1"), ("2", "2")][:runs]
    assert capsys.readouterr().err == "".join(
        f"malt run: the job ended with status {end[0]}: restart {attempt} of {count}\n"
        for attempt, end in enumerate(ends[: runs - 1], 1)
    )


def test_a_restart_from_outside_counts_until_there_is_another(attempts):
    assert attempts([(1,), (0,)], 1, {RESTART: "7"})[1] == [("7", "7"), ("1", "1")]


SCRIPT = """#!/bin/bash
if [ -z "$MALT_RESTART" ]; then
    sleep 250 & echo $! > {0}/left; echo $MALT_FAILURE_DIR > {0}/folder
    exit 9
fi
grep -qs "^State:.*[RSDT] (" /proc/$(cat {0}/left)/status && echo process left
[ -e $(cat {0}/folder) ] && echo folder left
touch {0}/second
sleep {1}
"""
SUPERVISOR = """if True:
    import sys
    from malt.launch import job
    from malt.launch.command import Job, Line
    compose = lambda environ: Line({}, [sys.argv[1]], Job(0, ()))
    sys.exit(job.run_again(compose, {"PATH": "/usr/bin:/bin"}, 2))"""


@pytest.fixture
def supervise(tmp_path, job_environment):
    """supervise(seconds): a launcher whose mpiexec leaves a process and fails, then looks for it and goes on."""

    def supervise(seconds):
        script = tmp_path / "mpiexec"
        script.write_text(SCRIPT.format(tmp_path, seconds))
        script.chmod(0o755)
        environment = job_environment | {"PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", SUPERVISOR, str(script)]
        return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return supervise


def test_nothing_of_the_first_is_left_when_the_second_starts(tmp_path, supervise):
    launcher = supervise(0)
    reports = launcher.communicate(timeout=200)
    assert reports == ("", "malt run: the job ended with status 9: restart 1 of 2\n") and launcher.returncode == 0
    assert not is_alive(int((tmp_path / "left").read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_it_for_good(tmp_path, supervise, number):
    launcher = supervise(50)
    wait_for((tmp_path / "second").exists)
    launcher.send_signal(number)
    _, reports = launcher.communicate(timeout=200)
    assert launcher.returncode == 128 + number and reports.count("restart") == 1


def test_a_signal_between_two_jobs(monkeypatch):
    ends = iter([End(1)])

    def run(line, environ, grace_s, remote):
        for end in ends:
            return end
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "run", run)
    assert job.run_again(lambda environ: None, {}, 5) == 130


def test_the_ranks_know_the_number_of_the_restart(malt_run):
    """A real mpiexec runs it. The program fails before and inside MPI, then ends well."""
    pytest.importorskip("mpi4py.MPI")
    program = (
        "import os, signal\nattempt = int(os.environ.get('MALT_RESTART', 0))\n"
        "if attempt == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "import malt\nmalt.barrier()\nif malt.rank() == 1 and attempt == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "malt.barrier()\nprint(f'rank {malt.rank()}, attempt {attempt}')\n"
    )
    done = malt_run(program, options=["--restarts", "5"])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n"))[-2:] == ["rank 0, attempt 2", "rank 1, attempt 2"]
    reports = [line for line in done.stderr.splitlines() if line.startswith("malt run: ")]
    assert [line.rpartition(": ")[2] for line in reports] == ["restart 1 of 5", "restart 2 of 5"], done.stderr

"""The agent of a host, with a job of plain processes. It runs here: what it starts stands for the starter."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from processes import is_alive, wait_for

from dstorm.membership.processes import is_stopped, process, stat_fields
from malt.launch.command import STARTER
from malt.launch.hosts.agent import processes as found
from malt.launch.hosts.agent import ranks, watch
from malt.launch.hosts.connection import program as agent
from malt.launch.hosts.plain import starter
from malt.runner.program import FAILURE_DIR

pytestmark = pytest.mark.serial
AGENT = agent().decode()
ELSEWHERE = ["another boot", 1]
SLEEPS = "import time\ntime.sleep(60)"
QUICK = ("SILENCE_S = 1.0, 30.0", "SILENCE_S = 0.1, 0.5")


class Kept:
    """An agent that has started what it was told to, and what it sends. `replaced`: of its text."""

    def __init__(self, folder, program="", *, words=None, replaced=("", ""), **wanted):
        assert replaced[0] in AGENT
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", AGENT.replace(*replaced)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        line = {"folder": str(folder), "cwd": "/", "words": words or [sys.executable, "-c", program],
                "environment": {"MALT_FAILURE_DIR": str(folder)}, "key": ["key", "secret"], **wanted}  # fmt: skip
        self.say("watch", [str(folder), watch.identity()])
        self.say("start", line)

    def say(self, command, value=None):
        self.process.stdin.write(json.dumps([command, value]).encode() + b"\n")
        self.process.stdin.flush()

    def heard(self, what):
        """The value of the next line of that kind."""
        for line in self.process.stdout:
            if line.strip() and json.loads(line)[0] == what:
                return json.loads(line)[1]
        raise AssertionError(self.process.stderr.read())

    def ended(self, *lines):
        """End it by these lines; return its status. It complains of nothing."""
        for line in lines:
            self.say(line)
        _, errors = self.process.communicate(timeout=60)
        assert errors == b""
        return self.process.returncode


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp" / "malt-x"


def squat(folder, kind):
    if kind == "link":
        (folder.parent / "other").mkdir(mode=0o700)
        folder.symlink_to(folder.parent / "other")
        return
    folder.mkdir(mode=0o755 if kind == "open" else 0o700)
    (folder / "key").write_text("guessed")


@pytest.mark.parametrize("kind", ["link", "open", "another key"])
def test_a_folder_that_is_there_already_is_not_used(kind, folder):
    squat(folder, kind)
    made = watch.Watch(str(folder), ELSEWHERE, print)
    assert made.owner == watch.SHARED
    assert made.end() == 0 and folder.exists()


def test_a_folder_is_made_for_its_user_alone(folder):
    kept = Kept(folder)
    kept.heard("done")
    assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "key").stat().st_mode & 0o777 == 0o600
    assert (folder / "key").read_text() == "secret"
    assert kept.ended("end") == 0 and not folder.exists()


def test_one_that_the_launcher_has_made_on_this_host_stays(folder):
    folder.mkdir(mode=0o700)
    (folder / "key").write_text("of the launcher")
    kept = Kept(folder)
    kept.heard("done")
    assert kept.ended("end") == 0 and (folder / "key").read_text() == "of the launcher"


def test_of_a_folder_that_cannot_be_filled_nothing_stays(folder, monkeypatch):
    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(watch, "write", full)
    with pytest.raises(OSError, match="No space left on device"):
        watch.Watch(str(folder), ELSEWHERE, print)
    assert not folder.exists()


def test_files_lead_nowhere_else(folder):
    folder.mkdir(mode=0o700)
    other = folder.parent / "other"
    other.write_text("mine")
    for name in ("printed-0-1", "key"):
        (folder / name).symlink_to(other)
    for call in (lambda: ranks._created(str(folder / "key")), lambda: starter._file(str(folder), 0, 1)):
        with pytest.raises(FileExistsError):
            call()
    assert other.read_text() == "mine"


@pytest.mark.parametrize(("words", "cwd", "why"), [
    (["/no/python"], "/", "No such file or directory: /no/python: see whether"),
    ([sys.executable, "-c", ""], "/no/folder", "No such file or directory: /no/folder: see"),
    ([sys.executable, "-c", "import sys\nsys.exit('fork: Resource temporarily unavailable')"], "/",
     "fork: Resource temporarily unavailable: raise the limit of processes there (ulimit -u), or"),
    ([sys.executable, STARTER, "1", "0", "-c", ""], "/", "rank 1: File exists: "),
], ids=["no Python", "no folder", "a starter", "a rank"])  # fmt: skip
def test_a_host_on_which_no_rank_can_start_says_so_in_a_line(words, cwd, why, folder):
    environment = {"MALT_FAILURE_DIR": str(folder), "MALT_IS_AWAY": "1"}
    if why.startswith("rank"):  # it shares the folder of the launcher
        folder.mkdir(mode=0o700)
        (folder / "key").write_text("secret")
        (folder / "printed-1-1").touch()
    kept = Kept(folder, words=words, cwd=cwd, environment=environment)
    line = kept.heard("failed")
    assert line.startswith(why) and "\n" not in line
    assert kept.ended() == 0 and folder.exists() == why.startswith("rank")


def test_ranks_that_fail_have_started(folder):
    kept = Kept(folder, words=[sys.executable, STARTER, "0,1", "2", "-c", "import sys; sys.exit('fails')"],
                environment={"MALT_FAILURE_DIR": str(folder), "MALT_IS_AWAY": "1"})  # fmt: skip
    assert kept.heard("printed")[1:] == [2, "fails\n"]
    assert kept.heard("done") is None
    assert kept.ended("end") == 0 and not folder.exists()


def test_the_starter_is_told_of_the_launcher_and_what_it_says_is_passed_on(folder):
    program = f"""import os, time
print("for nobody\\nmalt: rank 1 failed\\nexited 1 2 137\\nmalt: rank 1 is given up", flush=True)
while not os.path.exists("{folder}/adrift"):
    time.sleep(0.01)
print("malt: adrift", flush=True)
while os.path.exists("{folder}/adrift"):
    time.sleep(0.01)
while not os.path.exists("{folder}/ending"):
    time.sleep(0.01)
print("malt: ending", flush=True)
time.sleep(60)"""
    kept = Kept(folder, program, replaced=QUICK)
    said = [kept.heard("said")]
    assert kept.heard("exited") == [1, 2, 137]
    said += [kept.heard("said") for _ in range(2)]
    kept.say("alive")
    kept.say("ending")
    said.append(kept.heard("said"))
    assert said == ["malt: rank 1 failed", "malt: rank 1 is given up", "malt: adrift", "malt: ending"]
    assert kept.ended("end") == 0 and not folder.exists()


def test_an_agent_that_was_not_spoken_to_goes_on(folder):
    program = f"import time\ntime.sleep(2)\nopen('{folder}/printed-0-1', 'w').write('said')\ntime.sleep(60)"
    kept = Kept(folder, program, replaced=QUICK)
    assert kept.heard("printed") == [0, 1, "said"]
    assert kept.ended("end") == 0 and not folder.exists()


def test_once_the_ranks_have_ended_it_waits_for_a_launcher_that_is_stopped_alone(folder):
    paused, silent = Kept(folder, replaced=QUICK), Kept(folder.parent / "malt-y", replaced=QUICK)
    paused.say("pause")
    assert silent.process.wait(60) == 0
    time.sleep(1.0)
    assert paused.process.poll() is None and sorted(os.listdir(folder.parent / "malt-y")) == [
        f"starter-{os.uname().nodename}"
    ]
    assert paused.ended("alive", "end") == 0 and not folder.exists()
    silent.ended()


def test_what_runs_here_is_stopped_with_the_launcher(folder):
    program = f"import os, time\nprint(os.getpid(), file=open('{folder}/printed-0-1', 'w'), flush=True)\ntime.sleep(60)"
    kept = Kept(folder, program)
    number = int(kept.heard("printed")[2])
    runs = process(number, int(stat_fields(number)[19]))
    for line, is_so in (("pause", True), ("alive", False), ("pause", True)):
        kept.say(line)
        wait_for(lambda is_so=is_so: is_stopped(runs) == is_so)
    kept.process.stdin.close()  # the launcher was killed
    wait_for(lambda: not is_stopped(runs))
    os.kill(number, signal.SIGKILL)
    kept.process.wait(60)


def test_children_in_sessions_of_their_own_end(folder):
    program = f"""import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEPS!r}], start_new_session=True)
print(child.pid, file=open("{folder}/printed-0-1", "w"), flush=True)
time.sleep(60)"""
    kept = Kept(folder, program)
    child = int(kept.heard("printed")[2])
    assert is_alive(child)
    assert kept.ended("end") == 0 and not is_alive(child) and not folder.exists()


def test_the_ranks_of_a_starter_that_was_killed_end(folder):
    """Nobody would see how they end, and start them again."""
    program = f"""import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEPS!r}])
print(child.pid, file=open("{folder}/printed-0-1", "w"), flush=True)
time.sleep(60)"""
    kept = Kept(folder, program)
    starter_of_it, child = kept.heard("started"), int(kept.heard("printed")[2])
    os.kill(starter_of_it, signal.SIGKILL)
    assert kept.heard("done") is None and not is_alive(child)
    assert kept.ended("end") == 0 and not folder.exists()


def test_it_is_ended_while_ranks_print_and_the_launcher_takes_nothing(folder):
    program = f"file = open('{folder}/printed-0-1', 'w')\nfor i in range(10**6):\n    file.write('x' * 100)"
    kept = Kept(folder, program)
    pipe = kept.process.stdout
    wait_for(lambda: struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"    "))[0] > 50_000)
    time.sleep(0.3)
    kept.say("end")
    assert kept.process.wait(60) == 0 and not folder.exists()
    kept.ended()


def test_a_launcher_that_has_ended_before_is_no_error(folder):
    words = [sys.executable, "-I", "-S", "-c", AGENT]  # -S: without site-packages
    process = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert (process.returncode, process.stderr, folder.exists()) == (0, b"", False)


def test_where_the_connection_ends_what_ranks_print_stays(folder):
    """But not the memory that they have shared."""
    memory = Path(f"/dev/shm/{folder.name}-{os.getpid()}")
    memory.touch()
    kept = Kept(folder, f"open('{folder}/printed-0-1', 'w').write('said')")
    kept.heard("done")
    assert kept.ended() == 0 and (folder / "printed-0-1").read_text() == "said" and not (folder / "key").exists()
    assert not memory.exists()
    kept = Kept(folder.parent / "malt-y", f"import os\nos.kill(os.getpid(), {int(signal.SIGTERM)})")
    kept.heard("done")
    assert kept.ended() == 0 and not (folder.parent / "malt-y").exists()


def test_a_starter_that_stays_although_it_is_killed_is_given_up(folder, monkeypatch):
    """It waits for a disk that does not answer, say."""

    def stays(timeout=None):
        assert timeout is not None, "a wait without a limit"
        raise subprocess.TimeoutExpired("the starter", timeout)

    folder.mkdir()
    made = ranks.Ranks({"folder": str(folder), "cwd": "/", "words": [sys.executable, "-c", SLEEPS],
                          "environment": {}, "key": ["key", "secret"]}, bool, True)  # fmt: skip
    monkeypatch.setattr(made._starter, "wait", stays)
    made.end()
    assert not folder.exists()
    monkeypatch.undo()
    assert made._starter.wait(60) == -signal.SIGKILL


@pytest.fixture
def in_exec(monkeypatch):
    """in_exec(module, process, times): its variables cannot be read so many times. Returns how often they were."""

    def begin(module, process, times):
        reads = []

        def opened(path, *mode):
            if path == f"/proc/{process}/environ":
                reads.append(path)
                if len(reads) <= times:
                    return io.BytesIO()
            return open(path, *mode)

        monkeypatch.setattr(module, "open", opened, raising=False)
        return reads

    return begin


FINDERS = {
    ranks.ELSEWHERE: lambda mark: found.with_variable(f"{ranks.ELSEWHERE}={mark}"),
    FAILURE_DIR: found.of_job,
}


@pytest.mark.parametrize("variable", FINDERS, ids=["plain processes", "an mpiexec"])
def test_a_process_in_the_midst_of_exec_is_found(variable, in_exec, monkeypatch):
    find = FINDERS[variable]
    monkeypatch.setattr(found, "_EXEC_S", 0.001)
    with subprocess.Popen(["sleep", "60"], env={variable: "of this job"}) as child:
        try:
            reads = in_exec(found, child.pid, 3)
            assert find("of this job") == {child.pid} and len(reads) == 4
            reads = in_exec(found, child.pid, 1000)  # it has no variables
            assert find("of this job") == set() and 1 < len(reads) < 20
            child.kill()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            reads = in_exec(found, child.pid, 1000)  # a zombie
            assert find("of this job") == set() and len(reads) == 1
        finally:
            child.kill()

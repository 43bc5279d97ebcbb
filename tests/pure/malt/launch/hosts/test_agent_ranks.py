"""The agent of a host, with a job of plain processes. It runs here: what it starts stands for the ranks."""

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
from malt.launch.hosts.agent import processes as found
from malt.launch.hosts.agent import ranks, watch
from malt.launch.hosts.connection import program as agent

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
        line = {"folder": str(folder), "cwd": "/", "words": words or [sys.executable, "-uc", program],
                "ranks": [0], "size": 1, "environment": {}, "key": "secret", **wanted}  # fmt: skip
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
    """A folder of a job in a TMPDIR as a part of an array job of PBS has it."""
    (tmp_path / "pbs.17[3].server").mkdir()
    return tmp_path / "pbs.17[3].server" / "malt-x"


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
    made.end()
    assert folder.exists()


def test_a_folder_is_made_for_its_user_alone_and_one_that_the_launcher_has_made_here_stays(folder):
    kept = Kept(folder)
    kept.heard("done")
    assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "key").stat().st_mode & 0o777 == 0o600
    assert (folder / "key").read_text() == "secret"
    assert kept.ended("end") == 0 and not folder.exists()
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


@pytest.mark.parametrize(("words", "cwd", "why"), [
    (["/no/python"], "/", "No such file or directory: /no/python: see whether"),
    ([sys.executable, "-c", ""], "/no/folder", "No such file or directory: /no/folder: see"),
    ([sys.executable, "-c", ""], "/", "File exists: "),
], ids=["no Python", "no folder", "a rank"])  # fmt: skip
def test_a_host_on_which_no_rank_can_start_says_so_in_a_line(words, cwd, why, folder):
    other = folder.parent / "other"
    other.write_text("mine")
    if is_shared := why.startswith("File"):
        folder.mkdir(mode=0o700)
        (folder / "key").write_text("secret")
        (folder / "printed-0-1").symlink_to(other)
    kept = Kept(folder, words=words, cwd=cwd)
    line = kept.heard("failed")
    assert line.startswith(why) and "\n" not in line
    assert kept.ended() == 0 and folder.exists() == is_shared
    with pytest.raises(FileExistsError):
        ranks._created(str(other))
    assert other.read_text() == "mine"


def test_what_may_be_wrong_is_named():
    assert ranks._why("Resource temporarily unavailable: None").endswith("(ulimit -u), or run fewer ranks")
    assert ranks._why("No space left on device: /tmp/x").endswith(": free space there")


def test_ranks_that_fail_have_started(folder):
    kept = Kept(folder, "import sys; sys.exit('fails')", ranks=[0, 1], size=2)
    assert kept.heard("started") == kept.process.pid
    lines = [json.loads(line) for line in iter(kept.process.stdout.readline, b'["done", null]\n')]
    assert sorted(line for line in lines if line[0] == "exited") == [["exited", [0, 0, 1]], ["exited", [1, 0, 1]]]
    printed = {0: "", 1: ""}
    for rank, number, text in (value for command, value in lines if command == "printed"):
        assert number == 2
        printed[rank] += text  # a line may come in two pieces, as Python writes it
    assert printed == {0: "fails\n", 1: "fails\n"}
    assert kept.ended("end") == 0 and not folder.exists()


LIVES = "import os; print('life', os.environ.get('MALT_INCARNATION')); os.kill(os.getpid(), 9)"


@pytest.fixture
def ours(folder):
    """ours(*programs): the ranks of an agent that is this process, by rank, and what it sends. Ended at the end."""
    folder.mkdir()
    made = []

    def start(*programs):
        sent, program = [], f"import os; exec({list(programs)!r}[int(os.environ['MALT_RANK'])])"
        wanted = {"folder": str(folder), "cwd": "/", "words": [sys.executable, "-uc", program], "key": "secret",
                  "ranks": list(range(len(programs))), "size": 3, "environment": {"MALT_REJOIN": "1"}}  # fmt: skip
        made.append(ranks.Ranks(wanted, sent.append, True))
        return made[0], sent

    yield start
    for one in made:
        one.end()


def await_ends(started):
    wait_for(lambda: all(one.poll() is not None for one in started._processes.values()))


def test_a_rank_that_is_started_again_prints_into_the_same_file(ours, folder, monkeypatch):
    monkeypatch.setattr(ranks.time, "monotonic", lambda: now)
    now = time.perf_counter()
    started, sent = ours(LIVES)
    for _ in range(2):
        await_ends(started)
        now += 6
        started.tend(True)
    await_ends(started)
    started.tend(True)
    assert (folder / "printed-0-1").read_text() == "life None\nlife 1\nlife 2\n"
    assert [value for what, value in sent if what == "exited"] == [[0, 0, 137], [0, 1, 137], [0, 2, 137]]
    assert ["said", "malt: rank 0 failed (killed by SIGKILL), started again (2nd time)"] in sent
    assert "".join(value[2] for what, value in sent if what == "printed") == (folder / "printed-0-1").read_text()


@pytest.mark.parametrize(("told", "other", "goes_on"), [
    ("", "os._exit(3)", True), ("adrift", SLEEPS, True), ("adrift", "os._exit(3)", False), ("ending", SLEEPS, False),
])  # fmt: skip
def test_when_no_rank_is_started_again(told, other, goes_on, ours, monkeypatch):
    started, _ = ours("os._exit(3)", other)
    wait_for(lambda: started._processes[0].poll() is not None)
    if other != SLEEPS:
        await_ends(started)
    started.is_over_without(told == "adrift")
    if told == "ending":
        started.tell("ending", None)
    started.look_after(time.monotonic() + 6)
    assert started._restarts[0].incarnation == goes_on


@pytest.mark.parametrize(("number", "sign"), [(signal.SIGHUP, -1), (signal.SIGTERM, 1)])
def test_ranks_end_by_a_signal_to_their_group_or_agent(number, sign, folder):
    """As the launcher says, where it has lost them; or as the host is taken away. They are not started again."""
    kept = Kept(folder, SLEEPS, environment={"MALT_REJOIN": "1"})
    os.kill(sign * kept.heard("started"), number)
    assert kept.heard("done") is None
    assert kept.ended("end") == 0 and not folder.exists()


def test_what_an_agent_that_was_killed_has_left_is_ended_by_another(folder):
    memory = Path(f"/dev/shm/{folder.name}-{os.getpid()}")
    memory.touch()
    killed = Kept(folder, f"""import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEPS!r}], start_new_session=True)
print(os.getpid(), child.pid)
time.sleep(60)""")  # fmt: skip
    started, processes = killed.heard("started"), list(map(int, killed.heard("printed")[2].split()))
    for is_ours in (True, False):
        ranks.sweep(str(folder), started, is_ours)
    assert all(map(is_alive, processes)) and folder.exists(), "it runs"
    killed.process.kill()
    killed.process.wait()
    ranks.sweep(str(folder), started, False)
    assert not any(map(is_alive, processes)) and folder.exists() and not memory.exists()
    other = subprocess.Popen([sys.executable, "-I", "-c", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    lines = other.communicate(json.dumps(["sweep", [str(folder), started, True]]).encode() + b"\n", 60)[0].splitlines()
    assert json.loads(lines[-1]) == ["done", None] and not folder.exists()
    killed.process.communicate()


def test_an_agent_that_was_not_spoken_to_goes_on(folder):
    kept = Kept(folder, "import time\ntime.sleep(2)\nprint('said')\ntime.sleep(60)", replaced=QUICK)
    assert kept.heard("printed") == [0, 1, "said\n"]
    assert kept.ended("end") == 0 and not folder.exists()


def test_once_the_ranks_have_ended_it_waits_for_a_launcher_that_is_stopped_alone(folder):
    paused, silent = Kept(folder, replaced=QUICK), Kept(folder.parent / "malt-y", replaced=QUICK)
    paused.say("pause")
    assert silent.process.wait(60) == 0
    time.sleep(1.0)
    assert paused.process.poll() is None and sorted(os.listdir(folder.parent / "malt-y")) == [
        "printed-0-1", "printed-0-2"
    ]  # fmt: skip
    assert paused.ended("alive", "end") == 0 and not folder.exists()
    silent.ended()


def test_what_runs_here_is_stopped_with_the_launcher(folder):
    program = f"""import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEPS!r}])
print(os.getpid(), child.pid)
time.sleep(60)"""
    kept = Kept(folder, program)
    numbers = list(map(int, kept.heard("printed")[2].split()))
    all_of_it = [process(number, int(stat_fields(number)[19])) for number in numbers]
    for line, is_so in (("pause", True), ("alive", False), ("pause", True)):
        kept.say(line)
        wait_for(lambda is_so=is_so: {is_stopped(one) for one in all_of_it} == {is_so})
    kept.process.stdin.close()  # the launcher was killed
    wait_for(lambda: not any(map(is_stopped, all_of_it)))
    for number in numbers:
        os.kill(number, signal.SIGKILL)
    kept.process.wait(60)


def test_no_rank_is_started_again_while_the_launcher_is_stopped(folder):
    program = "import os, sys\nprint(os.environ.get('MALT_INCARNATION', '0'))\nsys.exit(1)"
    kept = Kept(folder, program, replaced=("AGAIN_S = 5.0", "AGAIN_S = 1.0"), environment={"MALT_REJOIN": "1"})
    assert kept.heard("printed")[2] == "0\n"
    kept.say("pause")
    time.sleep(2.0)
    assert (folder / "printed-0-1").read_text() == "0\n"
    kept.say("alive")
    assert kept.heard("printed")[2] == "1\n"
    assert kept.ended("end") == 0


def test_children_in_sessions_of_their_own_end(folder):
    program = f"""import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEPS!r}], start_new_session=True)
print(child.pid)
time.sleep(60)"""
    kept = Kept(folder, program)
    child = int(kept.heard("printed")[2])
    assert is_alive(child)
    assert kept.ended("end") == 0 and not is_alive(child) and not folder.exists()


def test_it_is_ended_while_ranks_print_and_the_launcher_takes_nothing(folder):
    kept = Kept(folder, "for i in range(10**6):\n    print('x' * 1000)")
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
    """But not the memory that they have shared. Another agent leaves it, too, as this one has ended in order."""
    memory = Path(f"/dev/shm/{folder.name}-{os.getpid()}")
    memory.touch()
    kept = Kept(folder, "print('said')")
    started = kept.heard("started")
    assert kept.heard("printed") == [0, 1, "said\n"] and kept.heard("done") is None and kept.ended() == 0
    ranks.sweep(str(folder), started, True)
    assert (folder / "printed-0-1").read_text() == "said\n" and not (folder / "key").exists()
    assert not memory.exists()
    kept = Kept(folder.parent / "malt-y", f"import os\nos.kill(os.getpid(), {int(signal.SIGTERM)})")
    kept.heard("done")
    assert kept.ended() == 0 and not (folder.parent / "malt-y").exists()


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
    found.WITHIN: found.of_job,
}


def test_what_a_user_runs_in_the_folder_of_a_job_is_none_of_it():
    """Such as tail, of what ranks have printed: a shell tells it where it is."""
    with subprocess.Popen(["sleep", "60"], env={"PWD": "/of/this job", "OLDPWD": "/of"}) as child:
        try:
            assert found.of_job("/of/this job") == set()
        finally:
            child.kill()


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

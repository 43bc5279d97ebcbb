"""Real jobs, by mpiexec or by a script in its place: how they end, and that nothing of them remains."""

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

import pytest
from processes import is_alive, wait_for
from programs import ROOT
from reported import made

from dstorm.membership.processes import stat_fields
from malt.launch import job
from malt.launch.command import Job, Line
from malt.launch.hosts.agent import processes
from malt.launch.hosts.agent.processes import WITHIN
from malt.launch.job import _of_the_rank, _settled, first_failure
from malt.launch.machine.mpi_library import LaunchError
from malt.launch.processes import supervisor
from malt.launch.processes.departure import Departure
from malt.launch.processes.signals import Signals
from malt.launch.processes.supervisor import Supervised
from malt.launch.streams.output import Output
from malt.runner.events import History, Stream

pytestmark = pytest.mark.serial
COMMAND = [sys.executable, "-m", "malt", "run", "-n", "2"]


@pytest.fixture
def malt_environment(job_environment):
    """An environment in which Python finds the package under test."""
    return job_environment | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def run(malt_run):
    """`malt_run`, whose complaints are without one of Open MPI's own end, which it makes now and then."""
    pytest.importorskip("mpi4py.MPI")

    def run(*words, **options):
        done = malt_run(*words, **options)
        done.stderr = re.sub(r"prterun: pthread_mutex_lock.c:.*\n", "", done.stderr)
        return done

    return run


RANK = "import os, sys, time\nrank = int(os.environ.get('PMIX_RANK') or os.environ['PMI_RANK'])\n"
WAITING = "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\ntime.sleep(250)\n"
MPI = RANK + "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"


def test_a_job_that_ends_well(run):
    words = ["-n", "a b", "", ":", "-n", "3", "+", "--personality", "x", "--prtemca", "y"]  # none is for mpiexec
    done = run(MPI + "sys.stdout.write(f'{rank} of {MPI.COMM_WORLD.size}: {sys.argv[1:]}\\n')", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"{rank} of 2: {words}" for rank in (0, 1)]


def test_lines_have_the_label_of_their_rank(run, tmp_path):
    program = "print('a\\nb'); print('e', file=sys.stderr); os.system('echo c'); sys.stdout.write('end')\n"
    done = run(RANK + program, options=["--label"])
    assert (done.returncode, done.stderr) in [(0, f"[{one}] e\n[{1 - one}] e\n") for one in (0, 1)]
    for rank in "01":
        reports = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert reports == [f"[{rank}] {word}" for word in ("a", "b", "c", "end")]


def test_a_text_is_run_with_what_is_open(tmp_path, malt_environment):
    """`malt run -c CODE` runs it, also with closed standard streams."""
    pytest.importorskip("mpi4py.MPI")
    text = RANK + "print('x')\nopen(f'{sys.argv[1]}/{rank}', 'w').write(' '.join(sys.argv))\n# $HOME \"'\\\n"
    words = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *COMMAND, "-c", text, tmp_path, "", "a b"]
    assert subprocess.run(words, env=malt_environment, timeout=200).returncode == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys("01", f"-c {tmp_path}  a b")


@pytest.mark.thorough(but="after it")
@pytest.mark.parametrize("begin", [RANK, MPI], ids=["before MPI_Init", "after it"])
def test_a_rank_raises(run, begin):
    start = time.monotonic()
    done = run(begin + "if rank == 1: raise ValueError('of rank 1')\n" + WAITING)
    assert done.returncode == 1 and time.monotonic() - start < 60
    before, _, again = done.stderr.partition("malt run: rank 1 failed:\n")
    assert before.count("ValueError: of rank 1") == 1
    assert again.startswith("Traceback (most recent call last):\n") and again.endswith("\nValueError: of rank 1\n")
    assert before == f"{again}\n"  # and nothing of MPI's


@pytest.mark.thorough(but="after it")
@pytest.mark.parametrize("begin", [RANK, MPI], ids=["before MPI_Init", "after it"])
def test_a_rank_exits(run, begin):
    start = time.monotonic()
    done = run(begin + "if rank == 1: raise SystemExit(3)\n" + WAITING)
    assert done.returncode == 3 and time.monotonic() - start < 60
    assert done.stderr in ["malt run: rank 1 exited with status 3\n", *[""] * (begin == RANK)]


def test_a_rank_that_never_calls_malt(run):
    """MPI does not say for whom a call waits."""
    start = time.monotonic()
    done = run(MPI + "if rank == 1: time.sleep(250)\nimport malt\nmalt.init(deadline_s=2.5)\n")
    assert done.returncode == 1 and time.monotonic() - start < 60
    assert "malt: rank 0: malt.init has not returned for 2.5 s, the deadline: ending the job\n" in done.stderr


FREES = """
import malt
malt.init(deadline_s=2.5)
malt.vector(3).close()
if rank == 1:
    from dstorm.transports.mpi import MpiWindow
    MpiWindow.free = lambda window: time.sleep(250)
malt.vector(3)
"""


def test_a_rank_that_never_frees_a_window(run):
    start = time.monotonic()
    done = run(MPI + FREES)
    assert done.returncode == 1 and time.monotonic() - start < 60
    assert "malt: rank 0: MPI_Win_free has not returned for 2.5 s, the deadline: ending the job\n" in done.stderr


@pytest.mark.thorough(but="SIGINT")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_signal_ends_all(tmp_path, malt_environment, number):
    """It also ends ranks that handle no signal, as inside MPI: they are killed after the grace time."""
    pytest.importorskip("mpi4py.MPI")
    program = tmp_path / "program.py"
    program.write_text(
        "import os, pathlib, signal, sys, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "pathlib.Path(sys.argv[1], f'{os.getpid()}.pid').touch()\ntime.sleep(250)\n"
    )
    folder = tmp_path / "tmp"
    folder.mkdir()
    launcher = subprocess.Popen(
        [*COMMAND, "--grace", "0.3", program, tmp_path],
        env={**malt_environment, "TMPDIR": str(folder)}, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    launcher.send_signal(number)
    assert launcher.wait(100) == (-number if number == signal.SIGKILL else 128 + number)
    ranks = [int(file.stem) for file in tmp_path.glob("*.pid")]
    wait_for(lambda: not any(map(is_alive, ranks)) and not any(folder.iterdir()))


STUBBORN = (
    "trap '' TERM INT\necho $$ > {0}/1.pid\n(trap '' TERM; echo $BASHPID > {0}/2.pid; sleep 250) &\nsleep 250\nwait"
)
KILLED = "sleep 250 & echo $! > {0}/1.pid\nkill -9 $$"


def supervise(folder, environ, script, first="import sys"):
    """Start a launcher whose mpiexec is that script."""
    (folder / "mpiexec").write_text(f"#!/bin/bash\n{script.format(folder)}\n")
    (folder / "mpiexec").chmod(0o755)
    code = f"""if True:
        {first}
        from malt.launch import job
        from malt.launch.processes import supervisor
        from malt.launch.command import Job, Line
        supervisor.END_S = supervisor.FAILED_S = 0.3
        line = Line({{"NAME": "value"}}, ["{folder}/mpiexec"], Job(1, ()))
        sys.exit(job.run(line, {{"PATH": "/usr/bin:/bin"}}).status)"""
    return subprocess.Popen(
        [sys.executable, "-c", code, folder / "other"],
        env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("script", [STUBBORN, KILLED], ids=["ignores SIGTERM", "is killed"])
def test_an_mpiexec_that_does_not_end_its_ranks(tmp_path, malt_environment, script):
    launcher = supervise(tmp_path, malt_environment, script)
    files = [tmp_path / "1.pid", tmp_path / "2.pid"] if script == STUBBORN else [tmp_path / "1.pid"]
    if script == STUBBORN:
        wait_for(lambda: all(file.exists() and file.read_text() for file in files))
        launcher.terminate()
    launcher.communicate(timeout=200)
    assert launcher.returncode == (143 if script == STUBBORN else 137)
    assert not any(is_alive(int(file.read_text())) for file in files)


def test_status_and_environment_of_mpiexec(tmp_path, malt_environment):
    script = """echo $NAME; echo '[1, "traceback", 0, "first"]' > $MALT_FAILURE_DIR/events-0; exit 5"""
    launcher = supervise(tmp_path, malt_environment, script)
    out, err = launcher.communicate(timeout=200)
    assert (launcher.returncode, out, err) == (5, "value\n", "\nmalt run: rank 0 failed:\nfirst\n")


def test_the_files_of_mpiexec_go_with_the_job(tmp_path, malt_environment):
    """Open MPI's mpiexec would fail if a killed job of the same process number had left some behind."""
    script = "echo $PRTE_MCA_prte_local_tmpdir_base; touch $PRTE_MCA_prte_local_tmpdir_base/left; kill -9 $$"
    out, _ = supervise(tmp_path, malt_environment, script).communicate(timeout=200)
    assert "malt-" in out and not os.path.exists(out.strip())


FAILED = """echo '[1, "status", 0, "7"]' > $MALT_FAILURE_DIR/events-0; """


@pytest.mark.parametrize(
    "then", ["exit 0", "exit 139", "kill -9 $$", "sleep 250", "trap '' TERM; sleep 250 & sleep 250; wait"]
)
def test_the_status_of_a_rank_that_failed(tmp_path, malt_environment, then):
    """It is the status of the job, whatever mpiexec returns, and soon, also if mpiexec goes on."""
    launcher = supervise(tmp_path, malt_environment, FAILED + then)
    launcher.communicate(timeout=200)
    assert launcher.returncode == 7


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    """On a full disk nothing is started: no rank could report anything."""
    full = OSError(errno.ENOSPC, "No space left on device")
    why = f"^nothing can be written to {tmp_path}: No space left on device: free space there, or set TMPDIR"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with mock.patch.object(job.jobs, "publish", side_effect=full), pytest.raises(LaunchError, match=why):
        job.run(Line({}, ["no-such-mpiexec"], Job(1, ())), {})
    assert not list(tmp_path.iterdir())


def test_an_mpiexec_that_cannot_be_started(tmp_path, malt_environment):
    launcher = supervise(tmp_path, malt_environment, "")
    (tmp_path / "mpiexec").chmod(0o644)
    assert "LaunchError: cannot start" in launcher.communicate(timeout=200)[1]


REPORTED = """trap '' TERM INT; began=$(cut -d' ' -f22 /proc/$$/stat)
echo "[1, \\"started\\", 0, \\"$$ $began\\"]" > $MALT_FAILURE_DIR/events-0
echo $$ > {0}/1.pid; sleep 250& sleep 250;wait"""


def test_after_a_second_signal_the_launcher_does_not_wait(tmp_path, malt_environment):
    """The same signal at once again counts once: timeout(1) sends it to the launcher, then to its group."""
    launcher = supervise(tmp_path, malt_environment, REPORTED)
    wait_for(lambda: (tmp_path / "1.pid").exists() and (tmp_path / "1.pid").read_text())
    for _ in range(2):
        launcher.terminate()
        time.sleep(0.1)
    time.sleep(0.5)
    assert launcher.poll() is None
    launcher.terminate()
    out, err = launcher.communicate(timeout=8)
    assert (launcher.returncode, out, err) == (143, "", "malt run: ended by SIGTERM\n")
    assert not is_alive(int((tmp_path / "1.pid").read_text()))


def test_a_second_signal_during_the_clean_up_leaves_nothing(tmp_path, malt_environment):
    script = "echo $MALT_FAILURE_DIR; sleep 250"
    hook = """import os, signal, shutil, tempfile, time
        remove, more = shutil.rmtree, [signal.SIGINT, signal.SIGTERM]
        def slowly(*words, **names):
            if more: os.kill(os.getpid(), more.pop(0))
            time.sleep(0.1)
            remove(*words, **names)
        tempfile._shutil.rmtree = slowly
        import sys"""
    launcher = supervise(tmp_path, malt_environment, script, hook)
    folder = launcher.stdout.readline().strip()
    assert os.path.isdir(folder)
    launcher.terminate()
    launcher.communicate(timeout=200)
    assert launcher.returncode == 143 and not os.path.exists(folder)


def test_the_status_is_known_where_sigchld_is_ignored(tmp_path, malt_environment):
    hook = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); import sys"
    launcher = supervise(tmp_path, malt_environment, "exit 5", hook)
    launcher.communicate(timeout=200)
    assert launcher.returncode == 5


def test_only_processes_of_the_job_are_killed(tmp_path, malt_environment):
    """Children that a shell has left to its successor by exec are not killed, nor their children."""
    hook = """import subprocess, sys
        other = subprocess.Popen(["sh", "-c", "sleep 0.3; setsid sleep 250 >&- 2>&- & echo $! > " + sys.argv[1]])
        from malt.launch import job"""
    launcher = supervise(tmp_path, malt_environment, "until [ -s {0}/other ]; do sleep 0.1; done; " + KILLED, hook)
    said = launcher.communicate(timeout=200)[1]
    assert launcher.returncode == 137
    assert said == "malt run: the process that had started the ranks was killed, by signal 9\n"
    spared = int((tmp_path / "other").read_text())
    assert not is_alive(int((tmp_path / "1.pid").read_text())) and is_alive(spared)
    os.kill(spared, signal.SIGKILL)


def test_the_status_is_that_of_a_rank_whose_end_makes_daemons_of_mpich_fail():
    banner = b"\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 334 RUNNING AT b\n=   EXIT CODE: 9\n"
    line = Line({}, [], Job(2, ()), forwards_signals=True, is_spread=True)
    for status, said, expected in ((255, banner, 137), (255, b"", 255), (3, banner, 3)):
        assert _settled(_of_the_rank(status, said), line, History(), None, Signals())[0] == expected
    history = History()
    history.take([made("status-1", "9", 1)])  # it has not been killed, but ended so
    assert _settled(_of_the_rank(255, banner), line, history, None, Signals())[0] == 9


def test_what_a_rank_has_started_ends_with_a_launcher_that_is_killed(tmp_path, malt_environment):
    """It is of no mpiexec any more, and a rank removes the variable by which its reports find the launcher."""
    script = "env -u MALT_FAILURE_DIR -u PRTE_MCA_prte_local_tmpdir_base setsid sleep 250 & echo $! > {0}/1.pid; wait"
    launcher = supervise(tmp_path, malt_environment, script)
    wait_for(lambda: (tmp_path / "1.pid").exists() and (tmp_path / "1.pid").read_text())
    launcher.kill()
    wait_for(lambda: not is_alive(int((tmp_path / "1.pid").read_text())), 10.0)
    launcher.communicate(timeout=200)


def test_mpiexec_ends_with_a_launcher_that_is_killed_along_with_its_agent(tmp_path, malt_environment):
    """The system ends it."""
    launcher = supervise(tmp_path, malt_environment, "echo $$ > {0}/1.pid; exec sleep 250")
    wait_for(lambda: (tmp_path / "1.pid").exists() and (tmp_path / "1.pid").read_text())
    mpiexec = int((tmp_path / "1.pid").read_text())
    try:
        subprocess.run(["pkill", "-KILL", "-P", str(launcher.pid), "-f", "[ ]-I -S "], check=True)
        launcher.kill()
        wait_for(lambda: not is_alive(mpiexec), 10.0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(mpiexec, signal.SIGKILL)
        launcher.communicate(timeout=200)


def test_a_process_that_does_not_end_is_named(tmp_path, monkeypatch, capsys):
    """It stands for one that waits for a file server; here it is not killed."""
    folder = tmp_path / "malt-job"
    folder.mkdir()
    child = subprocess.Popen(["sleep", "50"], env={"PATH": os.environ["PATH"], WITHIN: str(folder)})
    try:
        with monkeypatch.context() as patched:
            patched.setattr(processes, "_KILLED_S", 0.1)
            patched.setattr(processes.os, "kill", lambda process, number: None)
            job._end_what_is_left(str(folder))
        assert capsys.readouterr().err == f"malt run: killed, but not ended yet: process {child.pid}\n"
        assert not folder.exists()
        job._end_what_is_left(str(folder))
        assert capsys.readouterr().err == "" and child.wait(10) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_the_first_failure_is_printed_at_the_end():
    history = History()
    assert first_failure(history) == ""
    history.take(made(f"traceback-{rank}", f"Traceback\nof {rank}\n", at) for at, rank in ((9, 12), (7, 3), (8, 0)))
    assert first_failure(history) == "\nmalt run: rank 3, the first of 3 ranks, failed:\nTraceback\nof 3\n"
    history.take([made("traceback-2", "Traceback\nof 3\n")])
    assert first_failure(history) == "\nmalt run: ranks 2, 3, the first of 4 ranks, failed:\nTraceback\nof 3\n"
    history.take(made(f"again-{rank}", "1") for rank in (0, 12))
    assert first_failure(history) == "\nmalt run: ranks 2, 3 failed:\nTraceback\nof 3\n"


@pytest.mark.parametrize("full", [False, True])
def test_output_that_nobody_reads_is_waited_for(full, tmp_path):
    """The pipe is full: mpiexec may hold more output of the ranks, and must not be ended before it has written it."""
    program = f"""
import os
from malt.launch.processes import supervisor
os.set_blocking(1, False)
try:
    while {full}:
        os.write(1, b"x" * 4096)
except BlockingIOError:
    pass
print(supervisor._is_read(), file=open({str(tmp_path / "reports")!r}, "w"))
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.wait(30) == 0, child.communicate()[1]
    child.communicate()
    assert (tmp_path / "reports").read_text() == f"{not full}\n"


@pytest.mark.parametrize("read", [False, True])
def test_mpiexec_is_not_ended_while_it_has_something_to_print(read, monkeypatch, tmp_path):
    """All ranks have reported a good end. mpiexec is ended if it stays although the pipe can be written to."""
    monkeypatch.setattr(supervisor, "_is_read", lambda: read)
    monkeypatch.setattr(supervisor, "FAILED_S", 0.1)
    ended = tmp_path / "ended"
    command = ["sh", "-c", f"sleep {100 if read else 1}; touch {ended}"]
    output = Output(tmp_path, 0)
    line = Line({}, command, Job(0, ()))
    job = Supervised(line, os.environ, Signals(), Departure(Stream(tmp_path), 0), 10, output)
    output.start()
    assert job.wait(lambda: 0) == 0
    output.close()
    assert ended.exists() != read


def test_all_that_runs_of_a_suspended_job_is_stopped(tmp_path):
    """Also a rank that has not reported its start: it would take those that have for stopped, and end them."""
    line, signals = Line({}, ["sh", "-c", "sleep 100 & wait"], Job(0, ())), Signals()
    environ, output = {**os.environ, WITHIN: str(tmp_path)}, Output(tmp_path, 0)
    job = Supervised(line, environ, signals, Departure(Stream(tmp_path), 0), 10, output)
    output.start()
    try:
        wait_for(lambda: len(processes.of_job(str(tmp_path))) == 2)
        running = processes.of_job(str(tmp_path))
        for number, states in ((signal.SIGSTOP, [b"T"]), (signal.SIGCONT, [b"S", b"R"])):
            signals.suspends[0](number)
            wait_for(lambda states=states: all(stat_fields(one)[0] in states for one in running), 20)
    finally:
        processes.kill(lambda: processes.of_job(str(tmp_path)))
        job.wait(lambda: 0)
        output.close()

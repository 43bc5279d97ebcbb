"""Jobs that a signal ends: each rank leaves by itself, once, and no other waits for it. And the input of jobs."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from programs import ROOT
from reported import add

from dstorm.membership.processes import this_process
from malt.launch.hosts.agent.closing import LOCK
from malt.launch.processes.departure import Departure
from malt.runner.events import Stream

pytestmark = pytest.mark.serial

LEAVING = """
import atexit, os, signal, sys, time, malt
rank, how = malt.rank(), sys.argv[1]
kept = open(f"{sys.argv[2]}/{rank}", "w")
v = malt.vector(10)
atexit.register(lambda: kept.write("exit\\n"))
try:
    malt.barrier()
    print("ready", flush=True)
    while True:
        v.scatter()
        v.gather()
        if rank == 1:
            malt.barrier()
except BaseException as error:
    kept.write(f"{type(error).__name__}\\n")
    os.kill(os.getpid(), signal.SIGINT if how == "SIGINT" else signal.SIGTERM)  # again
    if rank == 2:
        malt.barrier()
    raise
finally:
    kept.write("finally\\n")
"""


@pytest.fixture
def start(job_environment, tmp_path):
    """start(source, *arguments, ranks, options): the `malt run` of a program, with stderr in its stdout."""
    pytest.importorskip("mpi4py.MPI")

    def job(source, *arguments, ranks=3, options=(), stdin=subprocess.PIPE):
        program = tmp_path / "program.py"
        program.write_text(source)
        command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), *options, program, *map(str, arguments)]
        environment = job_environment | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            command, env=environment, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    return job


@pytest.mark.thorough(but="SIGINT-options0")
@pytest.mark.parametrize(("how", "options"), [("SIGINT", []), ("SIGTERM", []), ("SIGINT", ["--survive"])])
def test_each_rank_leaves_as_plain_python_does(how, options, start, tmp_path):
    """So does a rank in a wait. A rank that needs one that has left gets an error, and is not waited for."""
    kept = tmp_path / "kept"
    kept.mkdir()
    job = start(LEAVING, how, kept, options=options)
    seen = [job.stdout.readline() for _ in range(3)]
    assert seen == ["ready\n"] * 3
    job.send_signal(getattr(signal, how))
    reports, _ = job.communicate(timeout=200)
    assert job.returncode == 128 + getattr(signal, how)
    error = "KeyboardInterrupt" if how == "SIGINT" else "SystemExit"
    assert [(kept / str(rank)).read_text() for rank in range(3)] == [f"{error}\nfinally\nexit\n"] * 3
    if options:
        assert (
            reports == f"malt run: ended by SIGINT; rank 0 was in {tmp_path}/program.py, line {reports.split()[-1]}\n"
        )
    else:
        assert reports.startswith("\nmalt run: rank 2 failed:\n") and reports.count("Traceback") == 2
        assert "PeerLost: rank " in reports


@pytest.mark.parametrize("options", [[], ["--survive=best-effort", "--rejoin"]], ids=["mpiexec", "starter"])
def test_a_signal_to_all_processes_of_a_job_is_as_one_to_the_launcher(options, start, tmp_path):
    """As systemd and Slurm end what they have started. Whether the launcher or a rank gets it first does not matter."""
    job = start(LEAVING, "SIGTERM", tmp_path, options=options)
    assert [job.stdout.readline() for _ in range(3)] == ["ready\n"] * 3
    found = [job.pid]
    for process in found:
        with contextlib.suppress(OSError):  # it has ended
            children = Path(f"/proc/{process}/task").glob("*/children")
            found += [int(child) for path in children for child in path.read_text().split()]
    for process in reversed(found):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    reports, _ = job.communicate(timeout=200)
    assert job.returncode == 143, reports
    assert [(tmp_path / str(rank)).read_text() for rank in range(3)] == ["SystemExit\nfinally\nexit\n"] * 3


WARNED = """
import signal, sys, time, malt
got = []
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), lambda number, frame: got.append(signal.Signals(number).name))
malt.barrier()
print("ready", flush=True)
for _ in sys.argv[1:]:
    end = time.monotonic() + 60
    while not got and time.monotonic() < end:
        time.sleep(0.01)
    print(got.pop(), flush=True)
malt.barrier()
"""


def test_a_signal_for_the_program_reaches_all_ranks_and_ends_nothing(start, job_environment):
    """As Slurm warns by SIGUSR1. The launcher leaves nothing."""
    names = ["SIGUSR1", "SIGUSR2", "SIGHUP", "SIGCONT"]
    job = start(WARNED, *names, ranks=2)
    assert [job.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    for name in names:
        job.send_signal(getattr(signal, name))
        assert [job.stdout.readline() for _ in range(2)] == [f"{name}\n"] * 2
    assert job.communicate(timeout=200) == ("", None) and job.returncode == 0
    assert not list(Path(job_environment["TMPDIR"]).glob("malt-*"))


READING = """
import os, malt
print(f"rank {malt.rank()}: {os.read(0, 2)}")
malt.barrier()
"""


def test_rank_0_alone_reads_what_the_launcher_is_given_and_no_more_than_it_asks_for(start):
    """So a job leaves a shell its script, or a loop its list. The other ranks read nothing."""
    given, into = os.pipe()
    os.write(into, b"a\nb\n")
    reports, _ = start(READING, stdin=given).communicate(timeout=200)
    assert sorted(reports.splitlines()) == ["rank 0: b'a\\n'", "rank 1: b''", "rank 2: b''"]
    os.close(into)
    assert os.read(given, 9) == b"b\n"
    os.close(given)


KILLED = """
import os, sys, malt
malt.barrier()
if malt.rank() == 1:
    exec(sys.argv[1])
malt.barrier()
"""


@pytest.mark.thorough(but="os._exit(9)-9")
@pytest.mark.parametrize(("how", "status"), [("os.kill(os.getpid(), 9)", 137), ("os._exit(9)", 9)])
def test_the_status_where_a_rank_is_killed(how, status, start):
    job = start(KILLED, how)
    reports, _ = job.communicate(timeout=200)
    assert job.returncode == status, reports


@pytest.fixture
def folder(tmp_path):
    """The folder of a job of two ranks, of which one has started: this process."""
    add(tmp_path, "started-0", f"{this_process().number} {this_process().started}")
    return tmp_path


def test_it_is_over_once_all_have_left(folder):
    assert Departure(Stream(folder / "none"), 2).is_over()  # no rank has started
    job = Departure(Stream(folder), 2)
    text = f"import fcntl\nfile = open({str(folder / LOCK.format(1))!r}, 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)"
    words = [sys.executable, "-c", f"{text}\nprint('locked', flush=True)\ninput()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as closing:
        closing.stdout.readline()
        for name in ("stopped-0", "stopped-1"):
            add(folder, name)
            assert not job.is_over()
        closing.communicate(b"\n")
    assert job.is_over()


def test_those_are_named_that_have_not_left(folder):
    """Also where they have reported nothing."""
    job = Departure(Stream(folder), 3)
    add(folder, "stopped-0")
    assert not job.is_over() and job.slow() == [1, 2]


def test_a_folder_that_a_cleaner_has_removed_is_made_anew(folder, monkeypatch):
    """The ranks look for what is in it, and are known from before."""
    sent = []
    monkeypatch.setattr(os, "kill", lambda *words: sent.append(words))
    reports = Stream(folder).read()
    job = Departure(reports, 1)
    shutil.rmtree(folder)
    job.notify(signal.SIGTERM)
    assert sent == [(os.getpid(), signal.SIGTERM)] and not job.is_over()
    assert (folder / "signal-15").exists() and (folder / "notified").exists() and folder.stat().st_mode & 0o777 == 0o700


def test_one_that_waits_in_mpi_finalize_has_left(folder, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("dstorm.waits.stopwatch.time", SimpleNamespace(monotonic=lambda: now[0]))
    job, tolerant = Departure(Stream(folder), 1), Departure(Stream(folder), 1, is_fault_tolerant=True)
    add(folder, "finished-0")
    for now[0] in (0.0, 0.9, 1.1):
        assert job.is_over() == (now[0] > 1) and not tolerant.is_over()  # its interpreter may still close files


def test_a_signal_is_passed_on_to_programs_that_run(folder, monkeypatch):
    """SIGHUP only where each of them has a handler: else it ends the job, as where a terminal is closed."""
    sent = []
    monkeypatch.setattr(os, "kill", lambda process, number: sent.append(number))
    job = Departure(Stream(folder), 1)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        assert job.pass_on(signal.SIGUSR1) and not job.pass_on(signal.SIGHUP) and sent == [signal.SIGUSR1]
        signal.signal(signal.SIGHUP, print)
        assert job.pass_on(signal.SIGHUP) and sent[1:] == [signal.SIGHUP]
        add(folder, "finished-0")
        assert job.pass_on(signal.SIGUSR1) and not job.pass_on(signal.SIGHUP) and len(sent) == 2
        assert not Departure(Stream(folder / "none"), 1).pass_on(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_each_rank_is_notified_once(folder, monkeypatch):
    sent = []
    monkeypatch.setattr(os, "kill", lambda *words: sent.append((*words, (folder / "notified").exists())))
    job = Departure(Stream(folder), 2)
    for _ in range(2):
        job.notify(signal.SIGINT)
    assert sent == [(os.getpid(), signal.SIGINT, False)]
    assert (folder / "signal-2").exists() and (folder / "notified").exists()
    assert job.slow() == [0, 1]
    add(folder, "stopped-0")  # it missed another that was notified: its files are being closed
    Departure(Stream(folder), 2).notify(signal.SIGINT)
    assert len(sent) == 1

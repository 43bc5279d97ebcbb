"""Signals to a rank: those of the launcher, those of others, and those that its program handles itself."""

import signal
import subprocess
import sys

import pytest
from processes import wait_for
from reported import reported

from malt.launch.command import RUNNER
from malt.launch.hosts.agent.closing import has_closed

pytestmark = pytest.mark.serial


@pytest.fixture
def run(tmp_path, job_environment):
    """run(text, *files): rank 0 of a job whose launcher has written `files`; its reports are in stdout."""

    def run(text, *files):
        program = tmp_path / "program.py"
        program.write_text("import os, signal, sys\n" + text)
        for file in files:
            (tmp_path / file).touch()
        environment = {**job_environment, "MALT_FAILURE_DIR": str(tmp_path), "PMI_RANK": "0"}
        ranks.append(
            subprocess.Popen(
                [sys.executable, RUNNER, program],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
        )  # fmt: skip
        return ranks[-1]

    ranks = []
    yield run
    for rank in ranks:
        rank.kill()
        rank.communicate()


TWICE = """
kept = open("{0}", "w")
for _ in range(2):
    try:
        os.kill(os.getpid(), signal.{1})
        kept.write("nothing ")
    except BaseException as error:
        kept.write(type(error).__name__ + " ")
print("done", flush=True)
"""


@pytest.mark.parametrize(("name", "error"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "SystemExit")])
def test_the_launchers_signal_comes_once_and_what_is_open_is_closed(name, error, run, tmp_path):
    """Then the process waits, as its exit would end the others."""
    rank = run(TWICE.format(tmp_path / "kept", name), f"signal-{int(getattr(signal, name))}", "notified")
    wait_for(lambda: "stopped-0" in reported(tmp_path) and has_closed(str(tmp_path), 0))
    assert (tmp_path / "kept").read_text() == f"{error} nothing " and rank.poll() is None
    assert reported(tmp_path)["was at-0"] == f"rank 0 was in {tmp_path / 'program.py'}, line 6"
    rank.terminate()
    rank.communicate(timeout=100)
    assert rank.returncode == -signal.SIGTERM


NOTIFIED = """
import threading, time
def notify():
    time.sleep(0.3)
    print("all are notified", flush=True)
    open("{0}", "w").close()
threading.Thread(target=notify).start()
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_no_rank_leaves_before_all_are_notified(run, tmp_path):
    """A rank that is notified after another has left would miss it before it is interrupted."""
    rank = run(NOTIFIED.format(tmp_path / "notified"), "signal-2")
    assert [rank.stdout.readline() for _ in range(2)] == ["all are notified\n", "interrupted\n"]


def test_a_signal_of_others_does_as_by_default(run, tmp_path):
    """That holds also if the launcher has sent another signal."""
    rank = run("try: os.kill(os.getpid(), 2)\nexcept KeyboardInterrupt: os.kill(os.getpid(), 15)", "signal-1")
    rank.communicate(timeout=100)
    assert rank.returncode == -signal.SIGTERM and "stopped-0" not in reported(tmp_path)


SIGNALLED_FIRST = """
import threading, time
from pathlib import Path
def launcher():
    while not sys.modules["malt.runner.departure"]._is_asking:
        time.sleep(0.001)
    os.kill(os.getpid(), 15)
    for name in ("signal-15", "notified"):
        Path("{0}", name).touch()
threading.Thread(target=launcher).start()
try:
    os.kill(os.getpid(), 15)
except SystemExit:
    print("leaves", flush=True)
"""


def test_a_signal_to_all_may_reach_a_rank_before_the_launcher(run, tmp_path):
    """As where systemd ends a service. It comes again where mpiexec passes it on."""
    assert run(SIGNALLED_FIRST.format(tmp_path)).stdout.readline() == "leaves\n"


def test_a_rank_that_misses_one_notified_before_it_leaves_too(run, tmp_path):
    kept = f"sys.kept = open({str(tmp_path / 'kept')!r}, 'w'); sys.kept.write('x')"  # sys is cleared last of all
    run(f"{kept}\nclass PeerLost(Exception): pass\nraise PeerLost", "signal-15", "notified")
    wait_for(lambda: "stopped-0" in reported(tmp_path) and has_closed(str(tmp_path), 0))
    assert (tmp_path / "kept").read_text() == "x" and "traceback-0" not in reported(tmp_path)


def test_handlers_of_the_program_win(run, tmp_path):
    rank = run("signal.signal(2, lambda *_: print('mine'))\nos.kill(os.getpid(), 2)", "signal-2")
    assert rank.communicate(timeout=100)[0] == "mine\n"
    assert rank.returncode == 0 and "finished-0" in reported(tmp_path)


def test_a_child_is_no_rank(run, tmp_path):
    text = "if os.fork() == 0: os.kill(os.getpid(), 15)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))"
    assert run(text, "signal-15").communicate(timeout=100)[0] == "-15\n"


INSIDE = """
from types import SimpleNamespace as Fake
probe = lambda: open("{0}", "w").close()
sys.modules["mpi4py.MPI"] = Fake(Is_initialized=lambda: True, Is_finalized=bool, COMM_WORLD=Fake(Iprobe=probe))
os.environ |= {{"MPI_LOCALNRANKS": "1", "PMI_SIZE": "2"}}
kept = open("{1}", "w")
kept.write("kept")
os.kill(os.getpid(), signal.SIGINT)
"""


def test_on_several_hosts_it_stays_inside_mpi(run, tmp_path):
    """Otherwise one-sided calls of the others to it would hang. Its files are flushed."""
    rank = run(INSIDE.format(tmp_path / "probed", tmp_path / "kept"), "signal-2", "notified")
    wait_for(lambda: "stopped-0" in reported(tmp_path) and has_closed(str(tmp_path), 0))
    assert (tmp_path / "kept").read_text() == "kept"
    wait_for((tmp_path / "probed").exists)
    rank.terminate()
    rank.communicate(timeout=100)
    assert rank.returncode == -signal.SIGTERM

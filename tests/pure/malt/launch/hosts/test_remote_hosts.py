"""Agents of other hosts, which run on this one: by a program in the place of ssh."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from processes import is_alive, wait_for
from reported import add, made

from dstorm.membership.processes import is_stopped, process, stat_fields, this_process
from malt.commands import command_line
from malt.commands import run as run_command
from malt.launch.command import Job
from malt.launch.environment import travelling
from malt.launch.hosts import examination, findings, remote
from malt.launch.hosts.agent import agent, checks
from malt.launch.hosts.agent.closing import LOCK, has_closed
from malt.launch.hosts.agent.watch import Watch
from malt.launch.hosts.allocation import Host
from malt.launch.hosts.connection import program
from malt.launch.hosts.ending import Ending
from malt.launch.hosts.findings import Need
from malt.launch.hosts.reachability import answers
from malt.launch.hosts.remote import RemoteHosts, Unreachable
from malt.launch.hosts.shell import remote_shell
from malt.launch.machine.mpi_library import LaunchError, Library
from malt.runner.events import Kind, Stream, append, event

ELSEWHERE = ["another boot", 1]
NEED = Need("/", (), sys.executable, "", "", "", Library("openmpi", (5, 0)))
NO_SSH = "import subprocess, sys\nsys.exit(subprocess.run(['sh', '-c', sys.argv[-1]]).returncode)"


@pytest.fixture
def hosts(tmp_path):
    """Two of them, whose agents run here."""
    shell = tmp_path / "shell"
    shell.write_text(f"#!{sys.executable}\n{NO_SSH}")
    shell.chmod(0o755)
    made = RemoteHosts(["b", "c"], {**os.environ, "PRTE_MCA_plm_ssh_agent": str(shell)})
    yield made
    made.close()


def processes(hosts):
    return [one._process.pid for one in hosts._connections]


@pytest.mark.parametrize("is_watched", [True, False], ids=["an mpiexec", "plain processes"])
def test_where_the_folder_of_a_job_is_made(is_watched, hosts, monkeypatch, tmp_path):
    """In a place that each host has for itself, and can fill."""
    here, everywhere = tmp_path / "here", tmp_path / "everywhere"
    here.mkdir()
    everywhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    monkeypatch.setattr(remote, "_FOLDERS", ())
    with hosts.folder(is_watched) as folder:
        assert folder.parent == here  # the agents are on the launcher's host
    ask, watch = hosts._ask, hosts._watch
    with monkeypatch.context() as patch:
        patch.setattr(remote, "identity", lambda: ELSEWHERE)
        with pytest.raises(LaunchError, match=f"host b: it shares {here} with other hosts: set TMPDIR to"):
            hosts.folder(is_watched).__enter__()
        assert not list(here.iterdir())
        patch.setattr(hosts, "_ask", lambda *words: [shutil.rmtree(here, ignore_errors=True), ask(*words)])
        line = rf"host b: nothing can be made in {here} \(No such file or directory\): set TMPDIR to a folder that all"
        with pytest.raises(LaunchError, match=line):
            hosts.folder(is_watched).__enter__()
    here.mkdir()
    monkeypatch.setattr(remote, "_FOLDERS", (str(everywhere),))
    monkeypatch.setattr(hosts, "_watch", lambda folder: "no" if folder.parent == here else watch(folder))
    with hosts.folder(is_watched) as folder:
        assert folder.parent == everywhere and not list(here.iterdir())


def test_an_agent_that_has_ended_is_started_anew_for_the_next_job(hosts, capsys):
    before = processes(hosts)
    with hosts.folder():
        os.killpg(before[0], signal.SIGKILL)
    assert "malt run: host b does not answer" in capsys.readouterr().err
    with hosts.folder() as folder:
        assert processes(hosts)[0] != before[0] and processes(hosts)[1] == before[1]
        assert hosts.cut_off() is None and folder.is_dir()
    assert capsys.readouterr().err == ""


def test_reports_that_a_full_disk_does_not_take_count(hosts):
    with hosts.folder() as folder:
        reports = Stream(folder)
        hosts.add = reports.add
        for rank in (0, 1):
            (folder / f"events-{rank}").mkdir()
            hosts._connections[rank].take("report", made(f"status-{rank}", "3").line().decode())
        hosts._connections[0].take("report", made("started-0", "1 1").line().decode())  # it is of no process here
        assert hosts.cut_off() is None and reports.read().texts(Kind.STATUS) == {0: "3", 1: "3"}
        assert not reports.ranks(Kind.STARTED)


def test_a_host_that_has_been_silent_for_long_is_not_waited_for_at_the_end(hosts, capsys, monkeypatch):
    with hosts.folder():
        os.killpg(processes(hosts)[0], signal.SIGSTOP)
        monkeypatch.setattr(hosts._connections[0].silence, "seconds", lambda: agent.SILENCE_S)
        began = time.monotonic()
    assert time.monotonic() - began < agent.SILENCE_S / 2
    os.killpg(processes(hosts)[0], signal.SIGKILL)
    assert capsys.readouterr().err.count("malt run: host b does not answer") == 1


def test_a_signal_is_passed_on_to_ranks_there(hosts, monkeypatch, tmp_path):
    asked, sent = [], []
    monkeypatch.setattr(hosts, "_ask", lambda *words: asked.append(words))
    assert hosts.send_signal(10)
    assert asked == [("signal", 10)]
    monkeypatch.undo()
    watch = Watch(str(tmp_path / "malt-x"), ELSEWHERE, print)
    own = this_process()
    for rank, began in enumerate([own.started, own.started + 1, own.started]):  # rank 1 has ended
        add(tmp_path / "malt-x", f"started-{rank}", f"{own.number} {began}")
    add(tmp_path / "malt-x", "finished-2")
    monkeypatch.setattr(os, "kill", lambda *words: sent.append(words))
    watch.send_ranks(10)
    assert sent == [(own.number, 10)]


def test_an_agent_needs_no_malt_on_its_host():
    words = [sys.executable, "-I", "-S", "-c", program()]  # -S: without site-packages
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert done.stdout.startswith(b'["hello", ') and done.stderr == b""


def test_an_agent_waits_while_the_launcher_is_stopped(monkeypatch):
    text = program().decode().replace("PULSE_S, SILENCE_S = 1.0, 30.0", "PULSE_S, SILENCE_S = 0.2, 0.5")
    words, lines = [sys.executable, "-c", text], (b'["pause", null]\n', b'["alive", null]\n')
    waits, ends = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in lines]
    for one, line in zip((waits, ends), lines, strict=True):
        one.stdin.write(line)
        one.stdin.flush()
    ends.wait(60)
    time.sleep(0.2)
    assert waits.poll() is None
    for one in (waits, ends):
        one.stdin.close()
        one.wait(60)


def test_ranks_are_stopped_with_the_launcher(monkeypatch, tmp_path):
    made, ranks = agent.Agent(), [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    monkeypatch.setattr(made, "send", bool)
    made._take(b'["watch", ["%s", ["", 0]]]\n' % os.fsencode(tmp_path / "malt-x"))
    started = [stat_fields(one.pid)[19].decode() for one in ranks]
    runs = [process(one.pid, int(since)) for one, since in zip(ranks, started, strict=True)]
    for rank, since in enumerate((started[0], "1")):  # the second number is another process's by now
        add(tmp_path / "malt-x", f"started-{rank}", f"{ranks[rank].pid} {since}")
    for command, is_so in (("pause", True), ("alive", False)):
        made._take(b'["%s", null]\n' % command.encode())
        wait_for(lambda is_so=is_so: is_stopped(runs[0]) == is_so)
        assert not is_stopped(runs[1])
    for one in ranks:
        one.kill()
        one.wait()


def test_ranks_that_still_close_files_have_not_ended(hosts, tmp_path):
    here = tmp_path / "job"
    here.mkdir()
    for name in ("started-0", "finished-0", "finished-1"):
        add(here, name)
    ending = Ending(Stream(here), 2, hosts)
    text = f"import fcntl, os\nfile = open({str(here / LOCK.format(0))!r}, 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)"
    rank = subprocess.Popen(
        [sys.executable, "-c", f"{text}\nprint('locked', flush=True)\ninput()"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    rank.stdout.readline()
    assert not ending._have_ended() and not has_closed(str(here), 0)
    rank.communicate(b"\n")
    assert not ending._have_ended() and has_closed(str(here), 0)
    add(here, "closed-1")
    assert ending._have_ended()


def test_a_report_of_another_host_may_come_after_mpiexec_has_ended(hosts, tmp_path):
    here = tmp_path / "job"
    here.mkdir()
    later = threading.Timer(0.3, append, [here, event(Kind.STATUS, 1, "3")])
    later.start()
    assert Ending(Stream(here), 2, hosts).settled(14) == 3
    later.join()
    (tmp_path / "none").mkdir()
    assert Ending(Stream(tmp_path / "none"), 2, hosts).settled(14) == 14


def test_once_hosts_have_tried_their_connections_nothing_listens(hosts, monkeypatch):
    found = {}

    def reached(endpoints):
        found.update({host: [["127.0.0.1"], port] for host, (_, port) in endpoints.items()})
        assert tries(found) == {"b": ["127.0.0.1"], "c": ["127.0.0.1"]}
        return tries(found)

    tries = checks.reached
    monkeypatch.setattr(checks, "reached", reached)
    for name in ("of_host", "of_network"):
        monkeypatch.setattr(findings, name, lambda *arguments: "")
    hosts.check(NEED, {})
    wait_for(lambda: tries(found) == {})
    asked = [one.probe for one in hosts._connections]  # they answer all the same
    assert all(answers(one._addresses, one._port, 5) and one._addresses == ("127.0.0.1",) for one in asked)


TRIES = {
    "an examination": "examine([Host('b'), Host('c')], Library('openmpi', (5, 0)), dict(os.environ))",
    "a copy": "copying.copy(['b', 'c'], [sys.argv[1]], Contents({}, {}), {'environment': '/no/e', 'program': '/no/p'})",
}
CALLS = """
import os, sys
from malt.commands.doctor.hosts import examine
from malt.launch.bootstrap import copying
from malt.launch.bootstrap.contents import Contents
from malt.launch.hosts.allocation import Host
from malt.launch.machine.mpi_library import Library
"""


@pytest.mark.parametrize("what", TRIES)
def test_ctrl_c_ends_what_runs_on_all_hosts(what, tmp_path):
    """Each of these ends with its connection."""
    shell, numbers = tmp_path / "shell", tmp_path / "numbers"
    shell.write_text(f"#!/bin/sh\necho $$ >> {numbers}\nexec cat > {os.devnull}\n")
    shell.chmod(0o755)
    environ = {**os.environ, "PRTE_MCA_plm_ssh_agent": str(shell)}

    def running():
        return [int(word) for word in numbers.read_text().split()] if numbers.exists() else []

    words = [sys.executable, "-c", CALLS + TRIES[what], str(shell)]
    with subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: len(running()) == 2)
        assert all(map(is_alive, running()))
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1].endswith("KeyboardInterrupt\n")
    wait_for(lambda: not any(map(is_alive, running())))


@pytest.mark.parametrize(("family", "environ", "words"), [
    ("openmpi", {}, "ssh -T"),
    ("openmpi", {"PRTE_MCA_plm_ssh_args": "-p 2222"}, "ssh -T -p 2222"),
    ("openmpi", {"OMPI_MCA_plm_rsh_args": "-p 2222", "OMPI_MCA_plm_rsh_agent": "none-such : ssh -4"}, "ssh -4 -p 2222"),
    ("openmpi", {"HYDRA_LAUNCHER_EXTRA_ARGS": "-p 9"}, "ssh -T"),
    ("mpich", {"HYDRA_LAUNCHER_EXTRA_ARGS": "-p 2222 -i 'x"}, "ssh -T -p 2222 -i 'x"),
    ("mpich", {"HYDRA_LAUNCHER_EXEC": "/opt/rsh", "PRTE_MCA_plm_ssh_agent": "x"}, "/opt/rsh"),
])  # fmt: skip
def test_agents_are_started_as_mpiexec_starts_its_daemons(family, environ, words):
    found = remote_shell({"PATH": os.environ["PATH"], **environ}, family)
    ours = found[found.index("-o") :] if "-o" in found else []
    assert found[: len(found) - len(ours)] == words.split() and bool(ours) == words.startswith("ssh")


def test_on_a_node_of_slurm_without_ssh_srun_starts_the_agents(tmp_path, monkeypatch):
    srun = tmp_path / "srun"
    srun.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "assert sys.argv[1:6] == ['--overlap', '--nodes=1', '--ntasks=1', '--nodelist', 'b']\n"
        "os.environ['PATH'] += ':/usr/bin:/bin'\nos.execvp(sys.argv[6], sys.argv[6:])"
    )
    srun.chmod(0o755)
    environ = {"PATH": str(tmp_path), "SLURM_JOB_ID": "17"}
    monkeypatch.setenv("PATH", str(tmp_path))
    hosts = RemoteHosts(["b"], environ, family=None)
    try:
        assert hosts._answers("hello", 10.0) == {"b": os.uname().nodename}
    finally:
        hosts.close()
    with pytest.raises(LaunchError, match="^cannot start ssh: No such file or directory: install an ssh client"):
        RemoteHosts(["b"], {"PATH": str(tmp_path)}, family=None)


@pytest.mark.parametrize("environ", [{}, {"PBS_JOBID": "17"}], ids=["other hosts", "a batch system"])
@pytest.mark.parametrize("survive", [None, "best-effort"])
def test_a_host_that_does_not_answer(environ, survive, monkeypatch, capsys):
    """A batch system may start daemons of mpiexec where there is no ssh."""

    def check(self, need, environ):
        raise Unreachable("host w: its name is not known here: x")

    closed = []
    monkeypatch.setattr(RemoteHosts, "__init__", lambda self, names=(), *others, **options: None)
    monkeypatch.setattr(RemoteHosts, "check", check)
    monkeypatch.setattr(RemoteHosts, "close", lambda self: closed.append(self))
    arguments = Job(1, ("-c", ""), (Host("w"),), survive), NEED.library, environ, []
    if environ and not survive:
        examination.examined(*arguments)
        assert "host w: its name is not known here: x (the batch" in capsys.readouterr().err
    else:
        with pytest.raises(Unreachable, match="host w: its name"):
            examination.examined(*arguments)
    assert len(closed) == 1


def test_ctrl_c_before_the_job_is_a_line(monkeypatch, capsys):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_command, "examined", interrupt)
    assert command_line.main(["run", "-n", "1", "-c", ""]) == 130
    assert capsys.readouterr().err == "malt run: interrupted\n"


def test_devices_of_a_host_are_its_own():
    names = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "NVIDIA_VISIBLE_DEVICES", "OWN"]
    assert travelling(dict.fromkeys(names, "0")) == ["OWN"]

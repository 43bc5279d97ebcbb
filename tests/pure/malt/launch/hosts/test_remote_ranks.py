"""The launcher's side of hosts that are started by themselves: which are given up, and what is waited for.

In place of ssh a small program says what an agent would.
"""

import contextlib
import json
import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest
from processes import wait_for
from reported import add

from dstorm.waits import stopwatch
from malt.launch import job
from malt.launch.hosts import connection
from malt.launch.hosts.plain import remote_ranks as module
from malt.launch.hosts.plain.remote_ranks import RemoteRanks
from malt.launch.hosts.remote import RemoteHosts
from malt.launch.reports.follower import Follower
from malt.runner import reporting, roster
from malt.runner.events import Stream
from malt.runner.roster import Roster

FAKE = """
import json, sys, time
say = lambda *what: print(json.dumps(what), flush=True)

def await_end():
    next(line for line in sys.stdin if json.loads(line)[0] == "clean")
    say("clean", 0)

while sys.stdin.read(1) != "\\0": pass  # the text of an agent
sys.stdin.readline()
{}
"""
SITS = "say('started', 7); await_end()"


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """begin(away, size, text, environ): ranks on other hosts, whose agents run this text."""
    (tmp_path / reporting.KEY).write_text("0f" * 32)
    monkeypatch.setattr(module, "_ENDS_S", 0.5)
    with contextlib.ExitStack() as ends:

        def begin(away, size, text, environ=None):
            shell = tmp_path / "shell"
            shell.write_text(f"#!{sys.executable}\n{text}")
            shell.chmod(0o755)
            remote = RemoteHosts([*away], {"PRTE_MCA_plm_ssh_agent": str(shell)})
            ends.callback(remote.close)
            made = RemoteRanks(away, size, ["x.py"], environ or {}, tmp_path, remote)
            ends.callback(made.end)
            return made

        yield begin


@pytest.fixture
def start(begin, monkeypatch):
    """start(text, size, silent_s): host b, with rank 1, which is given up after so many seconds of silence."""

    def start(text, size=2, silent_s=module.SILENT_S):
        monkeypatch.setattr(module, "SILENT_S", silent_s)
        return begin({"b": (1,)}, size, FAKE.format(text))

    return start


def the(away):
    return away._hosts[0]


FAILURES = {
    "say('failed', 'no space left'); await_end()": "host b: rank 1 cannot start there: no space left",
    "sys.exit('ssh: connect to host b port 22: Connection refused')":
        "host b: ssh is refused: start sshd there, or set its port in ~/.ssh/config",
    "import os; os.close(1); time.sleep(0.3); sys.exit(255)":
        "host b: the connection ended with status 255: it printed nothing",
    "await_end()": "host b: nothing has come from it for 1 s, rank 1 cannot start there",
    "say('started', 7); say('done', None); await_end()":
        "host b: rank 1 ended there without a report, and could not start or connect",
}  # fmt: skip


@pytest.mark.parametrize("text", FAILURES)
def test_a_host_whose_ranks_cannot_start_ends_the_job(text, start, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "START_S", 1.0)
    monkeypatch.setattr(module, "_UNHEARD_S", 0.1)
    away, state = start(text), Follower(Stream(tmp_path), 2, is_spread=True)
    wait_for(lambda: job._status_of_part(state, away) == 1)
    assert job._status_of_part(state, away) == 1
    assert capsys.readouterr().err == f"malt run: {FAILURES[text]}\n"
    assert not away.left


def test_a_host_whose_ranks_have_reported_has_not_failed(start, monkeypatch):
    monkeypatch.setattr(module, "_UNHEARD_S", 0.0)
    away = start("say('started', 7); say('done', None); await_end()")
    assert the(away).is_done.wait(60)
    time.sleep(0.01)
    assert not away.have_failed({1})


LEAVES = """
import json, os, sys
say = lambda *what: print(json.dumps(what), flush=True)
while sys.stdin.read(1) != "\\0": pass  # the text of an agent
what, value = json.loads(sys.stdin.readline())
say(*{{"start": ("started", 7), "sweep": ("done", None)}}[what])
if what == "start" and {stays}:
    sys.stdin.readline()
if what == "sweep":
    open({file!r}, "w").write(json.dumps(value))
"""


@pytest.mark.parametrize("stays", [False, True])
def test_another_agent_ends_what_one_has_left_that_was_killed(stays, begin, tmp_path):
    file = tmp_path / "swept"
    away = begin({"b": (1,)}, 2, LEAVES.format(file=str(file), stays=stays))
    wait_for(lambda: away.have_failed({1}) or (the(away).is_done.is_set() if not stays else the(away).agent))
    time.sleep(0.1)
    assert not away.have_failed({1}) and file.exists() != stays
    assert stays or json.loads(file.read_text()) == [str(tmp_path), 7, False]


DIES = """
import json, sys
while sys.stdin.read(1) != "\\0": pass  # the text of an agent
what, value = json.loads(sys.stdin.readline())
if what == "clean":
    open({file!r}, "w").write(json.dumps(value))
    print(json.dumps([what, None]), flush=True)
"""


@pytest.mark.parametrize("is_ours", [False, True])
def test_another_agent_removes_the_folder_of_one_that_was_killed_before_it_started_ranks(is_ours, begin, tmp_path):
    """Where that has made it: else it is the launcher's, or another host's."""
    file = tmp_path / "cleaned"
    away = begin({"b": (1,)}, 2, DIES.format(file=str(file)))
    away._remote._own.update(["b"] if is_ours else [])
    wait_for(lambda: away.have_failed(set()))
    away.end()
    assert json.loads(file.read_text()) == (str(tmp_path) if is_ours else None)


def test_a_slow_start_is_no_silence(start):
    away = start("time.sleep(0.5); " + SITS, silent_s=0.1)
    wait_for(lambda: away.is_cut_off({1}) or the(away).agent is not None)
    assert the(away).agent == 7
    wait_for(lambda: away.is_cut_off({1}))


def test_a_launcher_without_ranks_is_more_patient(start):
    away = start(SITS, size=1, silent_s=0.1)
    wait_for(lambda: the(away).silent_s() > 0.3)
    assert not away.is_cut_off({1})


@pytest.fixture
def stop(monkeypatch):
    """stop(seconds): the launcher is stopped for so long, as far as its clock tells."""
    lost = [0.0]
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + sum(lost)))
    return lost.append


def test_a_stop_of_the_launcher_is_no_silence(start, stop):
    away = start(SITS, silent_s=1.5)
    wait_for(lambda: the(away).agent is not None)
    assert not away.have_failed({1})
    stop(300.0)
    assert not away.is_cut_off({1})
    wait_for(lambda: away.is_cut_off({1}))


def test_agents_wait_while_this_process_is_stopped(start, monkeypatch):
    """And no pulse ends that: the thread that sends them runs on for a moment."""
    monkeypatch.setattr(connection, "PULSE_S", 0.05)
    away, told = start(
        "say('started', 7)\nfor line in sys.stdin:\n    what = json.loads(line)[0]; say('said', what); say(what, None)"
        "\n    if what == 'clean': sys.exit()"
    ), []
    monkeypatch.setattr(module, "say", told.append)
    wait_for(lambda: told.count("alive\n") > 2)

    connection.suspend([the(away).connection], signal.SIGSTOP)
    time.sleep(0.2)
    told.append("goes on")
    connection.suspend([the(away).connection], signal.SIGCONT)
    at = told.index("pause\n")
    assert told[at : at + 2] == ["pause\n", "goes on"]
    wait_for(lambda: told[at + 2 :].count("alive\n") > 2)


ENDED = "say('started', 7); say('done', None)\nwhile True: say('alive', None); time.sleep(0.02)"
"""The ranks have ended, and the host is heard."""


def test_ranks_that_ended_a_while_ago_without_a_report_are_lost(start):
    """As where the network between the hosts fails, and ssh goes on."""
    away = start(ENDED, silent_s=0.5)
    assert the(away).is_done.wait(60)
    assert not away.is_cut_off({1}) and not away.unreached()  # reports may come
    wait_for(lambda: away.is_cut_off({1}))
    assert away.unreached() == {1}
    assert not away.is_cut_off(set())  # all reports have come
    away.leave({1})
    assert not away.left
    assert "rank 1 ended on host b, and how is not known" in away.last_words


def test_a_stop_of_the_launcher_leaves_reports_their_time(start, stop):
    away = start(ENDED, silent_s=1.5)
    assert the(away).is_done.wait(60) and not away.unreached()
    stop(300.0)
    assert not away.unreached()


def test_output_that_cannot_be_printed_is_no_silence(start, tmp_path):
    os.mkfifo(tmp_path / "out-1")
    pipe = os.open(tmp_path / "out-1", os.O_RDWR | os.O_NONBLOCK)
    away = start("say('started', 7); say('printed', [1, 1, 'x' * 200_000]); await_end()", silent_s=0.1)
    wait_for(lambda: the(away).is_printing)
    time.sleep(0.3)
    assert not away.is_cut_off({1})
    left = 200_000
    while left:
        with contextlib.suppress(BlockingIOError):
            left -= len(os.read(pipe, left))
    wait_for(lambda: away.is_cut_off({1}))
    os.close(pipe)


def test_a_host_that_was_given_up_stays_so(start, tmp_path, monkeypatch, capsys):
    """It is heard of again before the launcher has ended: its ranks go on, and nothing there is ended."""
    away = start("say('started', 7); sys.stdin.read()", silent_s=0.1)
    state = Follower(Stream(tmp_path), 2, is_spread=True)
    status, _, is_stuck = job._ends(Stream(tmp_path), state, None, away)
    assert not is_stuck()
    wait_for(lambda: status() == 1)
    assert is_stuck()  # what starts the ranks of this host would wait for those
    words = away.last_words
    assert f"rank 1 may continue on host b, and print to {tmp_path}/printed-* there" in words
    assert words.endswith("ssh b kill -HUP -- -7\n")
    the(away).connection.silence.restart()
    add(tmp_path, "finished-1")
    assert status() == 1 and away.left and away.last_words == words
    said = []
    monkeypatch.setattr(the(away).connection, "ask", lambda *line: said.append(line))
    away.collect(1, bool)
    away.end()
    assert ("clean",) not in said


PRINTS = """
say("started", 7)
for piece in range(5):
    time.sleep({})
    say("printed", [1, 1, f"piece {{piece}}\\n"])
    say("alive", None)
say({!r}, None)
await_end()
"""


@pytest.mark.parametrize(("status", "comes", "every_s"), [(0, "01234", 0.3), (1, "", 30)])
def test_what_ranks_have_printed_is_waited_for_as_long_as_it_comes(
    status, comes, every_s, start, tmp_path, monkeypatch, capsys
):  # fmt: skip
    """Where the job has failed, ranks may print for ever: what is left out then is said."""
    monkeypatch.setattr(module, "_REST_OF_FAILED_S", 0.2)
    os.mkfifo(tmp_path / "out-1")
    pipe = os.open(tmp_path / "out-1", os.O_RDWR | os.O_NONBLOCK)
    away = start(PRINTS.format(every_s, "done"))
    wait_for(lambda: the(away).agent is not None)
    away.collect(status, bool)
    with contextlib.suppress(BlockingIOError):
        assert os.read(pipe, 1000).decode() == "".join(f"piece {piece}\n" for piece in comes)
    os.close(pipe)
    left_out = "malt run: host b: the end of what rank 1 printed is left out\n"
    assert capsys.readouterr().err == (left_out if status else "")


def test_after_a_job_no_pipe_of_its_ranks_stays_open(start, tmp_path):
    """The connection stays, for a restart of the job."""
    os.mkfifo(tmp_path / "out-1")
    pipe = os.open(tmp_path / "out-1", os.O_RDWR)
    away = start(PRINTS.format(0, "done"))
    assert the(away).is_done.wait(60)
    away.end()
    files = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    assert [os.readlink(file) for file in files if os.path.exists(file)].count(str(tmp_path / "out-1")) == 1
    os.close(pipe)


def test_a_connection_that_takes_nothing_holds_nobody_up(begin, monkeypatch, capsys):
    """The first line, with the environment, does not fit into its pipe."""
    monkeypatch.setattr(module, "START_S", 1.0)
    began = time.monotonic()
    away = begin({"b": (1,)}, 2, "import time\ntime.sleep(60)", {"X": "x" * 200_000})
    wait_for(lambda: away.have_failed({0}))
    away.end()
    assert time.monotonic() - began < 30
    assert "host b: nothing has come from it for 1 s" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "silent_s", "is_ended", "is_said"), [
    ("say('printed', [1, 1, 'a piece']); await_end()", 0.3, False, True),
    ("await_end()", 300.0, True, True),
    ("while True: say('alive', None); time.sleep(0.1)", 300.0, False, False),
], ids=["a host that falls silent", "a second signal", "ranks that hang, and print no more"])  # fmt: skip
def test_what_is_not_waited_for(text, silent_s, is_ended, is_said, start, capsys):
    """That the end of what ranks have printed is left out is said, where there may be more."""
    away = start(f"say('started', 7)\n{text}", silent_s=silent_s)
    wait_for(lambda: the(away).agent is not None)
    began = time.monotonic()
    away.collect(0, lambda: is_ended)
    assert time.monotonic() - began < 60
    left_out = "malt run: host b: the end of what rank 1 printed is left out\n"
    assert capsys.readouterr().err == (left_out if is_said else "")


def test_it_is_cut_off_where_it_hears_none_of_those_that_may_go_on(begin, monkeypatch):
    """Ranks of the host that it hears, which were started again, can join nobody there."""
    monkeypatch.setattr(module, "SILENT_S", 0.1)
    text = FAKE.format(
        "say('started', 7); heard = sys.argv[1] == 'b'\n"
        "while heard: say('alive', None); time.sleep(0.02)\nawait_end()"
    )
    away = begin({"b": (1,), "c": (2,)}, 3, text)
    wait_for(lambda: away.unreached() == {2} and all(one.agent for one in away._hosts))
    assert not away.is_cut_off({0, 1, 2}) and away.is_cut_off({2})


def test_a_roster_that_changes_as_hosts_are_told_of_it_reaches_them(start, tmp_path, monkeypatch, capsys):
    begin, found = module.RanksOfHost.__init__, Roster.of(1, 1, 2)

    def change(*arguments):
        begin(*arguments)
        found.scale(2)
        roster.write(tmp_path, found)

    monkeypatch.setattr(module.RanksOfHost, "__init__", change)
    roster.write(tmp_path, found)
    away = start(
        "say('started', 7)\nfor line in sys.stdin:\n    what, value = json.loads(line)\n"
        "    what == 'roster' and say('said', json.loads(value)['size'])\n    what == 'clean' and sys.exit()"
    )
    for _ in range(2):
        away.pass_on_roster()
    away.end()
    assert capsys.readouterr().err == "2\n"


def test_no_rank_is_started_again_once_the_job_ends_and_what_a_starter_says_is_printed(
    start, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, "_ENDS_S", 60.0)  # a busy machine takes a while to start the agent
    away = start(
        "say('started', 7)\nfor line in sys.stdin:\n    what = json.loads(line)[0]; say('said', what)\n"
        "    what == 'clean' and sys.exit()"
    )
    away.stop_starting()
    (tmp_path / "ending").touch()
    for _ in range(2):
        away.stop_starting()
    away.end()
    said = [line for line in capsys.readouterr().err.splitlines() if line != "alive"]
    assert said == ["ending", "clean"]

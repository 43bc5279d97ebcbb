"""The launcher's side of hosts that are started by themselves: which are given up, and what is waited for.

In place of ssh a small program says what a keeper would.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest
from processes import wait_for
from reported import add

from malt.launch import job
from malt.launch.hosts.plain import keepers as module
from malt.launch.hosts.plain.keepers import Keepers
from malt.launch.reports.follower import Follower
from malt.runner import reporting
from malt.runner.events import Stream

pytestmark = pytest.mark.serial

FAKE = """
import json, sys, time
say = lambda *what: print(json.dumps(what), flush=True)
await_end = lambda: next(line for line in sys.stdin if line == "end\\n")
while sys.stdin.read(1) != "\\0": pass  # the text of a keeper
sys.stdin.readline()
{}
"""
SITS = "say('started', 7); await_end()"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """start(text, size): keepers of host b, with rank 1, whose connection runs this text."""
    (tmp_path / reporting.KEY).write_text("0f" * 32)
    monkeypatch.setattr(module, "_ENDS_S", 0.5)
    opened = []

    def start(text, size=2):
        made = Keepers({"b": (1,)}, size, ["x.py"], {}, tmp_path, [sys.executable, "-c", FAKE.format(text)])
        opened.append(made)
        return made

    yield start
    for one in opened:
        one.end()


def the(keepers):
    return keepers._keepers[0]


FAILURES = {
    "say('failed', 'no space left'); await_end()": "host b: rank 1 cannot start there: no space left",
    "sys.exit(255)": "host b: the connection has ended with status 255 before rank 1 had started there",
    "import os; os.close(1); time.sleep(0.3); sys.exit(255)":
        "host b: the connection has ended with status 255 before rank 1 had started there",
    "await_end()": "host b: nothing has come from it for 1 s, rank 1 cannot start there",
    "say('started', 7); say('done', None); await_end()":
        "host b: rank 1 ended there without a report, and could not start or connect",
}  # fmt: skip


@pytest.mark.parametrize("text", FAILURES)
def test_a_host_whose_ranks_cannot_start_ends_the_job(text, start, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "START_S", 1.0)
    monkeypatch.setattr(module, "_UNHEARD_S", 0.1)
    keepers, state = start(text), Follower(Stream(tmp_path), 2, is_spread=True)
    wait_for(lambda: job._status_of_part(state, keepers) == 1)
    assert job._status_of_part(state, keepers) == 1
    assert capsys.readouterr().err == f"malt run: {FAILURES[text]}\n"
    assert not keepers.are_left


def test_a_host_whose_ranks_have_reported_has_not_failed(start, monkeypatch):
    monkeypatch.setattr(module, "_UNHEARD_S", 0.0)
    keepers = start("say('started', 7); say('done', None); await_end()")
    assert the(keepers).is_done.wait(10)
    time.sleep(0.01)
    assert not keepers.have_failed({1})


def test_a_slow_start_is_no_silence(start, monkeypatch):
    monkeypatch.setattr(module, "SILENT_S", 0.1)
    keepers = start("time.sleep(0.5); " + SITS)
    wait_for(lambda: keepers.is_cut_off({1}) or the(keepers).starter is not None)
    assert the(keepers).starter == 7
    wait_for(lambda: keepers.is_cut_off({1}))


def test_a_launcher_without_ranks_is_more_patient(start, monkeypatch):
    monkeypatch.setattr(module, "SILENT_S", 0.1)
    keepers = start(SITS, size=1)
    wait_for(lambda: the(keepers).silent_s() > 0.3)
    assert not keepers.is_cut_off({1})


def stop(monkeypatch, seconds):
    """Stop the launcher for so long, as far as its clock tells."""
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + seconds, sleep=time.sleep))


def test_a_stop_of_the_launcher_is_no_silence(start, monkeypatch):
    monkeypatch.setattr(module, "SILENT_S", 1.5)
    keepers = start(SITS)
    wait_for(lambda: the(keepers).starter is not None)
    assert not keepers.have_failed({1})
    stop(monkeypatch, 300.0)
    assert not keepers.is_cut_off({1})
    wait_for(lambda: keepers.is_cut_off({1}))


def test_the_others_are_told_of_a_stop_and_of_its_end(start, monkeypatch):
    monkeypatch.setattr(module, "PULSE_S", 60.0)
    keepers, told = start(SITS), []
    wait_for(lambda: the(keepers).starter is not None)
    monkeypatch.setattr(the(keepers), "_input", SimpleNamespace(write=told.append, flush=bool, close=bool))
    suspend = keepers.pausing(told.append)
    suspend(signal.SIGSTOP)
    the(keepers)._say(b"alive\n", is_pulse=True)  # its thread runs on for a moment
    suspend(signal.SIGCONT)
    at = told.index(b"pause\n")
    assert [one for one in told[at:] if one] == [b"pause\n", signal.SIGSTOP, signal.SIGCONT, b"alive\n"]


ENDED = "say('started', 7); say('done', None)\nwhile True: say('alive', None); time.sleep(0.02)"
"""The ranks have ended, and the host is heard."""


def test_ranks_that_ended_a_while_ago_without_a_report_are_lost(start, monkeypatch):
    """As where the network between the hosts fails, and ssh goes on."""
    monkeypatch.setattr(module, "SILENT_S", 0.5)
    keepers = start(ENDED)
    assert the(keepers).is_done.wait(10)
    assert not keepers.is_cut_off({1}) and not keepers.unreached()  # reports may come
    wait_for(lambda: keepers.is_cut_off({1}))
    assert keepers.unreached() == {1}
    assert not keepers.is_cut_off(set())  # all reports have come
    keepers.leave({1})
    assert not keepers.are_left
    assert "rank 1 ended on host b, and how is not known" in keepers.last_words


def test_a_stop_of_the_launcher_leaves_reports_their_time(start, monkeypatch):
    monkeypatch.setattr(module, "SILENT_S", 1.5)
    keepers = start(ENDED)
    assert the(keepers).is_done.wait(10) and not keepers.unreached()
    stop(monkeypatch, 300.0)
    assert not keepers.unreached()


def test_output_that_cannot_be_printed_is_no_silence(start, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SILENT_S", 0.1)
    os.mkfifo(tmp_path / "out-1")
    pipe = os.open(tmp_path / "out-1", os.O_RDWR | os.O_NONBLOCK)
    keepers = start("say('started', 7); say('printed', [1, 1, 'x' * 200_000]); await_end()")
    wait_for(lambda: the(keepers).is_printing)
    time.sleep(0.3)
    assert not keepers.is_cut_off({1})
    left = 200_000
    while left:
        with contextlib.suppress(BlockingIOError):
            left -= len(os.read(pipe, left))
    wait_for(lambda: keepers.is_cut_off({1}))
    os.close(pipe)


def test_a_host_that_was_given_up_stays_so(start, tmp_path, monkeypatch, capsys):
    """It is heard of again before the launcher has ended: its ranks go on, and nothing there is ended."""
    monkeypatch.setattr(module, "SILENT_S", 0.1)
    keepers = start("say('folder', '/var/tmp/malt-x'); say('started', 7); sys.stdin.read()")
    state = Follower(Stream(tmp_path), 2, is_spread=True)
    wait_for(lambda: job._status_of_part(state, keepers) == 1)
    words = keepers.last_words
    assert "rank 1 may go on on host b, and print to /var/tmp/malt-x/printed-* there" in words
    assert words.endswith("ssh b kill -- -7\n")
    the(keepers)._heard_at = time.monotonic() + 100
    add(tmp_path, "finished-1")
    assert job._status_of_part(state, keepers) == 1 and keepers.are_left and keepers.last_words == words
    said = []
    monkeypatch.setattr(the(keepers), "_say", said.append)
    keepers.collect(1, bool)
    keepers.end()
    assert b"end\n" not in said


PRINTS = """
say("started", 7)
for piece in range(5):
    time.sleep(0.5)
    say("printed", [1, 1, f"piece {{piece}}\\n"])
    say("alive", None)
say({!r}, None)
await_end()
"""


@pytest.mark.parametrize(("status", "comes"), [(0, "01234"), (1, "")])
def test_what_ranks_have_printed_is_waited_for_as_long_as_it_comes(status, comes, start, tmp_path, monkeypatch, capsys):
    """Where the job has failed, ranks may print for ever: what is left out then is said."""
    monkeypatch.setattr(module, "_REST_OF_FAILED_S", 0.2)
    os.mkfifo(tmp_path / "out-1")
    pipe = os.open(tmp_path / "out-1", os.O_RDWR | os.O_NONBLOCK)
    keepers = start(PRINTS.format("done"))
    wait_for(lambda: the(keepers).starter is not None)
    keepers.collect(status, bool)
    with contextlib.suppress(BlockingIOError):
        assert os.read(pipe, 1000).decode() == "".join(f"piece {piece}\n" for piece in comes)
    os.close(pipe)
    left_out = "malt run: host b: the end of what rank 1 printed is left out\n"
    assert capsys.readouterr().err == (left_out if status else "")


def test_output_of_a_host_that_falls_silent_is_said_to_be_left_out(start, monkeypatch, capsys):
    monkeypatch.setattr(module, "SILENT_S", 0.3)
    keepers = start("say('started', 7); say('printed', [1, 1, 'a piece']); await_end()")
    wait_for(lambda: the(keepers).starter is not None)
    keepers.collect(0, bool)
    assert capsys.readouterr().err == "malt run: host b: the end of what rank 1 printed is left out\n"


def test_a_connection_that_takes_nothing_holds_nobody_up(tmp_path, monkeypatch, capsys):
    """The first line, with the environment, does not fit into its pipe."""
    monkeypatch.setattr(module, "START_S", 1.0)
    monkeypatch.setattr(module, "_ENDS_S", 0.2)
    (tmp_path / reporting.KEY).write_text("0f" * 32)
    hangs = [sys.executable, "-c", "import time; time.sleep(60)"]
    began = time.monotonic()
    keepers = Keepers({"b": (1,)}, 2, ["x.py"], {"X": "x" * 200_000}, tmp_path, hangs)
    wait_for(lambda: keepers.have_failed({0}))
    keepers.end()
    assert time.monotonic() - began < 30
    assert "host b: nothing has come from it for 1 s" in capsys.readouterr().err


def test_nothing_is_said_before_the_first_line(start, monkeypatch):
    """Ctrl-Z at once."""
    pulse = module.Keeper._pulse
    monkeypatch.setattr(module.Keeper, "_pulse", lambda self, first: time.sleep(0.3) or pulse(self, first))
    keepers = start("say('failed', sys.stdin.readline()); await_end()")
    the(keepers).pause(True)
    wait_for(lambda: the(keepers).failure({1}))
    assert the(keepers)._why == "pause\n"


def test_a_second_signal_ends_the_wait(start, tmp_path, capsys):
    keepers = start("say('started', 7); await_end()")
    wait_for(lambda: the(keepers).starter is not None)
    began = time.monotonic()
    keepers.collect(0, lambda: True)
    assert time.monotonic() - began < 5
    assert "left out" in capsys.readouterr().err


def test_a_host_that_prints_no_more_is_not_waited_for(start):
    """Its ranks hang, say."""
    keepers = start("say('started', 7)\nfor _ in range(100): say('alive', None); time.sleep(0.1)")
    wait_for(lambda: the(keepers).starter is not None)
    began = time.monotonic()
    keepers.collect(0, bool)
    assert time.monotonic() - began < 5


def test_it_is_cut_off_where_it_hears_none_of_those_that_may_go_on(tmp_path, monkeypatch):
    """Ranks of the host that it hears, which were started again, can join nobody there."""
    monkeypatch.setattr(module, "SILENT_S", 0.1)
    (tmp_path / reporting.KEY).write_text("0f" * 32)
    text = FAKE.format(
        "say('started', 7); heard = json.loads(taken)['words'][2] == '1'\n"
        "while heard: say('alive', None); time.sleep(0.02)\nawait_end()"
    ).replace("sys.stdin.readline()", "taken = sys.stdin.readline()")
    keepers = Keepers({"b": (1,), "c": (2,)}, 3, ["x.py"], {}, tmp_path, [sys.executable, "-c", text])
    with contextlib.ExitStack() as ends:
        ends.callback(keepers.end)
        wait_for(lambda: keepers.unreached() == {2} and all(one.starter for one in keepers._keepers))
        assert not keepers.is_cut_off({0, 1, 2}) and keepers.is_cut_off({2})


def test_no_rank_is_started_again_once_the_job_ends_and_what_a_starter_says_is_printed(start, tmp_path, capsys):
    keepers = start(
        "say('started', 7)\nfor line in sys.stdin:\n    say('said', line.strip())\n    line == 'end\\n' and sys.exit()"
    )
    keepers.stop_starting()
    (tmp_path / "ending").touch()
    for _ in range(2):
        keepers.stop_starting()
    keepers.end()
    said = [line for line in capsys.readouterr().err.splitlines() if line != "alive"]
    assert said == ["ending", "end"]

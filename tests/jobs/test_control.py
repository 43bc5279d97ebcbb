"""The control server, with ranks that connect to it, and others that do."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from reported import line, made, reported

from dstorm.transports.links import server as server_of_dstorm
from malt.launch.reports import control
from malt.launch.reports.control import ControlServer
from malt.runner import departure, reporting, roster
from malt.runner.events import Kind, Stream
from malt.runner.reporting import CALL, CONTROL_NAME, CONTROL_SERVER
from malt.runner.roster import Roster

pytestmark = pytest.mark.serial
KEY = "3c" * 32
PROGRAM = str(Path(__file__).parents[2] / "malt" / "runner" / "program.py")
SOON_S = 30


@pytest.fixture
def open_control_server(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "interfaces", lambda hosts: ("127.0.0.1",))
    with contextlib.closing(ControlServer(tmp_path, KEY)) as made:
        yield made


def connected(server, key=KEY, rank=2):
    return server_of_dstorm.call((server.addresses[0], server.port), key, CONTROL_NAME, rank, SOON_S)


def call(server, *lines):
    with connected(server) as connection:
        connection.settimeout(SOON_S)
        connection.sendall(b"".join(lines))
        with contextlib.suppress(ConnectionResetError):  # a stranger's
            with contextlib.suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def names(folder):
    return sorted(reported(folder))


def test_reports_become_events(open_control_server, tmp_path):
    """At the time at which they come: the clocks of hosts differ."""
    before = time.monotonic_ns()
    reports = [line(name) for name in ("ready-2", "lost-77")]
    call(open_control_server, made("traceback-2", "Traceback: ü", 7).line(), line("left-2", "3"), *reports)
    assert names(tmp_path) == ["elsewhere-2", "ended-2", "left-2", "lost-77", "ready-2", "traceback-2"]
    assert reported(tmp_path)["traceback-2"] == "Traceback: ü" and files(tmp_path) == ["events-2", "events-77"]
    assert Stream(tmp_path).read().get(Kind.TRACEBACK, 2).at > before


def test_what_is_shown_and_published_becomes_files(open_control_server, tmp_path):
    call(open_control_server, b'["shown-2", "it"]\n', b'["session-1-published-2.1", "where"]\n["session-1-over", ""]\n')
    assert files(tmp_path) == ["events-2", "session-1-over", "session-1-published-2.1", "shown-2"]
    assert (tmp_path / "shown-2").read_text() == "it"


@pytest.mark.parametrize(
    "reports",
    [
        b'["../outside", "x"]\n',
        b'["events-2", "x"]\n',
        line("started-2", "1 1"),
        line("finished-1"),
        line("again-1", "7"),
        line("left-2").replace(b"left", b"right"),
        b"nonsense\n",
        b"[1]\n",
        b"\xff\n",
        b"cut off",
        b'[1, "left", 2, 3]\n',
        b'[1, "left", "2", "3"]\n',
        b'["shown-2", 3]\n',
        b"[1, 2]\n",
        b"null\n",
        b"x" * (1 << 20) + line("left-2", "3")[1:],
    ],
    ids=lambda reports: reports.strip()[:20].decode("latin-1").strip(),
)
def test_what_is_no_report_is_not_written(reports, open_control_server, tmp_path):
    call(open_control_server, reports)
    assert names(tmp_path) == ["elsewhere-2", "ended-2"] and files(tmp_path) == ["events-2"]


@pytest.fixture
def caller(open_control_server):
    """The connection of rank 2, which stays open."""
    with connected(open_control_server) as connection:
        connection.settimeout(None)
        yield connection


def wait_for(name, folder):
    end = time.monotonic() + SOON_S
    while name not in names(folder):
        assert time.monotonic() < end, names(folder)
        time.sleep(0.001)


def test_a_rank_that_sends_invalid_lines_has_not_ended(caller, tmp_path, monkeypatch):
    """One line was cut off by a signal, another is nothing but brackets."""
    caller.sendall(line("left-2", "3")[:-2] + b"\n" + b"[" * (1 << 21))
    monkeypatch.setenv(CALL, str(caller.fileno()))
    monkeypatch.setenv(reporting.RANK, "2")
    monkeypatch.setattr(reporting, "_process", os.getpid())
    monkeypatch.setattr(reporting, "_connection", caller)
    reporting.report(Kind.TRACEBACK, "x" * (1 << 21) + "the error")
    wait_for("traceback-2", tmp_path)
    assert names(tmp_path) == ["elsewhere-2", "traceback-2"]
    assert reported(tmp_path)["traceback-2"].endswith("xthe error")


def test_what_a_rank_publishes_may_be_long(caller, tmp_path):
    """Of a text above 1 MiB nobody would have heard, and nobody said so."""
    text = "x" * (1 << 21)
    caller.sendall(b"\n" + json.dumps(["left-2-0", text]).encode() + b"\n" + line("finished-2"))
    wait_for("finished-2", tmp_path)
    assert (tmp_path / "left-2-0").read_text() == text


def test_a_rank_is_asked_to_leave(open_control_server, caller, tmp_path, monkeypatch):
    """The request may come twice before the rank reads it. A signal for its program comes before; who has ended, later.
    """
    wait_for("elsewhere-2", tmp_path)
    open_control_server.pass_signal(10)
    open_control_server.notify(15)
    open_control_server.notify(15)
    open_control_server.report_ended({1: 0})
    while caller.recv(30, socket.MSG_PEEK) != b"signal 10\n15\n15\nended 1 0\n":
        time.sleep(0.001)
    sent = []
    monkeypatch.setattr(departure.os, "kill", lambda *words: sent.append(words))
    monkeypatch.setattr(departure, "_ended", {})
    monkeypatch.setattr(departure, "_is_connected", None)
    open_control_server.close()
    departure.listen(caller.fileno())
    assert sent == [(os.getpid(), 10), (os.getpid(), 15)] and departure.ended_elsewhere() == {1: 0}
    assert departure._is_notified(15) and not departure._is_notified(2)
    monkeypatch.setattr(departure, "_notified", 0)


def test_a_report_that_a_full_disk_does_not_take_counts(open_control_server, caller, tmp_path):
    wait_for("elsewhere-2", tmp_path)
    reports = Stream(tmp_path)
    open_control_server.add = reports.add
    (tmp_path / "events-2").rename(tmp_path / "before")
    (tmp_path / "events-2").mkdir()
    caller.sendall(line("left-2", "3"))
    open_control_server.close()
    assert reports.read().texts(Kind.LEFT) == {2: "3"}


def test_once_it_is_closed_nothing_is_written(open_control_server, caller, tmp_path):
    wait_for("elsewhere-2", tmp_path)
    caller.sendall(line("ready-2"))
    open_control_server.close()
    assert names(tmp_path) == ["elsewhere-2", "ready-2"]
    assert "malt control server" not in {thread.name for thread in threading.enumerate()}


def test_a_thread_that_does_not_end_in_time_writes_nothing(open_control_server, tmp_path):
    open_control_server.close()
    with socket.socket() as late:
        open_control_server._listen(2, late)
    assert files(tmp_path) == []


def test_of_a_rank_that_was_started_again_the_former_incarnation_reports_nothing_more(open_control_server, tmp_path):
    for name in ("out-2", "shown-2"):
        (tmp_path / name).touch()
    with connected(open_control_server) as former:
        former.sendall(line("left-2", "3") + line("ready-2"))
        wait_for("ready-2", tmp_path)
        with connected(open_control_server) as present:
            present.sendall(line("again-2", "1"))
            wait_for("again-2", tmp_path)
            former.sendall(line("finished-2"))
            former.shutdown(socket.SHUT_WR)
            assert former.recv(1) == b""
            assert names(tmp_path) == ["again-2", "elsewhere-2"] and files(tmp_path) == ["events-2", "out-2"]
            present.sendall(line("ready-2"))
            wait_for("ready-2", tmp_path)
        wait_for("ended-2", tmp_path)
    assert reported(tmp_path)["again-2"] == "1" and "left-2" not in names(tmp_path)


def test_a_rank_is_told_which_incarnations_have_ended(open_control_server, caller, tmp_path, monkeypatch):
    caller.sendall(line("ready-2"))
    wait_for("ready-2", tmp_path)  # it has been told of those that had ended before: of none
    for seen in ({0: 0}, {0: 0, 1: 0}, {0: 2, 1: 0}):
        open_control_server.report_ended(seen)
    while caller.recv(64, socket.MSG_PEEK) != b"ended 0 0\nended 1 0\nended 0 2\n":
        time.sleep(0.001)
    monkeypatch.setattr(departure, "_ended", {})
    monkeypatch.setattr(departure, "_is_connected", None)
    open_control_server.close()
    departure.listen(caller.fileno())
    assert departure.ended_elsewhere() == {0: 2, 1: 0}


def test_who_hears_that_a_rank_has_ended_has_heard_what_was_published_before(
    open_control_server, tmp_path, monkeypatch
):  # fmt: skip
    sent = []
    monkeypatch.setattr(open_control_server._server, "send", sent.append)
    (tmp_path / "session-1-published-0.1").write_text("its endpoint")
    open_control_server.tell({0: 0})
    assert sent == [b"published session-1-published-0.1 its endpoint\n", b"ended 0 0\n"]


def test_a_rank_that_takes_little_at_once_gets_whole_lines_in_order(open_control_server, caller, tmp_path):
    """What a rank leaves behind may be longer than what a connection between hosts takes."""
    wait_for("elsewhere-2", tmp_path)
    text, server = "x" * 500_000, open_control_server
    server._server._callers[0][0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    roster.write(tmp_path, Roster.of(2, 1, 4))
    for name in ("left-0-0", "session-1-published-1.1"):
        (tmp_path / name).write_text(text)
        assert not server.pass_on()
    caller.sendall(json.dumps([roster.ASK, '[1, "scale", 3]']).encode() + b"\n")
    while roster.read(tmp_path).size != 3:
        time.sleep(0.001)
    caller.settimeout(0.02)
    got, end = b"", time.monotonic() + SOON_S
    while got.count(b"\n") < 4 and time.monotonic() < end:
        server.tell({1: 1})
        with contextlib.suppress(TimeoutError):
            got += caller.recv(1 << 20)
    lines = sorted(got.decode().splitlines())
    assert [line.partition(" [")[0] for line in lines] == [
        "ended 1 1", f"published left-0-0 {text}", f"published {roster.ANSWER}",
        f"published session-1-published-1.1 {text}",
    ]  # fmt: skip
    assert server.pass_on()


def test_others_report_while_a_rank_waits_for_a_change_of_the_roster(open_control_server, caller, tmp_path):
    """One of this host may have been stopped as it changed it. That others have lost it ends the job."""
    roster.write(tmp_path, Roster.of(2, 1, 4))
    with roster.changing(tmp_path):
        caller.sendall(json.dumps([roster.ASK, '[1, "scale", 3]']).encode() + b"\n")
        time.sleep(0.1)
        with connected(open_control_server, rank=1) as other:
            other.sendall(line("lost-0", "0"))
            wait_for("lost-0", tmp_path)
    caller.settimeout(SOON_S)
    assert caller.recv(100).startswith(b"published roster-answer [1, ")


def test_what_a_rank_has_asked_for_over_an_earlier_connection_is_not_done(open_control_server, caller, tmp_path):
    """It was started again meanwhile."""
    roster.write(tmp_path, Roster.of(2, 1, 4))
    wait_for("elsewhere-2", tmp_path)
    with connected(open_control_server) as second:
        second.sendall(line("ready-2"))
        wait_for("ready-2", tmp_path)
        caller.sendall(json.dumps([roster.ASK, '[1, "scale", 3]']).encode() + b"\n")
        caller.shutdown(socket.SHUT_WR)
        caller.settimeout(SOON_S)
        assert caller.recv(100) == b""  # all that it has sent was read
        assert roster.read(tmp_path).size == 2


def test_nothing_is_kept_for_a_rank_that_has_ended(open_control_server, caller, tmp_path):
    wait_for("elsewhere-2", tmp_path)
    for place in range(2):
        (tmp_path / f"left-{place}-0").write_text("x" * 5_000_000)
        assert open_control_server.pass_on() is bool(place)
        caller.close()
        wait_for("ended-2", tmp_path)


def test_a_caller_without_the_key_is_refused(open_control_server, tmp_path):
    with pytest.raises(ConnectionResetError):
        connected(open_control_server, "0" * 64)
    assert files(tmp_path) == []


CALLS = f"""
import os, pathlib, time
assert os.environ["{CALL}"]
if not {{ends_well}}:
    raise ValueError
if os.fork() == 0:  # a child that outlives the rank keeps nothing of the connection
    os.closerange(0, 3)
    end = time.monotonic() + {2 * SOON_S}
    while '"ended"' not in pathlib.Path(__file__).with_name("events-2").read_text() and time.monotonic() < end:
        time.sleep(0.01)
    os._exit(0)
"""


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_rank_on_another_host_connects(ends_well, open_control_server, tmp_path, job_environment):
    program = tmp_path / "program.py"
    program.write_text(CALLS.format(ends_well=ends_well))
    endpoint = open_control_server.endpoint("elsewhere")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "key").write_text(f"{KEY}\na\nb")
    environment = job_environment | {CONTROL_SERVER: endpoint, "MALT_JOB_DIR": "/nowhere", "PMIX_RANK": "2"}
    environment |= {"MALT_FAILURE_DIR": str(tmp_path / "there")}
    subprocess.run([sys.executable, PROGRAM, program], env=environment, capture_output=True, timeout=200)
    end = time.monotonic() + SOON_S
    while "ended-2" not in names(tmp_path) and time.monotonic() < end:
        time.sleep(0.01)
    reports = ["finished-2"] if ends_well else ["left-2", "traceback-2"]
    assert names(tmp_path) == sorted(["elsewhere-2", "ended-2", *reports])
    assert files(tmp_path) == ["events-2", "program.py", "there"]
    assert files(tmp_path / "there") == ["key"]


def test_a_rank_on_this_host_does_not_connect(open_control_server, tmp_path, job_environment):
    endpoint = open_control_server.endpoint(os.uname().nodename)
    environment = job_environment | {CONTROL_SERVER: endpoint, "PMIX_RANK": "2"}
    program = tmp_path / "program.py"
    program.write_text(f"import os; assert '{CALL}' not in os.environ and '{CONTROL_SERVER}' not in os.environ")
    assert subprocess.run([sys.executable, PROGRAM, program], env=environment, timeout=200).returncode == 0
    assert files(tmp_path) == ["program.py"]


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_rank_that_was_started_again_reaches_the_launcher_or_ends_in_a_line(
    is_reached, tmp_path, job_environment, monkeypatch
):
    """It tries for a while. Its session would wait in vain: it would learn nothing of the others, nor they of it."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "key").write_text(KEY)
    program = f"import os; print('{CALL}' in os.environ, flush=True)"
    (tmp_path / "program.py").write_text(program if is_reached else f"{program}; import malt; malt.init()")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = job_environment | {CONTROL_SERVER: f"elsewhere {port} 127.0.0.1", "MALT_JOB_DIR": "/nowhere"}
    environment |= {"MALT_RANK": "2", "MALT_INCARNATION": "1", "MALT_SIZE": "3", "MALT_HOST_SIZE": "1"}
    environment |= {"MALT_FAILURE_DIR": str(tmp_path / "there")}
    with subprocess.Popen(
        [sys.executable, PROGRAM, tmp_path / "program.py"], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as rank, contextlib.ExitStack() as opened:  # fmt: skip
        if is_reached:
            time.sleep(0.5)  # it has tried in vain, if it has begun
            monkeypatch.setattr(control, "interfaces", lambda hosts: ("127.0.0.1",))
            monkeypatch.setattr(server_of_dstorm, "_listen", lambda addresses, _: [socket.create_server(("", port))])
            opened.enter_context(contextlib.closing(ControlServer(tmp_path, KEY)))
        printed, said = rank.communicate(timeout=SOON_S)
    if is_reached:
        assert rank.returncode == 0 and printed == "True\n" and not said
    else:
        assert said == "malt: rank 2 stays out: it cannot reach the launcher\n"
        assert rank.returncode == 1 and printed == "False\n"

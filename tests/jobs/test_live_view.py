"""`malt run --view` in a terminal: a table below the output, of which nothing is lost."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
from failing_jobs import under_one_mpi
from processes import wait_for
from screen import Screen

from malt.commands import run as run_command
from malt.launch.streams.writer import Writer

pytestmark = pytest.mark.serial

ROOT = Path(__file__).parents[2]
LAUNCHER = """if True:
    import os, sys
    from malt.launch import job
    from malt.launch.command import Job, Line
    from malt.launch.streams.display import Display
    line = Line({{}}, ["sh", "-c", {script!r}], Job(2, ("x.py",), display=Display(True, view=True)))
    sys.exit(job.run(line, os.environ, 0.5).status)"""

RANKS = """if True:
    import os, signal, sys, time, malt
    malt.init(survive=True)
    name = input("name? ") if malt.rank() == 0 else ""
    malt.barrier()
    if name:
        print("hello", name, flush=True)
    for step in malt.progress(range(20)):
        malt.report(loss=0.5, examples=100 * step)
        time.sleep(0.1 if malt.rank() == 3 else 0.02)
        if malt.rank() == 2 and step == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        if step % 10 == 0:
            print("at", step, flush=True)
    malt.barrier()
"""


class Tty:
    """A process in a terminal of its own, and what its screen has shown."""

    def __init__(self, command, environment, columns=80, rows=24):
        self.screen, self.raw = Screen(columns, rows), b""
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command, env={**environment, "TERM": "xterm", "PYTHONPATH": str(ROOT)}, cwd=ROOT,
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(self._own, 1 << 16):
                self.raw += data
                self.screen.feed(data)

    def type(self, text):
        os.write(self._own, text)

    def shows(self, shape):
        assert self.process.poll() is None, self.raw
        return any(re.search(shape, line) for line in self.screen.lines())

    def end(self):
        """Wait for its end. Returns its status and all lines."""
        status = self.process.wait(100)
        self._reader.join()
        os.close(self._own)
        return status, self.screen.lines()


@pytest.fixture
def launch(tmp_path):
    """launch(script): a job whose mpiexec is that shell script, in a terminal."""
    pytest.importorskip("rich")
    started = []

    def start(script):
        environment = os.environ | {"TMPDIR": str(tmp_path)}
        started.append(Tty([sys.executable, "-c", LAUNCHER.format(script=script)], environment))
        return started[-1]

    yield start
    for tty in started:
        tty.process.kill()


RECORD = '{"sent": {"1": 5}, "waits_for": [], "progress": 0.25}'
BEGIN = f"""
cd $MALT_FAILURE_DIR
start() {{ echo "[1, \\"started\\", $1, \\"$2 $(cut -d ')' -f 2 /proc/$2/stat | cut -d ' ' -f 21)\\"]" > events-$1; }}
start 0 $$; start 1 $$; echo '{RECORD}' > shown-0
printf 'name? ' > out-0
name=$({sys.executable} -c 'from malt.runner import standard_input; standard_input.take(".", "0"); print(input())')
"""


def test_a_prompt_its_answer_and_lines_of_all_stay_above_the_table(launch):
    finishes = """sleep 0.7; echo '[2, "finished", 0, ""]' >> events-0"""
    tty = launch(f"{BEGIN}echo hello $name > out-0; echo warning >&2; echo b > err-1; {finishes}")
    wait_for(lambda: all(map(tty.shows, ("starting", r"^\[0\] name\?$", "^   0  25 %"))))
    tty.type(b"Bob\n")
    status, lines = tty.end()
    assert status == 0 and lines[0] == "[0] name? Bob"
    assert sorted(lines[1:4]) == ["[0] hello Bob", "[1] b", "warning"]
    title, heading, first, second = lines[4:]
    assert re.fullmatch(r"job \d+, \d+ s: 2 ranks of x.py", title)
    assert heading.split() == ["rank", "done", "start", "training", "waiting"]
    assert first.split()[-1] == "finished" and second.split() == ["1", "failed:", "killed"]


def test_the_launchers_own_lines_stay_after_ctrl_c(launch):
    tty = launch("trap '' INT; " + BEGIN.replace("name=", "sleep 100 & sleep 100; name="))
    wait_for(lambda: tty.shows(r"^   0  25 %"))
    tty.type(b"\x03")
    status, lines = tty.end()
    assert status == 130
    words = next(place for place, line in enumerate(lines) if "ranks 0, 1 did not end within 0.5 s: killed" in line)
    table = next(place for place, line in enumerate(lines) if line.startswith("job "))
    assert words < table and sum(line.startswith("job ") for line in lines) == 1
    assert lines[-1] == "malt run: ended by SIGINT"


@pytest.mark.parametrize("is_there", [True, False])
def test_without_rich_or_a_terminal_lines_are_plain(is_there, monkeypatch, capsys):
    monkeypatch.setattr(run_command, "is_screen", lambda number: is_there)
    monkeypatch.setattr(run_command, "find_spec", lambda name: None)
    assert not run_command._can_draw()
    assert capsys.readouterr().err == (
        "malt run: --view needs rich, and draws nothing: pip install '.[view]' in the checkout\n" if is_there else ""
    )


def test_nothing_is_drawn_from_the_background(monkeypatch):
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    writer = Writer(theirs)
    assert writer.size() == (80, 24)  # it does not know it
    monkeypatch.setattr(os, "tcgetpgrp", lambda number: 0)
    assert writer.is_screen() and writer.size() is None
    os.close(ours)
    os.close(theirs)


def test_what_is_no_terminal_gets_no_escape_codes(job_environment):
    command = [sys.executable, "-m", "malt", "run", "-n", "1", "--view", "-c", "print(1)"]
    done = subprocess.run(command, cwd=ROOT, env=job_environment, capture_output=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")


@under_one_mpi
def test_four_ranks_of_which_one_is_slow_and_one_is_killed(job_environment):
    pytest.importorskip("rich")
    words = ["run", "-n", "4", "--survive", "--view", "-c", RANKS]
    tty = Tty([sys.executable, "-m", "malt", *words], job_environment, 100, 30)
    try:
        wait_for(lambda: tty.shows(r"^\[0\] name\?") and tty.shows(r"waits for rank 0 in malt.barrier"))
        tty.type(b"Bob\n")
        status, lines = tty.end()
    finally:
        tty.process.send_signal(signal.SIGTERM)
    assert status == 0
    assert lines[0] == "[0] name? Bob" and "[0] hello Bob" in lines
    assert {f"[{rank}] at {step}" for rank in (0, 1, 3) for step in (0, 10)} | {"[2] at 0"} <= set(lines)
    assert any(re.match(r"\[\d\] malt: rank 2 is lost", line) for line in lines)
    tables = [place for place, line in enumerate(lines) if line.startswith("job ")]
    assert len(tables) == 1
    zero, one, two, three = lines[tables[0] + 2 : tables[0] + 6]
    assert [line.split()[:3] for line in (zero, one, three)] == [[rank, "100", "%"] for rank in "013"]
    assert re.search(r"failed [\d.]+ s ago: killed$", two)

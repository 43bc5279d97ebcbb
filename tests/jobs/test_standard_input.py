"""The standard input of a job."""

import os
import pty
import select
import signal
import subprocess
import sys

import pytest

from malt.launch.command import RUNNER
from malt.launch.streams.standard_input import StandardInput
from malt.runner import standard_input

pytestmark = pytest.mark.serial

READER = f"""if True:
    import sys
    sys.path.insert(0, {os.path.dirname(RUNNER)!r})  # as program.py loads it: without malt
    import standard_input
    standard_input.take(sys.argv[1], "0")
    print("reads", flush=True)
    for line in sys.stdin:
        print("got", line, end="", flush=True)
"""
PROGRAM = """if True:
    import os, pathlib, signal, subprocess, sys
    from malt.launch.streams.standard_input import StandardInput
    if sys.stdin is None:
        from malt.commands.command_line import _open_what_is_closed
        _open_what_is_closed()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    if "background" in sys.argv and (child := os.fork()) != 0:  # as a shell does
        signal.sigwait([signal.SIGUSR1])
        os.tcsetpgrp(0, child)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if "background" in sys.argv:
        os.setpgid(0, 0)
    given = StandardInput(pathlib.Path(sys.argv[2]), note_typed=lambda: print("typed", flush=True))
    words = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
    reader = subprocess.Popen(words, stdin=given.source, start_new_session=True)
    given.start()
    reader.wait()
    given.close()
    print("ended", flush=True)
"""


def at_a_terminal(*words):
    """(process, terminal): the program, and the terminal that is its standard streams."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM, READER, *map(str, words)])
    return process, terminal


def read_until(terminal, mark):
    seen = b""
    while mark not in seen:
        assert select.select([terminal], [], [], 10)[0], seen
        seen += os.read(terminal, 1000)
    return seen


@pytest.mark.parametrize("where", [["foreground"], ["background"]], ids=str)
def test_a_terminal_is_read_to_its_end(where, tmp_path):
    """In the background nothing is read, and no process is stopped.

    Before the reader has a line, the launcher knows that it was typed, and shown.
    """
    process, terminal = at_a_terminal(tmp_path, *where)
    os.write(terminal, b"a line\n")
    if "background" in where:
        assert b"got" not in read_until(terminal, b"ended")
        os.kill(process, signal.SIGUSR1)
    else:
        seen = read_until(terminal, b"got a line")
        assert b"typed" in seen[: seen.index(b"got")]
        os.write(terminal, b"\x04")  # Ctrl-D
        read_until(terminal, b"ended")
    assert os.waitpid(process, 0)[1] == 0
    os.close(terminal)


@pytest.mark.parametrize("how", ["closed", "empty"])
def test_no_input_is_an_end(how, tmp_path):
    command = [sys.executable, "-c", PROGRAM, READER, tmp_path]
    line = ["sh", "-c", 'exec "$@" <&-', "sh", *command] if how == "closed" else command
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)
    assert sorted(done.stdout.splitlines()) == ["ended", "reads"] and done.stderr == ""


def test_a_reader_that_never_comes_is_not_waited_for(tmp_path):
    given = StandardInput(tmp_path)
    given.start()
    given.close()
    assert not given.thread.is_alive()


def test_a_folder_with_a_long_path(tmp_path):
    """Longer than the address of a socket may be."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    given = StandardInput(folder)
    given.start()
    words = [sys.executable, "-c", READER, folder]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.communicate("not this", timeout=60)[0] == "reads\n"  # what this process has: under pytest nothing
    given.close()


def test_where_the_launcher_is_elsewhere_no_file_of_the_program_is_taken_for_input(tmp_path, monkeypatch):
    (tmp_path / "input").write_text("of the user")
    monkeypatch.chdir(tmp_path)
    before = os.fstat(0)
    standard_input.take(None, "0")
    assert os.path.samestat(before, os.fstat(0))

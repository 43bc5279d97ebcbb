"""The standard input of a job."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys

import pytest

from malt.launch.streams.standard_input import StandardInput

pytestmark = pytest.mark.serial

PROGRAM = """if True:
    import os, pathlib, signal, subprocess, sys
    from malt.launch.streams.standard_input import StandardInput
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    if "background" in sys.argv and (child := os.fork()) != 0:  # as a shell does
        signal.sigwait([signal.SIGUSR1])
        os.tcsetpgrp(0, child)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if "background" in sys.argv:
        os.setpgid(0, 0)
    given = StandardInput(pathlib.Path(sys.argv[1]), "spread" in sys.argv)
    source = {"stdin": given.source} if "spread" in sys.argv else {}
    file = [] if "spread" in sys.argv else [sys.argv[1] + "/input"]
    reader = subprocess.Popen(["sed", "-u", "s/^/got /", *file], **source, start_new_session=True)
    given.start()
    print("ready", flush=True)
    reader.wait()
    given.close()
    print("ended", flush=True)
"""


def at_a_terminal(*words):
    """(process, terminal): the program, and the terminal that is its standard streams."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM, *map(str, words)])
    return process, terminal


def read_until(terminal, mark):
    seen = b""
    while mark not in seen:
        assert select.select([terminal], [], [], 10)[0], seen
        seen += os.read(terminal, 1000)
    return seen


@pytest.mark.parametrize("where", [["foreground"], ["background"], ["foreground", "spread"]], ids=str)
def test_a_terminal_is_copied_to_its_end(where, tmp_path):
    """In the background nothing is read, and no process is stopped, until the job comes to the foreground."""
    process, terminal = at_a_terminal(tmp_path, *where)
    read_until(terminal, b"ready")
    os.write(terminal, b"a line\n")
    if "background" in where:
        assert not select.select([terminal], [], [], 0.3)[0] or b"got" not in os.read(terminal, 1000)
        os.kill(process, signal.SIGUSR1)
    read_until(terminal, b"got a line")
    os.write(terminal, b"\x04")  # Ctrl-D
    read_until(terminal, b"ended")
    assert os.waitpid(process, 0)[1] == 0
    os.close(terminal)


@pytest.mark.parametrize("how", ["closed", "empty"])
def test_no_input_is_an_end(how, tmp_path):
    command = [sys.executable, "-c", PROGRAM, tmp_path]
    line = ["sh", "-c", 'exec "$@" <&-', "sh", *command] if how == "closed" else command
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)
    assert done.stdout.splitlines() == ["ready", "ended"] and done.stderr == ""


def test_a_reader_that_never_comes_is_not_waited_for(tmp_path):
    given = StandardInput(tmp_path, is_spread=False)
    given.start()
    given.close()
    assert not given._thread.is_alive()

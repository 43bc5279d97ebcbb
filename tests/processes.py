"""Processes of jobs: whether they run, and waiting for what they do."""

import time


def wait_for(condition, deadline_s=100.0):
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_alive(process):
    """Whether it runs: what has ended, and was not yet asked for its status, is a zombie.

    Its state is read, not its command line: that is empty too while a program begins, in the midst of exec.
    """
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False

"""Processes of jobs: whether they run, and waiting for what they do."""

from __future__ import annotations

import time


def wait_for(condition, deadline_s=100.0):
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_alive(process):
    """Whether it runs: what has ended and was not yet asked for its status has no command line."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return file.read() != b""
    except OSError:
        return False

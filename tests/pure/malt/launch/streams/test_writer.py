"""The thread that writes what ranks print."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from malt.launch.streams.display import say
from malt.launch.streams.writer import Writer

pytestmark = pytest.mark.serial


def test_a_pipe_that_another_process_has_made_non_blocking_gets_all():
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    writer, got = Writer(theirs), bytearray()

    def read():
        time.sleep(0.05)  # the pipe is full by now
        while data := os.read(ours, 1 << 16):
            got.extend(data)

    reader = threading.Thread(target=read)
    writer.start()
    writer.write(b"x" * 500_000)
    reader.start()
    writer.close()
    os.close(theirs)
    reader.join()
    os.close(ours)
    assert got == b"x" * 500_000


def test_the_launcher_goes_on_where_its_terminal_was_closed(monkeypatch):
    with open("/dev/full", "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        say("malt run: ended by SIGHUP\n")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), closed.fileno())

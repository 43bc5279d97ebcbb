"""The thread that writes what ranks print."""

import os
import sys
import threading
import time

from processes import wait_for

from malt.launch.streams.display import say
from malt.launch.streams.writer import Writer


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


class Late(bytes):
    """While the thread that writes counts it, more is written."""

    def __new__(cls, data, write):
        made = super().__new__(cls, data)
        made.write = write
        return made

    def __len__(self):
        if threading.current_thread() is not threading.main_thread() and self.write is not None:
            self.write(b"more")
            self.write = None
        return super().__len__()


def test_what_waits_is_counted_while_more_comes():
    """As Python 3.10 may run another thread in the midst of a sum. Past a limit ranks would wait for ever."""
    writer = Writer(os.open(os.devnull, os.O_WRONLY))
    writer.start()
    late = Late(b"x", writer.write)
    writer.write(late)
    wait_for(lambda: late.write is None, 10)
    writer.close()
    assert writer.pending == 0


def test_the_launcher_goes_on_where_its_terminal_was_closed(monkeypatch):
    with open("/dev/full", "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        say("malt run: ended by SIGHUP\n")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), closed.fileno())

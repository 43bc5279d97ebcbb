"""Reports of a rank whose launcher takes none: no call of it waits for long, and what matters comes later."""

import contextlib
import json
import os
import socket
import threading
import time

import pytest
from reported import sent

from malt.runner import reporting
from malt.runner.events import Kind


@pytest.fixture
def launcher(monkeypatch):
    """The launcher's end of the connection of rank 2, which it does not read."""
    ours, theirs = socket.socketpair()
    monkeypatch.setenv(reporting.CALL, str(theirs.fileno()))
    monkeypatch.setenv(reporting.RANK, "2")
    monkeypatch.setattr(reporting, "_process", os.getpid())
    monkeypatch.setattr(reporting, "_connection", theirs, raising=False)
    monkeypatch.setattr(reporting, "_unsent", [], raising=False)
    monkeypatch.setattr(reporting, "_is_stuck", False, raising=False)
    with ours, theirs:
        theirs.settimeout(None)
        yield ours


def fill(texts=60):
    for number in range(texts):
        reporting.publish("shown-2", f"{number} " + "x" * 50_000)


def taken(launcher):
    """The reports that the launcher reads, while the rank sends what is left."""
    launcher.settimeout(0.2)
    data = b""
    while True:
        try:
            data += launcher.recv(1 << 20)
        except TimeoutError:
            if not reporting._unsent:
                lines = [json.loads(line) for line in data.splitlines() if line]
                return [line if len(line) == 2 else sent(line) for line in lines]
        if reporting._unsent:
            reporting.report(Kind.READY)


def test_no_report_waits_for_a_launcher_that_is_cut_off(launcher, monkeypatch):
    monkeypatch.setattr(reporting, "_SEND_S", 2.0)
    began = time.monotonic()
    fill()
    for rank in (0, 1):
        reporting.report(Kind.LOST, of=rank)
    assert time.monotonic() - began < 2
    for kind in (Kind.TRACEBACK, Kind.LEFT, Kind.FINISHED):  # the first alone waits
        reporting.report(kind, "3")
    assert time.monotonic() - began < 3.8
    names = [name for name, _ in taken(launcher) if name != "ready-2"]
    assert names[-5:] == ["lost-0", "lost-1", "traceback-2", "left-2", "finished-2"]
    assert set(names[:-5]) == {"shown-2"}


def test_what_is_shown_replaces_what_was_not_sent(launcher):
    fill()
    shown = [int(text.split()[0]) for name, text in taken(launcher) if name == "shown-2"]
    assert shown[-1] == 59 and len(shown) < 30 and shown[:-1] == list(range(len(shown) - 1)), shown


def test_the_end_of_a_rank_waits_for_a_launcher_that_is_slow(launcher):
    fill()
    launcher.settimeout(0.1)
    is_reported = threading.Event()

    def read():
        time.sleep(0.2)
        while not is_reported.is_set():
            with contextlib.suppress(TimeoutError):
                launcher.recv(1 << 20)

    reader = threading.Thread(target=read)
    reader.start()
    reporting.report(Kind.LEFT, "3")
    is_reported.set()
    reader.join()
    assert not reporting._unsent

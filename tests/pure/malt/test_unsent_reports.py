"""Reports of a rank whose launcher takes none: no call of it waits for long, and what matters comes later."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time

import pytest

from malt.runner import reporting

pytestmark = pytest.mark.serial


@pytest.fixture
def launcher(monkeypatch):
    """The launcher's end of the connection of rank 2, which it does not read."""
    ours, theirs = socket.socketpair()
    monkeypatch.setenv(reporting.CALL, str(theirs.fileno()))
    monkeypatch.setattr(reporting, "_connection", theirs, raising=False)
    monkeypatch.setattr(reporting, "_unsent", [], raising=False)
    monkeypatch.setattr(reporting, "_is_stuck", False, raising=False)
    with ours, theirs:
        theirs.settimeout(None)
        yield ours


def fill(texts=60):
    for number in range(texts):
        reporting.report_to(None, "shown-2", f"{number} " + "x" * 50_000)


def taken(launcher):
    """The reports that the launcher reads, while the rank sends what is left."""
    launcher.settimeout(0.2)
    data = b""
    while True:
        try:
            data += launcher.recv(1 << 20)
        except TimeoutError:
            if not reporting._unsent:
                return [json.loads(line) for line in data.splitlines() if line]
        if reporting._unsent:
            reporting.report_to(None, "begun-2", "")


def test_no_report_waits_for_a_launcher_that_is_cut_off(launcher, monkeypatch):
    monkeypatch.setattr(reporting, "_SEND_S", 2.0)
    began = time.monotonic()
    fill()
    for rank in (0, 1):
        reporting.report_to(None, f"lost-{rank}", "")
    assert time.monotonic() - began < 2
    for name in ("rank-2.txt", "left-2", "finished-2"):  # the first alone waits
        reporting.report_to(None, name, "3")
    assert time.monotonic() - began < 3.8
    names = [name for name, _ in taken(launcher) if name != "begun-2"]
    assert names[-5:] == ["lost-0", "lost-1", "rank-2.txt", "left-2", "finished-2"]
    assert set(names[:-5]) == {"shown-2"}


def test_what_is_shown_replaces_what_was_not_sent(launcher):
    fill()
    shown = [int(text.split()[0]) for name, text in taken(launcher) if name == "shown-2"]
    assert shown[-1] == 59 and len(shown) < 30 and shown[:-1] == list(range(len(shown) - 1)), shown


def test_the_end_of_a_rank_waits_for_a_launcher_that_is_slow(launcher):
    fill()
    launcher.settimeout(0.5)

    def read():
        time.sleep(0.2)
        with contextlib.suppress(TimeoutError):
            while launcher.recv(1 << 20):
                pass

    reader = threading.Thread(target=read)
    reader.start()
    reporting.report_to(None, "left-2", "3")
    reader.join()
    assert not reporting._unsent

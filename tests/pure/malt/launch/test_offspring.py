"""Killing the processes that a job has started, and how long that may take."""

from __future__ import annotations

import os
import subprocess

import pytest

from malt.launch.processes import offspring
from malt.launch.processes.offspring import Offspring

pytestmark = pytest.mark.serial


def test_a_process_that_does_not_end_is_not_waited_for(monkeypatch):
    """It stands for one that waits for a file server; here it is not killed."""
    job = Offspring()
    child = subprocess.Popen(["sleep", "50"], start_new_session=True)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(offspring, "_KILLED_S", 0.1)
            patched.setattr(offspring.os, "kill", lambda process, number: None)
            assert job.kill([child.pid]) == [child.pid]
        assert job.kill([child.pid]) == []
    finally:
        child.kill()
        child.wait()


def test_processes_that_were_there_before_are_spared():
    before = subprocess.Popen(["sleep", "50"], start_new_session=True)
    try:
        job = Offspring()
        child = subprocess.Popen(["sleep", "50"], start_new_session=True)
        assert job.kill([child.pid, before.pid]) == []
        assert before.poll() is None and not os.path.exists(f"/proc/{child.pid}")
        child.wait()  # which has been done
    finally:
        before.kill()
        before.wait()

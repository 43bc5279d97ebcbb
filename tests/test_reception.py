"""Ranks that call the launcher, and others that do."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from malt import reception
from malt.program import CALL, RECEPTION
from malt.reception import Reception

pytestmark = pytest.mark.serial
PROGRAM = str(Path(__file__).parents[1] / "malt" / "program.py")


@pytest.fixture
def open_reception(tmp_path, monkeypatch):
    monkeypatch.setattr(reception, "own_addresses", lambda: ("127.0.0.1",))
    with contextlib.closing(Reception(tmp_path)) as made:
        yield made


def call(number, *lines, token=None):
    _, right, port, address = number.split()
    with socket.create_connection((address, int(port))) as connection:
        connection.sendall(f"{token or right} 2\n".encode() + b"".join(lines))
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def line(name, text=""):
    return json.dumps([name, text]).encode() + b"\n"


def test_what_is_said_becomes_files(open_reception, tmp_path):
    said = [line(name) for name in ("begun-2", "calls-77")]
    call(open_reception.number, line("rank-2.txt", "Traceback: ü"), line("left-2", "3"), *said)
    assert files(tmp_path) == ["begun-2", "calls-77", "elsewhere-2", "ended-2", "left-2", "rank-2.txt"]
    assert (tmp_path / "rank-2.txt").read_text(encoding="utf-8") == "Traceback: ü"


@pytest.mark.parametrize(
    "said", [line("../outside", "x"), line("started-1", "1 1"), b"nonsense\n", b"[1]\n", b"\xff\n", b"cut off"]
)
def test_other_files_are_not_written(said, open_reception, tmp_path):
    call(open_reception.number, said)
    assert files(tmp_path) == ["elsewhere-2", "ended-2"]


def test_a_stranger_is_not_heard(open_reception, tmp_path):
    call(open_reception.number, line("finished-2"), token="0" * 32)
    call(open_reception.number, line("finished-2"), token="\u00fc")
    assert files(tmp_path) == []


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_rank_on_another_host_calls(ends_well, open_reception, tmp_path, job_environment):
    program = tmp_path / "program.py"
    program.write_text(f"import os; print(os.environ['{CALL}']); {'' if ends_well else 'raise ValueError'}")
    number = " ".join(["elsewhere", *open_reception.number.split()[1:]])
    environment = job_environment | {RECEPTION: number, "MALT_JOB_DIR": "/nowhere", "PMIX_RANK": "2"}
    subprocess.run([sys.executable, PROGRAM, program], env=environment, capture_output=True, timeout=20)
    end = time.monotonic() + 5
    while "ended-2" not in files(tmp_path) and time.monotonic() < end:
        time.sleep(0.01)
    said = ["finished-2"] if ends_well else ["left-2", "rank-2.txt"]
    assert files(tmp_path) == sorted(["elsewhere-2", "ended-2", "program.py", *said])


def test_a_rank_on_this_host_does_not_call(open_reception, tmp_path, job_environment):
    assert open_reception.number.split()[0] == os.uname().nodename
    environment = job_environment | {RECEPTION: open_reception.number, "PMIX_RANK": "2"}
    program = tmp_path / "program.py"
    program.write_text(f"import os; assert '{CALL}' not in os.environ and '{RECEPTION}' not in os.environ")
    assert subprocess.run([sys.executable, PROGRAM, program], env=environment, timeout=20).returncode == 0
    assert files(tmp_path) == ["program.py"]

"""Commands, and programs without a launcher, end quietly where nobody reads what they print, as by `| head -1`."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import malt
from apps.harness.agreement import on_lowest_rank
from apps.harness.errors import BadInput, user_errors

pytestmark = pytest.mark.serial

WORDS = ("malt graph ring -n 4", "malt completion bash", "apps.svm --help", "apps.svm --epochs 1")
OF_ARGPARSE = ("malt report --help", "malt --version")
"""Which passes over errors of what it writes at once."""


@pytest.mark.parametrize(
    ("words", "unbuffered"), [*((one, "") for one in (*WORDS, *OF_ARGPARSE)), (WORDS[0], "1"), (WORDS[-1], "1")]
)
def test_it_ends_as_other_tools_do(words, unbuffered):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as unread:
        done = subprocess.run(
            [sys.executable, "-m", *words.split()], stdout=unread, stderr=subprocess.PIPE, text=True, timeout=200,
            cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize("words", ["malt graph ring -n 4", "malt --version", "apps.svm --epochs 1"])
def test_what_a_full_disk_does_not_take_is_said_in_one_line(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", *words.split()], stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=200, cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONUNBUFFERED": ""},
        )  # fmt: skip
    start = "malt" if words.startswith("malt") else "apps.svm: error"
    assert (done.returncode, done.stderr) == (1, f"{start}: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
def test_a_report_that_nobody_reads_is_no_file_that_cannot_be_written(number):
    """All ranks end then, as the lowest one does."""

    def unread():
        raise OSError(number, os.strerror(number))

    def program(rank):
        with pytest.raises(OSError, match=os.strerror(number)):
            on_lowest_rank(unread)
        return True

    assert malt.simulate(program, 2) == [True, True]


def test_a_full_disk_of_a_file_is_that_of_the_file():
    with pytest.raises(BadInput, match="^model.npz: No space left on device$"), user_errors():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.npz")

"""The ranks of a job that another launcher has started agree on its folder, at a Unix socket that is theirs alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading

import pytest
from ranks import at_once

from dstorm import DeadlinePassed
from malt.session.resilience import job_folder
from malt.session.resilience.party import is_made
from malt.watch import jobs

pytestmark = pytest.mark.serial

NAME = "0123456789abcdef"


@pytest.fixture(autouse=True)
def temporary(monkeypatch, tmp_path):
    """A folder for temporary files whose name is longer than that of a socket may be."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(job_folder, "_locks", [])
    return folder


def come(ranks, size, name=NAME, deadline_s=20.0):
    """What each of `ranks` gets: a folder, or an error."""
    found = {}

    def run(rank):
        try:
            found[rank] = job_folder.agreed(name, rank, range(size), ["train.py"], deadline_s)
        except (DeadlinePassed, RuntimeError) as error:
            found[rank] = error

    at_once(run, ranks)
    return found


def sockets(temporary):
    return os.listdir(temporary / f"malt-{os.geteuid()}")


def test_all_ranks_get_the_folder_that_rank_0_makes(temporary):
    found = come([2, 0, 1], 3)
    assert len(set(found.values())) == 1 and sockets(temporary) == []
    folder = found[0]
    assert folder.stat().st_mode & 0o777 == 0o700 and is_made(folder)
    [job] = jobs.running()  # malt status shows it
    assert (job.folder, job.ranks, job.program, job.number) == (folder, 3, "train.py", os.getpid())
    job_folder.remove(folder)
    assert not folder.exists()


def test_jobs_with_other_names_have_other_folders():
    one, other = come([0, 1], 2), come([0, 1], 2, name="another")
    assert one[0] == one[1] != other[0] == other[1]


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([0, 2], {0: r"ranks 0, 2 have come: the deadline passed waiting for rank 1 .*, rank 3 "}),
        ([0], {0: r"rank 0 has come: the deadline passed waiting for rank 1 .*, rank 2 .*, rank 3 "}),
        ([3], {3: r"rank 3 has come: the deadline passed waiting for rank 0 "}),
    ],
)
def test_ranks_that_do_not_come_are_named_and_nothing_is_left(ranks, said, temporary):
    found = come(ranks, 4, deadline_s=0.3)
    for rank, message in said.items():
        with pytest.raises(DeadlinePassed, match=message):
            raise found[rank]
    assert sockets(temporary) == [] and not list(temporary.glob("malt-torchrun-*"))


def left_socket(temporary, name=NAME):
    """A socket of a rank 0 that was killed."""
    with job_folder._place(), socket.socket(socket.AF_UNIX) as server:
        old = os.getcwd()
        os.chdir(temporary / f"malt-{os.geteuid()}")
        server.bind(name)
        os.chdir(old)


def test_what_a_killed_rank_0_has_left_is_replaced(temporary):
    left_socket(temporary)
    found = come([1, 0], 2)
    assert found[0] == found[1] and sockets(temporary) == []


def test_two_jobs_that_start_at_once_with_the_same_variables_do_not_mix(temporary):
    first = threading.Thread(target=come, args=([0], 2), kwargs=dict(deadline_s=2.0))
    first.start()
    while not (temporary / f"malt-{os.geteuid()}" / NAME).exists():
        pass
    with pytest.raises(RuntimeError, match="another job with the variables of this one"):
        raise come([0], 2)[0]
    first.join()


@pytest.mark.parametrize("how", ["open to others", "a link", "a file", "another user's"])
def test_a_folder_that_is_not_of_this_user_alone_is_refused(how, temporary, monkeypatch):
    place = temporary / f"malt-{os.geteuid()}"
    if how == "a link":
        (temporary / "mine").mkdir(mode=0o700)
        place.symlink_to(temporary / "mine")
    elif how == "a file":
        place.touch(mode=0o700)
    else:
        place.mkdir(mode=0o700)
    if how == "open to others":
        place.chmod(0o750)
    if how == "another user's":
        number = os.geteuid()
        place.rename(temporary / f"malt-{number + 1}")
        monkeypatch.setattr(job_folder.os, "geteuid", lambda: number + 1)
    for found in come([0, 1], 2, deadline_s=1.0).values():
        with pytest.raises(RuntimeError, match="is not a folder that only this user can enter.*set TMPDIR"):
            raise found


LEAVES = """
import sys, tempfile
from malt.session.resilience import job_folder
tempfile.tempdir = sys.argv[1]
print(job_folder.agreed("name", 0, [0], ["train.py"], 5), flush=True)
sys.stdin.read()
"""


def test_folders_of_jobs_that_were_killed_are_removed_and_those_of_others_stay(temporary):
    with subprocess.Popen(
        [sys.executable, "-c", LEAVES, str(temporary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        left = rank.stdout.readline().strip()
        launched, begun = temporary / "malt-abc", temporary / "malt-torchrun-begun"
        launched.mkdir(), begun.mkdir(mode=0o700)
        job_folder.remove_left()
        assert os.path.isdir(left), "its rank 0 runs"
        rank.kill()
        rank.wait()
    come([0, 1], 2)
    assert not os.path.exists(left) and launched.exists() and begun.exists()
    job_folder.remove(launched)
    assert launched.exists(), "it is malt run's"

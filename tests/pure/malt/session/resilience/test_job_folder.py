"""The ranks of a job that another launcher has started agree on its folder, which is theirs alone."""

import os
import subprocess
import sys
import tempfile
import threading

import pytest
from ranks import at_once

from dstorm import DeadlinePassed
from malt.session.resilience import job_folder
from malt.session.resilience.process_group import is_made
from malt.watch import jobs

NAME = "0123456789abcdef"


@pytest.fixture(autouse=True)
def temporary(monkeypatch, tmp_path):
    """A folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(job_folder, "_locks", [])
    monkeypatch.setattr(job_folder, "_ENDS_S", 0.5)
    yield tmp_path
    for file in job_folder._locks:
        os.close(file)


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


def place(temporary, name=NAME):
    return temporary / f"malt-torchrun-{os.geteuid()}-{name}"


def test_all_ranks_get_the_folder_that_rank_0_makes(temporary):
    found = come([2, 0, 1], 3)
    assert set(found.values()) == {place(temporary)}
    folder = found[0]
    assert folder.stat().st_mode & 0o777 == 0o700 and is_made(folder)
    [job] = jobs.running()  # malt status shows it
    assert (job.folder, job.ranks, job.program, job.number) == (folder, 3, "train.py", os.getpid())
    job_folder.remove(folder)
    assert not folder.exists()


def test_jobs_with_other_names_have_other_folders():
    one, other = come([0, 1], 2), come([0, 1], 2, name="another")
    assert one[0] == one[1] != other[0] == other[1]


def test_a_first_rank_that_does_not_come_is_named(temporary):
    with pytest.raises(DeadlinePassed, match="rank 3 has come: the deadline passed waiting for rank 0 "):
        raise come([3], 4, deadline_s=0.3)[3]
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("was_published", [True, False])
def test_what_a_killed_rank_0_has_left_is_replaced(was_published, temporary):
    """The others do not take it for that of this start, though they may come before the first."""
    left = place(temporary)
    left.mkdir(mode=0o700)
    (left / "old").touch()
    if was_published:
        jobs.publish(left, 2, ["old.py"])
    late = threading.Timer(0.2, come, args=([0], 2))
    late.start()
    assert come([1], 2) == {1: left} and not (left / "old").exists()
    late.join()


def test_the_folder_of_a_start_before_is_not_joined(temporary):
    """Its first rank has not ended so far."""
    come([0], 2)
    (place(temporary) / "events-1").touch()
    with pytest.raises(DeadlinePassed, match="rank 1 has come"):
        raise come([1], 2, deadline_s=0.3)[1]


def test_two_jobs_with_the_same_variables_do_not_mix():
    come([0], 2)
    with pytest.raises(RuntimeError, match="another job with the variables of this one"):
        raise come([0], 2)[0]


@pytest.mark.parametrize("how", ["open to others", "a link", "a file", "another user's"])
def test_a_folder_that_is_not_of_this_user_alone_is_refused(how, temporary, monkeypatch):
    number = os.geteuid() + (how == "another user's")
    made = temporary / f"malt-torchrun-{number}-{NAME}"
    if how == "a link":
        (temporary / "mine").mkdir(mode=0o700)
        made.symlink_to(temporary / "mine")
    elif how == "a file":
        made.touch(mode=0o700)
    else:
        made.mkdir(mode=0o700)
    if how == "open to others":
        made.chmod(0o750)
    if how == "another user's":
        monkeypatch.setattr(job_folder.os, "geteuid", lambda: number)
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

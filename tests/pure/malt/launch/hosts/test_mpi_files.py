"""What an agent removes at the end of a job: files of MPI in shared memory alone."""

import mmap
import os
import time
from pathlib import Path

import pytest

from malt.launch.hosts.agent import traces
from malt.launch.hosts.agent.watch import Watch, clean


@pytest.fixture
def shared(monkeypatch):
    """shared(name): a new file in shared memory, whose name begins so. It is removed at the end."""
    monkeypatch.setattr(traces, "_CLOSES_S", 0.0)
    made = []

    def make(name, age_s=0):
        made.append(Path(f"/dev/shm/{name}-{os.getpid()}"))
        made[-1].write_bytes(bytes(4096))
        os.utime(made[-1], (0, time.time() - age_s))
        return made[-1]

    yield make
    for file in made:
        file.unlink(missing_ok=True)


def test_a_file_that_is_mapped_and_closed_between_two_looks_is_in_use(tmp_path, monkeypatch, shared):
    file, held = shared("mpich_shm_late"), ["opened"]

    def look(state):
        def files(process):
            if process != os.getpid():
                return set()
            found = {str(file)} if held[-1] == state else set()
            held.append("mapped")
            return found

        return files

    monkeypatch.setattr(traces, "_opened", look("opened"))
    monkeypatch.setattr(traces, "_mapped", look("mapped"))
    (tmp_path / "job").touch()
    traces.remove_traces(str(tmp_path))
    assert len(held) > 2 and file.exists()


OF_OPENMPI = f"sm_segment.{os.uname().nodename.partition('.')[0]}.0.1."


@pytest.mark.parametrize("kind", ["mpich_shm_", "ucx_shm_posix_", OF_OPENMPI])
def test_files_that_came_during_the_job_go_unless_they_are_in_use(kind, tmp_path, shared):
    before, left, opened, mapped = (shared(f"{kind}{number}", 60 * (number == 0)) for number in range(4))
    others = [shared(name) for name in ("train.npy", "my_sm_segment.", "sm_segment.another-host.0.1.0")]
    folder = tmp_path / "pbs.17[3].server"  # as of a part of an array job
    folder.mkdir()
    (folder / "job").touch()
    with open(opened, "rb"), open(mapped, "r+b") as mapping:
        its = mmap.mmap(mapping.fileno(), 0)
        mapping.close()
        traces.remove_traces(str(folder))
    its.close()
    assert [file.exists() for file in (before, left, opened, mapped, *others)] == [True, False] + [True] * 5


@pytest.mark.parametrize("is_watched", [True, False], ids=["another host", "no folder"])
def test_on_another_host_the_job_is_as_old_as_its_folder(is_watched, tmp_path, shared):
    """Where nobody knows its age, nothing goes. No rank has begun: a daemon of mpiexec has made the file."""
    folder = tmp_path / "malt-job"
    if is_watched:
        Watch(str(folder), [], print)
    older, ours = shared("mpich_shm_0", 60), shared("mpich_shm_1")
    clean(str(folder))
    assert older.exists() and ours.exists() != is_watched


def test_a_system_without_proc_has_no_processes(tmp_path, monkeypatch):
    folder = tmp_path / "malt-job"
    folder.mkdir()
    listdir = os.listdir

    def without_proc(path):
        if path == "/proc":
            raise FileNotFoundError(path)
        return listdir(path)

    monkeypatch.setattr(traces.os, "listdir", without_proc)
    clean(str(folder))
    assert not folder.exists()

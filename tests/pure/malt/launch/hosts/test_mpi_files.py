"""What an agent removes at the end of a job: files of MPI in shared memory alone."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

from malt.launch.hosts.agent import traces
from malt.launch.hosts.agent.watch import Watch, clean

pytestmark = pytest.mark.serial


def test_a_file_that_is_mapped_and_closed_between_two_looks_is_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "_CLOSES_S", 0.0)
    file, held = Path(f"/dev/shm/mpich_shm_late-{os.getpid()}"), ["opened"]

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
    file.write_bytes(bytes(4096))
    try:
        traces.remove_traces(str(tmp_path))
        assert len(held) > 2 and file.exists()
    finally:
        file.unlink(missing_ok=True)


OF_OPENMPI = f"sm_segment.{os.uname().nodename.partition('.')[0]}.0.1."


@pytest.mark.parametrize("kind", ["mpich_shm_", "ucx_shm_posix_", OF_OPENMPI])
def test_files_that_came_during_the_job_go_unless_they_are_in_use(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "_CLOSES_S", 0.0)
    before, left, opened, mapped = (Path(f"/dev/shm/{kind}{name}-{os.getpid()}") for name in ("0", "1", "2", "3"))
    try:
        before.write_bytes(bytes(4096))
        os.utime(before, (0, time.time() - 60))
        folder = tmp_path / "pbs.17[3].server"  # as of a part of an array job
        folder.mkdir()
        (folder / "job").touch()
        for file in (left, opened, mapped):
            file.write_bytes(bytes(4096))
        with open(opened, "rb"), open(mapped, "r+b") as mapping:
            its = mmap.mmap(mapping.fileno(), 0)
            mapping.close()
            traces.remove_traces(str(folder))
        its.close()
        assert [file.exists() for file in (before, left, opened, mapped)] == [True, False, True, True]
    finally:
        for file in (before, left, opened, mapped):
            file.unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["train.npy", "my_sm_segment.", "sm_segment.another-host.0.1.0"])
def test_files_of_the_user_and_of_other_hosts_stay(name, tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "_CLOSES_S", 0.0)
    file = Path(f"/dev/shm/{name}-{os.getpid()}")
    try:
        (tmp_path / "job").touch()
        file.touch()
        traces.remove_traces(str(tmp_path))
        assert file.exists()
    finally:
        file.unlink(missing_ok=True)


@pytest.mark.parametrize("is_watched", [True, False], ids=["another host", "no folder"])
def test_on_another_host_the_job_is_as_old_as_its_folder(is_watched, tmp_path, monkeypatch):
    """Where nobody knows its age, nothing goes. No rank has begun: a daemon of mpiexec has made the file."""
    monkeypatch.setattr(traces, "_CLOSES_S", 0.0)
    older, ours = (Path(f"/dev/shm/mpich_shm_{name}-{os.getpid()}") for name in ("0", "1"))
    folder = tmp_path / "malt-job"
    if is_watched:
        Watch(str(folder), [], print)
    try:
        older.touch()
        os.utime(older, (0, time.time() - 60))
        ours.touch()
        clean(str(folder))
        assert older.exists() and ours.exists() != is_watched
    finally:
        for file in (older, ours):
            file.unlink(missing_ok=True)


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

"""What an agent removes at the end of a job: files of MPI in shared memory alone."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from malt.launch.hosts.agent.traces import _mapped

pytestmark = pytest.mark.serial


def test_files_of_the_user_are_not_those_of_mpi():
    files = [Path(f"/dev/shm/{name}-{os.getpid()}") for name in ("sm_segment.test", "train.npy", "my_sm_segment.")]
    try:
        maps = []
        for file in files:
            file.write_bytes(bytes(4096))
            with open(file, "r+b") as opened:
                maps.append(mmap.mmap(opened.fileno(), 0))
        assert _mapped(os.getpid()) & {str(file) for file in files} == {str(files[0])}
    finally:
        for file in files:
            file.unlink(missing_ok=True)

"""Memory that ranks share through a file, each of which maps it by itself."""

import errno
import mmap
import os

import numpy as np
import pytest

from dstorm.membership.resilient import SurvivingTransport
from dstorm.transports import shm_space
from dstorm.transports.shm import SharedMemory
from dstorm.transports.solo import LoneTransport
from dstorm.view import Change, Member

pytestmark = pytest.mark.serial
SIZE = 3
PAGE = mmap.PAGESIZE


@pytest.fixture
def windows(tmp_path):
    fences = []
    made = [
        SharedMemory(tmp_path / "arena", rank, range(SIZE), 1 << 16, lambda rank=rank: fences.append(rank))
        for rank in range(SIZE)
    ]
    return made, fences


def test_a_flush_and_a_sync_are_fences(windows):
    (first, second, _), fences = windows
    first.flush([1])
    first.prepared_flush([1])()
    second.sync()
    assert fences == [0, 0, 1]


def test_whoever_comes_later_finds_what_was_put_before(tmp_path):
    first = SharedMemory(tmp_path / "arena", 0, range(2), 4096, lambda: None)
    first.put(np.full(8, 7, np.uint8), 1, 0)
    second = SharedMemory(tmp_path / "arena", 1, range(2), 4096, lambda: None)
    assert second.memory[:8].tolist() == [7] * 8


def test_what_is_discarded_takes_no_memory_and_leaves_the_rest(tmp_path):
    taken = lambda: 512 * (tmp_path / "arena").stat().st_blocks  # noqa: E731
    parts = [SharedMemory(tmp_path / "arena", rank, range(2), 16 * PAGE, lambda: None) for rank in range(2)]
    for part in parts:
        part.memory[:] = 7
    before = taken()
    parts[1].discard(PAGE + 1, 9 * PAGE)
    kept = np.ones(16 * PAGE, bool)
    kept[2 * PAGE : 10 * PAGE] = False
    assert (parts[1].memory[kept] == 7).all() and (parts[0].memory == 7).all()
    if parts[1].memory.all():
        pytest.skip("files of this file system have no holes")
    assert not parts[1].memory[~kept].any() and taken() <= before - 8 * PAGE
    parts[1].memory[:] = 5
    parts[1].discard(PAGE + 1, 9)
    assert (parts[1].memory == 5).all()


def test_a_limit_on_memory_is_told_with_the_remedy(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match="cannot map 0 MB of shared memory: Cannot allocate memory: raise the limit"):
        SharedMemory(tmp_path / "arena", 0, range(2), PAGE, lambda: None)


@pytest.mark.parametrize("what", ["of others to write to", "a link", "a second name", "a pipe", "of another user"])
def test_what_another_user_has_put_in_its_place_is_refused(what, tmp_path, monkeypatch):
    """It could read and change the weights by it; a link could lead to any file of this user."""
    arena, own = tmp_path / "arena", tmp_path / "own"
    own.touch(0o600)
    made = {
        "of others to write to": lambda: (arena.touch(), arena.chmod(0o666)), "a link": lambda: arena.symlink_to(own),
        "a second name": lambda: os.link(own, arena), "a pipe": lambda: os.mkfifo(arena, 0o600),
        "of another user": lambda: (arena.touch(0o600), monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)),
    }  # fmt: skip
    made[what]()
    with pytest.raises(MemoryError, match="arena is not a file of this user alone, another one may have made it: "):
        SharedMemory(arena, 0, range(2), PAGE, lambda: None)
    assert own.stat().st_size == 0


def test_a_folder_that_cannot_be_written_is_told_with_the_remedy(tmp_path):
    """As where /dev/shm is read-only."""
    with pytest.raises(MemoryError, match="^cannot make .*: No such file or directory: let this user make files in "):
        SharedMemory(tmp_path / "gone" / "arena", 0, range(2), PAGE, lambda: None)


@pytest.mark.parametrize("ranks", [1, 3, 7])
def test_the_part_of_each_rank_begins_at_a_page(ranks):
    share = shm_space.share_nbytes(ranks, 10**9 + 1)
    assert share % PAGE == 0 and 0 <= (10**9 + 1) / (2 * ranks) - share < PAGE


def test_it_lasts_when_its_name_has_gone(windows, tmp_path):
    (first, second, _), _ = windows
    (tmp_path / "arena").unlink()
    first.put(np.ones(4, np.uint8), 1, 0)
    assert second.memory[:4].tolist() == [1] * 4
    first.free()
    assert first.memory.nbytes == 0
    assert second.memory[:4].tolist() == [1] * 4


def test_a_rank_alone_goes_on_where_the_others_were_dead_before(tmp_path):
    arena = SharedMemory(tmp_path / "arena", 2, range(SIZE), 1 << 22, lambda: None)
    transport = SurvivingTransport(LoneTransport(2, ["a"] * SIZE), arena, lambda: [0, 1], 5.0)
    transport.barrier("malt.init")
    reports = []
    transport.view.subscribe(reports.append)
    assert reports == [Change(1, frozenset({Member(0), Member(1)}), frozenset())]
    assert transport.allgather(b"mine") == [b"", b"", b"mine"]
    values = np.arange(4.0)
    transport.allreduce(values)
    assert values.tolist() == [0, 1, 2, 3]
    assert len(set(transport.hosts)) == 1 and transport.local_peers == {0, 1}


def test_who_asked_a_former_incarnation_to_be_admitted_may_be_a_member(tmp_path):
    """What it has said since has not reached the memory of a rank that was away, on another host."""
    arenas = [SharedMemory(tmp_path / "arena", rank, range(SIZE), 1 << 22, lambda: None) for rank in range(SIZE)]
    asking, again = (
        SurvivingTransport(LoneTransport(rank, ["a"] * SIZE), arenas[rank], list, 5.0, readmit=lambda *_: None)
        for rank in (1, 2)
    )
    asking.returns.ask(1, (), list)
    asking.returns._ask()
    again.clear()
    again.returns.ask(1, (), lambda: {0})
    assert again.returns._admitting(1) is None

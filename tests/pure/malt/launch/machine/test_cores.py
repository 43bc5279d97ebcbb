"""The number of cores to use, on machines made of files."""

import os

import pytest
from written import write

from malt.launch.machine import cores


def test_at_least_one_and_no_more_than_the_affinity_mask():
    assert 1 <= cores.usable_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("allowed", "expected"), [({0, 1, 2, 3}, 2), ({0, 2}, 1), ({1}, 1), ({0, 1, 9}, 3)])
def test_hardware_threads_of_a_core_count_once(tmp_path, allowed, expected):
    for processor, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        write(tmp_path / f"cpu{processor}" / "topology", thread_siblings_list=siblings)
    assert cores._physical(allowed, tmp_path) == expected


def test_every_group_on_the_way_counts(tmp_path):
    """Of version 2 and of version 1."""
    assert cores._quotas(tmp_path, "") == cores._quotas(tmp_path, "0::/") == []
    write(tmp_path / "a", cpu__max="250000 100000")
    write(tmp_path / "a" / "b", cpu__max="max 100000")
    assert cores._quotas(tmp_path, "0::/a/b") == [2.5]
    write(tmp_path, cpu__max="50000 100000")  # as a container sees its own group
    assert min(cores._quotas(tmp_path, "0::/of/the/host")) == 0.5
    first = tmp_path / "version 1"
    write(first / "cpu" / "a", cpu__cfs_quota_us="300000", cpu__cfs_period_us="100000")
    write(first / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert cores._quotas(first, "4:memory:/a\n3:cpu,cpuacct:/a\n0::/") == [3.0]


@pytest.mark.parametrize(("quota", "expected"), [([0.5], 1), ([2.9], 2), ([100.0], 4), ([], 4)])
def test_a_quota_bounds_the_cores(monkeypatch, quota, expected):
    monkeypatch.setattr(cores, "_quotas", lambda *place: quota)
    monkeypatch.setattr(cores, "_physical", lambda *place: 4)
    assert cores.usable_cores() == expected

"""The number of cores to use, on machines made of files."""

from __future__ import annotations

import os

import pytest
from written import write

from malt.launch.machine import cores

pytestmark = pytest.mark.serial


def test_at_least_one_and_no_more_than_the_affinity_mask():
    assert 1 <= cores.usable_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("allowed", "expected"), [({0, 1, 2, 3}, 2), ({0, 2}, 1), ({1}, 1), ({0, 1, 9}, 3)])
def test_hardware_threads_of_a_core_count_once(tmp_path, allowed, expected):
    for processor, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        write(tmp_path / f"cpu{processor}" / "topology", thread_siblings_list=siblings)
    assert cores._physical(allowed, tmp_path) == expected


def test_version_2_takes_every_group_on_the_way(tmp_path):
    write(tmp_path / "a", cpu__max="250000 100000")
    write(tmp_path / "a" / "b", cpu__max="max 100000")
    assert cores._quotas(tmp_path, "0::/a/b") == [2.5]
    write(tmp_path, cpu__max="50000 100000")  # as a container sees its own group
    assert min(cores._quotas(tmp_path, "0::/of/the/host")) == 0.5


def test_version_1(tmp_path):
    write(tmp_path / "cpu" / "a", cpu__cfs_quota_us="300000", cpu__cfs_period_us="100000")
    write(tmp_path / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert cores._quotas(tmp_path, "4:memory:/a\n3:cpu,cpuacct:/a\n0::/") == [3.0]


def test_no_groups(tmp_path):
    assert cores._quotas(tmp_path, "") == cores._quotas(tmp_path, "0::/") == []


@pytest.mark.parametrize(("quota", "expected"), [([0.5], 1), ([2.9], 2), ([100.0], 4), ([], 4)])
def test_a_quota_bounds_the_cores(monkeypatch, quota, expected):
    monkeypatch.setattr(cores, "_quotas", lambda *place: quota)
    monkeypatch.setattr(cores, "_physical", lambda *place: 4)
    assert cores.usable_cores() == expected

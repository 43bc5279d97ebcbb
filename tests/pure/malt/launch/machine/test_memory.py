"""The free memory, on machines made of files."""

from written import write

from malt.launch.machine import memory


def test_this_machine():
    assert memory.free_memory() > 1 << 20


def test_the_available_memory_of_the_kernel():
    assert memory._available("MemTotal:       24684084 kB\nMemAvailable:   2359 kB\nBuffers: 1 kB\n") == [2359 << 10]
    assert memory._available("MemTotal:       24684084 kB\n") == []


def test_every_group_on_the_way_counts(tmp_path):
    """Of version 2 and of version 1."""
    write(tmp_path, memory__max="max", memory__current="90")
    write(tmp_path / "a", memory__max="1000", memory__current="700", memory__stat="anon 5\ninactive_file 300\nfile 9")
    write(tmp_path / "a" / "b", memory__max="500", memory__current="450")
    assert memory._left(tmp_path, "0::/a/b") == [600, 50]
    assert memory._left(tmp_path, "0::/of/the/host") == []
    group = tmp_path / "memory" / "a"
    write(group, memory__limit_in_bytes="1000", memory__usage_in_bytes="1100", memory__stat="total_inactive_file 200")
    assert memory._left(tmp_path, "4:memory:/a\n3:cpu,cpuacct:/b\n0::/") == [100]


def test_the_least_of_all_counts(monkeypatch):
    monkeypatch.setattr(memory, "_available", lambda text: [70])
    monkeypatch.setattr(memory, "_left", lambda mount, groups: [60, 80])
    assert memory.free_memory() == 60
    monkeypatch.setattr(memory, "_left", lambda mount, groups: [])
    assert memory.free_memory() == 70
    monkeypatch.setattr(memory, "_available", lambda text: [])
    assert memory.free_memory() is None


def test_shown():
    assert [memory.shown(nbytes) for nbytes in (1_230_000, 64_820_000_000)] == ["1.2 MB", "64.8 GB"]

"""The cache finds what was published for the very state of a file, whoever was first, and tidies up after jobs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from malt.data import rowcache, rowfolder
from malt.data.rowcache import Source, find, places
from malt.data.rowfolder import Summary
from malt.data.svmlight import parse

pytestmark = pytest.mark.serial

SUMMARY = Summary(rows=1, nonzeros=1, zero_based=False, columns=1, labels=(1.0,))


@pytest.fixture(autouse=True)
def user_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return tmp_path / "user"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "data.svm"
    path.write_bytes(b"1 1:1\n")
    return Source.of(str(path))


def making(source, number=0, value=b"1"):
    """A sealed row folder that is not published."""
    folder = rowcache.begin(source, places(source.path)[number], SUMMARY)
    rowfolder.write(folder, [parse(b"1 1:" + value + b"\n")], 0, 0, base=1)
    rowfolder.seal(folder, source.state, SUMMARY, rowfolder.take_checksums(rowfolder.map_rows(folder, SUMMARY)))
    return folder


def value_found(source):
    found = find(source)
    return found and found.rows.values.tolist()


def entries(source, number=0):
    return sorted(os.listdir(places(source.path)[number]))


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_published_is_found(source, number):
    assert find(source) is None
    folder = making(source, number)
    assert find(source) is None
    rowcache.publish(source, folder)
    assert value_found(source) == [1]
    assert entries(source, number) == [source.key]


def test_the_cache_is_beside_the_file_or_the_user_s(source, tmp_path, user_cache, monkeypatch):
    beside, users = places(source.path)
    assert beside == str(tmp_path / ".data.svm.malt-cache")
    assert users.startswith(str(user_cache / "malt" / "data.svm-"))
    for wrong in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", wrong)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert places(source.path)[1].startswith(str(tmp_path / "home" / ".cache" / "malt" / "data.svm-"))


def test_files_of_one_name_do_not_share_a_place(tmp_path):
    assert not set(places(str(tmp_path / "a" / "x"))) & set(places(str(tmp_path / "b" / "x")))


def test_a_relative_path_has_the_place_of_the_whole_one(source, monkeypatch):
    monkeypatch.chdir(os.path.dirname(source.path))
    assert places("data.svm") == places(source.path)


def test_the_first_to_publish_wins(source):
    first, second = making(source, value=b"1"), making(source, value=b"2")
    kept = rowfolder.open_folder(second, source.state)
    rowcache.publish(source, first)
    rowcache.publish(source, second)
    assert value_found(source) == [1]
    assert kept.rows.values.tolist() == [2]
    assert entries(source) == [source.key]


def test_a_damaged_one_is_replaced(source):
    rowcache.publish(source, making(source, value=b"1"))
    Path(places(source.path)[0], source.key, "about.json").write_text("{}")
    assert find(source) is None
    rowcache.publish(source, making(source, value=b"2"))
    assert value_found(source) == [2]
    assert entries(source) == [source.key]


def test_publishing_where_nothing_can_be_renamed_is_no_error(source, monkeypatch):
    folder = making(source)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(rowcache.os, "rename", refuse)
    rowcache.publish(source, folder)
    assert find(source) is None and entries(source) == []


def test_another_state_is_not_found(source):
    rowcache.publish(source, making(source))
    for other in (Source(source.path, source.size + 1, source.mtime_ns), Source(source.path, source.size, 1)):
        assert find(other) is None


def test_what_is_abandoned_is_deleted_later(source):
    old = Source(source.path, source.size + 1, source.mtime_ns)
    rowcache.publish(old, making(old))
    unfinished = making(source)
    stranger = Path(places(source.path)[0], "stranger")
    stranger.mkdir()
    rowcache.publish(source, making(source))
    assert len(entries(source)) == 4  # all are young
    for entry in entries(source):
        os.utime(Path(places(source.path)[0], entry), (0, 0))
    rowcache.publish(source, making(source))
    assert entries(source) == [source.key, "stranger"]
    assert not os.path.exists(unfinished) and value_found(source) == [1]


def test_an_unfinished_folder_goes_where_making_it_fails(source, monkeypatch):
    def full(file, nbytes):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rowfolder, "_header", full)
    with pytest.raises(OSError, match="No space"):
        rowcache.begin(source, places(source.path)[0], SUMMARY)
    assert entries(source) == []


@pytest.mark.parametrize("mode, expected", [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755), (0o444, 0o755)])
def test_the_cache_is_as_private_as_the_file(source, mode, expected):
    os.chmod(source.path, mode)
    umask = os.umask(0)
    try:
        making(source)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(os.stat(places(source.path)[0]).st_mode) == expected


def test_what_is_no_file_has_no_state(tmp_path):
    with pytest.raises(FileNotFoundError):
        Source.of(str(tmp_path / "none"))
    with pytest.raises(IsADirectoryError):
        Source.of(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not a regular file"):
        Source.of(str(tmp_path / "pipe"))
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="is empty"):
        Source.of(str(tmp_path / "empty"))

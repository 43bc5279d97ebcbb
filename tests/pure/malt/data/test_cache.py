"""The cache finds what was published for the present state of a file, and deletes what jobs have left."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from malt.data import cache, store
from malt.data.cache import Source, places
from malt.data.store import Contents
from malt.files import atomic

pytestmark = pytest.mark.usefixtures("user_cache")

CONTENTS = Contents({"values": ["<f4", 1]}, {})


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "data.svm"
    path.write_bytes(b"1 1:1\n")
    return Source.of(str(path))


def making(source, number=0, value=1):
    """A sealed store that is not published."""
    path = cache.begin(source, "tests", places(source.path)[number], CONTENTS)
    store.write(path, CONTENTS, [("values", 0, np.array([value]))])
    store.seal(path, "tests", source.state, CONTENTS, store.take_checksums(store.map_columns(path, CONTENTS)))
    return path


def publish(source, path):
    cache.publish(source, "tests", path)


def find(source):
    return cache.find(source, "tests")


def value_found(source):
    found = find(source)
    return found and found.columns["values"].tolist()


def entries(source, number=0):
    return sorted(os.listdir(places(source.path)[number]))


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_published_is_found_and_a_damaged_store_replaced(source, number):
    for value in (1, 2):
        assert find(source) is None
        path = making(source, number, value)
        assert find(source) is None
        publish(source, path)
        assert value_found(source) == [value]
        assert entries(source, number) == [source.key("tests")]
        Path(places(source.path)[number], source.key("tests")).write_text("{}")


def test_the_cache_is_beside_the_file_or_the_user_s(source, tmp_path, user_cache, monkeypatch):
    beside, users = places(source.path)
    assert beside == str(tmp_path / ".data.svm.malt-cache")
    assert users.startswith(str(user_cache / "malt" / "data.svm-"))
    assert not set(places(str(tmp_path / "a" / "x"))) & set(places(str(tmp_path / "b" / "x")))
    monkeypatch.chdir(tmp_path)
    assert places("data.svm") == [beside, users]
    for wrong in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", wrong)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert places(source.path)[1].startswith(str(tmp_path / "home" / ".cache" / "malt" / "data.svm-"))
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # a user without a home
    assert places(source.path) == [beside, beside]


@pytest.mark.parametrize("what", ["a link", "of another user"])
def test_in_a_folder_where_all_may_make_files_what_others_have_made_is_no_cache(source, what, tmp_path, monkeypatch):
    """They could hand over other rows, or read those of a private file."""
    publish(source, making(source))
    assert value_found(source) == [1]
    tmp_path.chmod(0o1777)
    place = Path(places(source.path)[0])
    if what == "a link":
        place.rename(tmp_path / "elsewhere")
        place.symlink_to("elsewhere")
    else:
        found = list(os.lstat(place))
        found[stat.ST_UID] = os.geteuid() + 1
        monkeypatch.setattr(os, "lstat", lambda path: os.stat_result(found))
    assert find(source) is None
    with pytest.raises(FileExistsError, match="made by another user"):
        making(source)
    tmp_path.chmod(0o755)
    assert value_found(source) == [1]  # those who may make files here may replace the data, too


@pytest.mark.parametrize("has_links", [True, False])
def test_the_first_to_publish_wins(source, monkeypatch, has_links):
    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    first, second = making(source, value=1), making(source, value=2)
    kept = store.read(second, "tests", source.state)
    publish(source, first)
    publish(source, second)
    assert value_found(source) == [1]
    assert kept.columns["values"].tolist() == [2]
    assert entries(source) == [source.key("tests")]


def test_of_several_that_publish_at_once_the_first_wins(source, monkeypatch):
    """No file that another host may have mapped is replaced, however late its name is taken."""
    first, second, link = making(source, value=1), making(source, value=2), os.link

    def late(partial, path):
        monkeypatch.setattr(os, "link", link)
        publish(source, first)
        link(partial, path)

    monkeypatch.setattr(os, "link", late)
    publish(source, second)
    assert value_found(source) == [1] and entries(source) == [source.key("tests")]


def refuse(*_):
    raise PermissionError(1, "Operation not permitted")


def test_publishing_where_nothing_can_be_renamed_is_no_error(source, monkeypatch):
    path = making(source)
    for name in ("link", "replace", "rename"):
        monkeypatch.setattr(os, name, refuse)
    publish(source, path)
    assert find(source) is None and entries(source) == []


def test_a_published_store_is_synced_with_its_name(source, monkeypatch):
    path, synced = making(source), []
    monkeypatch.setattr(atomic, "sync_folder", lambda folder: synced.append((folder, value_found(source))))
    publish(source, path)
    assert synced == [(places(source.path)[0], [1])]


def test_another_state_is_not_found(source):
    publish(source, making(source))
    for name in ("size", "mtime_ns", "ctime_ns", "inode"):
        assert find(replace(source, **{name: getattr(source, name) + 1})) is None


def test_abandoned_stores_are_deleted_later(source):
    old = replace(source, size=source.size + 1)
    publish(old, making(old))
    unfinished = making(source)
    place = Path(places(source.path)[0])
    for name in ("stranger", "tests-2-1-1", "ratings-3-1-1"):
        (place / name).touch()
    publish(source, making(source))
    assert len(entries(source)) == 6  # all are young
    for entry in entries(source):
        os.utime(place / entry, (0, 0))
    publish(source, making(source))
    assert entries(source) == ["ratings-3-1-1", "stranger", source.key("tests")]
    assert not os.path.exists(unfinished) and value_found(source) == [1]


def test_an_unfinished_store_is_deleted_if_writing_fails(source, monkeypatch):
    def full(path, contents):
        Path(path).touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "create", full)
    with pytest.raises(OSError, match="No space"):
        making(source)
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


def test_only_a_file_has_a_state(tmp_path):
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

"""Files that are written complete or not at all."""

import fcntl
import os

import pytest

from malt.files import atomic


@pytest.fixture
def path(tmp_path):
    """A file that is there."""
    file = tmp_path / "file"
    file.write_text("before")
    return file


def test_what_is_written_replaces_the_file(path):
    path.chmod(0o600)
    mask = os.umask(0o022)
    try:
        atomic.write(str(path), lambda file: file.write(b"after"))
    finally:
        os.umask(mask)
    assert path.read_text() == "after" and path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["file"]


def test_a_pipe_or_a_device_is_not_replaced(tmp_path):
    """Root may rename a file to /dev/null: all programs of the machine would write into that."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="not a regular file") as caught:
            atomic.write(str(tmp_path / name), lambda file: file.write(b"after"))
        assert caught.value.filename == str(tmp_path / name)
    assert pipe.is_fifo() and sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_the_file_is_synced_before_it_is_renamed_and_the_folder_after(path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *words, name=name, real=real: (calls.append(name), real(*words)))
    atomic.write(str(path), lambda file: file.write(b"after"))
    assert calls == ["fsync", "replace", "fsync"]


def test_a_failed_write_leaves_the_file_unchanged(path, monkeypatch):
    with pytest.raises(ZeroDivisionError):
        atomic.write(str(path), lambda file: (file.write(b"half"), 1 / 0))

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        atomic.write(str(path), lambda file: file.write(b"after"))
    assert raised.value.filename == str(path)
    assert path.read_text() == "before" and os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize(
    "error",
    [
        OSError("cannot write mode RGBA as JPEG"),  # as Pillow has it
        FileNotFoundError(2, "No such file or directory", "input.csv"),
        TimeoutError("rank 1 is missing"),
    ],
)
def test_an_error_of_the_function_is_raised_as_it_is(path, error):
    """It is about something else: with the name of the file it would say nothing, or what is not so."""

    def fail(file):
        file.write(b"half")
        raise error

    with pytest.raises(type(error)) as raised:
        atomic.write(path, fail)
    assert raised.value is error
    assert path.read_text() == "before" and os.listdir(path.parent) == ["file"]


def test_a_path_may_be_of_any_kind(path):
    for one in (str(path), path, os.fsencode(path)):
        atomic.write(one, lambda file, one=one: file.write(repr(one).encode()))
        assert path.read_text() == repr(one) and os.listdir(path.parent) == ["file"]
    for wrong in (3, None, ["file"]):
        with pytest.raises(TypeError, match="path must be a string or a path, got"):
            atomic.write(wrong, lambda file: file.write(b"after"))


def test_a_link_stays_a_link(path):
    link = path.with_name("link")
    link.symlink_to("file")
    atomic.write(str(link), lambda file: file.write(b"after"))
    assert link.is_symlink() and path.read_text() == "after"


@pytest.mark.parametrize("at", ["before the lock", "while it is locked", "in between", "before it is renamed"])
def test_another_job_that_cleans_up_leaves_a_writer_alone(at, path, monkeypatch):
    """Two jobs write one checkpoint: each save of either is written."""
    flock, cleans = fcntl.flock, [lambda: atomic.remove_unfinished(path)]

    def clean_before(file, how):
        monkeypatch.setattr(fcntl, "flock", flock)
        cleans.pop()()
        flock(file, how)

    def refuse(file, how):
        """The other job has the lock, and is about to remove the file."""
        monkeypatch.setattr(fcntl, "flock", flock)
        os.unlink(file.name)
        raise BlockingIOError

    if at in ("before the lock", "in between"):
        monkeypatch.setattr(fcntl, "flock", clean_before if at == "before the lock" else refuse)
    elif at == "before it is renamed":
        monkeypatch.setattr(atomic, "_confirm", cleans.pop())
    atomic.write(path, lambda file: (file.write(b"after"), at == "while it is locked" and cleans.pop()()))
    assert path.read_text() == "after" and os.listdir(path.parent) == ["file"]


def test_without_locks_files_are_written_and_none_is_removed(path, monkeypatch):
    def refuse(file, how):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    left = path.with_name(f"file.{'0a' * 16}.partial")
    left.touch()
    atomic.write(path, lambda file: file.write(b"after"))
    atomic.remove_unfinished(path)
    assert path.read_text() == "after" and left.exists()


def test_only_files_of_killed_writers_are_removed(path):
    left = f"file.{'0a' * 16}.partial"
    others = ["file", "file.partial", f"other.{'0a' * 16}.partial", f"file.{'0a' * 15}.partial", f"file.2{left[4:]}"]
    for name in (left, *others):
        path.with_name(name).touch()
    atomic.remove_unfinished(str(path))
    assert sorted(os.listdir(path.parent)) == sorted(others)
    atomic.remove_unfinished(str(path.parent / "gone" / "file"))

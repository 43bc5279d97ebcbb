"""malt.files: arrays in whole files. Nothing is unpickled."""

import contextlib
import os
import zipfile

import numpy as np
import pytest

import malt


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.npz"


def test_arrays_come_back(path):
    given = {"w": np.arange(6.0).reshape(2, 3).T, "path": "text", "b": 3, "empty": np.zeros((0, 2), np.float16)}
    malt.files.save_npz(path, **given)
    found = malt.files.load_npz(path)
    assert list(found) == list(given)
    for name, value in given.items():
        assert found[name].dtype == np.asarray(value).dtype and np.array_equal(found[name], value)
    with np.load(path, allow_pickle=False) as other:
        assert np.array_equal(other["w"], given["w"])
    assert os.listdir(path.parent) == ["model.npz"]


def test_what_numpy_has_written(path):
    np.savez(path, w=np.ones(3))
    assert malt.files.load_npz(str(path))["w"].tolist() == [1, 1, 1]


def test_a_changed_byte_is_found_or_changes_nothing(path):
    malt.files.save_npz(path, a=np.arange(7.0), b=["x", "yy"])
    whole = path.read_bytes()
    for place, byte in enumerate(whole):
        path.write_bytes(whole[:place] + bytes([byte ^ 255]) + whole[place + 1 :])
        with contextlib.suppress(ValueError):  # every other error fails
            found = malt.files.load_npz(path)
            assert found["a"].tolist() == [*range(7)] and found["b"].tolist() == ["x", "yy"] and len(found) == 2, place


def test_an_end_that_points_before_the_file_is_named(path):
    malt.files.save_npz(path, w=np.ones(3))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + b"\xff" + whole[-4:])
    with pytest.raises(ValueError, match=f"^{path}: not an .npz as malt.files writes it, or a damaged one: .*$"):
        malt.files.load_npz(path)


@pytest.mark.parametrize(("value", "why"), [
    (np.array([None]), "w holds objects, such as ndarray"),
    (np.ma.masked_array([1, 2], [False, True]), "w is a masked array"),
], ids=["objects", "a mask"])  # fmt: skip
def test_what_would_be_lost_is_not_written(path, value, why):
    path.write_bytes(b"before")
    with pytest.raises(ValueError, match=why):
        malt.files.save_npz(path, w=value)
    assert path.read_bytes() == b"before" and os.listdir(path.parent) == ["model.npz"]


def changed_byte(path):
    w = np.arange(1, 10.0)
    malt.files.save_npz(path, w=w)
    whole = bytearray(path.read_bytes())
    whole[whole.find(w.tobytes()) + 9] ^= 1
    path.write_bytes(whole)


def of_a_size_that_is_not_there(path):
    np.savez(path, w=np.zeros(3, np.uint8))
    path.write_bytes(path.read_bytes().replace(b"(3,), }             ", b"(3000000000000,), } "))


def of_something_else(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", "nothing")


@pytest.mark.parametrize(("make", "why"), [
    (lambda path: np.savez(path, w=np.array([{}], object)), ""), (of_a_size_that_is_not_there, ""),
    (lambda path: np.savez_compressed(path, w=np.zeros(3)), " .*compressed"), (changed_byte, ""),
    (of_something_else, ""), *((lambda path, data=data: path.write_bytes(data), "") for data in (b"", b"PK", b"text")),
])  # fmt: skip
def test_no_npz_of_plain_arrays(path, make, why):
    """Nothing is unpickled, and an array with a shape larger than the file takes no memory."""
    make(path)
    with pytest.raises(ValueError, match=rf"model\.npz: not an \.npz{why}"):
        malt.files.load_npz(path)


def test_every_cut_is_found(path):
    malt.files.save_npz(path, w=np.arange(3))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"model\.npz: not an \.npz"):
            malt.files.load_npz(path)


def test_no_file(path):
    with pytest.raises(FileNotFoundError):
        malt.files.load_npz(path)
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        malt.files.load_npz(path)


def test_any_writer(path):
    malt.files.write(path, lambda file: file.write(b"all"))
    assert path.read_bytes() == b"all"
    assert zipfile.is_zipfile(path) is False

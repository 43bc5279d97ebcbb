"""idx files as they should be, and as they should not; folders of them."""

from __future__ import annotations

import gzip
import struct
import tracemalloc

import numpy as np
import pytest

from apps.mlp import idx, pictures

pytestmark = pytest.mark.serial


def encoded(array, magic=None):
    head = [0x0800 + array.ndim if magic is None else magic, *array.shape]
    return struct.pack(f">{len(head)}I", *head) + array.tobytes()


@pytest.fixture
def tensor():
    return np.random.default_rng(0).integers(0, 256, (7, 3, 5)).astype(np.uint8)


@pytest.fixture
def write(tmp_path):
    def written(data, name="images"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return written


NAMES = pytest.mark.parametrize("name", ["images", "images.gz"])


@NAMES
def test_reads_what_was_written(write, tensor, name):
    found = idx.read(write(encoded(tensor), name), 3)
    assert found.dtype == np.uint8 and np.array_equal(found, tensor) and found.flags.writeable
    assert np.array_equal(idx.read(write(encoded(tensor[0, 0]), name), 1), tensor[0, 0])


BAD = {
    "of other dimensions": (lambda whole: struct.pack(">I", 0x0801) + whole[4:], "begins with 00000801"),
    "of other numbers": (lambda whole: struct.pack(">I", 0x0D03) + whole[4:], "begins with 00000d03"),
    "empty": (lambda whole: b"", "ends within the header"),
    "cut off in the header": (lambda whole: whole[:9], "ends within the header"),
    "a byte short": (lambda whole: whole[:-1], "ends after 104 of the 105 bytes"),
    "a byte long": (lambda whole: whole + b"x", "longer than the 105 bytes"),
    "of 2^96 bytes": (lambda whole: whole[:4] + b"\xff" * 12 + whole[16:], "more than can be in it"),
    "of 2 GiB": (lambda whole: whole[:4] + struct.pack(">I", 1 << 27) + whole[8:], "more than can be in it"),
}


@NAMES
@pytest.mark.parametrize("fault", BAD)
def test_a_bad_file_is_named(write, tensor, name, fault):
    spoil, message = BAD[fault]
    path = write(spoil(encoded(tensor)), name)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as raised:
            idx.read(path, 3)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert str(raised.value).startswith(f"{path}: ") and message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_length_that_wraps_around_is_no_length(write):
    """2^32 x 2^32 bytes are 0 in 64 bits."""
    path = write(struct.pack(">IIII", 0x0803, 1 << 31, 1 << 31, 4))
    with pytest.raises(ValueError, match="more than can be in it"):
        idx.read(path, 3)


DAMAGES = {
    "cut off at the end": lambda data: data[:-9],
    "cut off early": lambda data: data[:40],
    "not gzip at all": lambda data: b"plain" + data,
    "another check sum": lambda data: data[:-8] + b"sums" + data[-4:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_gzip(tensor, tmp_path, damage):
    path = tmp_path / "images.gz"
    path.write_bytes(DAMAGES[damage](gzip.compress(encoded(tensor))))
    with pytest.raises(ValueError, match="damaged or cut-off gzip file") as raised:
        idx.read(str(path), 3)
    assert str(raised.value).startswith(f"{path}: ")


# Folders


@pytest.fixture
def folder(tmp_path):
    """Writes the four files, but for what is changed; the folder."""

    def made(end="", **changed):
        rng = np.random.default_rng(0)
        for name, count in (("train", 9), ("t10k", 4)):
            images = changed.get(f"{name}_images", rng.integers(0, 256, (count, 3, 2)).astype(np.uint8))
            labels = changed.get(f"{name}_labels", (np.arange(count) % 3).astype(np.uint8))
            for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
                if array is not None:
                    data = encoded(array)
                    path = tmp_path / f"{name}-{kind}-ubyte{end}"
                    path.write_bytes(gzip.compress(data) if end else data)
        return str(tmp_path)

    return made


@pytest.mark.parametrize("end", ["", ".gz"])
def test_folder(folder, end):
    train, test = pictures.load(folder(end), seed=0)
    assert train.pixels.shape == (9, 6) and len(test) == 4 and train.white == 255
    assert train.labels.tolist() == [0, 1, 2] * 3
    chosen = train.chosen(np.array([4, 0]))
    assert np.array_equal(chosen.pixels, train.pixels[[4, 0]]) and chosen.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"t10k_labels": None}, "there is no file t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz in it"),
        ({"train_labels": np.zeros(8, np.uint8)}, "train-labels-idx1-ubyte: 8 labels, but"),
        ({"t10k_images": np.zeros((4, 2, 2), np.uint8)}, "pictures of 6 pixels to train on, of 4 to test on"),
        ({"train_images": np.zeros((0, 3, 2), np.uint8)}, "train-images-idx3-ubyte: holds no pictures"),
        ({"train_images": np.zeros((9, 0, 2), np.uint8)}, "train-images-idx3-ubyte: holds no pictures"),
    ],
)
def test_files_that_do_not_fit(folder, changed, message):
    path = folder(**changed)
    with pytest.raises(ValueError) as raised:
        pictures.load(path, seed=0)
    assert str(raised.value).startswith(path) and message in str(raised.value)


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        pictures.load(str(tmp_path / "none"), seed=0)


def test_digits_are_divided_by_the_seed():
    pytest.importorskip("sklearn")
    train, test = pictures.load(None, seed=0)
    assert (len(train), len(test)) == (1438, 359) and train.pixels.max() == train.white == 16
    rows = {row.tobytes() for row in train.pixels}
    assert sum(row.tobytes() in rows for row in test.pixels) == 0
    other, _ = pictures.load(None, seed=1)
    assert not np.array_equal(other.pixels, train.pixels)
    assert np.array_equal(pictures.load(None, seed=0)[0].pixels, train.pixels)


def test_without_scikit_learn_it_says_what_to_do(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(ValueError, match="pip install scikit-learn, or name a folder"):
        pictures.load(None, seed=0)

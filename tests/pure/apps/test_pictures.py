"""Tests of apps.mlp.pictures: folders of idx files, and the embedded digits."""

import gzip

import numpy as np
import pytest
from written import encoded

from apps.mlp import pictures


@pytest.fixture
def folder(tmp_path):
    """A function that writes the four files, some of them changed, and returns the path of the folder."""

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
def test_a_folder_has_training_and_test_pictures(folder, end):
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
def test_files_that_do_not_fit_together_are_refused(folder, changed, message):
    path = folder(**changed)
    with pytest.raises(ValueError) as raised:
        pictures.load(path, seed=0)
    assert str(raised.value).startswith(path) and message in str(raised.value)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        pictures.load(str(tmp_path / "none"), seed=0)


def test_digits_are_divided_by_the_seed():
    train, test = pictures.load(None, seed=0)
    assert (len(train), len(test)) == (1438, 359) and train.pixels.max() == train.white == 16
    rows = {row.tobytes() for row in train.pixels}
    assert sum(row.tobytes() in rows for row in test.pixels) == 0
    other, _ = pictures.load(None, seed=1)
    assert not np.array_equal(other.pixels, train.pixels)
    assert np.array_equal(pictures.load(None, seed=0)[0].pixels, train.pixels)


def test_digits_are_those_of_scikit_learn():
    pixels, labels = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = np.split(order, [359])
    for some, rows in zip(pictures.load(None, seed=0), (train, test), strict=True):
        assert np.array_equal(some.pixels, pixels[rows]) and np.array_equal(some.labels, labels[rows])

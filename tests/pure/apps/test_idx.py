"""Tests of apps.mlp.idx with valid, wrong and damaged files."""

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from written import encoded

from apps.pictures import idx


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
def test_a_written_tensor_is_read(write, tensor, name):
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
def test_a_bad_file_is_refused_by_name(write, tensor, name, fault):
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


def test_a_length_that_overflows_64_bits_is_refused(write):
    """2^31 x 2^31 x 4 bytes are 0 in 64 bits."""
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
def test_a_damaged_gzip_file_is_refused(tensor, tmp_path, damage):
    path = tmp_path / "images.gz"
    path.write_bytes(DAMAGES[damage](gzip.compress(encoded(tensor))))
    with pytest.raises(ValueError, match="damaged or cut-off gzip file") as raised:
        idx.read(str(path), 3)
    assert str(raised.value).startswith(f"{path}: ")

"""The file of a checkpoint: it is read as it was written, or refused."""

import hashlib
import os
import re
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy

from malt.files import checkpoint, values
from malt.files.checkpoint import Content

ARRAYS = {
    **{kind: np.arange(6).astype(kind).reshape(2, 3) for kind in ("f2", "f4", "f8", "i1", "u2", "c8", "?", ">f4")},
    "text": np.array(["", "café", "\U0001f40e"]), "bytes": np.array([b"a", b"\0b"]),
    "time": np.array(["2026-01-02"], "M8[D]"), "number": np.array(3.5), "nothing": np.zeros((0, 4)),
    "file": np.array([np.nan, -0.0, np.inf]), "no slash/needed": np.array(1),
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    """Where a checkpoint may be."""
    return str(tmp_path / "train.ckpt")


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def test_what_is_written_is_read(path):
    turned = {"turned": np.arange(6.0).reshape(2, 3).T, "sparse": np.arange(10)[::3]}
    checkpoint.write(path, Content("a program", {"l2": 0.1, "layers": [1, 2]}, ARRAYS | turned))
    program, description, arrays, ranks, parts = checkpoint.read(path)
    assert (program, description, ranks, dict(parts)) == ("a program", {"l2": 0.1, "layers": [1, 2]}, 0, {})
    assert list(arrays) == [*ARRAYS, *turned]
    for name, array in (ARRAYS | turned).items():
        assert same(arrays[name], np.asarray(array, order="C")), name
        assert arrays[name].flags.c_contiguous and arrays[name].flags.writeable
    assert os.listdir(os.path.dirname(path)) == ["train.ckpt"]


def test_numpy_reads_it(path):
    checkpoint.write(path, Content("p", {}, {"w": np.arange(3.0)}))
    with np.load(path, allow_pickle=False) as file:
        assert file["w"].tolist() == [0, 1, 2]


def test_parts_by_rank(path):
    """Names of arrays and values that look like those of parts are no parts."""
    parts = {rank: {"w": [np.arange(rank + 1), "x"], "n": rank} for rank in (0, 2)}
    odd = {".0": values.pack([np.zeros(2)]), "0-0": np.ones(1), ".0-0": np.ones(3), ".0-text": np.array("y")}
    content = Content("p", {}, odd, ranks=3, parts={rank: values.pack(one) for rank, one in parts.items()})
    checkpoint.write(path, content)
    back = checkpoint.read(path)
    assert back.ranks == 3 and list(back.arrays) == list(odd) and back.arrays["0-0"].tolist() == [1]
    np.testing.assert_equal({rank: values.unpack(one) for rank, one in back.parts.items()}, parts)


def test_values_around_arrays(path):
    value = {"a": [np.arange(3), None, 2**100], "b": (np.array("c"),)}
    checkpoint.write(path, Content("p", {}, {"v": values.pack(value), "w": np.arange(2)}))
    back = checkpoint.read(path).arrays
    assert list(back) == ["v", "w"]
    np.testing.assert_equal(values.unpack(back["v"]), value)


class TestDamage:
    @pytest.fixture
    def whole(self, path):
        """The bytes of a file."""
        checkpoint.write(path, Content("p", {"l2": 1}, {"w": np.arange(4.0), "n": np.array(7)}))
        return Path(path).read_bytes()

    def test_cut_short_anywhere(self, path, whole):
        for length in range(len(whole)):
            Path(path).write_bytes(whole[:length])
            shape = "a damaged checkpoint, cut short" if length >= 40 else "not a checkpoint of malt: name another"
            with pytest.raises(ValueError, match=f"^{re.escape(path)}: {shape}"):
                checkpoint.read(path)

    def test_changed_anywhere(self, path, whole):
        for offset in range(len(whole)):
            changed = bytearray(whole)
            changed[offset] ^= (1, 0x80, 0xFF)[offset % 3]
            Path(path).write_bytes(changed)
            with pytest.raises(ValueError, match=f"^{re.escape(path)}: a damaged checkpoint"):
                checkpoint.read(path)

    def test_bytes_behind_the_end_and_parts_of_two(self, path, whole):
        """As two writers of one file would leave it."""
        checkpoint.write(path, Content("p", {"l2": 1}, {"w": np.arange(4.0) + 1, "n": np.array(8)}))
        other, half = Path(path).read_bytes(), len(whole) // 2
        assert len(other) == len(whole)
        for damaged in (whole + b"\0", whole[:half] + other[half:]):
            Path(path).write_bytes(damaged)
            with pytest.raises(ValueError, match="a damaged checkpoint"):
                checkpoint.read(path)


@pytest.mark.parametrize("content", [b"", b"text", bytes(1000), "npz"], ids=len)
def test_a_file_of_another_kind(path, content):
    with open(path, "wb") as file:
        np.savez(file, weights=np.zeros(3)) if content == "npz" else file.write(content)
    with pytest.raises(ValueError, match=f"^{re.escape(path)}: not a checkpoint of malt: name another file$"):
        checkpoint.read(path)


def test_what_is_no_file(path):
    with pytest.raises(FileNotFoundError):
        checkpoint.read(path)
    with pytest.raises(IsADirectoryError):
        checkpoint.read(os.path.dirname(path))
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        checkpoint.read(path)


def seal(path, whole):
    """Make a file of these bytes, the checksum at their end made right."""
    body = whole[:-64]
    Path(path).write_bytes(body + hashlib.sha256(body).hexdigest().encode())


def head(shape):
    """The head of an .npy file."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def refused_without_memory(path):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="not a checkpoint of malt, but for its checksum"):
            checkpoint.read(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


class TestForged:
    """Forged files with a correct checksum."""

    @pytest.fixture
    def forge(self, path):
        """forge(members): a file of these members, which are arrays, or bytes of .npy files."""

        def forge(members, compression=zipfile.ZIP_STORED):
            with zipfile.ZipFile(path, "w", compression) as archive:
                archive.comment = b"sha256 " + bytes(64)
                for name, member in members.items():
                    with archive.open(f"{name}.npy", "w") as file:
                        if isinstance(member, bytes):
                            file.write(member)
                        else:
                            npy.write_array(file, member)
            seal(path, Path(path).read_bytes())

        return forge

    ABOUT = np.array('{"format": 1, "program": "p", "description": {}}')

    def test_a_correct_file(self, forge, path):
        forge({"malt.about": self.ABOUT, "w": np.arange(2)})
        assert checkpoint.read(path).arrays["w"].tolist() == [0, 1]

    @staticmethod
    def about(more):
        return np.array(f'{{"format": 1, "program": "p", "description": {{}}, {more}}}')

    PAIRS = np.zeros(2, [("key", "<i8"), ("value", "<f8")])

    @pytest.mark.parametrize("members", [
        # what it says of arrays: a length is a number, that of a vector of which the file has pairs of keys and values
        *((f'"streamed": ["w"], "lengths": {lengths}', {"w": array}) for lengths, array in (
            ("3", PAIRS), ('{"w": "5"}', PAIRS), ("{}", PAIRS), ('{"w": 5}', np.ones(2))
        )),
        # a value whose arrays are not as described
        *(('"values": ["v"]', {"v": np.array(text), "malt.v.0": np.zeros(2)}) for text in (
            '{"array": ["<f8", [3]]}', '{"array": ["<f4", [2]]}', '{"array": ["|O", [2]]}', '{"array": 3}',
            '{"dict": []}', '{"array": ["<f8", [2]], "b": 1}', "[",
        )),
        # without a description
        *((np.array(about), {"w": np.arange(2)}) for about in (
            "", "{}", "[]", "1", '{"format": 1}', '{"format": 1, "program": 1}'
        )),
    ])  # fmt: skip
    def test_what_is_not_as_it_says(self, forge, path, members):
        about, arrays = members
        forge({"malt.about": self.about(about) if isinstance(about, str) else about, **arrays})
        with pytest.raises(ValueError, match="not a checkpoint of malt, but for its checksum"):
            checkpoint.read(path)

    def test_a_pickle_is_not_opened(self, forge, path, tmp_path):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "evil"),)

        forge({"malt.about": self.ABOUT, "w": np.array([Evil()])})
        with pytest.raises(ValueError, match="not a checkpoint of malt, but for its checksum"):
            checkpoint.read(path)
        assert not (tmp_path / "evil").exists()

    @pytest.mark.parametrize("shape", ["(1000000000000,)", "(-1,)", "(3, -2)", "(1, 1000000)", "'a'"])
    def test_sizes_that_are_not_there_take_no_memory(self, forge, path, shape):
        forge({"malt.about": self.ABOUT, "w": head(shape)})
        refused_without_memory(path)

    def test_a_member_that_is_longer_than_its_array(self, forge, path):
        forge({"malt.about": self.ABOUT, "w": head("(1,)") + bytes(16)})
        refused_without_memory(path)

    def test_sizes_that_the_directory_makes_up_take_no_memory(self, forge, path):
        forge({"malt.about": self.ABOUT, "w": head("(100000000,)")})
        whole = bytearray(Path(path).read_bytes())
        entry = whole.rindex(b"PK\x01\x02")
        whole[entry + 20 : entry + 28] = 2 * (len(head("(100000000,)")) + 8 * 10**8).to_bytes(4, "little")
        seal(path, bytes(whole))
        refused_without_memory(path)

    def test_a_compressed_one_is_refused(self, forge, path):
        forge({"malt.about": self.ABOUT, "w": np.zeros(10**6)}, zipfile.ZIP_DEFLATED)
        with pytest.raises(ValueError, match="is compressed"):
            checkpoint.read(path)

    def test_a_later_format(self, forge, path):
        forge({"malt.about": np.array('{"format": 2, "what": "else"}')})
        said = "a checkpoint of format 2, and this version of malt reads 1: continue with"
        with pytest.raises(ValueError, match=said):
            checkpoint.read(path)

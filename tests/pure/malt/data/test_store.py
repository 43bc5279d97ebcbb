"""A store returns what was written, or nothing if it is cut short, changed, or of another file, kind or version."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from malt.data import store
from malt.data.store import Contents, create, in_memory, map_columns, read, seal, take_checksums, write

STATE = {"size": 123, "mtime_ns": 456}
COLUMNS = {
    "numbers": np.array([1, 2, 3, 4, 5], np.int64),
    "none": np.array([], np.float32),
    "names": np.array([b"ann", b"bo", b""]),
    "values": np.array([0.5, -1, np.inf], np.float32),
}
CONTENTS = Contents({name: [array.dtype.str, array.size] for name, array in COLUMNS.items()}, {"fact": [1.5, True]})
BLOCKS = -(-CONTENTS.nbytes() // 16)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(store, "BLOCK_NBYTES", 16)


@pytest.fixture
def path(tmp_path):
    """Written in pieces, the last first."""
    path = str(tmp_path / "store")
    create(path, CONTENTS)
    write(path, CONTENTS, [(name, 1, array[1:]) for name, array in COLUMNS.items()])
    write(path, CONTENTS, [(name, 0, array[:1]) for name, array in COLUMNS.items()])
    seal(path, "tests", STATE, CONTENTS, take_checksums(map_columns(path, CONTENTS)))
    return path


def check(found):
    assert found.contents == CONTENTS
    for name, array in COLUMNS.items():
        column = found.columns[name]
        assert np.array_equal(column, array) and column.dtype == array.dtype and not column.flags.writeable
        assert column.__array_interface__["data"][0] % store.ALIGNMENT == 0 or not found.is_mapped


def test_what_was_written_is_read(path):
    found = read(path, "tests", STATE)
    check(found)
    assert found.is_mapped
    memory = in_memory(CONTENTS, [(name, 0, array) for name, array in COLUMNS.items()])
    check(memory)
    assert not memory.is_mapped and memory.identity() == found.identity()


def test_identity_tells_stores_apart():
    pieces = [(name, 0, array) for name, array in COLUMNS.items()]
    other = Contents(CONTENTS.columns, {"fact": [1.5, False]})
    unsigned = Contents({**CONTENTS.columns, "numbers": ["<f8", 5]}, CONTENTS.facts)
    found = [in_memory(CONTENTS, pieces), in_memory(other, pieces), in_memory(CONTENTS, pieces[:3])]
    found += [in_memory(unsigned, [("numbers", 0, COLUMNS["numbers"].view("<f8")), *pieces[1:]])]
    assert len({one.identity() for one in found}) == 4


def flip(path, place):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_file_is_none(path):
    good = Path(path).read_bytes()
    for place in range(len(good)):
        flip(path, place)
        assert read(path, "tests", STATE) is None, place
        flip(path, place)
    for nbytes in (0, 1, 100, CONTENTS.nbytes(), len(good) - 1):
        Path(path).write_bytes(good[:nbytes])
        assert read(path, "tests", STATE) is None, nbytes
    for longer in (good + b"\0", b"\0" + good):
        Path(path).write_bytes(longer)
        assert read(path, "tests", STATE) is None
    Path(path).unlink()
    assert read(path, "tests", STATE) is None
    Path(path).write_bytes(good)
    check(read(path, "tests", STATE))


def test_a_store_of_another_state_or_kind_is_none(path):
    for state in ({"size": 124, "mtime_ns": 456}, {"size": 123, "mtime_ns": 457}, None):
        assert read(path, "tests", state) is None
    assert read(path, "others", STATE) is None


def describe(path, text):
    """Put another description into the file, whose checksum is right."""
    columns = Path(path).read_bytes()[: CONTENTS.nbytes()]
    tail = hashlib.sha256(text).digest() + len(text).to_bytes(8, "little") + store.MAGIC
    Path(path).write_bytes(columns + text + tail)


def about(**changes):
    body = {"version": store.VERSION, "kind": "tests", "source": STATE, **vars(CONTENTS)}
    body["checksums"] = in_memory(CONTENTS, [(name, 0, array) for name, array in COLUMNS.items()]).checksums
    return json.dumps({**body, **changes}).encode()


@pytest.mark.parametrize("description", [
    {"version": store.VERSION + 1}, {"checksums": []}, {"checksums": [0] * BLOCKS}, {"checksums": 5}, {"columns": []},
    {"columns": {}}, *({"columns": {**CONTENTS.columns, name: column}} for name, column in [
        ("values", ["<f4"]), ("values", ["<f4", 4]), ("values", ["<f4", 10**15]), ("values", ["<f4", -1]),
        ("values", ["<f4", 3.0]), ("values", ["|O", 1]), ("values", ["nonsense", 3]), ("more", ["|S0", 10**9]),
    ]), "", "[]", "{}", "null", "nonsense", "[" * 100_000, '{"version": 3}', "\u00e9",
], ids=lambda one: str(one)[:40])  # fmt: skip
def test_a_store_that_is_not_as_described_is_none(path, description):
    describe(path, about())
    check(read(path, "tests", STATE))
    describe(path, description.encode() if isinstance(description, str) else about(**description))
    assert read(path, "tests", STATE) is None


def test_more_than_was_written_is_damage(path, monkeypatch):
    """A checksum too many, bytes between the columns and the description, and a description longer than any is."""
    whole, nbytes = Path(path).read_bytes(), CONTENTS.nbytes()
    describe(path, about(checksums=[*json.loads(about())["checksums"], 0]))
    assert read(path, "tests", STATE) is None
    Path(path).write_bytes(whole[:nbytes] + bytes(16) + whole[nbytes:])
    assert read(path, "tests", STATE) is None
    describe(path, about())
    monkeypatch.setattr(store, "MAX_DESCRIPTION_NBYTES", len(about()) - 1)
    assert read(path, "tests", STATE) is None


@pytest.mark.parametrize("parts", [2, 3, BLOCKS + 1])
def test_ranks_share_the_verifying(path, parts):
    buffer = map_columns(path, CONTENTS)
    checksums = take_checksums(buffer)
    assert len(checksums) == BLOCKS
    assert [take_checksums(buffer, part, parts) for part in range(parts)] == [
        checksums[part::parts] for part in range(parts)
    ]
    flip(path, CONTENTS.nbytes() - 1)  # in the last block
    damaged = [read(path, "tests", STATE, part, parts) is None for part in range(parts)]
    assert damaged == [part == (BLOCKS - 1) % parts for part in range(parts)]


def test_of_a_large_store_a_spread_of_blocks_is_verified(path, monkeypatch):
    monkeypatch.setattr(store, "VERIFY_NBYTES", 48)
    checked = []
    crc32 = store.zlib.crc32
    monkeypatch.setattr(store.zlib, "crc32", lambda data: checked.append(bytes(data)) or crc32(data))
    assert read(path, "tests", STATE) is not None
    stride = -(-BLOCKS // 3)
    blocks = bytes(map_columns(path, CONTENTS))
    assert checked == [blocks[16 * block :][:16] for block in range(0, BLOCKS, stride)]


def test_nothing_is_written_over(path):
    before = Path(path).read_bytes()
    with pytest.raises(FileExistsError):
        create(path, CONTENTS)
    assert Path(path).read_bytes() == before


def test_what_is_written_is_synced(path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size) or fsync(descriptor)
    )
    write(path, CONTENTS, [])
    seal(path, "tests", STATE, CONTENTS, [])
    assert len(synced) == 2 and synced[1] == os.stat(path).st_size

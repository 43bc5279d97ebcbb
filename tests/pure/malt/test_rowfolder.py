"""A row folder gives back what was written, or nothing: cut short, changed, of another file or version, it is none."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from malt.data import rowfolder
from malt.data.rowfolder import Summary, map_rows, open_folder, take_checksums
from malt.data.svmlight import parse

pytestmark = pytest.mark.serial

STATE = {"size": 123, "mtime_ns": 456}
TEXTS = [b"1 1:1 5:2\n-1\n", b"", b"-1 2:3\n1 1:4 2:5 3:6\n"]
SUMMARY = Summary(rows=4, nonzeros=6, zero_based=False, columns=5, labels=(-1.0, 1.0))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(rowfolder, "BLOCK_NBYTES", 16)


@pytest.fixture
def folder(tmp_path):
    """Written in two parts, the second first."""
    folder = str(tmp_path / "rows")
    chunks = [parse(text) for text in TEXTS]
    rowfolder.make(folder, SUMMARY)
    rowfolder.write(folder, chunks[2:], first_row=2, first_nonzero=2, base=1)
    rowfolder.write(folder, chunks[:2], first_row=0, first_nonzero=0, base=1)
    rows = map_rows(folder, SUMMARY)
    rowfolder.seal(folder, STATE, SUMMARY, take_checksums(rows, 0, 2) | take_checksums(rows, 1, 2))
    return folder


def test_what_was_written_is_read(folder):
    stored = open_folder(folder, STATE)
    assert stored.summary == SUMMARY and stored.is_mapped
    assert stored.rows.labels.tolist() == [1, -1, -1, 1]
    assert stored.rows.indptr.tolist() == [0, 2, 2, 3, 6]
    assert stored.rows.indices.tolist() == [0, 4, 1, 0, 1, 2]
    assert stored.rows.values.tolist() == [1, 2, 3, 4, 5, 6]
    assert not any(array.flags.writeable for array in vars(stored.rows).values())


def test_the_arrays_are_npy_files(folder):
    rows = open_folder(folder, STATE).rows
    for name, array in vars(rows).items():
        loaded = np.load(Path(folder, f"{name}.npy"), allow_pickle=False)
        assert loaded.dtype == array.dtype and np.array_equal(loaded, array)


def test_rows_in_memory_are_the_same(folder):
    stored, mapped = rowfolder.in_memory([parse(text) for text in TEXTS], SUMMARY, base=1), open_folder(folder, STATE)
    for name, array in vars(mapped.rows).items():
        assert np.array_equal(getattr(stored.rows, name), array) and getattr(stored.rows, name).dtype == array.dtype
    assert not any(array.flags.writeable for array in vars(stored.rows).values())
    assert not stored.is_mapped
    assert stored.identity() == mapped.identity()


def test_identity_tells_rows_apart():
    first = rowfolder.in_memory([parse(text) for text in TEXTS], SUMMARY, base=1)
    other = rowfolder.in_memory([parse(text.replace(b":6", b":7")) for text in TEXTS], SUMMARY, base=1)
    zero_based = rowfolder.in_memory([parse(text) for text in TEXTS], dataclasses.replace(SUMMARY, zero_based=True), 1)
    assert len({one.identity() for one in (first, other, zero_based)}) == 3


def test_the_shares_are_all_of_the_blocks(folder):
    rows = map_rows(folder, SUMMARY)
    whole = take_checksums(rows)
    assert len(whole) == 2 + 3 + 2 + 2
    for parts in (2, 3, 20):
        shares = [take_checksums(rows, part, parts) for part in range(parts)]
        assert sum(map(len, shares)) == len(whole)
        assert {name: checksum for share in shares for name, checksum in share.items()} == whole


def flip(path, place):
    with open(path, "r+b") as file:
        file.seek(place, os.SEEK_SET if place >= 0 else os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("name", ["labels.npy", "indptr.npy", "indices.npy", "values.npy", "about.json"])
def test_a_folder_with_a_damaged_file_is_none(folder, name):
    path = Path(folder, name)
    good = path.read_bytes()
    for place in range(0, len(good), 1 if name.endswith("npy") else 7):
        flip(path, place)
        assert open_folder(folder, STATE) is None, place
        path.write_bytes(good)
    for nbytes in (0, 1, 100, len(good) - 1):
        path.write_bytes(good[:nbytes])
        assert open_folder(folder, STATE) is None, nbytes
    path.write_bytes(good + b"\0")
    assert open_folder(folder, STATE) is None
    path.unlink()
    assert open_folder(folder, STATE) is None
    path.write_bytes(good)
    assert open_folder(folder, STATE) is not None


@pytest.mark.parametrize("state", [{"size": 124, "mtime_ns": 456}, {"size": 123, "mtime_ns": 457}, None])
def test_a_folder_of_another_state_is_none(folder, state):
    assert open_folder(folder, state) is None


def reseal(folder, **changes):
    """Change the description and its checksum with it."""
    path = Path(folder, "about.json")
    body = json.loads(path.read_text())["body"]
    body.update(changes)
    path.write_text(json.dumps({"body": body, "sha256": rowfolder._digest(body)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": rowfolder.VERSION + 1},
        {"format": "other rows"},
        {"checksums": {}},
        {"summary": []},
        {"summary": {"rows": 4}},
        {"summary": {**dataclasses.asdict(SUMMARY), "rows": 10**15}},
        {"summary": {**dataclasses.asdict(SUMMARY), "rows": -1}},
        {"summary": {**dataclasses.asdict(SUMMARY), "nonzeros": 5}},
        {"summary": {**dataclasses.asdict(SUMMARY), "columns": 2**31}},
        {"summary": {**dataclasses.asdict(SUMMARY), "columns": "5"}},
    ],
)
def test_a_folder_that_is_not_as_described_is_none(folder, changes):
    reseal(folder)
    assert open_folder(folder, STATE) is not None
    reseal(folder, **changes)
    assert open_folder(folder, STATE) is None


@pytest.mark.parametrize("about", ["", "[]", "{}", "nonsense", "[" * 100_000, '{"body": 1, "sha256": 2}', "\u00e9"])
def test_a_folder_with_a_strange_description_is_none(folder, about):
    Path(folder, "about.json").write_text(about)
    assert open_folder(folder, STATE) is None


def test_nothing_is_unpickled(folder):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    np.save(Path(folder, "labels.npy"), np.array([Trap()] * 4, dtype=object), allow_pickle=True)
    assert open_folder(folder, STATE) is None


def test_of_a_large_folder_a_spread_of_blocks_is_verified(folder, monkeypatch):
    monkeypatch.setattr(rowfolder, "VERIFY_NBYTES", 32)
    checked = []
    crc32 = rowfolder.zlib.crc32
    monkeypatch.setattr(rowfolder.zlib, "crc32", lambda data: checked.append(len(data)) or crc32(data))
    assert open_folder(folder, STATE) is not None
    assert len(checked) == 2


def test_ranks_share_the_verifying(folder):
    flip(Path(folder, "values.npy"), -1)  # in the last block
    assert [open_folder(folder, STATE, part, 9) is None for part in range(9)] == [False] * 8 + [True]

"""All ranks get the rows of the file, on any hosts, with any cache that can be written, beside any other job."""

import bz2
import dataclasses
import gzip
import lzma
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from ranks import run_alone, run_ranks, same_error

from malt.data import cache, loading, rows, store
from malt.data.rows import shared_rows
from malt.data.text import svmlight, text_file
from malt.data.text.svmlight import parse

TEXT = b"# head\n" + b"".join(b"%+d %d:%d.5 %d:1\n\n" % ((-1) ** n, n % 7 + 1, n, n + 20) for n in range(50))
HOSTS = ["a", "aa", "aaaaa", "ab", "aabbb", "abab"]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch, tmp_path):
    monkeypatch.setattr(text_file, "CHUNK_NBYTES", 64)
    monkeypatch.setattr(store, "BLOCK_NBYTES", 100)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data.svm"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def parsed(monkeypatch):
    """How often a part of a file was read."""
    parts = []
    read_part = svmlight.read_part

    def counting(path, part=0, parts_in_all=1):
        parts.append((part, parts_in_all))
        return read_part(path, part, parts_in_all)

    monkeypatch.setattr(svmlight, "read_part", counting)
    return parts


def forbid(monkeypatch, *numbers):
    """Make the places of these numbers impossible to write to. (Tests may run as root, whom no mode stops.)"""
    begin = cache.begin

    def refusing(source, kind, place, contents):
        if cache.places(source.path).index(place) in numbers:
            raise PermissionError(13, "Permission denied", place)
        return begin(source, kind, place, contents)

    monkeypatch.setattr(cache, "begin", refusing)


def load(path, hosts="a", text=TEXT, base=1):
    """What ranks on these hosts get: the rows of the text."""
    outcomes = run_ranks(lambda transport: shared_rows(str(path), transport), hosts)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        check(outcome, text, base)
    return outcomes


def error(path, hosts):
    return same_error(run_ranks(lambda transport: shared_rows(str(path), transport), hosts))


def check(stored, text=TEXT, base=1):
    expected = parse(text)
    assert np.array_equal(stored.rows.labels, expected.labels)
    assert np.array_equal(stored.rows.indptr, expected.indptr)
    assert np.array_equal(stored.rows.indices, expected.indices - base)
    assert np.array_equal(stored.rows.values, expected.values)
    assert stored.summary.rows == expected.labels.size and stored.summary.nonzeros == expected.indices.size
    assert stored.summary.zero_based == (base == 0)
    assert stored.summary.columns == expected.indices.max(initial=base - 1) + 1 - base


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("first", ["a", "aaa", "abb"])
def test_all_ranks_have_all_rows_and_the_second_load_parses_nothing(path, parsed, hosts, first):
    for ranks in (first, hosts):
        for stored in load(path, ranks):
            assert stored.is_mapped
    assert sorted(parsed) == sorted(
        (part, first.count(host)) for host in set(first) for part in range(first.count(host))
    )
    assert os.listdir(cache.places(str(path))[0]) == [cache.Source.of(str(path)).key("rows")]


@pytest.mark.parametrize("text", [b"1", b"1 1:1\n", b"1 0:1\n-1 3:1", b"-1\n-1\n", b"\n\n\n+1 7:1"])
def test_fewer_lines_than_ranks(tmp_path, text):
    path = tmp_path / "short.svm"
    path.write_bytes(text)
    load(path, "aaaaaaabb", text + b"\n", base=0 if b" 0:" in text else 1)


@pytest.mark.parametrize("suffix, squeeze", [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_one_rank_of_a_host_parses_a_compressed_file(tmp_path, parsed, suffix, squeeze):
    path = tmp_path / f"data.svm{suffix}"
    path.write_bytes(squeeze(TEXT))
    for _ in range(2):
        load(path, "aaab")
    assert sorted(parsed) == [(0, 1), (0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize("hosts", ["a", "aab"])
def test_a_changed_file_is_parsed_again(path, parsed, hosts, tmp_path):
    """Also one of the same size and time, as from an archive: it is moved over the first one, or written into it."""

    def move(text):
        (tmp_path / "other").write_bytes(text)
        os.utime(tmp_path / "other", ns=(1, 1))
        os.replace(tmp_path / "other", path)

    load(path, hosts)
    sevens, nines = (TEXT.replace(b".5", digits) for digits in (b".7", b".9"))
    for change, text, time in (
        (path.write_bytes, sevens, None), (path.write_bytes, TEXT + b"1 1:1\n", 1), (path.write_bytes, sevens, 1),
        (move, nines, 1), (path.write_bytes, sevens, 1), (path.write_bytes, sevens, 5),
    ):  # fmt: skip
        parsed.clear()
        change(text)
        if time is not None:
            os.utime(path, ns=(time, time))
        load(path, hosts, text)
        assert len(parsed) == len(hosts)


@pytest.mark.parametrize("hosts", ["a", "aab"])
@pytest.mark.parametrize("place", [0, 1000, -20, -200])
def test_a_damaged_cache_is_made_anew(path, parsed, hosts, place):
    load(path, hosts)
    damaged = Path(cache.places(str(path))[0], cache.Source.of(str(path)).key("rows"))
    good = damaged.read_bytes()
    for bad in (good[:place] + bytes([good[place] ^ 1]) + good[place:][1:], good[:place]):
        damaged.write_bytes(bad)
        parsed.clear()
        for _ in range(2):
            load(path, hosts)
        assert len(parsed) == len(hosts) and damaged.read_bytes() == good


def test_a_store_of_wrong_rows_is_made_anew(path, parsed):
    """Its checksums are right, but indptr points behind the non-zeros."""

    def forged_pieces(*words):
        yield from rows.FORMAT.pieces(*words)
        yield "indptr", 50, np.array([101])

    forged = dataclasses.replace(rows.FORMAT, pieces=forged_pieces)
    run_alone(lambda transport: loading.shared(str(path), forged, transport))
    parsed.clear()
    load(path, "aa")
    assert len(parsed) == 2


@pytest.mark.parametrize("hosts", HOSTS)
def test_the_user_s_cache_is_the_second_place(path, parsed, monkeypatch, hosts):
    forbid(monkeypatch, 0)
    for _ in range(2):
        for stored in load(path, hosts):
            assert stored.is_mapped
    assert len(parsed) == len(hosts)
    beside, users = cache.places(str(path))
    assert not os.path.exists(beside) and len(os.listdir(users)) == 1


@pytest.mark.parametrize("hosts", HOSTS)
def test_without_a_place_the_rows_are_in_memory(path, monkeypatch, hosts):
    forbid(monkeypatch, 0, 1)
    for stored in load(path, hosts):
        assert not stored.is_mapped and not stored.rows.values.flags.writeable
    assert not any(map(os.path.exists, cache.places(str(path))))


@pytest.mark.parametrize("step", ["create", "write", "map_columns", "take_checksums", "seal"])
@pytest.mark.parametrize("hosts", ["a", "aab"])
def test_a_disk_that_fails_on_one_rank_leaves_nothing_behind(path, monkeypatch, step, hosts):
    done, lock, work = [], threading.Lock(), getattr(store, step)

    def failing(*words):
        with lock:
            done.append(step)
            fails = len(done) == (1 if step in ("create", "seal") else len(hosts))
        if fails:
            raise OSError(28, "No space left on device")
        return work(*words)

    monkeypatch.setattr(store, step, failing)
    load(path, hosts)
    left = [os.listdir(place) for place in cache.places(str(path)) if os.path.exists(place)]
    assert not [name for names in left for name in names if name.endswith("partial")]
    assert any(left)  # in the other place, or by the other host


@pytest.mark.parametrize("hosts", ["ab", "aab", "abb"])
def test_a_host_that_has_no_place_still_has_the_rows(path, monkeypatch, hosts):
    """One host maps the rows, the other does not; both have the same."""
    begin, first = cache.begin, threading.Lock()

    def begin_on_one(source, kind, place, contents):
        if not first.acquire(blocking=False):
            raise PermissionError(13, "Permission denied", place)
        return begin(source, kind, place, contents)

    monkeypatch.setattr(cache, "begin", begin_on_one)
    assert {stored.is_mapped for stored in load(path, hosts)} == {True, False}


FINDS = {
    "on one host only": ("aab", lambda find, found, part, parts: find() if parts == 2 else None),
    "of one rank of the host": ("aaa", lambda find, found, part, parts: find() if part else None),
    "of another state on one rank": ("aaa", lambda find, found, part, parts: found if part else find()),
}


@pytest.mark.parametrize("name", FINDS)
def test_ranks_of_a_host_that_do_not_all_find_one_cache_make_one(path, parsed, monkeypatch, name):
    """All "hosts" share one folder here: what some ranks find in it is replaced."""
    hosts, finds = FINDS[name]
    load(path)
    found = cache.find(cache.Source.of(str(path)), "rows")
    short = TEXT[:-30] + b"\n"
    path.write_bytes(short)
    load(path, text=short)
    parsed.clear()
    find = cache.find
    monkeypatch.setattr(
        cache, "find", lambda source, kind, part, parts: finds(
            lambda: find(source, kind, part, parts), found, part, parts
        )
    )  # fmt: skip
    load(path, hosts, short)
    assert parsed == [(0, 1)] if hosts == "aab" else len(parsed) == 3


@pytest.mark.parametrize("jobs", [2, 4])
def test_jobs_at_once_do_not_break_each_other(path, jobs):
    results = [None] * jobs
    start = threading.Barrier(jobs)

    def job(number):
        start.wait()
        results[number] = [load(path, hosts) for hosts in ("aa", "a", "ab")]

    for _ in range(5):
        threads = [threading.Thread(target=job, args=(number,)) for number in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(results)
        assert os.listdir(cache.places(str(path))[0]) == [cache.Source.of(str(path)).key("rows")]
        cache.discard(cache.places(str(path))[0])


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("wrong", [[1], [51], [101], [90, 70, 60, 12]], ids=str)
def test_the_first_bad_line_is_named_on_all_ranks(path, hosts, wrong):
    lines = TEXT.split(b"\n")[:101]
    for line in wrong:
        lines[line - 1] = b"1 1:%d 2:nan" % line
    path.write_bytes(b"\n".join(lines))
    found, line = error(path, hosts), min(wrong)
    assert type(found) is ValueError
    assert str(found) == f"{path}:{line}: value 'nan' of feature 2 is not finite: '1 1:{line} 2:nan'"
    assert not os.path.exists(cache.places(str(path))[0])


@pytest.mark.parametrize("hosts", ["a", "aa", "ab"])
@pytest.mark.parametrize("suffix, squeeze", [("", bytes), (".gz", gzip.compress)])
@pytest.mark.parametrize("text", [b"\n", b"# nothing\n\n", b"\xef\xbb\xbf"])
def test_a_file_without_rows(tmp_path, hosts, suffix, squeeze, text):
    path = tmp_path / f"none.svm{suffix}"
    path.write_bytes(squeeze(text))
    assert str(error(path, hosts)) == f"{path}: there are no rows in it, only blank lines and comments"


@pytest.mark.parametrize("hosts", ["a", "aab"])
def test_no_file(tmp_path, hosts):
    missing = error(tmp_path / "none.svm", hosts)
    assert type(missing) is FileNotFoundError and missing.filename == str(tmp_path / "none.svm")
    assert type(error(tmp_path, hosts)) is IsADirectoryError
    (tmp_path / "empty.svm").touch()
    assert str(error(tmp_path / "empty.svm", hosts)) == f"{tmp_path}/empty.svm: the file is empty"


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_a_file_that_one_rank_cannot_read(path, monkeypatch, hosts):
    read_chunks, names = svmlight.read_chunks, []

    def refusing(name, part, parts):
        names.append(name)
        if len(names) == 2:
            raise OSError(5, "Input/output error", name)
        return read_chunks(name, part, parts)

    monkeypatch.setattr(svmlight, "read_chunks", refusing)
    found = error(path, hosts)
    assert type(found) is OSError and (found.errno, found.filename) == (5, str(path))


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_damaged_compressed_files(tmp_path, hosts):
    path = tmp_path / "data.svm.gz"
    path.write_bytes(gzip.compress(TEXT)[:-20])
    assert "data.svm.gz: a damaged or cut-off gzip file (" in str(error(path, hosts))


def test_a_file_that_changes_while_it_is_read(path, monkeypatch):
    read_part = svmlight.read_part

    def changing(name, part, parts):
        result = read_part(name, part, parts)
        if part == 1:
            with path.open("ab") as file:  # never empty: another rank may be reading
                file.write(TEXT)
        return result

    monkeypatch.setattr(svmlight, "read_part", changing)
    assert "changed while it was read" in str(error(path, "aa"))


def test_hosts_with_different_files(path, monkeypatch):
    """Both "hosts" read the same file here: the second is made to read other values."""
    read_part = svmlight.read_part

    def other(name, part, parts):
        result = read_part(name, part, parts)
        if parts == 1:
            result.chunks[0].values[0] += 1
        return result

    monkeypatch.setattr(svmlight, "read_part", other)
    assert str(error(path, "aab")) == f"{path}: hosts a and b have different files"


def test_a_file_written_just_now_is_waited_for(path, monkeypatch):
    """Otherwise a file written again within a tick of its clock would seem unchanged."""
    waits = []
    monkeypatch.setattr(loading.time, "sleep", waits.append)
    path.write_bytes(TEXT)
    os.utime(path, ns=(1, 1))
    monkeypatch.setattr(loading.time, "time_ns", lambda: path.stat().st_ctime_ns + 1000)
    run_alone(lambda transport: shared_rows(str(path), transport))
    assert waits == [0.02]
    monkeypatch.setattr(loading.time, "time_ns", lambda: path.stat().st_ctime_ns + 10**9)
    cache.discard(cache.places(str(path))[0])
    run_alone(lambda transport: shared_rows(str(path), transport))
    assert waits == [0.02]

"""Work on files is a sign of life: ranks that wait for one that reads, writes or hashes for long go on waiting."""

import gzip
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import evicting

import malt
from malt.data import ratings, store
from malt.data.text import text_file
from malt.files import checkpoint, heartbeats, npz, values
from malt.session import session
from malt.session.world.endings import TolerantEnding
from malt.session.world.world import World

DEADLINE_S, PIECE_S = 1.0, 0.3
"""A rank has this deadline, and a piece of its work takes so long."""


@pytest.fixture
def work(monkeypatch):
    """work(function): function(rank) on two ranks, one of which is evicted where it keeps the other waiting for long.

    Files are read and written, and data hashed, in small pieces. Each takes a while before it gives its heartbeat. The
    result: the modules that have given some.
    """
    places, give, givers = {}, heartbeats.give, set()

    def give_late():
        if session.in_simulation():
            givers.add(Path(sys._getframe(1).f_code.co_filename).stem)
            places[malt.rank()].compute(PIECE_S)
        give()

    monkeypatch.setattr(heartbeats, "give", give_late)
    for module, name, length in (
        (heartbeats, "_PIECE_NBYTES", 256), (store, "BLOCK_NBYTES", 256), (text_file, "CHUNK_NBYTES", 256),
        (values, "_HASHED_NBYTES", 256), (ratings, "_PIECE", 16),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, length)

    def run(function):
        times = []

        def live(transport):
            places[transport.rank] = transport._place
            session.enter_simulation(World(transport, DEADLINE_S, ending=TolerantEnding()))
            function(transport.rank)
            malt.barrier()
            times.append(transport.clock())

        assert evicting(2, live, DEADLINE_S) == set() and min(times) > 2 * DEADLINE_S
        return givers

    return run


def test_a_state_is_saved_while_others_wait_for_an_exchange(work, tmp_path):
    path = tmp_path / "train.ckpt"

    def train(rank):
        v, one = malt.vector(4, sync="bsp"), malt.Checkpoint(path, every_s=0)
        for _ in range(2):
            assert one.save({"w": np.ones(100)}) == (rank == 0)
            v.scatter()
            assert v.gather()

    assert work(train) == {"heartbeats", "atomic"}
    assert checkpoint.read(str(path)).arrays["w"].sum() == 100


def test_a_state_is_loaded_while_others_wait_for_it(work, tmp_path):
    path = str(tmp_path / "train.ckpt")
    checkpoint.write(path, checkpoint.Content("x", {}, {"w": np.arange(200.0)}))

    def load(rank):
        assert malt.Checkpoint(path).load()["w"].sum() == 19900

    assert work(load) == {"heartbeats"}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("load", [malt.load_ratings, malt.load_svmlight])
def test_a_file_is_parsed_while_others_wait_for_the_rank_that_has_more_of_it(load, suffix, work, tmp_path):
    """One rank parses ratings, or a compressed file, alone. Then comes what is kept in the cache."""
    path, line = tmp_path / f"data{suffix}", "{} 1:2 3:4\n" if load is malt.load_svmlight else "{} 17 4.5\n"
    text = "".join(line.format(number) for number in range(200)).encode()
    path.write_bytes(gzip.compress(text, 0) if suffix else text)
    found = []
    givers = work(lambda rank: found.append(load(path)))
    assert givers == {"heartbeats", "store", *(["ratings"] if load is malt.load_ratings else [])}
    rows = [part.y if load is malt.load_svmlight else part.ratings for part in found]
    assert sum(map(len, rows)) == 200
    work(lambda rank: load(path))  # which checks the checksums of what is kept


def test_a_dataset_is_hashed_while_others_wait_for_its_chunks(work):
    def add(rank):
        assert malt.map_reduce(lambda _, rows: float(rows.sum()), None, np.ones(500) if rank == 0 else None) == 500

    assert "values" in work(add)


def test_a_model_is_written_and_read_while_others_wait_for_that(work, tmp_path):
    def save(rank):
        if rank == 0:
            malt.files.save_npz(tmp_path / "model.npz", w=np.ones(200))
            assert malt.files.load_npz(tmp_path / "model.npz")["w"].sum() == 200

    assert work(save) == {"heartbeats", "atomic"}


# -- files ---------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    st.binary(max_size=300), st.integers(1, 40),
    st.lists(st.one_of(st.none(), st.integers(-1, 90), st.just("line"), st.just("into")), max_size=8),
)  # fmt: skip
def test_a_file_in_pieces_is_read_as_any_other(tmp_path_factory, data, piece, reads):
    path = tmp_path_factory.mktemp("file") / "data"
    path.write_bytes(data)

    def read(file):
        found = []
        for one in reads:
            if one == "into":
                found.append((file.readinto(buffer := bytearray(50)), bytes(buffer)))
            else:
                found.append(file.readline() if one == "line" else file.read(*[] if one is None else [one]))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heartbeats, "_PIECE_NBYTES", piece)
        for mode in ("rb", "r+b"):
            with heartbeats.opened(path, mode) as file, open(path, mode) as plain:
                assert read(file) == read(plain)
        with heartbeats._File(path, "rb") as file:
            assert file.readall() == data


def test_a_file_in_pieces_is_written_as_any_other_and_synced_on_its_way(tmp_path, monkeypatch):
    given, synced = [], []
    monkeypatch.setattr(heartbeats, "_give", lambda: given.append(0))
    monkeypatch.setattr(heartbeats, "_PIECE_NBYTES", 1 << 14)
    monkeypatch.setattr(heartbeats, "_SYNC_NBYTES", 1 << 16)
    monkeypatch.setattr(heartbeats.os, "fsync", synced.append)
    data = np.random.default_rng(0).bytes(1 << 18)
    for mode in ("xb", "r+b", "w+b"):
        given.clear(), synced.clear()
        with heartbeats.opened(tmp_path / "data", mode) as file:
            file.write(data[:100])
            file.write(data[100:])
        assert (tmp_path / "data").read_bytes() == data
        assert 16 <= len(given) <= 18 and 3 <= len(synced) <= 4


def test_another_thread_gives_no_heartbeats(tmp_path, monkeypatch):
    """At the thread levels of MPI below MULTIPLE it must not call MPI."""
    given = []
    monkeypatch.setattr(heartbeats, "_give", lambda: given.append(0))
    thread = threading.Thread(target=npz.save_npz, args=[tmp_path / "x.npz"], kwargs={"x": np.ones(3)})
    thread.start()
    thread.join()
    assert given == [] and npz.load_npz(tmp_path / "x.npz")["x"].sum() == 3 and given

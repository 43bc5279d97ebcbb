"""Checkpoints of sharded vectors, of simulated ranks: saved by some, read by others, also after a rank has failed."""

import numpy as np
import pytest
from covering import pairs
from ranks import run_failing

import malt
from malt.files import checkpoint
from malt.session.checkpoints import sharded_state
from malt.session.world.world import World

VALUES = np.random.default_rng(0).normal(size=(101, 3)).astype(np.float32)
KEYS = np.concatenate([np.arange(20), (1 << 63) - 1 - np.arange(20)])
SOME = np.array([-0.0, np.nan, np.inf, 1e-45, 0.0, *range(35)], np.float32)
VALUES[:3] = [[0.0, -0.0, np.nan], [np.inf, -np.inf, 1e-45], [-0.0, 0.0, 1]]


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A path, and pieces of a few rows."""
    monkeypatch.setattr(sharded_state, "PIECE_NBYTES", 50)
    monkeypatch.setattr(checkpoint, "_PIECE_NBYTES", 70)
    monkeypatch.setattr("vol.sharded.layout.BLOCK_NBYTES", 64)
    monkeypatch.setattr("vol.sharded.push.MESSAGE_NBYTES", 40)
    monkeypatch.setattr("vol.sharded.sparse.layout.FIRST_CAPACITY", 8)
    return str(tmp_path / "train.ckpt")


def save(path, epoch=3):
    one = malt.Checkpoint(path)
    m, w = malt.sharded((101, 3)), malt.sharded(7, "float64")
    s, empty = malt.sharded(1 << 63, kind="sparse"), malt.sharded(5, "float64", kind="sparse")
    s.push(np.arange(40.0) * malt.lowest(), KEYS)
    m.local[:] = VALUES[m.range]
    w.push(np.arange(7.0))
    state = {"m": m, "epoch": epoch, "w": w, "s": s, "empty": empty}
    assert one.save(state, force=malt.lowest()) == malt.lowest()
    assert not one.save({"m": m}, force=not malt.lowest())
    w.push(np.ones(7))


@pytest.mark.parametrize(("before", "after", "seed"), pairs([1, 3], [1, 2, 4], range(4)))
def test_another_number_of_ranks_goes_on(path, before, after, seed):
    malt.simulate(lambda rank: save(path), before, seed)
    with np.load(path) as file:
        assert file["m"].tobytes() == VALUES.tobytes()
        entries = dict(file["s"].tolist())
        assert entries == dict(zip(KEYS.tolist(), range(40), strict=True)) and len(file["s"]) == 40

    def program(rank):
        state = malt.Checkpoint(path).load()
        assert list(state) == ["m", "epoch", "w", "s", "empty"] and state["epoch"] == 3
        assert state["m"].local.tobytes() == VALUES[state["m"].range].tobytes()
        np.testing.assert_array_equal(state["w"].pull(), before * np.arange(7.0), strict=True)
        np.testing.assert_array_equal(state["s"].pull(KEYS), np.arange(40, dtype=np.float32), strict=True)
        assert state["s"].shape == (1 << 63,) and state["s"].touched() == 40
        assert state["empty"].shape == (5,) and state["empty"].touched() == 0
        save(path)

    malt.simulate(program, after, seed)


def test_a_save_has_all_that_was_pushed_before(path):
    """Also what its owner has not added yet."""

    def program(rank):
        w, s = malt.sharded(9), malt.sharded(1 << 63, kind="sparse")
        malt.init().transport.duties.clear()  # it adds nothing while it waits
        w.push(np.ones(9))
        s.push(np.ones(9), KEYS[:9])
        malt.Checkpoint(path).save({"w": w, "s": s}, force=True)

    malt.simulate(program, 3)
    with np.load(path) as file:
        assert file["w"].tolist() == [3] * 9
        assert sorted(file["s"].tolist()) == [(key, 3) for key in range(9)]


def test_a_save_is_whole_where_a_thread_pushes_meanwhile(path, monkeypatch):
    """More than the table has room for, between the moment when all is in and the one when it rests."""
    settle = World.settle_pushes

    def settled(world, call):
        settle(world, call)
        (vector,) = world.sharded
        vector.push(SOME, KEYS)

    with monkeypatch.context() as patch:
        patch.setattr(World, "settle_pushes", settled)
        malt.simulate(lambda rank: malt.Checkpoint(path).save({"s": malt.sharded(1 << 63, kind="sparse")}, True), 1)
    pulled = malt.simulate(lambda rank: malt.Checkpoint(path).load()["s"].pull(KEYS).tobytes(), 3)
    assert pulled == [SOME.tobytes()] * 3


def test_what_is_wrong_is_the_same_error_on_all_ranks(path):
    def error(rank, state, kind, text):
        one = malt.Checkpoint(path)
        with pytest.raises(kind, match=text) as caught:
            one.save(state, force=True)
        assert len({*malt.allgather(str(caught.value))}) == 1

    def program(rank):
        w, g, m = malt.sharded(8, name="w"), malt.sharded(8, name="g"), malt.sharded((8, 2), name="m")
        error(rank, {"w": w} if rank else {"epoch": 3}, TypeError, "rank 0 has no sharded vector; rank 1 has 'w'")
        error(rank, {"w": g if rank == 2 else w}, TypeError, "rank 2 has 'w': <g: float32 of shape")
        error(rank, {"w": w, "m": m if rank else object()}, TypeError, r"state\['m'\] must be an array")
        error(rank, {"w": w + 1} if rank == 1 else {"w": w}, TypeError, "is not an array")
        assert malt.Checkpoint(path).load() is None
        return malt.Checkpoint(path).save({"epoch": 3}, force=True)

    assert malt.simulate(program, 3) == [True, False, False]


def test_a_file_that_is_replaced_while_it_is_read_is_refused(path):
    malt.simulate(lambda rank: save(path), 1)
    found = checkpoint.read(path).arrays["m"]
    assert np.concatenate(list(found.pieces())).tobytes() == VALUES.tobytes()
    assert max(len(piece) for piece in found.pieces()) == 70 // 12
    malt.simulate(lambda rank: save(path), 1)
    with pytest.raises(ValueError, match="it was replaced while it was read"):
        list(found.pieces())


@pytest.mark.parametrize("seed", range(6))
def test_a_failed_part_is_dealt_from_the_last_checkpoint(path, seed):
    """A rank fails at its so many-th turn: in training, in a save, or while another failure is made up for."""
    turn = 60 + (740 + 370 * seed) % 1440
    fails = {turn % 4: turn, (turn + 1) % 4: 2 * turn}
    malt.simulate(lambda rank: malt.Checkpoint(path).save(
        {"w": malt.sharded(8), "s": malt.sharded(1 << 63, kind="sparse"), "epoch": 0}, force=True
    ), 2)  # fmt: skip

    def train(state, one):
        for epoch in range(int(state["epoch"]), 12):
            one.save({"w": state["w"], "s": state["s"], "epoch": epoch}, force=True)
            keys = KEYS[: 3 * epoch + 3]
            malt.together(lambda: state["w"].push(np.full(8, float(malt.lowest()))))
            malt.together(lambda keys=keys: state["s"].push(np.full(len(keys), float(malt.lowest())), keys))
            malt.barrier()
            assert set(malt.together(state["w"].pull)) == {epoch + 1}
            assert malt.together(lambda keys=keys: state["s"].pull(keys))[-3:].tolist() == [1] * 3

    def live(rank):
        one = malt.Checkpoint(path)
        while True:
            state = one.load()
            try:
                train(state, one)
                return state["w"].sum()
            except malt.PeerLost:
                continue

    results, failed = run_failing(4, turn, fails, live)
    assert {results[rank] for rank in range(4) if rank not in failed} == {12 * 8}


def test_a_part_that_is_lost_in_a_load_is_dealt_again(path, monkeypatch):
    """The rank fails when all parts are dealt, before the others have found that they are complete."""
    load_from = malt.Checkpoint._load_from

    def failing(self, root, world, partial):
        state = load_from(self, root, world, partial)
        return world.transport._place._group._fail(1) if world.rank == 1 else state

    def live(rank):
        state = malt.Checkpoint(path).load()
        return state["w"].owners, state["s"].owners, state["w"].sum()

    malt.simulate(lambda rank: save(path), 2)
    monkeypatch.setattr(malt.Checkpoint, "_load_from", failing)
    results, _ = run_failing(3, 0, {}, live)
    assert results[0] == results[2] == ((0, 2), (0, 2), 42)


def test_where_there_is_no_checkpoint_the_loss_of_a_part_is_an_error(path):
    def live(rank):
        w = malt.sharded(8)
        try:
            while True:
                w.sum()
        except malt.PeerLost:
            for _ in range(2):
                with pytest.raises(malt.PeerLost, match="rank 1 is lost: .* there is no checkpoint .*train.ckpt"):
                    malt.Checkpoint(path).load()
            return True

    results, failed = run_failing(3, 0, {1: 200}, live)
    assert results[0] and results[2] and failed == {1}

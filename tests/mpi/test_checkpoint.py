"""malt.Checkpoint: which rank writes a checkpoint and when, what load returns, and kills during a save."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoints import common_path, same_error

import malt
from malt.files import checkpoint
from malt.session import session

ROOT = Path(__file__).parents[2]
KILLS = 20


@pytest.fixture
def path(tmp_path):
    """A path for a checkpoint, the same on all ranks."""
    return common_path(tmp_path)


STATE = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "epoch": 3, "rate": 0.1, "name": "café", "on": True,
         "no rows": np.zeros((0, 2), np.int8), "text": np.array(["a", "bc"])}  # fmt: skip


def test_all_ranks_get_what_the_lowest_has_saved(path):
    rank = malt.rank()
    one = malt.Checkpoint(path, every_s=0)
    assert one.load() is None
    assert one.save({**STATE, "rank": rank}) == (rank == 0)
    back = malt.Checkpoint(path).load()
    assert list(back) == [*STATE, "rank"] and int(back["rank"]) == 0
    for name, value in STATE.items():
        expected = np.asarray(value)
        assert back[name].dtype == expected.dtype and np.array_equal(back[name], expected)
        assert back[name].flags.writeable and back[name].flags.c_contiguous
    back["w"][:] = rank
    malt.barrier()
    assert (back["w"] == rank).all()  # no two ranks share an array
    assert (int(back["epoch"]), float(back["rate"]), str(back["name"]), bool(back["on"])) == (3, 0.1, "café", True)


VALUES = {
    "best": None, "seed": 2**100, "generator": np.random.PCG64(3).state, "other": np.random.MT19937(3).state,
    "nested": {"first": [1, (2.5, None)], 0: {"w": np.arange(3, dtype=np.float16)}, "number": np.float32(3)},
    "ragged": [[1], [2, 3]], "mixed": [1, "1"], "nul": ["a\0"], "whole": [2**53 + 1, 0.5], "turns": [2**53 + 1, 1j],
    "wide": np.longdouble(1) / 3, "day": np.datetime64("2026-01-02"), "turn": 1 + 2j, "plain": [1.5, float("nan")],
    "kinds": [np.int64(2**62 + 1), np.uint64(1)],
}  # fmt: skip


def test_values_that_are_no_arrays_come_back_as_they_were(path):
    one = malt.Checkpoint(path)
    one.save({"first": np.arange(2), **VALUES, "last": 1.5}, force=True)
    back = one.load()
    assert list(back) == ["first", *VALUES, "last"]
    for name, value in VALUES.items():
        np.testing.assert_equal(back[name], np.asarray(value) if name == "plain" else value)
        assert type(back[name]) is (np.ndarray if name in ("wide", "day", "turn", "plain") else type(value))
    back["nested"][0]["w"][:] = malt.rank()
    malt.barrier()
    assert (back["nested"][0]["w"] == malt.rank()).all()  # no two ranks share an array
    draws = np.random.Generator(np.random.PCG64())
    draws.bit_generator.state = back["generator"]
    assert draws.random() == np.random.Generator(np.random.PCG64(3)).random()


@pytest.mark.serial
def test_numbers_that_numpy_lacks_come_back_in_float32(path):
    torch = pytest.importorskip("torch")
    numbers = [1.0, -0.5, 3.0]
    narrow = [getattr(torch, name) for name in ("bfloat16", "float8_e5m2")]
    state = {str(dtype): torch.tensor(numbers).to(dtype) for dtype in narrow}
    state |= {"trained": torch.nn.Parameter(torch.ones(2)), "turned": torch.ones(1, dtype=torch.complex64).conj()}
    one = malt.Checkpoint(path)
    one.save({**state, "moments": {0: {"step": state["torch.bfloat16"]}}}, force=True)
    back = one.load()
    for array in (*(back[str(dtype)] for dtype in narrow), back["moments"][0]["step"]):
        assert array.dtype == np.float32 and array.tolist() == numbers
    assert back["trained"].tolist() == [1, 1] and back["turned"].dtype == np.complex64
    model, other = (torch.nn.Linear(2, 1).bfloat16() for _ in range(2))
    one.save({**model.state_dict(), "epoch": 1}, force=True)
    other.load_state_dict({name: torch.from_numpy(one.load()[name]) for name in other.state_dict()})
    assert all(map(torch.equal, model.parameters(), other.parameters()))
    with pytest.raises(TypeError, match=r"state\['adjacency'\] is not an array that a file can hold: can't convert"):
        one.save({"adjacency": torch.eye(2).to_sparse()})


def test_large_arrays_are_sent_in_pieces(path, monkeypatch):
    monkeypatch.setattr("dstorm.transports.mpi.collectives._BROADCAST_NBYTES", 1000)
    one = malt.Checkpoint(path, every_s=0)
    one.save({"w": np.arange(1234), "v": np.arange(125.0)})
    back = one.load()
    assert np.array_equal(back["w"], np.arange(1234)) and np.array_equal(back["v"], np.arange(125.0))


def test_all_ranks_refuse_a_bad_file(path):
    if malt.rank() == 0:
        Path(path).write_text("something else")
    assert same_error(malt.Checkpoint(path).load) == f"{path}: not a checkpoint of malt: name another file"
    if malt.rank() == 0:
        assert Path(path).read_text() == "something else"


def test_all_ranks_refuse_what_does_not_match(path):
    one = malt.Checkpoint(path, 0, program="this", match={"l2": 0.1, "layers": (3, 4)})
    one.save({"n": 1})
    assert one.load()["n"] == malt.Checkpoint(path).load()["n"] == 1
    other = malt.Checkpoint(path, 0, program="that")
    assert same_error(other.load) == f"{path}: a checkpoint of this, not of that: name another file"
    for match, problem in [
        ({"l2": 0.2, "layers": [3, 4]}, "with l2 0.1, not 0.2 as here"),
        ({"l2": 0.1}, "with layers [3, 4], not None as here"),
        ({"l2": 0.1, "layers": [3, 4], "seed": 0}, "with seed None, not 0 as here"),
        ({}, "with l2 0.1, not None as here"),
    ]:
        message = same_error(malt.Checkpoint(path, 0, match=match).load)
        assert message == f"{path}: a checkpoint {problem}: continue with the same options, or name another file"


def test_a_number_that_is_none_matches_itself(path):
    match = {"l2": float("nan"), "layers": {"b": [1.0, math.nan], "a": math.inf}}
    malt.Checkpoint(path, 0, match=match).save({"n": 1})
    assert malt.Checkpoint(path, 0, match={**match, "layers": {"a": math.inf, "b": (1.0, math.nan)}}).load()["n"] == 1
    assert "with l2 nan, not 0.5 as here" in same_error(malt.Checkpoint(path, 0, match={**match, "l2": 0.5}).load)


def test_a_missing_folder_is_an_error_at_once(path):
    elsewhere = os.path.join(os.path.dirname(path), "absent", "train.ckpt")
    assert "absent" in same_error(malt.Checkpoint(elsewhere).load, FileNotFoundError)


def test_ranks_agree_on_whether_a_save_is_due(path):
    every_s = 0 if malt.rank() == 0 else 1e9
    assert malt.Checkpoint(path, every_s).due_together()
    assert not malt.Checkpoint(path, 1e9 - every_s).due_together()


def test_when_a_save_is_due(tmp_path):
    """The clock of each rank decides. The clocks of all ranks start again when one of them writes."""

    def live(rank):
        clock = session.world().transport
        one = malt.Checkpoint(tmp_path / "train.ckpt", every_s=1.0)
        results = [one.due(), one.save({"n": 0})]
        for _ in range(2):
            start = clock.clock()
            while not one.due():
                clock.pause(40)
            results += [clock.clock() - start >= 1.0, one.save({"n": 1}), one.due(), one.save({"n": 2})]
        results += [one.save({"n": 3}, force=True), one.due()]
        return results

    first, other = malt.simulate(live, 2)
    assert first == [False, False, *2 * [True, True, False, False], True, False]
    assert other == [False, False, *2 * [True, False, False, False], False, False]
    assert int(checkpoint.read(str(tmp_path / "train.ckpt")).arrays["n"]) == 3


ENDLESS: list = []
ENDLESS.append(ENDLESS)
BAD_STATES = {
    "an object": ({"w": object()}, TypeError, r"state\['w'\] must be an array of numbers or text, a number, a"),
    "an array of objects": ({"w": np.array([{}])}, TypeError, "got an array of object"),
    "an object in a dict": ({"w": {"a": [{}, {1}]}}, TypeError, r"state\['w'\]\['a'\]\[1\] must be .*, got set"),
    "a key that is none": (
        {"w": {(1, 2): 3}},
        TypeError,
        r"state\['w'\]: keys must be strings or integers, got \(1, 2",
    ),
    "a list in itself": ({"w": ENDLESS}, ValueError, r"state\['w'\] holds itself, or is nested too"),
    "a generator": ({"w": np.random.default_rng()}, TypeError, "got Generator: give its bit_generator.state"),
    "a record": ({"w": np.zeros(2, "i4,f4")}, TypeError, "got an array of"),
    "a mask": ({"w": np.ma.masked_array([1], [True])}, TypeError, "got MaskedArray"),
    "text that ends in NUL": ({"w": "a\0"}, ValueError, "ends in NUL"),
    "a name that is none": ({1: 2}, TypeError, "names must be strings, got 1"),
    "no name": ({"": 2}, ValueError, "1 to 255 characters"),
    "a long name": ({"a" * 256: 2}, ValueError, "1 to 255 characters"),
    "a name with a NUL": ({"a\0": 2}, ValueError, "can be printed"),
    "a name of ours": ({"malt.about": 2}, ValueError, "not begin with 'malt.'"),
}


@pytest.mark.serial
@pytest.mark.parametrize("name", BAD_STATES)
def test_a_state_that_cannot_be_saved_is_an_error_before_it_is_due(tmp_path, name):
    state, kind, message = BAD_STATES[name]
    with pytest.raises(kind, match=message):
        malt.Checkpoint(tmp_path / "train.ckpt").save(state)


@pytest.mark.serial
def test_what_is_given_in_the_place_of_force_is_refused(tmp_path):
    """`mine` there would force each save, and be lost."""
    one = malt.Checkpoint(tmp_path / "train.ckpt")
    with pytest.raises(TypeError, match="^force must be True or False, got {'rng': 1}"):
        one.save({"w": np.zeros(2)}, {"rng": 1})
    assert one.load() is None


@pytest.mark.serial
@pytest.mark.parametrize(
    ("arguments", "kind"),
    [((1.5,), TypeError), ((None,), TypeError), (("",), ValueError), (("x", "1"), TypeError), (("x", True), TypeError),
     (("x", -1), ValueError), (("x", float("nan")), ValueError)],
)  # fmt: skip
def test_arguments(arguments, kind):
    with pytest.raises(kind, match="^path" if len(arguments) == 1 else "^every_s"):
        malt.Checkpoint(*arguments)


@pytest.mark.serial
@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"path": None}, "path must be a string or a path, got None"), ({"path": ""}, "path must name a file, got ''"),
     ({"program": 5}, "program must be a string, got 5"), ({"match": {"a"}}, "match must be a dict, got {'a'}"),
     ({"match": ["a"]}, "match must be a dict, got ['a']"),
     ({"match": {"a": {1}}}, "match must hold what JSON can represent, got {'a': {1}}: Object of type set is not")],
)  # fmt: skip
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        malt.Checkpoint(**{"path": "x", **arguments})


@pytest.mark.serial
class TestTrouble:
    def test_a_failed_write_does_not_end_the_training(self, tmp_path, monkeypatch, capsys):
        path = tmp_path / "train.ckpt"
        one = malt.Checkpoint(path, every_s=0)
        assert one.save({"n": 1})
        fsync = os.fsync

        def full(descriptor):
            raise OSError(28, "No space left on device")

        for _ in range(2):
            monkeypatch.setattr(os, "fsync", full)
            assert [one.save({"n": 2}), one.save({"n": 3})] == [False, False]  # reported once
            assert capsys.readouterr().err == (
                f"malt: checkpoint {path} was not written: No space left on device; training continues, and the next "
                "one that is due is tried\n"
            )
            assert int(one.load()["n"]) in (1, 4) and os.listdir(tmp_path) == ["train.ckpt"]
            monkeypatch.setattr(os, "fsync", fsync)
            assert one.save({"n": 4}) and int(one.load()["n"]) == 4
        assert capsys.readouterr().err == ""

    def test_the_next_save_tries_again(self, tmp_path, capsys):
        def live(rank):
            clock = session.world().transport
            one = malt.Checkpoint(tmp_path / "absent" / "train.ckpt", every_s=1.0)
            first = one.save({"n": 1}, force=True), one.due()
            (tmp_path / "absent").mkdir()
            while not one.due():
                clock.pause(40)
            return [*first, one.save({"n": 2})]

        assert malt.simulate(live, 1) == [[False, False, True]]
        assert capsys.readouterr().err.count("No such file or directory") == 1

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_read_only_folder(self, tmp_path, capsys):
        tmp_path.chmod(0o500)
        try:
            assert not malt.Checkpoint(tmp_path / "train.ckpt", 0).save({"n": 1})
        finally:
            tmp_path.chmod(0o700)
        assert "Permission denied" in capsys.readouterr().err


SAVING = """if True:
    import os, random, signal, sys, time
    import numpy as np
    import malt
    from malt.files import checkpoint

    path, kills = sys.argv[1], int(sys.argv[2])

    def save_on_and_on(first, progress):
        checkpoint = malt.Checkpoint(path, every_s=0)
        for n in range(first, 10**9):
            checkpoint.save({"n": n, "a": np.full(1 << 17, n), "b": np.full(n % 1000, n), "text": str(n)})
            os.write(progress, b".")

    def consistent(path):
        state = checkpoint.read(path).arrays
        n = int(state["n"])
        assert (state["a"] == n).all() and state["a"].size == 1 << 17, n
        assert (state["b"] == n).all() and state["b"].size == n % 1000 and str(state["text"]) == str(n), n
        return n

    draw, last, unfinished = random.Random(), -1, 0
    while kills > 0 or not unfinished:  # a save is mostly its write, so a kill soon hits one
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            malt.simulate(lambda rank: save_on_and_on(last + 1, writer), 1)
        os.close(writer)
        begun = time.monotonic()
        saved = draw.randint(1, 3)
        for _ in range(saved):
            assert os.read(reader, 1) == b"."
        time.sleep(draw.random() * (time.monotonic() - begun) / saved)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        n = consistent(path)
        assert n >= last + saved, (n, last, saved)
        last = n
        unfinished += len(os.listdir(os.path.dirname(path))) > 1
        kills -= 1
    checkpoint.write(path, checkpoint.Content("", {}, {}))
    print(last, unfinished, *os.listdir(os.path.dirname(path)))
"""


@pytest.mark.serial
def test_kills_at_random_moments_leave_a_state_that_was_saved(tmp_path):
    """One process saves all the time. Each kill comes after some further saves, and at least one within a write."""
    done = subprocess.run(
        [sys.executable, "-c", SAVING, str(tmp_path / "train.ckpt"), str(KILLS)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    last, unfinished, *left = done.stdout.split()
    assert int(last) >= KILLS and int(unfinished) > 0 and left == ["train.ckpt"]

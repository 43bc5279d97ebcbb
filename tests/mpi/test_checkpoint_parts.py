"""Checkpoint.save(..., mine=...) and its twin, restore: what each rank alone goes on from."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from checkpoints import common_path, same_error

import malt
from malt.files import checkpoint


@pytest.fixture
def path(tmp_path):
    """A path for a checkpoint, the same on all ranks."""
    return common_path(tmp_path)


class Thing:
    """An object with a state, as users and torch have them."""

    def __init__(self, value):
        self.value, self.asked, self.anew = value, 0, 0

    def state_dict(self):
        self.asked += 1
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]

    def begin_anew(self):
        self.anew += 1


class Dealt(Thing):
    is_dealt = True


def test_each_rank_gets_its_own_part(path):
    rank = malt.rank()
    mine = {
        "array": np.arange(rank + 3), "number": rank, "text": f"rank {rank}", "none": None, "lists": [[1], (2.5, rank)],
        "counts": Counter("abca"), "big": 2**70 + rank,
    }  # fmt: skip
    one = malt.Checkpoint(path)
    assert one.save({"w": np.full(3, rank)}, force=True, mine=mine) == (rank == 0)
    other = malt.Checkpoint(path)
    assert other.load()["w"].tolist() == [0, 0, 0]
    np.testing.assert_equal(other.mine, mine)
    assert type(other.mine["counts"]) is Counter and type(other.mine["lists"][1]) is tuple
    other.mine["array"][:] = -1  # its own, and writable
    malt.barrier()
    assert one.load() is not None and one.mine["array"].tolist() == list(range(rank + 3))


def test_objects_and_arrays_get_back_what_they_had(path):
    rank = malt.rank()

    def made(number):
        generators = np.random.default_rng(number), random.Random(number), np.random.RandomState(number)
        return {"w": np.full(2, float(number)), "thing": Thing(number)}, dict(enumerate_names(generators, number))

    def enumerate_names(generators, number):
        yield from zip(("rng", "python", "old"), generators, strict=True)
        yield "bits", np.random.PCG64(number)
        yield "momentum", np.full(3, float(number))
        yield "thing", Thing(number)

    def draws(mine):
        loose = random.random(), np.random.random()
        own = mine["rng"].random(), mine["python"].random(), mine["old"].normal(), mine["bits"].random_raw()
        return *loose, *own

    common, mine = made(rank)
    malt.seed(rank)
    mine["old"].normal()  # it keeps a second one
    malt.Checkpoint(path).save({**common, "epoch": 3}, force=True, mine=mine)
    expected = draws(mine)
    others, other = made(100)
    malt.seed(5)
    found = malt.Checkpoint(path).restore(others, mine=other)
    assert int(found["epoch"]) == 3 and draws(other) == expected
    assert (others["w"].tolist(), others["thing"].value) == ([0, 0], 0)
    assert (other["momentum"].tolist(), other["thing"].value) == ([rank] * 3, rank)


def test_a_torch_generator_and_torchs_own(path):
    torch = pytest.importorskip("torch")
    own = torch.Generator().manual_seed(3 + malt.rank())
    torch.manual_seed(malt.rank())
    best = torch.full((3,), float(malt.rank()), requires_grad=True)
    malt.Checkpoint(path).save({}, force=True, mine={"own": own, "best": best})
    expected = torch.rand(2, generator=own).tolist(), torch.rand(2).tolist()
    other, tensor = torch.Generator(), torch.zeros(3, dtype=torch.bfloat16, requires_grad=True)
    malt.Checkpoint(path).restore({}, mine={"own": other, "best": tensor})
    assert tensor.tolist() == [malt.rank()] * 3
    assert (torch.rand(2, generator=other).tolist(), torch.rand(2).tolist()) == expected


def test_states_are_taken_only_if_a_save_is_due(path):
    thing, other = Thing(1), Thing(2)
    one = malt.Checkpoint(path, 1e9 if malt.rank() == 0 else 0)
    assert not one.save({"thing": thing}, mine={"other": other})
    assert (thing.asked, other.asked) == (0, 0) and not Path(path).exists()
    one.save({"thing": thing}, mine={"other": other}, force=malt.rank() == 0)  # the lowest rank says so
    assert (thing.asked, other.asked) == (1, 1)


def test_without_a_file_nothing_changes(path):
    w = np.ones(2)
    one = malt.Checkpoint(path)
    assert one.restore({"w": w}, mine={"thing": Thing(1)}) is None and one.mine == {} and w.tolist() == [1, 1]


def of_others(path, ranks, parts):
    """A file of so many ranks, of which these have parts: copies of what rank 0 has."""
    malt.Checkpoint(path).save(
        {"w": np.arange(2.0), "rest": Dealt(7)}, force=True, mine={"thing": Thing(1), "dealt": Dealt(2)}
    )
    if malt.lowest():
        content = checkpoint.read(path)
        checkpoint.write(path, content._replace(ranks=ranks, parts=dict.fromkeys(parts, content.parts[0])))
    malt.barrier()


def restored(path):
    w, rest, thing, dealt = np.zeros(2), Dealt(0), Thing(0), Dealt(0)
    state = np.random.get_state(legacy=False)["state"]["key"].tolist()
    one = malt.Checkpoint(path)
    one.restore({"w": w, "rest": rest}, mine={"thing": thing, "dealt": dealt})
    assert np.random.get_state(legacy=False)["state"]["key"].tolist() == state
    return w.tolist(), rest.value, (thing.value, thing.anew), (dealt.value, dealt.anew)


def test_on_another_number_of_ranks_parts_are_dealt_or_begun_anew(path, capfd):
    of_others(path, 9, range(9))
    assert restored(path) == ([0, 1], 7, (0, 1), (2, 0))
    told = f"written on 9 ranks, and resumed on {malt.size()}: rest, dealt are dealt again; thing, random number gen"
    assert capfd.readouterr().err.count(told) == malt.lowest()


def test_where_a_rank_had_failed_all_begin_anew(path, capfd):
    of_others(path, malt.size(), range(1, 1 + malt.size()))
    assert restored(path)[2] == (0, 1)
    assert capfd.readouterr().err.count("one of which had failed") == malt.lowest()


def test_a_file_without_parts(path, capfd):
    malt.Checkpoint(path).save({"w": np.arange(2.0), "rest": {"value": 7}}, force=True)
    malt.barrier()
    assert restored(path) == ([0, 1], 7, (0, 1), (0, 1))
    assert capfd.readouterr().err.count("it has no parts by rank: thing, dealt start from scratch") == malt.lowest()


class Failing(Thing):
    def state_dict(self):
        if malt.rank() == malt.size() - 1:
            raise RuntimeError("no state")
        return {}


def test_all_ranks_refuse_what_one_cannot_save(path):
    one, last = malt.Checkpoint(path), malt.rank() == malt.size() - 1
    assert same_error(lambda: one.save({}, True, mine={"x": Failing(1)}), RuntimeError) == "no state"
    thing = Thing(object() if last else 1)
    for value, place in ((object() if last else 1, "mine['x']"), (thing, "mine['x']['value']")):
        error = same_error(lambda value=value: one.save({}, True, mine={"x": value}), TypeError)
        assert error.startswith(f"{place} must be an array")
    assert "must be an array" in same_error(lambda: one.save({"x": object()}, True, mine={}), TypeError)
    assert "not begin with 'malt.'" in same_error(lambda: one.save({}, mine={"malt.x": 1}))
    assert not Path(path).exists()


@pytest.mark.parallel
def test_ranks_that_name_different_things_are_refused(path):
    name = "a" if malt.rank() else "b"
    error = same_error(lambda: malt.Checkpoint(path).save({}, True, mine={name: 1}), TypeError)
    assert error == "mine: rank 0 has [[], ['b']]; rank 1 has [[], ['a']]"


def test_names_that_are_not_there_are_refused_on_all_ranks(path):
    malt.Checkpoint(path).save({"w": np.zeros(2)}, True, mine={"thing": Thing(3)})
    one, thing = malt.Checkpoint(path), Thing(0)
    missing = {"x": Thing(1)}, {"x": np.zeros(2), "w": np.zeros(2)}
    for words in (*((state, {"thing": thing}) for state in missing), ({}, {"thing": thing, "x": 1})):
        error = same_error(lambda words=words: one.restore(words[0], mine=words[1]))
        assert error == f"{path}: a checkpoint without x: name another file" and thing.value == 0


def test_what_is_no_dict_is_refused(path):
    """An array in its place, say: it has no items."""
    one, w = malt.Checkpoint(path), np.zeros(2)
    for call in (lambda: one.save(w), lambda: one.save(w, mine={}), lambda: one.save({}, mine=[w])):
        with pytest.raises(TypeError, match='must be a dict of values by name, as {"w": w}, got (ndarray|list)'):
            call()
    one.save({"w": w}, True, mine={})
    with pytest.raises(TypeError, match='state must be a dict of values by name, as {"w": w}, got ndarray'):
        one.restore(w)
    for wrong in (w, []):
        with pytest.raises(TypeError, match='mine must be a dict of values by name, as {"w": w}, got (ndarray|list)'):
            one.restore({"w": w}, mine=wrong)


def test_a_value_of_mine_that_a_file_cannot_hold_is_refused_before_a_save_is_due(path):
    holds_itself = []
    holds_itself.append(holds_itself)
    for value, message in (({1}, r"mine\['k'\] must be an array .* got set"), (holds_itself, "mine holds itself")):
        with pytest.raises((TypeError, ValueError), match=message):
            malt.Checkpoint(path).save({}, mine={"thing": Thing(3), "k": value})


def test_an_array_that_cannot_hold_the_numbers_of_the_file_is_named(path):
    one = malt.Checkpoint(path)
    one.save({"n": np.array([2**40]), "w": np.array([0.1, np.nan, 1e300, -np.inf])}, True, mine={"k": np.zeros(1)})
    for small in ({"n": np.zeros(1, np.int32)}, {"w": np.zeros(4, np.float32)}):
        [(name, array)] = small.items()
        error = same_error(lambda small=small: one.restore(small, mine={"k": np.zeros(1)}))
        assert error.startswith(f"{path}: {name!r} does not fit: an array of {array.dtype} cannot hold all")
        assert not array.any()
    one.save({"w": np.array([0.1, np.nan, -np.inf])}, True, mine={"k": np.zeros(1)})
    w = np.zeros(3, np.float32)
    one.restore({"w": w}, mine={"k": np.zeros(1)})
    assert np.array_equal(w, np.array([0.1, np.nan, -np.inf], np.float32), equal_nan=True)


def test_arrays_of_text_and_dates_get_back_what_they_had(path):
    """They cannot be asked whether they are finite, as numbers can."""
    one = malt.Checkpoint(path)
    saved = {
        "classes": np.array(["ab", "c"]), "raw": np.array([b"ab", b""]), "z": np.array([1j, np.nan]),
        "days": np.array(["2026-11-30", "NaT"], "M8[D]"),
    }  # fmt: skip
    one.save(saved, True, mine={"k": np.zeros(1)})
    found = {name: np.zeros_like(array) for name, array in saved.items()}
    one.restore(found, mine={"k": np.zeros(1)})
    assert all(array.tobytes() == saved[name].tobytes() for name, array in found.items())
    short = {"classes": np.array(["x", "y"])}
    error = same_error(lambda: one.restore(short, mine={"k": np.zeros(1)}))
    assert error.startswith(f"{path}: 'classes' does not fit: an array of <U1 cannot hold all")
    assert short["classes"].tolist() == ["x", "y"]


def test_what_does_not_fit_is_named(path):
    malt.Checkpoint(path).save({"w": np.zeros(2)}, True, mine={"thing": Thing(3), "k": np.ones(4)})
    one = malt.Checkpoint(path)
    error = same_error(lambda: one.restore({"w": np.zeros(3)}))
    assert error == f"{path}: 'w' does not fit: an array of shape (3,) is (2,) in the file"
    error = same_error(lambda: one.restore({"w": np.zeros(2)}, mine={"k": np.zeros(4, int)}))
    assert error.startswith(f"{path}: 'k' does not fit: Cannot cast") and "float64" in error
    assert f"{path}: 'w' does not fit" in same_error(lambda: one.restore({"w": np.random.default_rng(1)}))

    class Module(Thing):
        """As PyTorch's: of another shape it says this."""

        def load_state_dict(self, state):
            raise RuntimeError("size mismatch for weight")

    error = same_error(lambda: one.restore({"w": np.zeros(2)}, mine={"thing": Module(3)}))
    assert error == f"{path}: 'thing' does not fit: size mismatch for weight"

    class Closed(Thing):
        """As a Replica that has left: that it is closed is no matter of the file."""

        def load_state_dict(self, state):
            raise malt.ClosedError("it has left")

    assert "it has left" in same_error(lambda: one.restore({"w": np.zeros(2)}, mine={"thing": Closed(3)}), RuntimeError)


def test_what_is_no_dict_on_one_rank_is_refused_on_all(path):
    one, w = malt.Checkpoint(path), np.zeros(2)
    wrong = [w] if malt.rank() == 0 else {"w": w}
    one.save({}, True, mine={"w": w})
    for call in (lambda: one.save({}, mine=wrong), lambda: one.restore({}, mine=wrong)):
        with pytest.raises(TypeError, match='mine must be a dict of values by name, as {"w": w}, got list'):
            call()


@pytest.mark.serial
def test_a_damaged_part_is_refused(path):
    malt.Checkpoint(path).save({}, True, mine={"w": np.zeros(4)})
    content = checkpoint.read(path)
    for arrays in ([np.zeros(3)], [np.zeros(4, np.float32)]):
        part = content.parts[0]
        checkpoint.write(path, content._replace(parts={0: part._replace(arrays=[*arrays, *part.arrays[1:]])}))
        with pytest.raises(ValueError, match="the arrays of rank 0 are not as described"):
            malt.Checkpoint(path).load()


def test_sharded_vectors_and_parts_in_one_file(path):
    vector = malt.sharded(10)
    vector.push(np.ones(1, np.float32), [3])
    one = malt.Checkpoint(path)
    one.save({"v": vector}, True, mine={"rank": malt.rank()})
    vector.close()
    found = one.load()
    assert found["v"].sum() == malt.size() and int(one.mine["rank"]) == malt.rank()
    found["v"].close()


@pytest.mark.parametrize("average", ["model", "delta"])
def test_a_loop_goes_on_bit_by_bit(path, average):
    def trained(first_stop=None):
        rng = np.random.default_rng([7, malt.rank()])
        malt.seed(1)
        w = {"a": np.zeros(50), "b": np.zeros((2, 3), np.float32)}
        replica = malt.Replica(w, every=3, sync="bsp", average=average)
        one, mine = malt.Checkpoint(path), {"replica": replica, "rng": rng}
        found = one.restore(w, mine=mine)
        for step in range(int(found["step"]) if found else 0, 20):
            if step == first_stop:
                one.save({**w, "step": step}, True, mine=mine)
                return replica.close()
            for array in w.values():
                noise = rng.normal(size=array.shape) + np.random.normal() + random.random()
                array += (0.1 * (noise - array)).astype(array.dtype)
            replica.step()
        replica.finish()
        return [array.tobytes() for array in w.values()]

    whole = trained()
    trained(10)
    malt.barrier()
    trained(17)
    malt.barrier()
    assert trained() == whole

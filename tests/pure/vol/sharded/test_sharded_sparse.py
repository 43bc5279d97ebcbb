"""Sparse sharded vectors of simulated ranks, against a dict: pushes, pulls, changes, growth, and what is refused."""

import operator
import threading
import time

import numpy as np
import pytest
from covering import pairs
from mutation import plant
from ranks import same_on_all

import malt
from dstorm import ClosedError
from malt.session.world.world import World
from vol.sharded.sparse import HashedLayout, SparseShardedVector, resting
from vol.sharded.sparse.table import Table, first_rows

N = 1 << 63
POOL = np.concatenate([np.arange(40), N - 1 - np.arange(40), np.random.default_rng(0).integers(0, N, 60)])


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Tables of 8 rows to begin with, of several blocks, and pushes of several messages."""
    monkeypatch.setattr("vol.sharded.sparse.layout.FIRST_CAPACITY", 8)
    monkeypatch.setattr("vol.sharded.layout.BLOCK_NBYTES", 48)
    monkeypatch.setattr("vol.sharded.push.MESSAGE_NBYTES", 40)


def pushed(s, twin, random, most):
    """Push random values to random keys, some of them twice; return `twin`, a dict, with those of all ranks."""
    keys = random.choice(POOL, size=random.integers(0, most))
    values = random.integers(-9, 9, size=len(keys)).astype(float)
    s.push(values, keys)
    malt.barrier()
    for theirs, some in zip(malt.allgather(keys), malt.allgather(values), strict=True):
        for key, value in zip(theirs.tolist(), some.tolist(), strict=True):
            twin[key] = twin.get(key, 0) + value


def check(s, twin, random):
    """Check that `s` has the entries of `twin`: what others find of them, and what ranks have themselves."""
    keys = random.choice(POOL, size=50)
    wanted = [twin.get(key, 0) for key in keys.tolist()]
    assert s.pull(keys).tolist() == wanted
    out = np.empty(50, s.dtype)
    assert s.pull(keys, out=out) is out and out.tolist() == wanted
    mine, values = s.local
    assert (np.diff(mine) > 0).all() and values.tolist() == [twin[key] for key in mine.tolist()]
    assert sorted(key for theirs in malt.allgather(mine) for key in theirs.tolist()) == sorted(twin)


def changed(function):
    """A change of a twin by another: function of both values for the keys of both."""

    def change(twin, other):
        twin |= {key: function(twin.get(key, 0), other.get(key, 0)) for key in {*twin, *other}}

    return change


CHANGES = {
    "axpy": (lambda s, x: s.axpy(3, x), changed(lambda mine, theirs: mine + 3 * theirs)),
    "sub": (lambda s, x: s.sub(x), changed(operator.sub)),
    "mul": (lambda s, x: s.mul(x), changed(operator.mul)),
    "copy": (lambda s, x: s.copy(x), changed(lambda mine, theirs: theirs)),
    "scale": (lambda s, x: s.scale(2), lambda twin, other: twin.update({key: 2 * twin[key] for key in twin})),
    "fill": (lambda s, x: s.fill(0), lambda twin, other: twin.clear()),
    "zip": (
        lambda s, x: s.zip(lambda mine, theirs: (mine + 1, theirs * 2), x),
        lambda twin, other: (
            twin.update({key: twin.get(key, 0) + 1 for key in {*twin, *other}}),
            other.update({key: 2 * other[key] for key in other}),
        ),
    ),
}


@pytest.mark.parametrize(("size", "dtype", "seed"), pairs([1, 3, 4], ["float32", "float64"], range(4)))
def test_entries_are_those_of_a_dict(size, dtype, seed):
    """Over many barriers, while the tables grow."""

    def program():
        common, random = np.random.default_rng(seed), np.random.default_rng([seed, malt.rank()])
        s = malt.sharded(N, dtype, kind="sparse")
        x = s.derive()
        twin, other = {}, {}
        for name in ["none", *common.permutation([*CHANGES]), "axpy", "none"]:
            pushed(s, twin, random, 30)
            pushed(x, other, random, 12)
            if name in CHANGES:
                call, change = CHANGES[name]
                call(s, x)
                change(twin, other)
                malt.barrier()
            check(s, twin, random)
            check(x, other, random)
            assert s.touched() == len(twin) and s.nnz() == sum(value != 0 for value in twin.values())
            assert s.sum() == pytest.approx(sum(twin.values()))
            assert s @ x == x.dot(s) == pytest.approx(sum(twin[key] * other.get(key, 0) for key in twin))
            assert s.norm() ** 2 == pytest.approx(sum(value**2 for value in twin.values()))
        total = s.statistics()
        assert total.refused == total.overwritten == total.pending == 0
        return s.norm()

    same_on_all(program, size, seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_pull_beside_owners_that_grow_finds_what_was_there(seed):
    """No value goes back, none is lost, and after a barrier all are in."""
    keys = POOL[:60]

    def program():
        for _ in range(20):  # the first ones exchange more
            malt.barrier()
        s, before = malt.sharded(N, kind="sparse"), np.zeros(60)
        for turn in range(6):
            for start in range(0, 10 * (turn + 1), 10):
                s.push(np.ones(10), keys[start : start + 10])
                now = s.pull(keys)
                assert (now >= before).all() and (now <= malt.size() * (turn + 1)).all()
                before = now
            malt.barrier()
            assert s.pull(keys).tolist() == [malt.size() * max(turn + 1 - place // 10, 0) for place in range(60)]
            malt.init().transport.barrier()
        return s.touched()

    assert same_on_all(program, 3, seed) == 60


def first_keys(s, rank):
    """Keys of `rank` that lie in different rows of its table, each where it is looked for first."""
    keys = next(theirs for owner, _, theirs in s._layout.dealt(POOL) if owner == rank)
    rows, places = np.unique(first_rows(keys, s.capacity), return_index=True)
    return keys[places[:6]], rows[:6]


def change(s, ones, step, keys):
    """Change this rank's part so that all of it has one value."""
    if step % 4 == 0:
        s.fill(0)
    elif step % 4 == 1:
        s.axpy(step, ones)
    elif step % 4 == 2:
        s.zip(lambda mine, _: mine * 0 + step, ones)
    else:
        s.push(np.ones(len(keys)), keys)


@pytest.mark.parametrize("seed", range(6))
def test_a_pull_beside_an_owner_that_changes_its_part_finds_no_block_half_done(seed, monkeypatch):
    """Rank 1 changes its part, rank 2 pushes to it, and rank 0 pulls."""
    monkeypatch.setattr("vol.sharded.push.MESSAGE_NBYTES", 1 << 10)

    def program():
        s, ones = (malt.sharded(N, kind="sparse") for _ in range(2))
        keys, rows = first_keys(s, 1)
        ones.push(np.ones(len(keys)) * (malt.rank() == 1), keys)
        malt.barrier()
        for step in range(60):
            if malt.rank() == 1:
                change(s, ones, step, keys)
            elif malt.rank() == 2:
                s.push(np.ones(len(keys)), keys)
            else:
                found = s.pull(keys)
                for block in np.unique(rows // 3):
                    assert len({*found[rows // 3 == block].tolist()}) == 1
        malt.barrier()

    same_on_all(program, 3, seed)


def play(seed):
    test_a_pull_beside_owners_that_grow_finds_what_was_there(seed)


MUTANTS = {
    "it_looks_in_one_row": (SparseShardedVector, "_read", ("~is_it & (found[MARK] != 0)", "~is_it & False")),
    "it_skips_a_row": (Table, "insert", ("(rows[left] + 1)", "(rows[left] + 3)")),
    "tables_are_not_copied": (SparseShardedVector, "grow", ("self._table.copied(parts.local)", "Table(parts.local)")),
    "it_never_grows": (World, "grow", ("most > vector.capacity", "False")),
    "nobody_waits_for_the_copies": (SparseShardedVector, "grow", ("self._transport.barrier(self.name)", "None")),
}


@pytest.mark.thorough(but="it_looks_in_one_row")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name, monkeypatch):
    plant(monkeypatch, *MUTANTS[name])
    with pytest.raises(AssertionError):
        for seed in range(100):
            play(seed)


REFUSED = [
    (lambda s, d: s.pull([N]), IndexError, "index 9223372036854775808 is out of range"),
    (lambda s, d: s.pull([-1]), IndexError, "index -1 is out of range"),
    (lambda s, d: s.push([1.0], [-1]), IndexError, "index -1 is out of range"),
    (lambda s, d: s.pull([0.5]), TypeError, "index must be a list of integers"),
    (lambda s, d: s.pull(), TypeError, "a sparse vector takes a list of integers, got None"),
    (lambda s, d: s.push([1.0], slice(0, 1)), TypeError, "a sparse vector takes a list of integers, got slice"),
    (lambda s, d: s.push([1.0], [1, 2]), ValueError, r"values must have shape \(2,\), got \(1,\)"),
    (lambda s, d: s.fill(1), ValueError, "a sparse vector can only be filled with 0, got 1"),
    (lambda s, d: s.zip(lambda part: part[:0]), ValueError, "an array of shape .* should be returned"),
    (lambda s, d: s.zip(lambda part: part.fill(7) or 1 / 0), ZeroDivisionError, "division"),
    (lambda s, d: s.axpy(1, d), ValueError, "w has shape .*, sparse, on ranks 0, 1, 2, d has shape .10,. on ranks"),
    (lambda s, d: d.axpy(1, s), ValueError, "the layouts differ"),
    (lambda s, d: d + s, ValueError, "the layouts differ"),
    (lambda s, d: s + 1, TypeError, "unsupported operand"),
    (lambda s, d: np.float32(2) * s, TypeError, "unsupported operand|not supported"),
    (lambda s, d: np.asarray(s), TypeError, "w is not an array"),
    (lambda s, d: malt.optim.lbfgs(lambda w: (0, w), s), TypeError, "w must be a sharded vector"),
]


@pytest.mark.parametrize("call, kind, text", REFUSED)
def test_what_is_wrong_is_refused_on_the_caller_alone_and_changes_nothing(call, kind, text):
    def program():
        s, d = malt.sharded(N, name="w", kind="sparse"), malt.sharded(10, name="d")
        s.push([3.0] * 10, POOL[:10])
        malt.barrier()
        sent = s.statistics().sent
        if malt.rank() == 1:
            with pytest.raises(kind, match=text):
                call(s, d)
        malt.barrier()
        assert s.statistics().sent == sent
        return s.pull(POOL[:10]).tolist(), s.touched()

    assert same_on_all(program, 3) == ([9] * 10, 10)


def test_what_malt_sharded_refuses():
    def program():
        for call, text in (
            (lambda: malt.sharded(N + 1, kind="sparse"), "n of a sparse vector must be a length from 0 to 2"),
            (lambda: malt.sharded((5, 2), kind="sparse"), "n of a sparse vector must be a length, got"),
            (lambda: malt.sharded(5, kind="hashed"), "kind must be 'dense' or 'sparse', got 'hashed'"),
            (lambda: malt.sharded(5, None), "dtype must be float32 or float64, got None"),  # float64 to NumPy
            (lambda: malt.sharded(5, kind="sparse" if malt.rank() else "dense"), "ranks disagree on kind"),
        ):
            with pytest.raises(ValueError, match=text):
                call()
        s = malt.sharded(0, kind="sparse")
        assert s.pull([]).tolist() == [] and s.touched() == 0
        s.close()
        for call in (lambda: s.local, lambda: s.push([], []), lambda: s.fill(0), s.nnz):
            with pytest.raises(ClosedError):
                call()

    same_on_all(program, 2)


def test_what_a_part_had_before_it_outgrew_its_window_is_0_after_fill():
    def program():
        s = malt.sharded(N, kind="sparse")
        mine = next(theirs for rank, _, theirs in s._layout.dealt(POOL) if rank == malt.rank())
        for count in (3, len(mine)):
            s.push(np.ones(count), mine[:count])
        s.fill(0)
        malt.barrier()
        assert s.touched() == np.count_nonzero(s.pull(POOL)) == 0
        s.push(np.ones(len(mine)), mine)
        malt.barrier()
        return s.pull(POOL).tolist()

    assert same_on_all(program, 3) == [1] * len(POOL)


def test_what_all_have_closed_does_not_grow():
    def program():
        s = malt.sharded(N, kind="sparse")
        s.push(np.ones(60), POOL[:60])
        s.close()
        malt.barrier()
        return s.capacity

    assert same_on_all(program, 3) == 8


@pytest.mark.parametrize("seed", range(4))
def test_what_is_pushed_while_entries_rest_is_added_later(seed):
    """The rest begins when all ranks are there. What comes then is sent below push, as a thread's push is under way."""

    def program():
        s, transport = malt.sharded(N, kind="sparse"), malt.init().transport
        dealt = {rank: theirs[:3] for rank, _, theirs in s._layout.dealt(POOL)}
        if malt.rank() == 1:
            for _ in range(9):
                transport.pause(0)
            s.push(np.ones(3), dealt[1])
        with resting([s], transport):
            assert s.pull(dealt[1]).tolist() == [1] * 3
            if malt.rank() == 1:
                s._pushes.send([(0, dealt[0], np.ones(3, np.float32))])
            for _ in range(9):
                transport.barrier()
                transport.attend()
            assert s.pull(dealt[0]).tolist() == [0] * 3
            transport.barrier()
        malt.barrier()
        return s.pull(dealt[0]).tolist()

    assert same_on_all(program, 2, seed) == [1] * 3


def test_what_was_never_touched_stays_0_beside_infinities():
    def program():
        s = malt.sharded(N, "float64", kind="sparse")
        s.push([1.0, -2.0], POOL[:2])
        malt.barrier()
        s.scale(np.inf)
        malt.barrier()
        return s.pull(POOL[:3]).tolist(), s.nnz(), s.norm()

    size = 3
    assert same_on_all(program, size) == ([np.inf, -np.inf, 0], 2, np.inf)


def test_entries_rest_beside_a_thread_that_is_in_one_vector_and_wants_another():
    entered, may_go = threading.Event(), threading.Event()

    def program():
        transport = malt.init().transport
        s, x = (malt.sharded(N, kind="sparse") for _ in range(2))

        def function(part):
            entered.set()
            assert may_go.wait(9)
            s.push(np.ones(30), POOL[:30])

        def pause(polls):
            may_go.set()
            assert polls < 9_000, "the ranks wait for the thread, and it for them"
            time.sleep(1e-3)

        transport.pause = pause
        thread = threading.Thread(target=x.zip, args=[function], daemon=True)
        thread.start()
        assert entered.wait(9)
        with resting([s, x], transport):
            pass
        thread.join()
        return s.nnz()

    assert same_on_all(program, 1) == 30


def test_what_comes_for_another_owner_is_not_read():
    layout = HashedLayout((N,), (0, 2, 3), np.dtype("float32"))
    for rank, _, theirs in layout.dealt(np.arange(100)):
        assert layout.owns(rank, theirs) and not layout.owns(rank, np.arange(100))
        assert not layout.owns(rank, slice(0, 1)) and not layout.owns(rank, np.array([-1]))

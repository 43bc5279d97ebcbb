"""malt.vector: all ranks agree on the arguments, or all raise the same error."""

import numpy as np
import pytest

import malt
from dstorm.transports import shm_space


def all_raise_alike(function, match):
    with pytest.raises(ValueError, match=match) as raised:
        function()
    messages = malt.init().transport.allgather(str(raised.value).encode())
    assert len(set(messages)) == 1


DIFFERENT = [
    (dict(init=3, name="a"), dict(init=3, name="b"), "name"),
    (dict(init=3), dict(init=3, name="b"), "name"),
    (dict(init=3), dict(init=4), "shape"),
    (dict(init=(2, 3)), dict(init=(3, 2)), "shape"),
    (dict(init=np.zeros(3)), dict(init=np.zeros(3, np.float32)), "dtype"),
    (dict(init=3, graph="all"), dict(init=3, graph="star"), "graph"),
    (dict(init=3, depth=2), dict(init=3, depth=3), "depth"),
    (dict(init=3, sync="bsp"), dict(init=3, sync="asp"), "sync"),
    (dict(init=3, sync="ssp:1"), dict(init=3, sync="ssp:2"), "sync"),
    (dict(init=3), dict(init=3, kind="sparse"), "kind"),
    (dict(init=3, kind="sparse"), dict(init=3, kind="sparse", capacity=2), "capacity"),
    (dict(init=3, kind="sparse"), dict(init=3, kind="sparse", wire="float16"), "wire"),
    (dict(init=3, kind="sparse", top_k=1), dict(init=3, kind="sparse", top_k=2), "top_k"),
]


@pytest.mark.parallel
@pytest.mark.parametrize(("first", "last", "key"), DIFFERENT, ids=lambda value: value if isinstance(value, str) else "")
def test_arguments_that_differ_between_ranks(first, last, key):
    mine = last if malt.rank() == malt.size() - 1 else first
    all_raise_alike(lambda: malt.vector(**mine), f"malt.vector: ranks disagree on {key}: rank 0 has ")


def read_only():
    array = np.zeros(3)
    array.flags.writeable = False
    return array


BAD = [
    (dict(init=-1), "of at least 0"),
    (dict(init="x"), "a length, a shape or a NumPy array"),
    (dict(init=1.5), "a length, a shape or a NumPy array"),
    (dict(init=[[1.0]]), "a length, a shape or a NumPy array"),
    (dict(init=True), "a length, a shape or a NumPy array, got True"),
    (dict(init=(True, 2)), "a length, a shape or a NumPy array"),
    (dict(init=[2, False]), "a length, a shape or a NumPy array"),
    (dict(init=(1,) * 65), "dimension"),
    (dict(init=(0, 2**70)), "init: shape"),
    (dict(init=np.zeros((4, 4)).T[:2]), "C-contiguous"),
    (dict(init=read_only()), "writable"),
    (dict(init=np.zeros(3, complex)), "complex128"),
    (dict(init=np.zeros(3, bool)), "bool"),
    (dict(init=np.zeros((2, 2)).view(np.matrix)), r"a matrix: pass np.asarray\(it\), a view"),
    (dict(init=np.ma.zeros(3)), r"a MaskedArray: pass np.asarray\(it\)"),
    (dict(init=3, name=3), "name must be a string, got 3"),
    (dict(init=3, check_finite="no"), "check_finite must be True or False, got 'no'"),
    (dict(init=np.array(["a"])), "dtype"),
    (dict(init=np.zeros(3, ">f4")), "native byte order"),
    (dict(init=3, kind="sprase"), "kind must be 'dense' or 'sparse', got 'sprase'"),
    (dict(init=3, graph="halo"), "halton"),
    (dict(init=3, graph={0: [99]}), "99"),
    (dict(init=3, sync="ssp:-1"), "ssp:S"),
    (dict(init=3, sync=None), "sync must be a string"),
    (dict(init=3, depth=0), "depth"),
    (dict(init=3, depth=1.5), "depth"),
    (dict(init=3, capacity=2), "capacity is for sparse vectors"),
    (dict(init=3, wire="float16", sync="bsp"), "wire of a dense vector needs sync="),
    (dict(init=3, top_k=1), "top_k is for sparse vectors"),
    (dict(init=(3, 2, 2), kind="sparse"), "shape"),
    (dict(init=(), kind="sparse"), "shape"),
    (dict(init=(3, 0), kind="sparse"), "shape"),
    (dict(init=3, kind="sparse", capacity=0), "capacity must be a whole number of rows of at least 1, got 0"),
    (dict(init=3, kind="sparse", capacity=True), "capacity must be a whole number"),
    (dict(init=3, kind="sparse", wire="float8"), "wire must be 'float16' or 'int8', got 'float8'"),
    (dict(init=3, kind="sparse", wire=16), "wire must be 'float16' or 'int8', got 16"),
    (dict(init=np.zeros(3, np.float16), kind="sparse", wire="float16"), "this one is of float16"),
    (dict(init=np.zeros(3, int), kind="sparse", wire="float16"), "this one is of int64"),
    (dict(init=3, kind="sparse", top_k=1.5), "top_k must be a whole number"),
    (dict(init=np.zeros(3, int), kind="sparse", top_k=1), "top_k is for floating-point vectors"),
    (dict(init=9, kind="sparse", top_k=5, capacity=4), "capacity=4 rows cannot hold top_k=5"),
]


@pytest.mark.parametrize(("bad", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_arguments_on_one_rank(bad, message):
    mine = bad if malt.rank() == malt.size() - 1 else dict(init=3)
    all_raise_alike(lambda: malt.vector(**mine), message)


@pytest.mark.parametrize(("bad", "message"), BAD[::8], ids=[message for _, message in BAD[::8]])
def test_bad_arguments_on_all(bad, message):
    all_raise_alike(lambda: malt.vector(**bad), message)


@pytest.mark.parametrize("shape", [10**14, (2**40, 2**40), (2**31, 2**31, 2**31)])
def test_more_memory_than_the_host_has(shape):
    init = shape if malt.rank() == 0 else 3
    with pytest.raises(MemoryError, match=r"malt\.vector: .*of float32 takes [\d,.]+ MB, and this host has [\d,.]+ MB"):
        malt.vector(init)
    malt.barrier()


@pytest.mark.parallel
@pytest.mark.parametrize("depth", [2**40, 2**60, 2**100])
def test_queues_that_do_not_fit_in_memory(depth):
    with pytest.raises(MemoryError, match="smaller capacity or depth"):
        malt.vector(3, depth=depth)
    with pytest.raises(MemoryError, match="the window of rank [01] takes"):
        malt.simulate(lambda rank: malt.vector(3, depth=depth), 2)


def test_a_graph_that_raises():
    class Odd(dict):
        def items(self):
            raise KeyError("mine")

    mine = Odd() if malt.rank() == malt.size() - 1 else "all"
    all_raise_alike(lambda: malt.vector(3, graph=mine), "KeyError: 'mine'")


@pytest.mark.parallel
def test_one_bad_rank_is_named():
    mine = dict(init=3, depth=-5) if malt.rank() == 1 else dict(init=3)
    all_raise_alike(lambda: malt.vector(**mine), "malt.vector: on rank 1: depth must be a whole number")


@pytest.mark.parallel
def test_a_vector_that_does_not_fit_in_shared_memory(monkeypatch):
    others = malt.size() - 1
    need = malt.size() * others * 2 * 4_000_000 / 1e6
    if malt.rank() == 1:
        monkeypatch.setattr(shm_space, "free_nbytes", lambda: 5_000_000)
    told = rf"for {malt.size()} ranks this vector needs {need:,.0f}\.\d MB.*and 5\.0 MB are free"
    with pytest.raises(MemoryError, match=told):
        malt.vector(1_000_000)
    malt.vector(10).close()


@pytest.mark.parallel
@pytest.mark.parametrize("apart", [False, True])
def test_a_rank_alone_on_its_host_shares_no_memory(monkeypatch, apart):
    """MPI takes its window from the heap."""
    from dstorm.transports.mpi import transport as module

    transport, made = malt.init().transport, []
    hosts = [f"{rank if apart else 0}/0" for rank in range(transport.size)]
    with monkeypatch.context() as patch:
        patch.setattr(transport, "hosts", tuple(hosts))
        patch.setattr(shm_space, "free_nbytes", lambda: 1000)
        patch.setattr(shm_space, "host_nbytes", lambda: 2000)
        patch.setattr(module, "MpiWindow", lambda *arguments: made.append(arguments))
        for nbytes in (999, 1001, 2001):
            if nbytes * (1 if apart else transport.size) > (2000 if apart else 1000):
                with pytest.raises(MemoryError, match="of memory, and" if apart else "of /dev/shm, and"):
                    transport.window(nbytes)
            else:
                transport.window(nbytes)
    assert len(made) == 2 * apart


@pytest.mark.parallel
def test_windows_without_writes_count_too():
    malt.vector(1).close()  # frees the vectors that were closed before
    malt.barrier()
    before = shm_space.free_nbytes()
    malt.barrier()
    with malt.vector(500_000, graph="ring"):
        used = before - shm_space.free_nbytes()
        assert used >= malt.size() * 2 * 2_000_000 * 0.9
        malt.barrier()


@pytest.mark.parallel
def test_memory_of_closed_vectors_comes_back():
    malt.vector(1).close()
    malt.barrier()
    before = shm_space.free_nbytes()
    malt.barrier()
    for _ in range(20):
        malt.vector(300_000, graph="ring").close()
    assert before - shm_space.free_nbytes() < 5 * malt.size() * 2 * 1_200_000
    malt.barrier()


def test_several_at_once_closed_in_any_order():
    several = [malt.vector(np.full(4, float(place)), sync="bsp") for place in range(4)]
    for v in several:
        v.scatter()
    for place in (2, 0, 3, 1):
        several[place].gather(malt.SUM)
        assert several[place].array[0] == place * malt.size()
    for place in (1, 3, 0, 2) if malt.rank() % 2 else (0, 1, 2, 3):
        several[place].close()
    malt.vector(1).close()

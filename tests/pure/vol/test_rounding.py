"""Models leave for other hosts rounded, and are whole inside a host."""

import numpy as np
import pytest
from carried import run_carried

import malt
import vol
from dstorm import parse
from vol.dense import DenseVector
from vol.merging.merge import AVG
from vol.rounding import BLOCK, Rounding

N = 150
VALUES = np.random.default_rng(0).standard_normal(N)
NBYTES = {"float16": 2 * N, "int8": 3 * (4 + BLOCK)}


def most_off(wire, values):
    """How far each value may be off: half of a step."""
    if wire == "float16":
        return np.abs(values) * 2.0**-11
    blocks = np.pad(values, (0, -len(values) % BLOCK)).reshape(-1, BLOCK)
    return (np.abs(blocks).max(axis=1, keepdims=True) / 254 + 0 * blocks).reshape(-1)[: len(values)] * 1.001


@pytest.mark.parametrize("wire", NBYTES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 63, 64, 65, N])
def test_values_are_off_by_half_a_step_at_most(wire, dtype, size):
    values = (VALUES[:size] * 10).astype(dtype)
    rounding = Rounding(wire, np.dtype(dtype), size)
    payload = rounding.encoded(values)
    read = rounding.decoded(payload)
    assert payload.nbytes == rounding.nbytes and read.dtype == dtype and read.shape == (size,)
    assert (np.abs(read - values) <= most_off(wire, values)).all()
    assert rounding.decoded(payload[1:]) is None and rounding.decoded(np.append(payload, payload)) is None


@pytest.mark.parametrize("wire", NBYTES)
def test_what_is_not_finite_stays_so(wire):
    values = VALUES.astype(np.float32)
    values[70] = np.nan
    read = Rounding(wire, values.dtype, N).decoded(Rounding(wire, values.dtype, N).encoded(values))
    assert np.isnan(read[70]) and np.isfinite(read[:64]).all() and np.isfinite(read[128:]).all()
    values[70] = 1e38
    assert np.isfinite(Rounding(wire, values.dtype, N).decoded(Rounding(wire, values.dtype, N).encoded(values))).all()


@pytest.mark.parametrize("wire", [None, *NBYTES])
def test_values_are_rounded_between_hosts_alone(wire):
    def start(transport):
        array = VALUES + transport.rank
        v = DenseVector(array, transport, vol.graph("all", 3), parse("asp"), wire=wire)
        counted = v.scatter()
        v.array[:] = 0
        transport.barrier()
        found = {}
        v.gather(lambda own, updates: found.update({one.sender: one.values for one in updates}))
        transport.barrier()
        return found, counted, v.statistics()

    for rank, (found, counted, totals) in enumerate(run_carried(start, "aab")):
        for sender, values in found.items():
            exact, is_far = VALUES + sender, (sender == 2) != (rank == 2)
            if wire is None or not is_far:
                assert values.tobytes() == exact.tobytes()
            else:
                assert values.tobytes() != exact.tobytes()
                assert (np.abs(values - exact) <= most_off(wire, exact)).all()
        nbytes = {peer: 8 * N if wire is None or (peer == 2) == (rank == 2) else NBYTES[wire] for peer in found}
        assert len(found) == 2 and counted == totals.bytes_sent == sum(nbytes.values())
        assert {peer: edge.bytes_sent for peer, edge in totals.peers.items()} == nbytes
        assert totals.gathered == totals.sent == 2 and totals.refused == 0


@pytest.mark.parametrize("seed", range(3))
def test_what_waits_is_superseded_and_none_is_mixed(seed):
    def start(transport):
        v = DenseVector(np.zeros(N), transport, vol.graph("all", 4), parse("asp"), wire="int8")
        v.gather(AVG)
        for step in range(1, 12):
            v.array[:] = 100 * transport.rank + step
            v.scatter()
            transport.pause(30)
        transport.barrier()
        v.gather(check)
        transport.barrier()
        return v.statistics()

    def check(own, updates):
        assert len({one.sender for one in updates}) == 3
        for one in updates:
            np.testing.assert_allclose(one.values, 100 * one.sender + one.step, rtol=1e-6)

    ends = run_carried(start, "aabb", seed)
    for rank, end in enumerate(ends):
        for peer, edge in end.peers.items():
            to = ends[peer].peers[rank]
            assert edge.sent == edge.superseded + to.gathered + to.overwritten + to.pending and to.refused == 0
            nbytes = 8 * N if rank // 2 == peer // 2 else NBYTES["int8"]
            assert edge.bytes_sent == (edge.sent - edge.superseded) * nbytes
    assert sum(end.superseded for end in ends)


def test_a_short_array_is_whole():
    def live(rank):
        v = malt.vector(np.full(4, 1 / 3 + rank), wire="int8")
        v.scatter()
        malt.barrier()
        v.gather(malt.REPLACE)
        return v.array[0]

    network = malt.Network(1e-3, 1e6, ["a", "b"])
    assert malt.simulate(live, 2, network=network) == [1 / 3 + 1, 1 / 3]


@pytest.mark.parametrize(("options", "message"), [
    (dict(sync="bsp"), 'wire of a dense vector needs sync="asp" or "ssp:S", got \'bsp\''),
    (dict(wire="int4"), "wire must be .*, got 'int4'"),
], ids=str)  # fmt: skip
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        malt.vector(3, **{"wire": "int8", **options})

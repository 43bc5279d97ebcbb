"""malt.map_reduce on real ranks: the same bits as on one, chunks that travel once, errors that all ranks raise."""

import numpy as np
import pytest

import malt
from malt.data.mapreduce import results

ROWS = np.random.default_rng(0).normal(size=(5000, 20))


def gradient(theta, rows):
    error = rows @ theta - 1
    return float(error @ error) / 2, rows.T @ error


@pytest.mark.parametrize("whole_nbytes", [0, 1 << 16])
def test_the_bits_are_those_of_one_rank(monkeypatch, whole_nbytes):
    monkeypatch.setattr(results, "WHOLE_NBYTES", whole_nbytes)
    theta = np.linspace(-1, 1, 20)
    for rows in (ROWS, ROWS if malt.rank() == malt.size() - 1 else None):
        loss, slope = malt.map_reduce(gradient, theta, rows)
        alone, its_slope = malt.simulate(lambda rank: malt.map_reduce(gradient, theta, ROWS), 1)[0]
        assert (loss, slope.tobytes()) == (alone, its_slope.tobytes())


@pytest.mark.parallel
def test_chunks_travel_once():
    rows, world, counts = ROWS + 1, malt.init(), []
    for _ in range(3):
        before = world.chunk_statistics()
        malt.map_reduce(gradient, np.ones(20), rows if malt.rank() == 0 else None)
        after = world.chunk_statistics()
        counts.append([after.bytes_sent - before.bytes_sent, after.bytes_read - before.bytes_read])
    everyone = np.array(malt.allgather(np.array(counts)))
    assert (everyone[:, 1:] == 0).all()
    assert everyone[0, 0, 0] == everyone[:, 0, 1].sum() > ROWS.nbytes * (malt.size() - 1) / malt.size()


def test_an_error_is_raised_on_all():
    def fail(theta, rows):
        if len(rows) and rows[0, 0] == ROWS[-157, 0]:  # the first of the last chunk
            raise KeyError("no such row")
        return 0

    with pytest.raises(KeyError, match=f"chunk 31 on rank {malt.size() - 1}: no such row") as caught:
        malt.map_reduce(fail, None, ROWS)
    assert set(malt.allgather(str(caught.value))) == {str(caught.value)}
    assert "Traceback" in str(caught.value).splitlines()[2] and type(caught.value).__name__ == "KeyError"
    assert malt.map_reduce(lambda theta, rows: len(rows), None, ROWS) == len(ROWS)

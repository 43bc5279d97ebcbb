"""Sparse vectors as users meet them, against their dense twins."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import SIZE
from hypothesis import given, settings
from hypothesis import strategies as st

import malt

GRAPHS = [
    "all", "ring", "halton", "chord", "exponential", "one-peer", "hypercube", "torus", "random", "star", "auto",
]  # fmt: skip


@pytest.fixture(
    params=[None, 2, 5] if SIZE == 1 else [None], ids=lambda ranks: f"simulated {ranks}" if ranks else "mpi"
)
def everywhere(request):
    """Runs a function on all ranks: of this job, or simulated ones."""
    if request.param is None:
        return lambda function: [function(malt.rank())]
    return lambda function: malt.simulate(function, request.param, seed=1)


class Twin:
    """The obvious way to merge rows: all arrays whole, by a loop over rows and senders."""

    def __init__(self, arrays, weights):
        self.arrays, self.weights = arrays, weights

    def merged(self, function, rank, sent, step=1):
        """What `rank` ends with; `sent`: {sender: {row: values}}, of one step."""
        own = self.arrays[rank].copy()
        wide = np.float32 if own.dtype == np.float16 else own.dtype
        for row in sorted({row for rows in sent.values() for row in rows}):
            if function is malt.REPLACE:
                own[row] = sent[max(sender for sender in sent if row in sent[sender])][row]
                continue
            terms = {rank: own[row], **{sender: rows[row] for sender, rows in sent.items() if row in rows}}
            total, divisor = None, 0.0
            for sender in sorted(terms):
                weight = self.weights[sender] if function is malt.WEIGHTED else 1.0
                term = terms[sender].astype(wide)
                if function is malt.WEIGHTED:
                    term = np.add(0, term * wide(weight) if isinstance(wide, type) else term * wide.type(weight))
                total = term if total is None else total + term
                divisor += weight
            if function is malt.SUM:
                own[row] = total
            elif divisor > 0:
                own[row] = total / total.dtype.type(divisor)
        return own


@pytest.mark.serial
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31), size=st.integers(2, 4), shape=st.sampled_from([(1,), (9,), (40,), (7, 3), (33, 2)]),
    dtype=st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.uint8]),
    function=st.sampled_from([malt.AVG, malt.SUM, malt.REPLACE, malt.WEIGHTED]),
    named=st.booleans(), density=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
)  # fmt: skip
def test_rows_merge_as_their_twin(seed, size, shape, dtype, function, named, density):
    if function in (malt.AVG, malt.WEIGHTED) and np.dtype(dtype).kind != "f":
        return
    rng = np.random.default_rng(seed)
    arrays = [(rng.standard_normal(shape) * 20).astype(dtype) for _ in range(size)]
    weights = [float(w) for w in rng.choice([0.0, 0.3, 1.0, 2.5], size)]
    chosen = [np.flatnonzero(rng.random(shape[0]) < density) for _ in range(size)]

    def live(rank):
        mine = arrays[rank].copy()
        if not named:  # dirty rows: those that differ from what the vector was made with
            mine[chosen[rank]] += 1
        with malt.vector(mine, kind="sparse", sync="bsp") as v:
            mine[:] = arrays[rank]
            v.scatter(rows=rng.permutation(chosen[rank]) if named else None, weight=weights[rank])
            merged = v.gather(function)
            assert merged.senders == tuple(p for p in range(size) if p != rank and len(chosen[p]))
            return mine

    ends = malt.simulate(live, size, seed % 1000)
    twin = Twin(arrays, weights)
    for rank, end in enumerate(ends):
        sent = {p: {row: arrays[p][row] for row in chosen[p]} for p in range(size) if p != rank}
        assert end.tobytes() == twin.merged(function, rank, sent).tobytes()

"""Ranks with compiled calls among ranks without: what they exchange is the same."""

import numpy as np
import pytest

import malt
from dstorm.queues.calls import compiled

pytest.importorskip("numba")
pytestmark = pytest.mark.parallel


@pytest.mark.parametrize("function", [malt.AVG, malt.SUM], ids=repr)
def test_all_end_with_the_same_bits(function, monkeypatch):
    monkeypatch.setattr(compiled, "kernels", compiled.load if malt.rank() % 2 else lambda kind: None)
    results = []
    for _ in range(2):
        with malt.vector(np.random.default_rng(malt.rank()).standard_normal(20_000), sync="bsp") as v:
            for _ in range(20):
                v.scatter()
                assert v.gather(function).count == malt.size() - 1
            assert v.statistics().gathered == 20 * (malt.size() - 1)
            results.append(v.array)
        monkeypatch.setattr(compiled, "kernels", lambda kind: None)
    assert results[0].tobytes() == results[1].tobytes()

"""malt.seed: a stream of its own on each rank, the same in each run."""

import random
import sys

import numpy as np
import pytest

import malt


@pytest.fixture(autouse=True)
def generators():
    """Those of the process, which other tests go on with as they were."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    yield
    random.setstate(of_python)
    np.random.set_state(of_numpy)


def drawn(number):
    """What each generator draws on this rank, in the order of `NAMES`."""
    rng = malt.seed(number)
    return [random.random(), np.random.random(), rng.random()]


def test_streams_differ_between_ranks_generators_and_seeds_and_not_between_runs():
    first, again, other = (malt.simulate(lambda rank, n=number: drawn(n), 3) for number in (0, 0, 1))
    assert first == again
    assert len({value for run in (first, other) for rank in run for value in rank}) == 2 * 3 * 3


def test_a_rank_draws_the_same_among_few_ranks_and_many():
    """So a program that is started alone draws what rank 0 of a job does."""
    assert malt.simulate(lambda rank: drawn(7), 1) == malt.simulate(lambda rank: drawn(7), 4)[:1]


def test_dropout_masks_of_two_ranks_differ():
    torch = pytest.importorskip("torch")
    before = torch.get_rng_state()

    def live(rank):
        malt.seed(0)
        return torch.nn.functional.dropout(torch.ones(64)).tolist()

    first, again = malt.simulate(live, 2), malt.simulate(live, 2)
    torch.set_rng_state(before)
    assert first == again and first[0] != first[1]


def test_torch_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    malt.simulate(lambda rank: malt.seed(0), 1)
    assert "torch" not in sys.modules


@pytest.mark.parametrize("number, error", [(-1, ValueError), (0.5, TypeError), (True, TypeError), ("0", TypeError)])
def test_a_wrong_seed_seeds_nothing(number, error):
    before = random.getstate()
    with pytest.raises(error, match="seed must be an integer of at least 0"):
        malt.simulate(lambda rank: malt.seed(number), 1)
    assert random.getstate() == before

"""The mean model with which all ranks end."""

import numpy as np
import pytest

import malt
from malt.session.world.means import mean


def ended(model, **options):
    """Return `model` of this rank after the mean; check that all ranks have the same bits."""
    mean(malt.init().transport, [model], **options)
    assert len(set(malt.init().transport.allgather(model.tobytes()))) == 1
    return model


def mine(dtype=np.float32):
    return np.full(3, 1 + malt.rank(), dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_mean_of_all(dtype):
    assert (ended(mine(dtype)) == dtype((malt.size() + 1) / 2)).all()


@pytest.mark.parallel
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_that_is_not_finite_is_left_out(dtype, bad, capfd):
    model = mine(dtype)
    if malt.rank() == 1:
        model[2] = bad
    others = [1 + rank for rank in range(malt.size()) if rank != 1]
    assert ended(model) == pytest.approx(np.mean(others), rel=1e-3)
    malt.barrier()
    warning = "malt: the model of rank 1 is not finite, and is left out of the mean\n"
    assert capfd.readouterr().err == (warning if malt.rank() == 0 else "")


@pytest.mark.parallel
def test_a_rank_that_does_not_count_is_left_out(capfd):
    assert (ended(mine(), counts=malt.rank() == 1) == 2).all()
    assert capfd.readouterr().err == ""


def test_without_a_finite_model_all_ranks_end_with_the_same():
    model = mine()
    model[1] = np.nan
    assert np.isnan(ended(model)).tolist() == [False, True, False]


def test_if_no_rank_counts_all_models_stay():
    model = mine()
    mean(malt.init().transport, [model], counts=False)
    assert (model == 1 + malt.rank()).all()


@pytest.mark.parallel
def test_without_the_check_all_models_count():
    model = mine()
    if malt.rank() == 1:
        model[2] = np.nan
    assert np.isnan(ended(model, check_finite=False)).tolist() == [False, False, True]


@pytest.mark.parallel
@pytest.mark.parametrize("checked", [True, False])
def test_a_replica_ends_with_the_consensus(checked):
    w = np.zeros(4)
    replica = malt.Replica(w, every=1, check_finite=checked)
    if malt.rank() == 1:
        w[0] = np.nan
    replica.step()
    replica.finish()
    assert np.isfinite(w).all() == checked

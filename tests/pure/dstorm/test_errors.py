"""Errors can be copied, and pickled, as pools of processes do: a DeadlinePassed could not, and was another error."""

import copy
import pickle

import pytest

from dstorm.errors import (
    ClosedError,
    DeadlinePassed,
    MismatchedCalls,
    OverlappingCalls,
    PeerLost,
    TransferFailed,
    WithoutMpi,
)

pytestmark = pytest.mark.serial
ERRORS = [
    DeadlinePassed("gather", {1: 2}, {1: 3.0}), PeerLost(1, "it was killed"), ClosedError("vector 1 is closed"),
    MismatchedCalls(0, "malt.barrier", 1, "malt.finalize"), OverlappingCalls("two threads"), WithoutMpi("MPI_Reduce"),
    TransferFailed(1, ValueError("x")),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("made", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_copies_are_the_same(error, made):
    other = made(error)
    assert type(other) is type(error) and str(other) == str(error)
    assert vars(other) == vars(error) and other.args == error.args

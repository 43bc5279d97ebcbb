"""A step that raises on one rank raises on all, with the same error of the same type."""

from __future__ import annotations

import errno

import pytest
from ranks import run_alone, run_ranks, same_error

from malt.session.world.agreement import succeed

pytestmark = pytest.mark.serial


class Odd(Exception):
    """An error that is not built in."""


def raising(error):
    def work():
        raise error

    return work


def failing(rank, error, hosts="aaa"):
    def work(transport):
        def step():
            if transport.rank >= rank:
                raise error
            return transport.rank

        return succeed(transport, step)

    return same_error(run_ranks(work, hosts))


def test_an_os_error_keeps_its_number_and_file():
    error = failing(2, FileNotFoundError(errno.ENOENT, "No such file or directory", "data.svm"))
    assert type(error) is FileNotFoundError
    assert (error.errno, error.filename) == (errno.ENOENT, "data.svm")
    assert str(error) == "[Errno 2] No such file or directory: 'data.svm'"


def test_any_other_error_is_raised_too():
    error = failing(1, Odd("half a file"))
    assert type(error) is RuntimeError and str(error) == "Odd: half a file"


def test_a_rank_that_raised_raises_its_own_error():
    mine = KeyError("weights")
    with pytest.raises(KeyError) as caught:
        run_alone(lambda transport: succeed(transport, raising(mine)))
    assert caught.value is mine

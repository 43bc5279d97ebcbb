"""A step that raises on one rank raises on all, with the same error of the same type."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from ranks import run_alone, run_ranks, same_error

from dstorm import MismatchedCalls
from malt.session.world.agreement import agree, exchange, succeed

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


def test_every_rank_keeps_its_own_result():
    assert run_ranks(lambda transport: succeed(transport, lambda: transport.rank * 10), "aab") == [0, 10, 20]


def test_exchange_gives_all_values_by_rank():
    assert (
        run_ranks(lambda transport: exchange(transport, {"rank": transport.rank}), "ab")
        == [{0: {"rank": 0}, 1: {"rank": 1}}] * 2
    )


@pytest.mark.parametrize("kind", [ValueError, TypeError, MemoryError, KeyError, OSError, ZeroDivisionError])
def test_errors_keep_their_kind(kind):
    error = failing(1, kind("it is bad"))
    assert type(error) is kind and error.args == ("it is bad",)


def test_an_os_error_keeps_its_number_and_file():
    error = failing(2, FileNotFoundError(errno.ENOENT, "No such file or directory", "data.svm"))
    assert type(error) is FileNotFoundError
    assert (error.errno, error.filename) == (errno.ENOENT, "data.svm")
    assert str(error) == "[Errno 2] No such file or directory: 'data.svm'"


@pytest.mark.parametrize("kind", [FileNotFoundError, TimeoutError, ConnectionResetError, SyntaxError, UserWarning])
def test_any_built_in_error_keeps_its_type(kind):
    """A program raises these itself, with a message alone, and catches them by type."""
    error = failing(1, kind("no data"))
    assert type(error) is kind and str(error) == "no data"


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, None), StopIteration("x"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")]
)
def test_an_error_that_cannot_be_made_from_its_message_is_raised_too(error):
    raised = failing(1, error)
    assert type(raised) in (OSError, RuntimeError) and str(error) in str(raised)


def test_an_os_error_names_the_host_where_there_are_several():
    error = failing(1, PermissionError(errno.EACCES, "Permission denied", "data.svm"), hosts="ab")
    assert str(error) == "[Errno 13] Permission denied on host b: 'data.svm'"


def test_a_lack_of_memory_that_numpy_raises_is_one_of_python():
    with pytest.raises(MemoryError, match="Unable to allocate"):
        run_alone(lambda transport: succeed(transport, lambda: np.empty(1 << 58)))


def test_any_other_error_is_raised_too():
    error = failing(1, Odd("half a file"))
    assert type(error) is RuntimeError and str(error) == "Odd: half a file"


def test_the_cause_of_an_unforeseen_error_is_kept():
    with pytest.raises(RuntimeError) as caught:
        run_alone(lambda transport: succeed(transport, raising(Odd("half a file"))))
    assert isinstance(caught.value.__cause__, Odd)


def test_a_rank_that_raised_raises_its_own_error():
    mine = KeyError("weights")
    with pytest.raises(KeyError) as caught:
        run_alone(lambda transport: succeed(transport, raising(mine)))
    assert caught.value is mine


def refused(rank, error, size=3):
    """What all ranks raise if the check of `rank`, or of all ranks, raises."""

    def work(transport):
        def check():
            if rank in (transport.rank, None):
                raise error
            return transport.rank, {"shape": [3]}

        return agree(transport, "malt.thing", check)

    return same_error(run_ranks(work, "a" * size))


@pytest.mark.parametrize("kind", [KeyError, OverflowError, ZeroDivisionError, RuntimeError, AttributeError])
def test_a_check_that_raises_an_unforeseen_error(kind):
    error = refused(1, kind("odd"))
    assert type(error) is ValueError
    assert str(error) == f"malt.thing: on rank 1: {kind.__name__}: {kind('odd')}"


def test_a_check_that_runs_out_of_memory():
    error = refused(2, MemoryError("too large"))
    assert type(error) is MemoryError and str(error) == "malt.thing: on rank 2: too large"


def test_a_check_that_fails_on_all_ranks():
    assert str(refused(None, TypeError("bad"))) == "malt.thing: bad"


def test_what_json_cannot_express():
    def work(transport):
        return agree(transport, "malt.thing", lambda: (1, {"shape": {3} if transport.rank else [3]}))

    assert str(same_error(run_ranks(work, "aa"))).startswith("malt.thing: on rank 1: Object of type set")


def test_ranks_in_different_calls():
    def work(transport):
        return agree(transport, ["malt.this", "malt.that"][transport.rank], lambda: (1, {"shape": [3]}))

    for error in run_ranks(work, "aa"):
        assert isinstance(error, MismatchedCalls)
        assert "rank 0 is in malt.this" in str(error) and "rank 1 is in malt.that" in str(error)

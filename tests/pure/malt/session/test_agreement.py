"""A step that raises on one rank raises on all, with the same error of the same type."""

import errno

import numpy as np
import pytest
from ranks import run_alone, run_ranks, same_error

from malt.session.world.agreement import agree, exchange, succeed


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


@pytest.mark.parametrize("kind", [
    ValueError, MemoryError, KeyError, OSError, FileNotFoundError, TimeoutError, ConnectionResetError, SyntaxError,
])  # fmt: skip
def test_any_built_in_error_keeps_its_kind(kind):
    """A program raises these itself, with a message alone, and catches them by type."""
    error = failing(1, kind("it is bad"))
    assert type(error) is kind and error.args == ("it is bad",)


@pytest.mark.parametrize("hosts, text", [
    ("aaa", "[Errno 13] Permission denied: 'data.svm'"), ("ab", "[Errno 13] Permission denied on host b: 'data.svm'"),
])  # fmt: skip
def test_an_os_error_keeps_its_number_and_file_and_names_the_host_of_several(hosts, text):
    error = failing(1, PermissionError(errno.EACCES, "Permission denied", "data.svm"), hosts)
    assert type(error) is PermissionError and (error.errno, error.filename) == (errno.EACCES, "data.svm")
    assert str(error) == text


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, None), StopIteration("x"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")]
)
def test_an_error_that_cannot_be_made_from_its_message_is_raised_too(error):
    raised = failing(1, error)
    assert type(raised) in (OSError, RuntimeError) and str(error) in str(raised)


def test_a_lack_of_memory_that_numpy_raises_is_one_of_python():
    with pytest.raises(MemoryError, match="Unable to allocate"):
        run_alone(lambda transport: succeed(transport, lambda: np.empty(1 << 58)))


def test_any_other_error_is_raised_too():
    error = failing(1, Odd("half a file"))
    assert type(error) is RuntimeError and str(error) == "Odd: half a file"
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


@pytest.mark.parametrize(("rank", "error", "kind", "text"), [
    (1, KeyError("odd"), ValueError, "on rank 1: KeyError: 'odd'"),
    (1, RuntimeError("odd"), ValueError, "on rank 1: RuntimeError: odd"),
    (2, MemoryError("too large"), MemoryError, "on rank 2: too large"),
    (None, TypeError("bad"), ValueError, "bad"),
])  # fmt: skip
def test_a_check_that_raises(rank, error, kind, text):
    """`rank`: the one whose check does; None: all."""
    found = refused(rank, error)
    assert type(found) is kind and str(found) == f"malt.thing: {text}"


def test_what_json_cannot_express():
    def work(transport):
        return agree(transport, "malt.thing", lambda: (1, {"shape": {3} if transport.rank else [3]}))

    assert str(same_error(run_ranks(work, "aa"))).startswith("malt.thing: on rank 1: Object of type set")

"""Collectives: calls that all ranks make together, in which they exchange values.

All ranks make the same calls in the same order, from one thread at a time. Arguments are checked and compared before
data is sent: where they are wrong or differ, all ranks raise the same error, and nothing is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, Final, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from dstorm import PeerLost, Transport, reduction
from dstorm.reduction import ALGORITHMS, OPERATIONS
from dstorm.words import shown
from malt.session import session
from malt.session.world.agreement import succeed
from vol import arguments

Result = TypeVar("Result")
Array = NDArray[Any]

_NUMBERS: Final = "biufc"
"""Kinds of dtypes that can be reduced: truth values and numbers."""
_PLAIN: Final = "biufcSUmM"
"""Kinds of dtypes that can be sent: those, text, dates and durations."""
_ALGORITHMS: Final = ("auto", *ALGORITHMS, "mpi")
_GATHER_NBYTES: Final = 1 << 26
"""What allgather receives at once, from all ranks together."""
_SMALL_NBYTES: Final = 1 << 18
"""Arrays that are no larger, of all ranks together, are sent with what ranks compare: in one exchange."""
_SUMMED_NBYTES: Final = 1 << 16
"""The same for arrays that are reduced. Each rank then reduces all of them."""
_DEEPEST: Final = 100
"""The most levels of nested lists and dicts in a value."""


def barrier() -> None:
    """Return once all ranks have called it. Collective.

    Everything pushed to sharded vectors before, by any rank, has then been added.

    DeadlinePassed: ranks are missing, without a heartbeat for the session's deadline. PeerLost: a rank has departed; on
    all ranks: one has failed with its part of an open sharded vector. MismatchedCalls: ranks are in different
    collective calls. ValueError, on all ranks: malt.shard was given different rows. MemoryError, on all ranks: there
    is no room for the entries of a sparse sharded vector. RuntimeError: another thread is in a collective call.
    """
    current = session.world()
    with current.transport.calling("malt.barrier"):
        if current.sharded:
            current.settle_pushes("malt.barrier")
        elif not current.notes.are_due:  # else the exchange of notes is the barrier
            current.transport.barrier("malt.barrier")
        current.notes.compare(current.transport)


Number = int | float | np.integer[Any] | np.floating[Any]


@overload
def allreduce(array: Array, op: str = "mean", algorithm: str = "auto", *, weight: float = 1.0) -> None: ...


@overload
def allreduce(array: Number, op: str = "mean", algorithm: str = "auto", *, weight: float = 1.0) -> float: ...


def allreduce(
    array: Array | Number, op: str = "mean", algorithm: str = "auto", *, weight: float = 1.0
) -> float | None:  # fmt: skip
    """Replace `array`, in place, with the mean, sum, max or min of the arrays of all ranks. Collective.

    For a Python or NumPy number, return the mean, sum, max or min as a float: malt.allreduce(loss). Numbers are
    combined as float64. For several numbers at once use malt.mean.

    The arrays have the same shape and dtype on all ranks. They may have no dimensions or no elements. They are combined
    in rank order: the result has the same bits on all ranks, and in every run with that many ranks. float16 is combined
    in float32. As in NumPy, integers overflow, the sum of truth values is True where one is, and NaN and infinities
    propagate; there is no warning. An array that is not C-contiguous is copied.

    `op`: "mean", "sum", "max" or "min". `weight`: the weight of this rank in a mean, 0 or more. The result is the sum
    of weight times array, divided by the sum of weights. The array of a rank of weight 0 is ignored.

    `algorithm`: "reduce-scatter", where each rank combines a block for all; "star", where the lowest rank combines all;
    "tree", where ranks combine in pairs, and not in rank order; "mpi", MPI_Reduce and MPI_Bcast, in an order of MPI's.
    "auto": the fastest one that combines in rank order. malt.init().statistics() has the bytes of the first three.

    Ranks that fail before the end of the call do not count.

    ValueError, on all ranks: an argument is wrong on one of them, or differs; a weight is given without a mean; all
    weights are zero; "mpi" where ranks do not use MPI or may fail alone, or of a dtype that MPI cannot combine.
    TypeError, on all: a mean of integers or truth values. `array` is left unchanged. DeadlinePassed, PeerLost,
    MismatchedCalls, RuntimeError: as malt.barrier.
    """
    if not isinstance(array, bool) and isinstance(array, (int, float, np.integer, np.floating)):
        number = np.array(arguments.real("array", array))
        _allreduce(number, op, weight, algorithm)
        return float(number)
    _allreduce(cast("Array", array), op, weight, algorithm)
    return None


def _allreduce(array: Array, op: str, weight: float, algorithm: str) -> None:
    """Replace an array by the mean, sum, max or min over all ranks. Collective."""
    call, world = "malt.allreduce", session.world()
    transport = world.transport
    world.begin_training()

    def check() -> tuple[Array, Mapping[str, Any]]:
        """The array of this rank, and what must be the same on all. Local. TypeError, ValueError."""
        arguments.choice("op", op, OPERATIONS)
        arguments.choice("algorithm", algorithm, _ALGORITHMS)
        described = {"op": op, "algorithm": algorithm, "_weight": _weight(weight, op)}
        return _own(array, _NUMBERS), {**described, **_described(array)}

    def is_small(own: Array) -> bool:
        """Return whether arrays travel with what ranks agree on. Pure."""
        return algorithm == "auto" and own.nbytes * transport.size <= _SUMMED_NBYTES

    def data(own: Array) -> bytes:
        """Return the bytes that are sent along. Pure."""
        return own.tobytes() if is_small(own) else b""

    with transport.calling(call):
        own, reports, sent = world.notes.agree_and_send(transport, call, check, data)
        _check_mean(call, own, op)
        weights = {rank: theirs["_weight"] for rank, theirs in reports.items()} if op == "mean" else None
        try:
            if algorithm in ALGORITHMS:
                reduction.allreduce(world.traffic, list(reports), own, op, weights, algorithm)
            elif algorithm == "mpi":
                transport.allreduce_by_mpi(own, op, weights)
            elif is_small(own):
                _reduce(own, sent, op, weights)
            else:
                transport.allreduce(own, op, weights)
        except ValueError as error:  # on all ranks: all weights are zero; "mpi" is refused
            raise ValueError(f"{call}: {error}") from None
    _put_back(own, array)


def _reduce(own: Array, sent: Mapping[int, bytes], op: str, weights: Mapping[int, float] | None) -> None:
    """Write the reduction of all ranks' arrays into `own`. `sent`: their bytes. ValueError: all weights are zero."""
    wide = reduction.accumulator(own.dtype)
    ranks = reduction.counting(weights, sent)
    parts = {rank: np.frombuffer(sent[rank], own.dtype).astype(wide) for rank in ranks}
    reduction.reduce_into(own.reshape(-1), parts, op, weights)


def mean(*, weight: float = 1.0, **values: Any) -> dict[str, float]:
    """Return the means of `values`, numbers, over all ranks, by name: floats, the same bits on all ranks. Collective.

        scores = malt.mean(loss=loss, accuracy=hits / len(rows), weight=len(rows))

    `weight`: the weight of this rank, as in malt.allreduce: the number of its rows, if a value is a mean over them. The
    values of a rank with weight 0 are ignored, even NaN. A value is anything that float() accepts, such as a PyTorch
    tensor without dimensions. The means are in the order of the values.

    ValueError, on all ranks: a value or the weight is wrong on one of them; a name is given on some and not on others;
    all weights are zero. DeadlinePassed, PeerLost, MismatchedCalls, RuntimeError: as malt.barrier.
    """
    call, world = "malt.mean", session.world()
    transport = world.transport

    def check() -> tuple[Array, Mapping[str, Any]]:
        numbers = {name: arguments.real(name, values[name]) for name in sorted(values)}
        if not numbers:
            raise TypeError("it takes values by name, as in malt.mean(loss=loss)")
        return np.array([*numbers.values()]), {"_names": list(numbers), "_weight": _weight(weight, "mean")}

    with transport.calling(call):
        own, reports, sent = world.notes.agree_and_send(transport, call, check, lambda own: own.tobytes())
        _check_names(call, {rank: theirs["_names"] for rank, theirs in reports.items()})
        try:
            _reduce(own, sent, "mean", {rank: theirs["_weight"] for rank, theirs in reports.items()})
        except ValueError as error:  # on all ranks: all weights are zero
            raise ValueError(f"{call}: {error}") from None
    means = dict(zip(sorted(values), own.tolist(), strict=True))
    return {name: means[name] for name in values}


def _check_names(call: str, names: Mapping[int, Sequence[str]]) -> None:
    """Check that all ranks have given the same names. ValueError: they have not."""
    lowest = min(names)
    for rank, theirs in names.items():
        for name in sorted({*names[lowest], *theirs}):
            if (name in theirs) != (name in names[lowest]):
                has, lacks = (rank, lowest) if name in theirs else (lowest, rank)
                raise ValueError(f"{call}: {name} is given on rank {has}, and not on rank {lacks}")


def reduce_rows(array: Array, op: str = "mean") -> Array:
    """Return this rank's rows of the mean, sum, max or min of the arrays of all ranks: a new array. Collective.

    Of n rows, the p-th of N live ranks gets those from p * n // N up to (p + 1) * n // N. They are combined in rank
    order, as by malt.allreduce, for half of its bytes. malt.reduce_scatter makes a sharded vector of them, which other
    ranks can read. malt.init().statistics() counts the bytes.

    ValueError, TypeError, on all ranks: as malt.allreduce; the array has no dimensions. PeerLost, on all: a rank has
    failed in the call. DeadlinePassed, MismatchedCalls, RuntimeError: as malt.barrier.
    """
    call, world = "malt.reduce_rows", session.world()
    transport = world.transport

    def check() -> tuple[Array, Mapping[str, Any]]:
        arguments.choice("op", op, OPERATIONS)
        _check_array(array, _NUMBERS)
        if not array.ndim:
            raise ValueError("array has no rows")
        return np.ascontiguousarray(array), {"op": op, **_described(array)}

    with transport.calling(call):
        own, reports = world.notes.agree(transport, call, check)
        _check_mean(call, own, op)
        ranks = list(reports)
        try:
            return reduction.reduce_rows(world.traffic, ranks, own, op)
        except reduction.RanksChanged as change:
            lost = min(set(ranks) - set(change.ranks))
            raise PeerLost(lost, f"{call}: it failed while its array was reduced") from None


def broadcast(array: Array, root: int = 0) -> None:
    """Replace `array`, in place, with the array of rank `root`. Collective.

    The arrays have the same shape and dtype on all ranks, of numbers, text or dates. They may have no dimensions or no
    elements. An array that is not C-contiguous is copied.

    ValueError, on all ranks: an argument is wrong on one of them, or differs. PeerLost, on all: `root` has failed,
    before the call or in it. `array` is left unchanged. DeadlinePassed, MismatchedCalls, RuntimeError: as malt.barrier.
    """
    call, world = "malt.broadcast", session.world()
    transport = world.transport

    def check() -> tuple[tuple[Array, int], Mapping[str, Any]]:
        number = _root(root, transport.size)
        return (_own(array, _PLAIN), number), {"root": number, **_described(array)}

    with transport.calling(call):
        (own, number), _ = world.notes.agree(transport, call, check)
        transport.broadcast(own, number)
    _put_back(own, array)


def allgather(value: Any) -> list[Any]:
    """Return the values of all ranks, by rank: a list of malt.size() entries, the same on all ranks. Collective.

    `value`: on all ranks an array of numbers, text or dates, of the same dtype; shapes may differ. Or on all ranks a
    value as in JSON: None, a truth value, a number (NaN and infinities too), a string, a list, or a dict with strings
    as keys. A tuple is received as a list, a NumPy scalar as a Python number.

    Entries are copies, this rank's own included. Arrays are C-contiguous and writable. The entry of a rank that has
    failed is None.

    ValueError, on all ranks: a value is wrong on one of them, or dtypes differ. MemoryError, on all: the arrays do not
    fit. DeadlinePassed, PeerLost, MismatchedCalls, RuntimeError: as malt.barrier.
    """
    call, world = "malt.allgather", session.world()
    transport = world.transport

    def check() -> tuple[tuple[Array, ...], Mapping[str, Any]]:
        if not isinstance(value, np.ndarray):
            return (), {"kind": "a JSON-like value", "_value": _plain(value, _DEEPEST)}
        _check_array(value, _PLAIN)
        own = np.ascontiguousarray(value).reshape(-1)
        is_small = own.nbytes * transport.size <= _SMALL_NBYTES
        return (own,), {"kind": f"an array of {value.dtype}", "_shape": value.shape, "_is_small": is_small}

    def data(own: tuple[Array, ...]) -> bytes:
        return own[0].tobytes() if own and own[0].nbytes * transport.size <= _SMALL_NBYTES else b""

    with transport.calling(call):
        own, reports, sent = world.notes.agree_and_send(transport, call, check, data)
        if own:
            shapes = {rank: theirs["_shape"] for rank, theirs in reports.items()}
            if not all(theirs["_is_small"] for theirs in reports.values()):
                return _gathered(transport, own[0], shapes)
            found = {rank: np.frombuffer(bytearray(sent[rank]), own[0].dtype).reshape(shapes[rank]) for rank in shapes}
            return [found.get(rank) for rank in range(transport.size)]
        return [reports[rank]["_value"] if rank in reports else None for rank in range(transport.size)]


def lowest() -> bool:
    """Return whether this is the lowest live rank: the one that writes files and prints. Local, once initialized."""
    return session.is_lowest()


def together(function: Callable[[], Result]) -> Result:
    """Return the result of function() on this rank, once it has returned on all ranks. Collective.

    If function() raises on some ranks, all ranks raise the error of the lowest of them. A built-in exception keeps
    its type and message, and PeerLost its rank. An OSError keeps its errno and file name, and names the host if there
    are several. An error of another type becomes a RuntimeError that names the type, as do StopIteration and the errors
    of codecs. On a rank where function() raised, its own error is that error, or its cause.

    function() may take as long as the deadline of the session; if it takes longer, it calls malt.heartbeat(). A rank
    that comes back calls it without the others until they have admitted it: they have already made these calls.

    DeadlinePassed, PeerLost, MismatchedCalls, RuntimeError: as malt.barrier.
    """
    return succeed(session.world().reading, function)


def _check_mean(call: str, array: Array, op: str) -> None:
    if op == "mean" and array.dtype.kind in "biu":
        raise TypeError(f"{call}: a mean of {array.dtype} would be truncated: use floats, or op='sum'")


def _root(root: Any, size: int) -> int:
    if isinstance(root, bool) or not hasattr(root, "__index__") or not 0 <= index(root) < size:
        raise ValueError(f"root must be a rank from 0 to {size - 1}, got {shown(root)}")
    return index(root)


def _weight(weight: Any, op: str) -> float:
    number = arguments.real("weight", weight)
    if not 0 <= number < math.inf:
        raise ValueError(f"weight must be a number of at least 0, got {shown(weight)}")
    if op != "mean" and number != 1:
        raise ValueError(f"weight is for op='mean', got weight={weight!r} with op={op!r}")
    return number


def _check_array(array: Any, kinds: str) -> None:
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"array must be a NumPy array, got {type(array).__name__}: np.array(...) makes one")
    if array.dtype.kind not in kinds or not array.dtype.itemsize:
        raise TypeError(f"an array of {array.dtype} cannot be exchanged")


def _own(array: Array, kinds: str) -> Array:
    """`array` if it is C-contiguous, else a copy that is. TypeError, ValueError: it cannot be sent or written."""
    _check_array(array, kinds)
    if not array.flags.writeable:
        raise ValueError("array is read-only")
    return np.asarray(array, order="C")


def _put_back(own: Array, array: Array) -> None:
    """Write the result `own` into the user's `array`, if it is a copy."""
    if not np.may_share_memory(own, array):
        array[...] = own


def _described(array: Array) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": str(array.dtype)}


def _plain(value: Any, depth: int) -> Any:
    """`value` as JSON can express it. TypeError: JSON cannot. ValueError: it is nested deeper than `depth`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth == 0:
        raise ValueError(f"lists and dicts may lie in each other {_DEEPEST} deep")
    if isinstance(value, (list, tuple)):
        return [_plain(one, depth - 1) for one in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("keys of a dict must be strings")
        return {key: _plain(one, depth - 1) for key, one in value.items()}
    raise TypeError(f"value must be an array, None, a number, a string, a list or a dict, got {type(value).__name__}")


def _gathered(transport: Transport, own: Array, shapes: Mapping[int, Sequence[int]]) -> list[Array | None]:
    """The arrays of all ranks, by rank; None for a rank that fails before its array is complete. Collective."""
    found = succeed(transport, lambda: {rank: np.empty(shape, own.dtype) for rank, shape in shapes.items()})
    length = max(_GATHER_NBYTES // transport.size, 1)
    data = own.view(np.uint8)
    for start in range(0, max(array.nbytes for array in found.values()), length):
        parts = transport.allgather(data[start : start + length].tobytes())
        for rank, array in list(found.items()):
            place = array.reshape(-1).view(np.uint8)[start : start + length]
            if len(parts[rank]) == place.size:
                place[:] = np.frombuffer(parts[rank], np.uint8)
            else:
                del found[rank]
    return [found.get(rank) for rank in range(transport.size)]

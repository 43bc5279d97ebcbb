"""The compiled kernels of matrix factorization. numba's cache looks at the time of one file: all is in this one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.kernels import compiling
from malt.kernels.compiler import cgutils, intrinsic, types
from malt.kernels.compiling import FAST
from malt.kernels.prefetching import prefetched
from malt.models.factors import interpreted
from malt.models.factors.problem import Numbers, Rows, Shard

_AHEAD: Final = 16
"""The row of an item is prefetched so many ratings early: 1.5 times as fast if rows do not fit in the cache."""
_USERS_AHEAD: Final = 3
"""A user and the first of his ratings are prefetched so many users early, for where each has few."""

_LANES: Final = 16
"""The number of floats in a vector. LLVM splits it for processors with shorter vectors."""

_FLAGS: Final = tuple(sorted(FAST))
kernel = compiling.Kernels(fast=True, slower=150)
_TABLE: Final = types.Array(types.f4, 2, "C")
_READ_TABLE: Final = types.Array(types.f4, 2, "C", readonly=True)
_MARKS: Final = types.Array(types.b1, 1, "C")
_READ_F4, _READ_I4, _READ_I8 = (types.Array(kind, 1, "C", readonly=True) for kind in (types.f4, types.i4, types.i8))
_SHARD: Final[Any] = types.NamedTuple((_READ_I8, _READ_I4, _READ_F4), Shard)
_PREDICTION: Final = (_READ_TABLE, _READ_TABLE, _READ_I4, _READ_I4)


@cache
def train_kernel(rank: int) -> Callable[..., bool]:
    """The kernel that trains rows of `rank` + 1, compiled now or loaded from numba's cache, as are those of all rows.

    Call it before the clock starts, on one rank of each host first, and on the others after a barrier. After it an
    argument of a wrong type is a TypeError, and not another compilation. Rows of each length have their own training
    kernel, as loops of known length are faster. A kernel may close over numbers only: numba does not cache one that
    closes over another kernel.
    """
    signature = (_SHARD, _READ_I4, _TABLE, _TABLE, _READ_F4, _READ_F4, types.f4, types.b1, _MARKS)
    made: Callable[..., bool] = kernel(*signature, interpreted=interpreted.train)(_train_kernel(rank))
    kernel.compile()
    return made


def train(
    made: Callable[..., bool], data: Shard, order: Numbers, users: Rows, items: Rows, kept: tuple[Rows, Rows],
    step: float, touched: NDArray[np.bool_], biases: bool = True,
) -> None:  # fmt: skip
    """Train the rows of `users` and `items`, in place, on all ratings of the users in `order`, one at a time. Local.

    e = r - (b_u + b_i + p . q)      p <- kept_u p + step e q      and q, b_u and b_i likewise

    `kept` holds `keeps` of the users and of the items. Items that were trained on are marked in `touched`.
    FloatingPointError: the rows are no longer finite. The message names the step size.
    """
    if not made(data, order, users, items, *kept, np.float32(step), biases, touched):
        raise FloatingPointError(f"the factors are no longer finite: the step size, {step:.3g}, is too large")


def squares(
    users: Rows, items: Rows, whose: Numbers, which: Numbers, ratings: Rows, low: float, high: float
) -> float:  # fmt: skip
    """The sum of the squared errors of predictions, which are clipped to `low` and `high`. Local.

    An index of -1 is an unknown user or item, whose row counts as zeros.
    """
    return float(_squares(users, items, whose, which, ratings, np.float32(low), np.float32(high)))


def predict(users: Rows, items: Rows, whose: Numbers, which: Numbers) -> Rows:
    """b_u + b_i + p . q for each pair, float32. An index of -1 is an unknown user or item. Local."""
    out = np.empty(len(whose), np.float32)
    kernel.compile()
    _predict(users, items, whose, which, out)
    return out


@intrinsic
def _prefetch(_context: Any, table: Any, row: Any, column: Any) -> Any:
    """Prefetch the memory of table[row, column] for writing."""
    return types.void(table, row, column), prefetched(1)


@intrinsic
def _prefetch_read(_context: Any, array: Any, index: Any) -> Any:
    """Prefetch the memory of array[index] for reading."""
    return types.void(array, index), prefetched(0)


@intrinsic(prefer_literal=True)
def _inner(_context: Any, mine: Any, table: Any, row: Any, rank: Any) -> Any:
    """mine[:rank] . table[row, :rank], in vector instructions.

    LLVM would unroll a loop of known length into scalar steps, which take twice as long.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Its instructions."""
        left, right = _addresses(context, builder, signature, arguments)
        number = cgutils.ir.FloatType()
        total = number(-0.0)
        for start, width in _pieces(rank.literal_value):
            one, other = (_loaded(builder, address, start, width) for address in (left, right))
            product = builder.fmul(one, other, flags=_FLAGS)
            shape = cgutils.ir.FunctionType(number, [number, product.type])
            add = cgutils.get_or_insert_function(builder.module, shape, f"llvm.vector.reduce.fadd.v{width}f32")
            total = builder.call(add, [total, product], fastmath=_FLAGS)
        return total

    return types.f4(mine, table, row, rank), generate


@intrinsic(prefer_literal=True)
def _descend(
    _context: Any, mine: Any, table: Any, row: Any, rank: Any, keep_mine: Any, keep: Any, move: Any
) -> Any:  # fmt: skip
    """p, q <- keep_mine p + move q, keep q + move p, in vector instructions; p, q = mine[:rank], table[row, :rank]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Its instructions."""
        left, right = _addresses(context, builder, signature, arguments)
        for start, width in _pieces(rank.literal_value):
            kept_mine, kept, moved = (_spread(builder, value, width) for value in arguments[4:])
            p, q = (_loaded(builder, address, start, width) for address in (left, right))
            for address, mix in ((left, (kept_mine, p, q)), (right, (kept, q, p))):
                own = builder.fmul(mix[0], mix[1], flags=_FLAGS)
                value = builder.fadd(own, builder.fmul(moved, mix[2], flags=_FLAGS), flags=_FLAGS)
                builder.store(value, _piece(builder, address, start, width), align=4)
        return context.get_dummy_value()

    return types.void(mine, table, row, rank, keep_mine, keep, move), generate


def _pieces(rank: int) -> list[tuple[int, int]]:
    """The (start, width) of each vector that `rank` floats are cut into."""
    return [(start, min(_LANES, rank - start)) for start in range(0, rank, _LANES)]


def _addresses(context: Any, builder: Any, signature: Any, arguments: Any) -> tuple[Any, Any]:
    """The addresses of mine[0] and table[row, 0]. The first arguments of the intrinsic are mine, table, row."""
    zero = context.get_constant(types.intp, 0)
    row = context.cast(builder, arguments[2], signature.args[2], types.intp)
    found = []
    for kind, value, indices in zip(signature.args, arguments, ([zero], [row, zero]), strict=False):
        array = context.make_array(kind)(context, builder, value)
        found.append(cgutils.get_item_pointer(context, builder, kind, array, indices, wraparound=False))
    return found[0], found[1]


def _piece(builder: Any, address: Any, start: int, width: int) -> Any:
    """The address of the vector of `width` floats that begins `start` floats after `address`."""
    moved = builder.gep(address, [cgutils.int32_t(start)])
    return builder.bitcast(moved, cgutils.ir.VectorType(cgutils.ir.FloatType(), width).as_pointer())


def _loaded(builder: Any, address: Any, start: int, width: int) -> Any:
    return builder.load(_piece(builder, address, start, width), align=4)


def _spread(builder: Any, value: Any, width: int) -> Any:
    """A vector whose elements are all `value`."""
    vector = cgutils.ir.VectorType(value.type, width)(cgutils.ir.Undefined)
    for place in range(width):
        vector = builder.insert_element(vector, value, cgutils.int32_t(place))
    return vector


def _train_kernel(rank: int) -> Any:
    """The function `train`, for rows of `rank` + 1. With unsigned indices numba does not test for negative ones."""

    def train(
        data: Shard, order: Numbers, users: Rows, items: Rows, keep_users: Rows, keep_items: Rows, step: Any,
        biases: bool, touched: Any,
    ) -> bool:  # fmt: skip
        """Train on the ratings of the users in `order`; return whether all is finite."""
        mine = np.empty(rank + 1, np.float32)
        check, last = np.float32(0), data.items.size - 1
        bias_step = step if biases else np.float32(0)
        for place in range(order.size):
            following = np.uint32(order[min(place + _USERS_AHEAD, order.size - 1)])
            start = np.uint64(min(data.starts[following], last))
            _prefetch(users, following, np.uint32(0))
            _prefetch(users, following, np.uint32(rank))
            _prefetch_read(data.items, start)
            _prefetch_read(data.ratings, start)
            user = np.uint32(order[place])
            begin, end = np.uint64(data.starts[user]), np.uint64(data.starts[user + 1])
            if begin == end:
                continue
            for f in range(rank + 1):
                mine[f] = users[user, f]
            keep_mine = keep_users[user]
            for n in range(begin, end):
                ahead = np.uint32(data.items[min(np.int64(n) + _AHEAD, last)])
                _prefetch(items, ahead, np.uint32(0))
                _prefetch(items, ahead, np.uint32(rank))
                item = np.uint32(data.items[n])
                error = (data.ratings[n] - items[item, rank] - mine[rank]) - _inner(mine, items, item, rank)
                move, keep = step * error, keep_items[item]
                _descend(mine, items, item, rank, keep_mine, keep, move)
                mine[rank] = keep_mine * mine[rank] + bias_step * error
                items[item, rank] = keep * items[item, rank] + bias_step * error
                touched[item] = True
            for f in range(rank + 1):
                users[user, f] = mine[f]
                check += mine[f] * np.float32(0)
        return bool(check == 0)

    return train


@kernel()
def _one(users: Any, items: Any, user: Any, item: Any) -> Any:
    rank = items.shape[1] - 1
    value = np.float32(0)
    if user >= 0:
        value += users[user, rank]
    if item >= 0:
        value += items[item, rank]
    if user >= 0 and item >= 0:
        for f in range(rank):
            value += users[user, f] * items[item, f]
    return value


@kernel(*_PREDICTION, _READ_F4, types.f4, types.f4, interpreted=interpreted.squares)
def _squares(users: Any, items: Any, whose: Any, which: Any, ratings: Any, low: Any, high: Any) -> float:
    total = 0.0
    for n in range(ratings.size):
        error = ratings[n] - min(max(_one(users, items, whose[n], which[n]), low), high)
        total += np.float64(error) * np.float64(error)
    return total


@kernel(*_PREDICTION, types.Array(types.f4, 1, "C"), interpreted=interpreted.predict)
def _predict(users: Any, items: Any, whose: Any, which: Any, out: Any) -> None:
    for n in range(out.size):
        out[n] = _one(users, items, whose[n], which[n])

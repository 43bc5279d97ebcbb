"""`malt.map_reduce`: its arguments, checked and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from dstorm.words import shown
from malt.data.mapreduce.cache import Cache
from malt.data.mapreduce.call import Call
from malt.data.mapreduce.chunks import Own
from malt.data.mapreduce.location import claim, located
from malt.files.checksum import checksum
from malt.files.values import pack
from malt.session import session
from malt.session.world.world import World

_CALL: Final = "malt.map_reduce"
_SHOWN: Final = 8
"""Digits of a hash in a message."""


_caches: WeakKeyDictionary[World, Cache] = WeakKeyDictionary()
"""What ranks keep from one call to the next, by world."""


def map_reduce(
    function: Callable[[Any, Any], Any], theta: Any, dataset: Any, reduce: Callable[[Any, Any], Any] | None = None
) -> Any:  # fmt: skip
    """Return the sum of function(theta, chunk) over all chunks of `dataset`, the same on all ranks. Collective.

        def loss(w, rows):
            error = rows[:, :-1] @ w - rows[:, -1]
            return error @ error / 2, rows[:, :-1].T @ error

        value, gradient = malt.map_reduce(loss, w, rows if malt.lowest() else None)

    Each chunk is processed by one rank. Results are reduced along a tree over chunk numbers, which depends neither on
    the number of ranks nor on failures: if function() returns the same bits on all of them, so does map_reduce.

    `function`: makes no collective call. Its result is a number, an array, a string or a Counter, or lists and tuples
    of these, which are added element by element; with `reduce` also None and dicts. It calls malt.heartbeat() if it may
    take longer than the deadline of the session. `theta`: the same on all ranks; compared, if it consists of arrays,
    numbers, strings, lists, tuples and dicts. `reduce`: reduce(left, right) of two results, which it may change; left
    is the result of the chunks before those of right.

    `dataset`: an array, which may be mapped into memory; a list or a range; a sparse matrix in CSR form; a malt.Dataset
    or malt.Ratings; an object with chunks(), which returns their number, and slice(i), which returns the same each
    time. Each rank that has it passes the whole dataset, the others None. Rows are cut into chunks of up to 1 MiB, at
    least 32. A rank that has the dataset reads its chunks from it. They are sent to other ranks once, as arrays, and
    kept there by content hash, in up to a quarter of the free memory of the host; malt.init().chunk_statistics() counts
    their bytes. If chunks are sent, the dataset is hashed in each call, or only once if its arrays cannot be written
    to. If several ranks have it, they compare it in each call, as malt.shard does, except for slices of an object, and
    objects of unknown classes in a list.

    The chunks of failed ranks are processed by others.

    Errors are the same on all ranks. Of function(), reduce() or slice(i): that of the lowest chunk, with its type,
    number and traceback, as by malt.together. ValueError: an argument is wrong on one rank, or differs; results cannot
    be added. TypeError: a value cannot be exchanged. PeerLost: no live rank has the data of a chunk. DeadlinePassed,
    MismatchedCalls, RuntimeError: as malt.barrier.
    """
    world = session.world()
    world.begin_training()
    cache = _caches.setdefault(world, Cache(len(world.transport.local_peers) + 1))

    def check() -> tuple[list[Own | None], Mapping[str, Any]]:
        """The dataset of this rank, and what all ranks compare. TypeError: an argument is wrong."""
        for name, one in (("function", function), ("reduce", reduce)):
            if not callable(one) and not (one is None and name == "reduce"):
                raise TypeError(f"{name} must be callable, got {shown(one)}")
        own = None if dataset is None else Own(dataset)
        described = {"reduce": "nothing" if reduce is None else "a function", "theta": _fingerprint(theta)}
        return [own], {**described, **claim(cache, own)}

    with world.transport.calling(_CALL):
        [own], reports = world.notes.agree(world.transport, _CALL, check)
        place = located(world.transport, cache, own, reports)
        result = Call(world, cache, function, theta, own, place, reduce).result()
        cache.trim()
        return result


def _fingerprint(theta: Any) -> str:
    try:
        return f"one of SHA-256 {pack(theta).digest()[:_SHOWN]}"
    except TypeError:  # what is known of it counts
        return f"a {type(theta).__name__}, checksum {checksum(theta):08x}"

"""The parts of a checkpoint that each rank alone goes on from: taken from objects, sent to who writes them, put back.

The rank that writes holds the parts of all ranks meanwhile, and so does the one that reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from dstorm import PeerLost, Transport
from dstorm.words import count
from malt.files import values
from malt.files.values import Bytes, Packed
from malt.session.checkpoints.state import by_name, check, plain
from malt.session.checkpoints.stateful import generators, is_object, put_back, set_generators, state_of
from malt.session.world.agreement import exchange, succeed
from malt.session.world.world import World

State = Mapping[str, Any]

_OWN: Final = "own"
_GENERATORS: Final = "generators"


class Part(NamedTuple):
    """The part of a file that this rank can resume from."""

    ranks: int = 0
    """The number of ranks that they are of. 0: there are none."""
    content: dict[str, Any] = {}  # noqa: RUF012  it is never changed
    """The part: this rank's own, or one that is dealt to it."""
    is_own: bool = False

    @property
    def own(self) -> dict[str, Any]:
        """The values saved as `mine` on this rank. Empty: this rank has no part."""
        return dict(self.content[_OWN]) if self.is_own else {}

    @property
    def given(self) -> dict[str, Any]:
        """The values saved as `mine` on this rank, or on the one whose part is dealt to it."""
        return dict(self.content.get(_OWN, {}))


def may_save(state: State, mine: State) -> bool:
    """Return whether all ranks come to a save here, as objects in `state` know. Local. ValueError, on all: never."""
    if not (isinstance(state, Mapping) and isinstance(mine, Mapping)):
        return True  # `checkable` refuses it, on all ranks
    in_step = any(getattr(one, "is_in_step", False) for one in mine.values())
    return all(one.may_save(in_step) for one in state.values() if hasattr(one, "may_save"))


def checkable(state: State, mine: State) -> dict[str, Any]:
    """Return what can be checked before the states of objects are taken: names, and values of `state`. Pure.

    TypeError: `state` or `mine` is no dict. TypeError, ValueError: a file cannot hold a value of `mine`.
    """
    check("mine", {name: one for name, one in by_name("mine", mine).items() if not is_object(one)})
    values = {name: 0 if is_object(one) else one for name, one in by_name("state", state).items()}
    return {**dict.fromkeys(mine, 0), **values}


def taken(transport: Transport, state: State, mine: State, writer: int) -> tuple[State, dict[int, Packed]]:
    """`state` with states in place of objects; on the rank `writer` the parts of all ranks, by rank. Collective.

    TypeError, ValueError, on all ranks: a file cannot hold a value. What the objects raise.
    """

    def states(some: State) -> dict[str, Any]:
        """Those of objects. Other values stay, and may differ in number: the lowest rank's are written. Collective."""
        of_objects = {name: succeed(transport, partial(state_of, one)) for name, one in some.items() if is_object(one)}
        return {**some, **of_objects}

    own, state = states(mine), states(state)
    part = succeed(transport, lambda: plain("mine", own, _OWN, {_GENERATORS: generators()}))
    return state, _gathered(transport, part, writer)


def _gathered(transport: Transport, mine: Packed, writer: int) -> dict[int, Packed]:
    """The parts of all ranks on the rank `writer`; that of a rank that fails meanwhile is left out. Collective."""
    message = values.joined([mine])
    found: dict[int, Packed] = {}
    for rank, nbytes in exchange(transport, message.nbytes).items():
        with suppress(PeerLost):
            arrived = _sent(transport, message if rank == transport.rank else None, rank, nbytes)
            if transport.rank == writer:
                found[rank] = mine if rank == writer else values.pack(_value(arrived))
    return found


def dealt_part(transport: Transport, parts: Mapping[int, Packed] | None, root: int, ranks: int) -> Part:
    """This rank's part of `parts`, which `root` alone has, of so many ranks. Collective.

    On another number of ranks rank r is dealt that of rank r modulo their number. PeerLost, on all: `root` has failed.
    """
    messages = {} if parts is None else {rank: values.joined([one]) for rank, one in sorted(parts.items())}
    reports = exchange(transport, [[rank, one.nbytes] for rank, one in messages.items()])
    if root not in reports:
        raise PeerLost(root, "it has read the file")
    there = [rank for rank, _ in reports[root]]
    is_own = ranks == transport.size and transport.rank in there
    wanted = transport.rank if is_own or not there else there[transport.rank % len(there)]
    content: dict[str, Any] = {}
    for rank, nbytes in reports[root]:
        arrived = _sent(transport, messages.get(rank), root, nbytes)
        if rank == wanted:
            content = _value(arrived)
    return Part(ranks, content, is_own)


def restore(world: World, path: str, found: State, part: Part, state: State, mine: State) -> None:
    """Put what was `found` into `state`, and this rank's part into `mine`. Collective. As malt.Checkpoint.restore."""
    transport = world.transport
    state, mine = succeed(transport, lambda: (by_name("state", state), by_name("mine", mine)))
    is_whole = all(exchange(transport, part.is_own).values())
    kept = {name: is_whole or getattr(one, "is_dealt", False) for name, one in mine.items()}
    lacks = [name for name in state if name not in found]
    lacks += [name for name, is_kept in kept.items() if name not in part.given and is_kept and part.ranks]
    lack = f"{path}: a checkpoint without {', '.join(lacks)}: name another file" if lacks else ""
    if problem := next(filter(None, exchange(transport, lack).values()), ""):
        raise ValueError(problem)
    for name, one in state.items():
        succeed(transport, partial(_put_back, path, name, one, found[name]))
    for name, one in mine.items():
        if kept[name] and part.ranks:
            succeed(transport, partial(_put_back, path, name, one, part.given[name]))
        elif begin_anew := getattr(one, "begin_anew", None):
            succeed(transport, begin_anew)
    if is_whole:
        set_generators(part.content[_GENERATORS])
    else:
        world.report(f"malt: {path}: {_told(world.size, part.ranks, state, kept)}")


def _put_back(path: str, name: str, one: Any, state: Any) -> None:
    """Give `one` the `state` of that name. ValueError, with file and name: it does not fit. Else as `put_back`."""
    try:
        put_back(one, state)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and type(error) is not RuntimeError:  # such as PeerLost; PyTorch's is plain
            raise
        raise ValueError(f"{path}: {name!r} does not fit: {error}") from error


def _told(size: int, ranks: int, state: State, kept: Mapping[str, bool]) -> str:
    """Return the message if some rank has no part of its own. `kept`: whether parts are dealt, by name. Pure."""
    if not ranks:
        return f"it has no parts by rank: {', '.join(kept) or 'random number generators'} start from scratch"
    dealt = [name for name, one in state.items() if getattr(one, "is_dealt", False)]
    dealt += [name for name, is_kept in kept.items() if is_kept]
    anew = [*(name for name, is_kept in kept.items() if not is_kept), "random number generators"]
    fates = (dealt, "are dealt again"), (anew, "start from scratch")
    ways = [f"{', '.join(names)} {fate}" for names, fate in fates if names]
    lack = ", one of which had failed" if ranks == size else ""
    return f"written on {count(ranks, 'rank')}{lack}, and resumed on {size}: {'; '.join(ways)}"


def _sent(transport: Transport, message: Bytes | None, root: int, nbytes: int) -> Bytes:
    """The message of `root`, of so many bytes. Collective. `message`: what it sends. PeerLost: it has failed."""
    room = np.empty(nbytes, np.uint8) if message is None else message
    transport.broadcast(room, root)
    return room


def _value(message: Bytes) -> Any:
    """The value of a message. Its arrays are views of it."""
    return values.parted(message, writable=True)[0]

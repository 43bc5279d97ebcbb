"""`malt.Checkpoint`: a file from which a training that was stopped goes on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstorm import PeerLost
from dstorm.words import shown
from malt.files import checkpoint, values
from malt.files.arrays import array_of, checked
from malt.files.checkpoint import Content
from malt.files.npz import Member, Streamed
from malt.files.paths import text_of
from malt.files.values import Packed
from malt.session import session
from malt.session.checkpoints.parts import Part, checkable, dealt_part, may_save, restore, taken
from malt.session.checkpoints.sharded_state import dealt, head, incomplete, open_places, rested, streamed
from malt.session.checkpoints.state import AsArray, by_name, checked_name, member
from malt.session.checkpoints.stateful import is_object
from malt.session.collectives import allgather, lowest
from malt.session.world.agreement import exchange, succeed
from malt.session.world.world import World
from vol import OwnedVector, arguments

State = dict[str, Any]
"""Arrays, other values and sharded vectors by name."""
Members = dict[str, Member | Packed]
"""They, as a file has them."""


class Checkpoint:
    """A file with the state of a training: written at intervals, and read when the training is resumed.

        checkpoint = malt.Checkpoint("train.ckpt", every_s=60)
        state = checkpoint.load() or {"w": np.zeros(30), "epoch": 0}
        w = state["w"]
        for epoch in range(int(state["epoch"]), 10):
            checkpoint.save({"w": w, "epoch": epoch})
            ...
        replica.finish()
        checkpoint.save({"w": w, "epoch": 10}, force=True)

    Only the lowest live rank writes the file. All ranks resume from its state; their number may have changed. Whenever
    the job is killed, the file is complete: it contains the last state written, or the one before.

    A state may contain sharded vectors, which `load` deals to the present ranks. If a rank fails with its part, the
    others get PeerLost, and can resume from the last checkpoint:

        while True:
            state = checkpoint.load() or {"w": malt.sharded(n), "epoch": 0}
            try:
                train(state, checkpoint)
                break
            except malt.PeerLost:
                continue

    pull and push raise PeerLost only on the calling rank: malt.together(lambda: w.pull()) raises it on all ranks.

    `every_s`: seconds from the start, or the last save, until the next save is due. `program`: the name of the program
    that writes the file. `match`: what the state depends on, by name, such as options and data sizes, as values that
    JSON can represent. `load` refuses a file with another `program` or `match`. Without them it accepts any checkpoint.

    Local, once initialized. TypeError, ValueError: an argument is wrong.
    """

    def __init__(
        self, path: str | os.PathLike[str], every_s: float = 60.0, *, program: str | None = None,
        match: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.path = _path(path)
        """The path of the file."""
        self._every_s = _seconds(every_s)
        self._program = _program(program)
        self._match = None if match is None else _described(match)
        self._since_s = session.world().transport.clock()
        self._trouble = ""
        """Why the last save failed. "": it did not."""
        self.mine: State = {}
        """This rank's part of the file that `load` or `restore` has read last. Empty: it has none for this rank, or was
        written on another number of ranks."""
        self.ranks = 0
        """The number of ranks that have written the parts of that file. 0: it has none."""
        self._parts = Part()
        """What this rank can go on from of it."""

    def due(self) -> bool:
        """Return whether a save is due: `every_s` seconds have passed since the last one, or the start. Local."""
        return session.world().transport.clock() - self._since_s >= self._every_s

    def due_together(self) -> bool:
        """Return the result of `due` on the lowest rank, for a state that all ranks make together. Collective."""
        with session.world().transport.calling("Checkpoint.due_together"):
            return any(allgather(lowest() and self.due()))

    def save(self, state: Mapping[str, Any], force: bool = False, *, mine: Mapping[str, Any] | None = None) -> bool:
        """Write `state` to the file if a save is due, or at once with `force`. Return whether it was written. Local.

        `state`: by name, arrays, PyTorch tensors, numbers, strings and None, and lists, tuples and dicts of these, such
        as the state of a generator. Only the lowest rank writes. The others return False; their time until the next
        save starts again as well. If the file cannot be written, for example because the disk is full, training
        continues: one line on stderr gives the reason, the file is left unchanged, and the next save that is due tries
        again.

        It is Collective if the session has sharded vectors. `state` may hold those, the same on all ranks, with
        everything that was pushed before the call. The lowest rank decides whether a save is due, or forced. It reads
        and writes the parts one after the other.

        `mine`: what belongs to this rank alone, by the same names on all ranks. The call is then Collective, between
        exchanges, and the file holds the parts of all ranks: `restore` is the counterpart. In `mine`, and then in
        `state`, an object stands for its state, which is taken if a save is due: an object with state_dict and
        load_state_dict, such as a Replica or a PyTorch optimizer, and generators of Python, NumPy and torch. Each part
        includes the generators of the modules random, numpy.random and torch. Under "bsp" a save changes nothing in the
        training; if a Replica has another mode, ranks take the mean at a save, as by Replica.agree. The lowest rank
        holds all parts while it writes. All ranks make the same number of such calls, and under "bsp" and "notify-ack"
        the same number of exchanges before each; after a batch that a malt.torch.Sampler in `state` does not have for
        all ranks, the call does nothing.

        TypeError, ValueError: the file cannot hold a name or a value. They are raised even if no save is due. If the
        call is Collective, they are raised on all ranks; so are TypeError: the sharded vectors in `state`, or names,
        differ; PeerLost: a rank has failed with its part of one that is open.
        """
        arguments.truth("force", force)  # not `mine`, in its place
        world = session.world()
        if mine is not None and not may_save(state, mine):
            return False
        if world.sharded or mine is not None:
            with world.transport.calling("Checkpoint.save"):
                return self._save_together(world, state, force, mine)
        _check(state)
        if not (force or self.due()):
            return False
        is_written = lowest() and self._write(_members(state))
        self._since_s = world.transport.clock()
        return is_written

    def _save_together(
        self, world: World, state: Mapping[str, Any], force: bool, mine: Mapping[str, Any] | None
    ) -> bool:  # fmt: skip
        """Save a state that may hold sharded vectors, and parts by rank. Collective."""
        transport = world.transport
        succeed(transport, lambda: _check(state if mine is None else checkable(state, mine)))
        vectors = sorted(f"{name!r}: {value}" for name, value in state.items() if isinstance(value, OwnedVector))
        names = None if mine is None else [[name for name in state if is_object(state[name])], list(mine)]
        reports = exchange(transport, [vectors, force or self.due(), names])
        writer = min(reports)
        ours, is_due, _ = reports[writer]
        for rank, (theirs, _, their_names) in reports.items():
            if theirs != ours:
                lists = (", ".join(one) or "no sharded vector" for one in (ours, theirs))
                raise TypeError(f"state: rank {writer} has {next(lists)}; rank {rank} has {next(lists)}")
            if their_names != reports[writer][2]:
                raise TypeError(f"mine: rank {writer} has {reports[writer][2]}; rank {rank} has {their_names}")
        if is_due:
            world.settle_pushes("Checkpoint.save")
            parts: dict[int, Packed] = {}
            if mine is not None:
                state, parts = taken(transport, state, mine, writer)
                succeed(transport, lambda: _check(state))
            ranks = 0 if mine is None else world.size
            with rested(world, state) as touched:
                is_due = succeed(
                    transport, lambda: transport.rank == writer and self._write(_members(state, touched), ranks, parts)
                )  # fmt: skip
            self._since_s = transport.clock()
        return bool(is_due)

    def restore(self, state: Mapping[str, Any], *, mine: Mapping[str, Any] | None = None) -> State | None:
        """Load the file, and put what it holds into `state` and `mine`; return what `load` does. Collective.

            common, mine = {"w": w}, {"replica": replica, "rng": rng}
            found = checkpoint.restore(common, mine=mine)
            for epoch in range(int(found["epoch"]) if found else 0, 10):
                checkpoint.save({**common, "epoch": epoch}, mine=mine)
                ...

        Call it when everything that is named exists, and before the first step. Objects get their states, as by
        load_state_dict, and arrays their values, in place; the attribute `mine` has this rank's part. Generators of
        modules get the states that they had on this rank.

        On the same number of ranks, a training whose ranks exchange under "bsp", with a number for `every`, continues
        with the same bits as if it had not been stopped. On another number, or if a rank had failed, what is in `mine`
        starts from scratch, and so do generators; what can be dealt to any number of ranks is dealt. One line on stderr
        lists both.

        None: there is no file, or this rank has rejoined, and has what the others gave it. Nothing is changed then.

        ValueError, on all ranks: a name is not in the file, or does not fit. Other errors: as of `load`.
        """
        world = session.world()
        if session.rejoined() or (found := self.load()) is None:
            return None
        with world.transport.calling("Checkpoint.restore"):
            restore(world, self.path, found, self._parts, state, {} if mine is None else mine)
        return found

    def load(self) -> State | None:
        """Return the state in the file, the same on all ranks, or None if there is no file. Collective.

        The lowest rank reads and checks the file, and sends the state to the others. A rank that has rejoined, and has
        not made a vector or Replica yet, reads it alone: Local. The arrays are copies of this rank's own, C-contiguous
        and writable. Tensors come back as arrays; those of bfloat16 and of 8 bits as float32, which represents all
        their values. A number or a string comes back as an array without dimensions: int(state["epoch"]). A list of
        numbers comes back as an array. None, an integer of more than 64 bits, a dict, and any other list or tuple come
        back as they were. Sharded vectors are new ones; open ones of which a rank has failed with its part are closed.

        Errors are the same on all ranks, and leave the file unchanged. ValueError: it is damaged, is not a checkpoint
        of malt, has another format, or has another `program` or `match`. OSError: it cannot be read, or the folder does
        not exist. MemoryError: the state does not fit. PeerLost: a rank has failed with its part of a sharded vector,
        and there is no file.
        """
        world = session.world()
        self.mine, self.ranks, self._parts = {}, 0, Part()
        if world.is_outside:  # it comes back, and the others are at work
            found = self._read()
            return None if found is None else {
                name: values.unpack(_packed(one)) for name, one in found.arrays.items() if not isinstance(one, Streamed)
            }  # fmt: skip
        root, state = None, None
        with world.transport.calling("Checkpoint.load"):
            while True:
                reports = exchange(world.transport, open_places(world))
                partial = incomplete(world, reports)
                if root in reports and not partial:  # else a rank may have failed before all ranks had all
                    return state
                root = min(reports)
                state = self._load_from(root, world, partial)

    def _load_from(self, root: int, world: World, partial: Mapping[OwnedVector, int]) -> State | None:
        """The state as rank `root`, the lowest, reads it. Collective. Incomplete if a rank fails meanwhile.

        `partial`: vectors that have lost a part, each with a rank that has failed with it. They are closed.
        """
        transport = world.transport
        content = succeed(transport, lambda: self._read() if transport.rank == root else None)
        found = None if content is None else content.arrays
        reports = exchange(transport, None if content is None else [content.ranks, _heads(content.arrays)])
        ranks, heads = reports.get(root) or (0, None)
        if heads is None:
            if root in reports and partial:
                raise PeerLost(
                    min(partial.values()), f"its parts have failed with it, and there is no checkpoint {self.path}"
                )
            return None
        for vector in partial:
            vector.leave()
        whole = succeed(transport, lambda: {name: _room(*one) for name, is_whole, one in heads if is_whole})
        if found is not None:
            whole = {name: _packed(one) for name, one in found.items() if not isinstance(one, Streamed)}
        state: State = {}
        with suppress(PeerLost):  # it has failed since: `load` finds that
            for name, is_whole, described in heads:
                mine = None if found is None else found[name]
                if is_whole:
                    for array in whole[name].arrays:
                        transport.broadcast(array)
                    state[name] = values.unpack(whole[name])
                else:
                    state[name] = dealt(world, name, described, mine if isinstance(mine, Streamed) else None)
            if ranks:
                self._parts = dealt_part(transport, None if content is None else content.parts, root, ranks)
                self.mine, self.ranks = self._parts.own, ranks
        return state

    def _read(self) -> Content | None:
        """Return the checked content of the file, or None if there is no file."""
        if not os.path.exists(self.path):
            os.stat(os.path.dirname(os.path.realpath(self.path)))
            return None
        content = checkpoint.read(self.path)
        if self._program not in (None, content.program):
            raise ValueError(f"{self.path}: a checkpoint of {content.program}, not of {self._program}: "
                             "name another file")  # fmt: skip
        if self._match is not None:
            _check_same(self.path, content.description, self._match)
        return content

    def _write(self, members: Members, ranks: int = 0, parts: Mapping[int, Packed] | None = None) -> bool:
        """Write the file, or warn why it cannot be written. Return whether it was written."""
        program = self._program or os.path.basename(sys.argv[0])
        try:
            checkpoint.write(self.path, Content(program, self._match or {}, members, ranks, parts or {}))
        except OSError as error:
            self._warn(error.strerror or str(error))
            return False
        self._trouble = ""
        return True

    def _warn(self, trouble: str) -> None:
        """Warn of `trouble` on stderr, unless the last save failed for the same reason."""
        if trouble != self._trouble:
            print(f"malt: checkpoint {self.path} was not written: {trouble}; training continues, and the next one that "
                  "is due is tried", file=sys.stderr, flush=True)  # fmt: skip
        self._trouble = trouble


def _path(path: Any) -> str:
    found = text_of(path)
    if not found:  # a variable that is not set, say
        raise ValueError("path must name a file, got ''")
    return found


def _program(program: Any) -> str | None:
    if program is not None and not isinstance(program, str):
        raise TypeError(f"program must be a string, got {shown(program)}")
    return program


def _seconds(every_s: Any) -> float:
    number = arguments.real("every_s", every_s)
    if not number >= 0:
        raise ValueError(f"every_s must be a number of seconds of at least 0, got {shown(every_s)}")
    return number


def _described(match: Mapping[str, Any]) -> dict[str, Any]:
    """`match` as a file has it: with lists for tuples, say. TypeError, ValueError: JSON cannot represent it."""
    if not isinstance(match, Mapping):
        raise TypeError(f"match must be a dict, got {shown(match)}")
    try:
        described: dict[str, Any] = json.loads(json.dumps(dict(match)))
    except (TypeError, ValueError) as error:
        raise type(error)(f"match must hold what JSON can represent, got {shown(match)}: {error}") from None
    return described


def _check(state: Mapping[str, Any]) -> None:
    """Check, without copies, that a file can hold `state`. TypeError, ValueError: it cannot. ClosedError."""
    _members(state, as_array=checked)


def _members(
    state: Mapping[str, Any], touched: Mapping[str, int] | None = None, as_array: AsArray = array_of
) -> Members:  # fmt: skip
    """Return the members of a file for `state`, checked by `_check`. `touched`: entries of sparse vectors, by name."""
    return {
        checked_name(name): (
            streamed(value, (touched or {}).get(name, 0))
            if isinstance(value, OwnedVector)
            else member(name, value, as_array)
        )
        for name, value in by_name("state", state).items()
    }


def _heads(members: Members) -> list[Any]:
    """The name of each member, whether all ranks get it whole, and its head: of a value, or of a vector."""
    return [
        [name, False, head(one)] if isinstance(one, Streamed) else [name, True, _packed(one).head]
        for name, one in members.items()
    ]


def _packed(whole: NDArray[Any] | Packed) -> Packed:
    return whole if isinstance(whole, Packed) else values.pack(whole)


def _room(text: str, kinds: Sequence[tuple[str, list[int]]]) -> Packed:
    """A value of this head, whose arrays are to be filled."""
    return Packed(text, [np.empty(shape, dtype) for dtype, shape in kinds])


def _check_same(path: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Check that the `match` of the file and the one given are the same. ValueError: they differ."""
    for key in {**ours, **theirs}:
        one, other = theirs.get(key), ours.get(key)
        if one != other and json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):  # as NaN is
            raise ValueError(f"{path}: a checkpoint with {key} {one}, not {other} as here: "
                             "continue with the same options, or name another file")  # fmt: skip

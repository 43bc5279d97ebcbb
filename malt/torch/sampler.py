"""`malt.torch.Sampler`: the rows of each rank for a DataLoader, epoch by epoch, from where a job was stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from torch.utils.data import DataLoader

from malt.data.epochs import Epoch, Rows, left_of
from malt.session import session
from malt.session.collectives import allgather
from malt.session.world.agreement import agree
from malt.session.world.world import World
from vol import arguments

_followed: WeakKeyDictionary[World, WeakSet[Sampler]] = WeakKeyDictionary()
"""The samplers whose batches a loop takes, by the session of the rank."""


class Sampler(torch.utils.data.Sampler[int]):
    """Deals this rank's rows to a torch.utils.data.DataLoader, in another order each epoch. Local, once initialized.

        sampler = malt.torch.Sampler(data)
        loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=2)
        for epoch in range(sampler.epoch, EPOCHS):
            sampler.set_epoch(epoch)
            for x, y in sampler.batches(loader):
                ...

    It deals rows as torch's DistributedSampler does, in the same order for a seed and an epoch, but without padding:
    some ranks may have one row more. `data`: what the loader reads; only its length is used, the same on all ranks.
    `shuffle`: whether the order is random, determined by `seed` and the epoch.

    If a rank fails, all its rows of the epoch are dealt to the ranks that continue, because it is not known which of
    them it has trained. If it rejoins, it gets its rows again, and the others keep those of its rows that they have
    drawn. A rank that has finished its epoch gets none.

    `batches` counts what the loop has taken. So the position, which `state_dict` holds, is that of the last step of a
    malt.torch.Optimizer, no matter how far workers are ahead.

    TypeError, ValueError: an argument is wrong. RuntimeError: the number of ranks may change (malt run --elastic).
    """

    is_dealt = True
    """For malt.Checkpoint: the state can be loaded on any number of ranks."""

    def __init__(self, data: Sized, shuffle: bool = True, seed: int = 0) -> None:
        arguments.truth("shuffle", shuffle)
        self._world = world = session.world()
        if world.is_elastic:
            raise RuntimeError(
                "malt.torch.Sampler: ranks of this job come and go (--elastic): deal the rows of each epoch of "
                "malt.epochs by malt.shard"
            )
        self._count, self._shuffle, self._seed = len(data), bool(shuffle), arguments.whole("seed", seed, 0)
        if world.size > 1:
            world.notes.note(self._count, self._seed if shuffle else None)
        self.epoch = 0
        """The number of the epoch."""
        self._dealt: tuple[int, Rows] | None = None
        """The epoch of which a part is dealt that was left, and that part."""
        self._last: tuple[int, Rows] = (-1, np.empty(0, np.int64))
        """The epoch before, and what this rank has trained of it."""
        self._is_followed = self._awaits = self._resumes = False
        """Whether the loop takes the rows by `batches`; whether it is about to."""
        self._batch, self._drops = 1, False
        """The rows of a batch, and whether one that is smaller is dropped."""
        self._has_drifted = self._has_told = False
        """Whether ranks have had other numbers of batches in an epoch; whether that was said."""
        self._begin()

    def __len__(self) -> int:
        """The number of this rank's rows in the epoch, trained ones included. Local."""
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's rows: those that are left of the epoch after `load_state_dict`, else all. Local."""
        self._is_followed, self._awaits = self._awaits, False
        if not self._resumes:
            self._begin()
        self._resumes, self._is_begun, rows = False, True, self._rows
        while True:
            self._follow_view()
            if (row := rows.draw()) is None:
                return
            yield row

    def set_epoch(self, epoch: int) -> None:
        """Start the epoch of that number, from its first row. Local. Nothing happens if it is already under way.

        TypeError, ValueError: `epoch` is not an integer of at least 0.
        """
        number = arguments.whole("epoch", epoch, 0)
        if number != self.epoch:
            least, most = map(self._batches_of, self._rows.lengths)
            self._has_drifted |= self._is_begun and least < most
            self._last = self.epoch, self._rows.first(self._trained)
            self.epoch = number
            self._begin()

    def batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Yield the batches of `loader`, whose sampler this is, and count those that the loop has taken. Local.

        A batch counts as trained once a malt.torch.Optimizer has made a step after it was taken, or `trained` is
        called; at the end of the epoch, all do. After `load_state_dict` only the remaining batches are yielded, and
        random number generators continue as if the loop had not been left.

        ValueError: `loader` has another sampler, or returns batches in another order.
        """
        if loader.sampler is not self or not getattr(loader, "in_order", True):
            raise ValueError("the loader must have this sampler, DataLoader(data, sampler=sampler), and be in_order")
        self._batch, self._drops = loader.batch_size or 1, bool(loader.drop_last)
        _followed.setdefault(self._world, WeakSet()).add(self)
        goes_on, generator = self._resumes and self._is_begun, torch.get_rng_state()
        self._awaits = True
        iterator = iter(loader)  # it draws a seed for workers, as it had done before the job was stopped
        if goes_on:
            torch.set_rng_state(generator)
        for batch in iterator:
            self._taken = min(self._taken + self._batch, len(self._rows))
            yield batch
        self._taken = len(self._rows)
        self.trained()

    def may_save(self, in_step: bool) -> bool:
        """Return whether all ranks save a checkpoint at this place of the epoch. Local, the same on all ranks.

        They do after batches that all ranks have. If ranks exchange together, `in_step`, a rank with one batch more per
        epoch would soon wait in an exchange for a rank that waits to save. So none saves if this is due to a failure or
        to another number of ranks; a line says so. Otherwise it is a ValueError.
        """
        least, most = map(self._batches_of, self._rows.lengths)
        if in_step and (self._has_drifted or least < most):
            if self._is_regular:
                raise ValueError(f"ranks have {least} and {most} batches an epoch, and save together: give the loader "
                                 f"drop_last={not self._drops}, or another batch_size")  # fmt: skip
            if not self._has_told:
                why = "ranks that exchange together have different numbers of batches"
                self._world.report(f"malt: no checkpoint is saved from here on: {why}")
            self._has_told = True
            return False
        return -(-self._taken // self._batch) <= least

    def trained(self) -> None:
        """Count the batches that the loop has taken as trained. Local. malt.torch.Optimizer.step calls it."""
        self._trained = self._taken

    def state_dict(self) -> dict[str, Any]:
        """Return the place of all ranks in their epochs, the same on all ranks. Collective, between two steps.

        ValueError, on all ranks: the loop iterates over the loader itself, so that it is not known what it has taken;
        or the samplers of ranks differ.
        """
        transport = self._world.transport

        def check() -> tuple[bool, dict[str, Any]]:
            """This sampler, and where it is. Local. ValueError: that is not known."""
            if self._is_begun and not self._is_followed:
                raise ValueError("iterate over sampler.batches(loader), which counts what the loop has taken")
            place = [self.epoch, self._trained, self._is_begun, self._rows.is_redealt]
            return True, {**self._described, "_place": place}

        with transport.calling("Sampler.state_dict"):
            _, reports = agree(transport, "Sampler.state_dict", check)
            places = [reports[rank]["_place"] if rank in reports else None for rank in range(self._world.size)]
            known = [place for place in places if place is not None]
            epoch = min(place[0] for place in known)
            rows = self._dealt[1] if self._dealt is not None and self._dealt[0] == epoch else None
            state = {**self._described, "epoch": epoch, "rest": rows, "places": [place[:3] for place in known]}
            if len(known) < len(places) or any(place[3] for place in known):
                state |= {"rest": self._left(epoch), "places": []}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state_dict` has returned, on any number of ranks. Local, the same state on all of them.

        On the same number of ranks each continues where it was; otherwise the rest of the epoch is dealt again.

        ValueError: the state is of a sampler of other data, another order or another seed.
        """
        for name, ours in self._described.items():
            if state[name] != ours:
                raise ValueError(f"the state is of a sampler with {name} {state[name]}, not {ours} as here")
        rest, places = state["rest"], [list(map(int, one)) for one in state["places"]]
        epoch, place, is_begun = int(state["epoch"]), 0, 0
        self._dealt = None if rest is None else (epoch, np.asarray(rest))
        if len(places) == self._world.size:
            epoch, place, is_begun = places[self._world.rank]
        elif places:
            counts = [trained if theirs == epoch else None for theirs, trained, _ in places]
            self._dealt = epoch, left_of(self._all(epoch), counts)
        self.epoch = epoch
        self._begin(place)
        self._is_begun, self._resumes = bool(is_begun), True
        self._is_followed = True

    # -- private ----------------------------------------------------------------------------------------------

    @property
    def _described(self) -> dict[str, Any]:
        """The arguments that must be the same on all ranks, and in a job that resumes."""
        return {"rows": self._count, "shuffle": self._shuffle, "seed": self._seed}

    @property
    def _is_regular(self) -> bool:
        """True if batches are those of all rows on all ranks."""
        is_rest = self._dealt is not None and self._dealt[0] == self.epoch
        return not (is_rest or self._rows.is_redealt or self._has_drifted)

    def _batches_of(self, rows: int) -> int:
        """The batches that a rank of so many rows has."""
        return rows // self._batch if self._drops else -(-rows // self._batch)

    def _begin(self, place: int = 0) -> None:
        """Begin the epoch where `place` of this rank's rows are trained."""
        self._rows = Epoch(self._all(self.epoch), self._world.rank, self._world.size)
        self._rows.begin_at(place)
        self._taken = self._trained = place
        self._is_begun = self._resumes = False
        self._view_seen = -1
        self._follow_view()

    def _all(self, epoch: int) -> Rows:
        """The rows of an epoch that are dealt, in order."""
        if self._dealt is not None and self._dealt[0] == epoch:
            return self._dealt[1]
        if not self._shuffle:
            return np.arange(self._count)
        generator = torch.Generator().manual_seed(self._seed + epoch)
        order: Rows = torch.randperm(self._count, generator=generator).numpy()
        return order

    def _follow_view(self) -> None:
        """Deal anew what is not drawn, where ranks have failed or come back since the last call."""
        view = self._world.transport.view
        if view.version != self._view_seen:
            self._view_seen = view.version
            self._rows.deal_anew(view.failed)

    def _left(self, epoch: int) -> Rows:
        """Return the rows of `epoch` that no live rank has trained, if rows were dealt again within it. Collective."""
        last, rows = self._last
        mine = self._rows.first(self._trained) if self.epoch == epoch else rows if last == epoch else rows[:0]
        trained = [one for one in allgather(np.asarray(mine, np.int64)) if one is not None]
        every = self._all(epoch)
        left: Rows = every[~np.isin(every, np.concatenate(trained))]
        return left


def note_step(world: World) -> None:
    """Have samplers count what loops have taken as trained, as an optimizer has made a step. Local."""
    samplers: Iterable[Sampler] = _followed.get(world, ())
    for one in samplers:
        one.trained()

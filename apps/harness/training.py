"""The epochs of one rank, with clock, marks, snapshots and checkpoints."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

import malt
from apps.harness import newcomers
from apps.harness.agreement import Array, keeps_snapshots, of_lowest, print_once
from apps.harness.checkpoints import Checkpoints
from apps.harness.errors import user_errors
from apps.harness.marks import Clock, Mark, leave_behind, mark
from apps.harness.program import Problem, Start, Trainer
from apps.harness.shares import Shares
from malt.kernels import compile_first

PROGRESS_EVERY_S: Final = 2.0
"""Seconds between two lines of progress."""


class Training:
    """One rank's part of a run, which `begin` begins. The constructor is Local."""

    trainer: Trainer

    def __init__(self, problem: Problem, checkpoints: Checkpoints, shares: Shares) -> None:
        self._problem, self._options, self._checkpoints = problem, problem.options, checkpoints
        self.shares = shares
        self._has_begun, self._rebuilds, self._attempts = False, False, 0
        """Whether there is a trainer; whether it must rebuild what has failed; how often a PeerLost ended `train`."""
        self.marks: list[Mark] = []
        """The marks of this rank at the end of the epochs of this run."""
        self.snapshots: list[Mapping[str, Array] | None] = []
        """The models at the end of these epochs, if this rank may be the one that measures. None: it was not there."""
        self._clock, self._progress_at = Clock(), 0.0
        """The clock, and the time of the last line of progress."""
        self._epoch, self._is_ended = checkpoints.epoch, False
        """The last epoch that was trained, and whether the training has then ended before --epochs."""
        self._trained = 0
        """The examples that this rank has trained on in this run."""
        self._tolerance: float = getattr(self._options, "tolerance", 0.0)
        self._resumed: list[Mapping[str, Array]] = []
        """The model that the run resumes from, if --tolerance compares with it."""
        self._given: newcomers.Given | None = None
        """What this rank was given, as it has come back."""
        self.is_newcomer = False
        """Whether this rank has come back, so that the others were training when it began."""

    def begin(self) -> bool:
        """Compile, and make the trainer, or have it rebuild what has failed. Return whether it is new. Collective.

        BadInput: an option or the data is wrong. PeerLost: a rank has failed with its part.
        """
        if self._rebuilds:
            for vector in malt.init().sharded:
                vector.close()
        compile_first(self._problem.compile)
        is_new = not self._has_begun
        if is_new:
            self._make_trainer()
        elif self._rebuilds:
            self._rebuild()
        self._rebuilds = False
        return is_new

    def _make_trainer(self) -> None:
        checkpoints, generator = self._checkpoints, np.random.default_rng([self._options.seed, 1 + malt.rank()])
        with user_errors():
            self.trainer = self._problem.trainer(Start(generator, self.shares, checkpoints.epoch, checkpoints.state))
        if checkpoints.state and self._tolerance:
            self._resumed = [_copied(self.trainer.model())]
        self._has_begun = True
        if self._problem.takes_newcomers and (given := newcomers.exchanged(self.trainer.vectors, self._offered)):
            self._go_on_from(given)

    def _offered(self) -> Mapping[str, Any]:
        """What ranks that come back are given."""
        checkpoints = self._checkpoints
        return newcomers.offered(
            self._epoch, checkpoints.epoch, checkpoints.before, self._clock.seconds, self.trainer.state()
        )  # fmt: skip

    def _go_on_from(self, given: newcomers.Given) -> None:
        """Begin where the rank was that has given its state. Local."""
        self._checkpoints.begin_as(given.begun, given.before)
        epochs = given.epoch - given.begun
        self.trainer.go_on_from(given.state, epochs)
        self._given = given
        self.is_newcomer, self._epoch, self._clock.seconds = True, given.epoch, given.trained_s
        self.marks, self.snapshots = [Mark()] * epochs, [None] * epochs

    def can_begin_again(self) -> bool:
        """Whether `begin` can be called again after a PeerLost, as there is no checkpoint to go back to. Local.

        Each rank can fail once: more errors than ranks have another reason.
        """
        self._attempts += 1
        can_rebuild = self._problem.rebuilds and not self._checkpoints.is_on
        self._rebuilds = can_rebuild and self._attempts < malt.size()
        return self._rebuilds

    def _rebuild(self) -> None:
        """Have the trainer rebuild what has failed. The epoch that had begun comes again, or else the last one."""
        self.shares.changed(self.shares.present())
        what = self.trainer.rebuild()
        self._epoch = max(min(self._epoch, self._options.epochs - 1), 0)
        if what:
            self.shares.failures.mark_anew(self._epoch + 1)
            if malt.lowest():
                text = f"malt: {what} begin anew in epoch {self._epoch + 1}"
                print(text, file=sys.stderr, flush=True)

    def train(self) -> None:
        """Train all epochs, or as many as --tolerance allows. Collective with --tolerance or `gathers_state`."""
        if self._checkpoints.is_over:
            return
        for _ in range(0 if self.marks or self.is_newcomer else self._checkpoints.epoch):
            self.trainer.order()  # those of earlier epochs are drawn again, and dropped
        if not self.is_newcomer:
            malt.barrier()
        self._progress_at = time.monotonic()
        leave_behind(lambda: self.marks)
        if self.trainer.has_own_loop:
            return self._train_by_own_loop()
        sync = getattr(self._options, "sync", None) or "bsp"  # without the option ranks synchronize by themselves
        for epoch in self.shares.epochs(1 + self._epoch, self._options.epochs, sync):
            self._skip_to(epoch)
            if self.shares.changed(self.shares.present()) | self.shares.are_dealt_anew():
                self.trainer.take()
            self.trainer.begin_epoch(epoch - 1 - self._checkpoints.epoch)
            self._clock.start()
            examples = self.trainer.train(epoch, self.trainer.order())
            if self._end_epoch(epoch, examples):
                break

    def _skip_to(self, epoch: int) -> None:
        """Note that this rank has not trained the epochs before `epoch` of which it has no marks: it came later."""
        place = epoch - 1 - self._checkpoints.epoch
        missing = place - len(self.marks)
        if missing > 0 and self._given is not None:
            self.trainer.go_on_from(self._given.state, place)
            self.marks += [Mark()] * missing
            self.snapshots += [None] * missing

    def _train_by_own_loop(self) -> None:
        def ended(examples: int) -> bool:
            is_over = self._end_epoch(self._epoch + 1, examples)
            self._clock.start()
            return is_over or self._epoch >= self._options.epochs

        if self._epoch < self._options.epochs:
            self._clock.start()
            self.trainer.train_all(ended)
            self._clock.stop()

    def _end_epoch(self, epoch: int, examples: int) -> bool:
        """Note what the epoch took, and save a checkpoint if one is due. Returns whether training ends now."""
        self._clock.stop()
        self._trained += examples
        self._note_epoch(epoch)
        self._epoch = epoch  # from here on it does not come again where a rank fails
        loss = {} if self.trainer.loss is None else {"loss": self.trainer.loss}
        malt.report(epoch=epoch, epochs=self._options.epochs, examples=self._trained, **loss)
        if time.monotonic() - self._progress_at > PROGRESS_EVERY_S:
            self._progress_at = time.monotonic()
            print_once(f"... epoch {epoch} of {self._options.epochs} after {self._clock.seconds:.1f} s")
        self._is_ended = self.trainer.has_converged() or (bool(self._tolerance) and self._has_converged())
        if not self._is_ended:
            self._keep()
        return self._is_ended

    def _note_epoch(self, epoch: int) -> None:
        """Note the mark and the model at the end of this epoch, from 1.

        An epoch that comes again replaces its former entry, and drops the entries after it.
        """
        malt.heartbeat()  # ranks that have finished wait for this one: it is alive
        trainer, place = self.trainer, epoch - 1 - self._checkpoints.epoch
        self.marks[place:] = [mark(self._trained, self._clock.seconds, trainer.vectors, trainer.rows_sent)]
        if trainer.measures_together:
            trainer.keep(epoch)
        elif keeps_snapshots():
            self.snapshots[place:] = [_copied(trainer.model())]

    def _has_converged(self) -> bool:
        """Whether the last epoch improved the lowest rank's objective by less than the tolerance. Collective."""
        decision, models = False, [model for model in (*self._resumed, *self.snapshots) if model is not None]
        if keeps_snapshots() and len(models) > 1:
            before, now = (self.trainer.objective(model) for model in models[-2:])
            malt.report(loss=now)
            # A NaN ends the training too: no later epoch would be better.
            decision = not before - now >= self._tolerance * abs(before)
        return bool(of_lowest(decision))

    def _keep(self) -> None:
        """Save a checkpoint if one is due. The last epoch is saved by `finish`, as its model is not there yet."""
        if self._epoch >= self._options.epochs:
            return
        if self._resumes_exactly:
            if self.trainer.is_in_step(self._epoch):
                numbers = self._epoch, self._examples(), self._clock
                self._checkpoints.save_parts(*numbers, self.trainer.state, self.trainer.own)
        elif not self.trainer.gathers_state:
            # With more ranks than rows this rank may have no rows, and then no state to save.
            if self._trained:
                self._checkpoints.save(self._epoch, self._examples(), self._clock, self.trainer.state)
        elif self._checkpoints.due_together():
            state = self.trainer.state()
            self._checkpoints.save(self._epoch, self._examples(), self._clock, lambda: state, force=True)

    @property
    def _resumes_exactly(self) -> bool:
        """Whether checkpoints have a part by rank: where ranks exchange together, and none may fail alone."""
        together = getattr(self._options, "sync", None) == "bsp" and isinstance(self._options.exchange_every, int)
        some = 1 < malt.size() <= self._problem.rows and not malt.init().survive
        return self._checkpoints.is_on and together and some and self.trainer.resumes_exactly

    def _examples(self) -> int:
        """The examples that all ranks have trained on in this run."""
        return (self._epoch - self._checkpoints.epoch) * self._problem.rows

    def finish(self) -> None:
        """Make the model the same on all ranks, and write the last checkpoint. Collective."""
        checkpoints, trainer = self._checkpoints, self.trainer
        state: Mapping[str, Any] = {}
        if checkpoints.is_on and keeps_snapshots() and self._trained and not trainer.gathers_state:
            state = _copied(trainer.state())
        trainer.finish()
        if final := checkpoints.state if trainer.gathers_state and checkpoints.is_over else checkpoints.final:
            trainer.restore(final)
        elif self.marks and checkpoints.is_on:
            model = {} if trainer.gathers_state else trainer.model()  # with gathers_state the state is the model
            whole = state or trainer.state()
            checkpoints.conclude(self._epoch, self._examples(), self._clock, whole, model, self._is_ended)


def _copied(arrays: Mapping[str, Any]) -> dict[str, Array]:
    return {name: np.copy(array) for name, array in arrays.items()}

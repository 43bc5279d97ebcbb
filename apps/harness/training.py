"""The epochs of one rank, with clock, marks and checkpoints."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

import numpy as np

import malt
from apps.harness.agreement import copied, keeps_snapshots, print_once
from apps.harness.checkpoints import Checkpoints, State
from apps.harness.errors import user_errors
from apps.harness.marks import Clock, Mark, leave_behind, mark
from apps.harness.newcomers import exchanged
from apps.harness.program import Parts, Problem, Replicas, Start, Trainer
from apps.harness.shares import Shares
from malt import report  # now: malt.report imports it at its first call, within the epochs
from malt.kernels import compile_first

PROGRESS_EVERY_S: Final = 2.0
"""Seconds between two lines of progress."""
_OURS: Final = "harness"
"""The entry of what the harness knows, beside the state of a trainer."""


class Training:
    """One rank's part of a run, which `begin` begins. The constructor is Local."""

    trainer: Trainer

    def __init__(self, problem: Problem, checkpoints: Checkpoints, shares: Shares) -> None:
        self._problem, self._options, self._checkpoints = problem, problem.options, checkpoints
        self.shares = shares
        self._has_begun, self.must_rebuild = False, False
        """Whether there is a trainer; whether it must rebuild what has failed."""
        self.marks: list[Mark] = []
        """The marks of this rank at the end of the epochs of this run."""
        self._clock, self._progress_at = Clock(), 0.0
        """The clock, and the time of the last line of progress."""
        self._epoch, self._is_ended = checkpoints.epoch, False
        """The last epoch that was trained, and whether the training has then ended before --epochs."""
        self._trained = 0
        """The examples that this rank has trained on in this run."""
        self.is_newcomer = False
        """Whether this rank has come back, so that the others were training when it began."""

    def begin(self) -> bool:
        """Compile, and make the trainer, or have it rebuild what has failed. Return whether it is new. Collective.

        BadInput: an option or the data is wrong. PeerLost: a rank has failed with its part.
        """
        if self.must_rebuild:
            for vector in malt.init().sharded:
                vector.close()
        compile_first(self._problem.compile)
        is_new = not self._has_begun
        if is_new:
            self._make_trainer()
        elif self.must_rebuild:
            self._rebuild()
        self.must_rebuild = False
        return is_new

    def _make_trainer(self) -> None:
        checkpoints, generator = self._checkpoints, np.random.default_rng([self._options.seed, 1 + malt.rank()])
        with user_errors():
            self.trainer = self._problem.trains(
                self._problem, Start(generator, self.shares, checkpoints.epoch, checkpoints.state)
            )  # fmt: skip
        self._has_begun = True
        if isinstance(self.trainer, Replicas) and (given := exchanged(self.trainer.vectors, self._offered)):
            self._go_on_from(given)

    def _offered(self) -> State:
        """Return the state that rejoining ranks receive: the trainer's, and what this rank knows of the training."""
        checkpoints = self._checkpoints
        begun, before = checkpoints.epoch, checkpoints.before
        ours = self._epoch, begun, before.examples, before.seconds, self._clock.seconds
        return {**self.trainer.state(), _OURS: np.array(ours)}

    def _go_on_from(self, given: State) -> None:
        """Begin where the rank was that has given its state, as `_offered` returned it. Local."""
        epoch, begun, examples, before_s, trained_s = given[_OURS].tolist()
        self._checkpoints.begin_as(int(begun), Mark(examples=int(examples), seconds=before_s))
        epochs = int(epoch - begun)
        self.trainer.go_on_from(given, epochs)
        self.is_newcomer, self._epoch, self._clock.seconds = True, int(epoch), trained_s
        self.marks = [Mark()] * epochs

    def _rebuild(self) -> None:
        """Have the trainer rebuild what has failed. The epoch that had begun comes again, or else the last one."""
        self.shares.changed(self.shares.present())
        assert isinstance(self.trainer, Parts)
        what = self.trainer.rebuild()
        self._epoch = max(min(self._epoch, self._options.epochs - 1), 0)
        if what:
            self.shares.failures.mark_anew(self._epoch + 1)
            if malt.lowest():
                text = f"malt: {what} are reinitialized in epoch {self._epoch + 1}"
                print(text, file=sys.stderr, flush=True)

    def train(self) -> None:
        """Train all epochs, or until the trainer has converged. Collective where that is."""
        if self._checkpoints.is_over:
            return
        for _ in range(0 if self.marks or self.is_newcomer else self._checkpoints.epoch):
            self.trainer.order()  # those of earlier epochs are drawn again, and dropped
        if not self.is_newcomer:
            malt.barrier()
        self._progress_at = time.monotonic()
        leave_behind(lambda: self.marks)
        self.trainer.run(self)

    def train_epochs(self) -> None:
        """Train one epoch after the other. For `Trainer.run`."""
        sync = getattr(self._options, "sync", None) or "bsp"  # without the option ranks synchronize by themselves
        for epoch in self.shares.epochs(1 + self._epoch, self._options.epochs, sync):
            self._skip_to(epoch)
            if self.shares.changed(self.shares.present()) | self.shares.are_dealt_anew():
                self.trainer.take()
            self._clock.start()
            examples = self.trainer.train(epoch, self.trainer.order())
            if self._end_epoch(epoch, examples):
                break

    def _skip_to(self, epoch: int) -> None:
        """Note that this rank has not trained those before `epoch` of which it has no marks: others have, alone."""
        missing = epoch - 1 - self._checkpoints.epoch - len(self.marks)
        self.marks += [self.marks[-1] if self.marks else Mark()] * missing

    def train_by(self, loop: Callable[[Callable[[int], bool]], None]) -> None:
        """Let a loop train the epochs. For `Trainer.run`.

        It calls what it is given after each epoch, with the examples of this rank, and stops when that returns True.
        The clock is stopped meanwhile.
        """

        def ended(examples: int) -> bool:
            """Return whether the training ends with the epoch that has ended."""
            is_over = self._end_epoch(self._epoch + 1, examples)
            self._clock.start()
            return is_over or self._epoch >= self._options.epochs

        if self._epoch < self._options.epochs:
            self._clock.start()
            loop(ended)
            self._clock.stop()

    def _end_epoch(self, epoch: int, examples: int) -> bool:
        """Note what the epoch took, and save a checkpoint if one is due. Returns whether training ends now.

        An epoch that comes again replaces its former mark, and drops those after it.
        """
        self._clock.stop()
        self._trained += examples
        malt.heartbeat()  # ranks that have finished wait for this one: it is alive
        trainer, place = self.trainer, epoch - 1 - self._checkpoints.epoch
        self.marks[place:] = [mark(self._trained, self._clock.seconds, trainer.vectors, trainer.rows_sent)]
        trainer.keep(epoch)
        self._epoch = epoch  # from here on it does not come again where a rank fails
        loss = {} if trainer.loss is None else {"loss": trainer.loss}
        report(epoch=epoch, epochs=self._options.epochs, examples=self._trained, **loss)
        if time.monotonic() - self._progress_at > PROGRESS_EVERY_S:
            self._progress_at = time.monotonic()
            print_once(f"... epoch {epoch} of {self._options.epochs} after {self._clock.seconds:.1f} s")
        self._is_ended = trainer.has_converged()
        if not self._is_ended and epoch < self._options.epochs:  # `conclude` saves the last one
            self._save_state()
        return self._is_ended

    def _save_state(self) -> None:
        """Save a checkpoint, if one is due at the end of an epoch. Collective, with a checkpoint.

        Where each rank has a model of its own it is Local: the lowest rank saves its state. Where ranks exchange
        together, and none may fail alone, a checkpoint has `own` by rank, too, and is saved where all are in step.
        """
        trainer, checkpoints, options = self.trainer, self._checkpoints, self._options
        numbers = self._epoch, self._examples(), self._clock
        if not isinstance(trainer, Replicas):
            if checkpoints.due_together():
                found = trainer.state()
                checkpoints.save(*numbers, lambda: found, force=True)
            return
        together = getattr(options, "sync", None) == "bsp" and isinstance(options.exchange_every, int)
        some = 1 < malt.size() <= self._problem.rows and not malt.init().survive
        if checkpoints.is_on and together and some:
            if trainer.is_in_step(self._epoch):
                checkpoints.save_parts(*numbers, trainer.state, trainer.own)
        elif self._trained:  # with more ranks than rows this rank may have no rows, and then no state to save
            checkpoints.save(*numbers, trainer.state)

    def _examples(self) -> int:
        """The examples that all ranks have trained on in this run."""
        return (self._epoch - self._checkpoints.epoch) * self._problem.rows

    def end(self) -> None:
        """Make the model the same on all ranks, and write the last checkpoint, if this run has trained. Collective.

        A rank with a model of its own saves the state from before, and beside it the final model. Of a training that
        had ended that one is restored.
        """
        trainer, checkpoints = self.trainer, self._checkpoints
        is_alone = isinstance(trainer, Replicas)
        keeps = is_alone and checkpoints.is_on and keeps_snapshots() and self._trained
        before = copied(trainer.state()) if keeps else {}
        trainer.finish()
        if isinstance(trainer, Replicas) and checkpoints.final:
            trainer.restore(checkpoints.final)
        elif self.marks and checkpoints.is_on:
            numbers, final = (self._epoch, self._examples(), self._clock), trainer.model() if is_alone else {}
            checkpoints.conclude(*numbers, before or trainer.state(), final, self._is_ended)

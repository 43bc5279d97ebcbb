"""Gradients that all ranks average before each step of their optimizers.

They are sent in buckets. A bucket leaves as soon as a backward pass has computed its gradients, while it computes those
of the layers below. What was sent may not be the gradients of the step: a second backward pass adds to them, and
clipping changes them. So at the step each rank compares what it has sent with the gradients that it has. The last
bucket, which is always sent at the step, notes which differ. All ranks send those again, and send at the step alone
from then on. A rank may finish after a backward pass without a step: only those count that have sent the last bucket.
So what is averaged are the gradients that there are at the step, of the ranks that take it.

Buckets are vectors of their own, so they may leave in any order. Where ranks may fail all are sent at the step: one
that failed amid its last bucket would leave ranks that disagree on what to send again. Simulated ranks do so, too:
they take turns in one thread, and cannot within a backward pass, below the frames of torch's own code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from torch import Tensor

from dstorm import Transport
from malt.torch.buckets import Bucket, buckets
from vol import Vector


class Gradients:
    """The gradients of `parameters`, by name. Collective. `name`: for messages.

    `check_finite`: a rank whose gradients of a step hold NaN or infinity counts as one that has none.
    """

    def __init__(
        self, transport: Transport, parameters: Mapping[str, Tensor], name: str, check_finite: bool = False
    ) -> None:  # fmt: skip
        self._transport, self._name, self._check_finite = transport, name, check_finite
        self._has_warned = False
        self._buckets = buckets(parameters, name)
        self._hooks: list[Callable[[], None]] = []
        self._thread = ThreadPoolExecutor(1, "malt gradients")
        """Sends while a backward pass goes on, in the order in which buckets are full."""
        self._under_way: list[Future[None]] = []
        if transport.may_send_ahead:
            for bucket in self._buckets[:-1]:
                if bucket.is_near:
                    self._watch(bucket)

    @property
    def vectors(self) -> list[Vector]:
        """The vectors of the buckets. Local."""
        return [bucket.vector for bucket in self._buckets]

    def average(self) -> None:
        """Replace all gradients by their means over the live ranks that still take steps. One-sided.

        ValueError: a gradient is sparse. Nothing is sent at the step.
        """
        for bucket in self._buckets:
            bucket.check()
        if self._check_finite and not all(bucket.is_finite() for bucket in self._buckets):
            self._leave_out()
        *others, last = self._buckets
        last.notes[:] = [bucket.is_sent and not bucket.is_current() for bucket in others]
        for bucket in self._buckets:
            if not bucket.is_sent:
                bucket.fill()
        under_way, self._under_way = self._under_way, []
        for one in under_way:
            one.result()  # it raises what a send has raised
        for bucket in self._buckets:
            if not bucket.is_sent:
                bucket.scatter()
        senders = last.gather()
        if last.notes.any():
            self._send_again([bucket for bucket, stale in zip(others, last.notes, strict=True) if stale])
        for bucket in self._buckets:
            bucket.gather(None if len(senders) == self._transport.size - 1 else senders)
            bucket.write()
            bucket.start()

    def close(self) -> None:
        """Close the vectors: peers no longer wait for this rank. One-sided."""
        self._stop_watching()
        for bucket in self._buckets:
            bucket.vector.close()

    # -- private ----------------------------------------------------------------------------------------------

    def _leave_out(self) -> None:
        """Have no gradients at this step. What was sent of them is then stale."""
        for bucket in self._buckets:
            bucket.drop()
        if not self._has_warned:
            who = f"the gradients of rank {self._transport.rank}"
            print(f"malt: {self._name}: {who} are not finite, and count as none", file=sys.stderr, flush=True)
        self._has_warned = True

    def _watch(self, bucket: Bucket) -> None:
        """Send a bucket once a backward pass has computed all its gradients."""

        def computed(number: int, _: Tensor) -> None:
            if not bucket.is_sent and not bucket.vector.closed and bucket.add(number):
                bucket.is_sent = True
                self._under_way.append(self._thread.submit(bucket.scatter))

        for number, one in enumerate(bucket.parameters):
            self._hooks.append(one.register_post_accumulate_grad_hook(partial(computed, number)).remove)

    def _stop_watching(self) -> None:
        for remove in self._hooks:
            remove()
        self._hooks = []
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _send_again(self, stale: Sequence[Bucket]) -> None:
        """Send the buckets again that are stale on any rank, and from now on all at the step. One-sided.

        They are second messages, for which a vector has a slot; its next gather skips the first ones.
        """
        for bucket in stale:
            bucket.fill()
            bucket.scatter()
        self._stop_watching()

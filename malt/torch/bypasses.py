"""Calls of an optimizer that change parameters behind the back of `malt.torch.Optimizer`: ranks would train apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from malt.session.replica.parameters import CHECKS
from malt.torch.tensors import sum_of

_CHANGED = (
    "{kind}.{name} changed parameters, and malt.torch exchanges after step() only: give malt.torch.Optimizer the name "
    'of the method that ends a step, as step="second_step" for SAM; step="step" where the loop undoes {name} before it'
)


class Bypasses:
    """The methods of `optimizer` that a loop may call: those that change parameters by themselves are errors. Local."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._harmless = Counter[str]()
        """How often each method has been seen to leave the parameters as they are."""
        self._is_stepping = False
        self._accept: Callable[[], object] = bool

    @contextmanager
    def step(self) -> Iterator[None]:
        """Accept steps of the optimizer while the block runs."""
        self._is_stepping = True
        try:
            yield
        finally:
            self._is_stepping = False

    def refuse_steps(self) -> None:
        """Make a step of the optimizer outside of `step` a RuntimeError, before it changes anything."""

        def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if not self._is_stepping:
                raise RuntimeError(
                    f"step of {type(optimizer).__name__} was called directly, so nothing would be exchanged: "
                    "call step of malt.torch.Optimizer"
                )

        with suppress(AttributeError):  # a class that does not call the constructor of torch's has no hooks
            self._accept = self._optimizer.register_step_pre_hook(before).remove

    def accept_steps(self) -> None:
        """End `refuse_steps`. A second call does nothing."""
        self._accept()

    def watched(self, method: Callable[..., Any], trained: Iterable[Tensor]) -> Callable[..., Any]:
        """`method`, whose first calls are checked: a RuntimeError follows one that has changed `trained`."""
        name = method.__name__

        @wraps(method)
        def call(*words: Any, **options: Any) -> Any:
            if self._harmless[name] == CHECKS:
                return method(*words, **options)
            before = [sum_of(one) for one in trained]
            result = method(*words, **options)
            if before != [sum_of(one) for one in trained]:
                raise RuntimeError(_CHANGED.format(kind=type(self._optimizer).__name__, name=name))
            self._harmless[name] += 1
            return result

        return call

"""The tensors of a module by what becomes of them, looked up again at each exchange."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor

from malt.torch.tensors import check, dense_of

_REMEDY = "call restart() on all ranks after such a change"


class Contents:
    """The tensors of `model`, of which `optimizer` trains some. Local.

    A module may assign a buffer anew at each step, as in `self.mean = 0.9 * self.mean + ...`, so buffers are those of
    the last `look_up`. Any other change is an error: ranks have to begin anew with it.

    TypeError, ValueError: an argument is wrong, or a tensor cannot be exchanged.
    """

    def __init__(self, optimizer: Any, model: Any) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer must be one of torch.optim, got {type(optimizer).__name__}")
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self._optimizer, self._model = optimizer, model
        self._handled = _handled(optimizer)
        named, buffers = dict(model.named_parameters()), dict(model.named_buffers())
        if strangers := len(self._handled - {id(one) for one in named.values()}):
            raise ValueError(
                f"the optimizer has {strangers} parameters that are not the model's: give a module that holds them, too"
            )
        mine = {name: one for name, one in named.items() if id(one) in self._handled}
        self._frozen = {name: one for name, one in mine.items() if not one.requires_grad}
        self.trained = {name: one for name, one in mine.items() if one.requires_grad}
        """The parameters that are exchanged, by name, each once."""
        if not self.trained:
            raise ValueError("the optimizer has no parameter that is trained")
        self._averaged = [name for name, one in buffers.items() if _is_averaged(one)]
        self._left = [name for name in {**named, **buffers} if name not in {*self.trained, *self._averaged}]
        self._found = _found(model)
        self._check_all()
        self._kinds = {name: _kind(one) for name, one in self._found.items()}
        self._caches = _caches(model)
        first = {id(one): name for name, one in reversed(self._found.items())}
        self._tied = {name: first[id(one)] for name, one in self._found.items() if first[id(one)] != name}
        """The names of tensors that have another name before it, and that one."""

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The buffers that are averaged, by name, each once."""
        return {name: self._found[name] for name in self._averaged}

    @property
    def left(self) -> dict[str, Tensor]:
        """All other tensors, which are those of rank 0 at the start; of sparse ones the dense ones that hold them."""
        return {part: dense for name in self._left for part, dense in dense_of(name, self._found[name]).items()}

    @property
    def described(self) -> list[str]:
        """Name, dtype and shape of each tensor, in words."""
        every = {**self.trained, **self.buffers, **self.left}
        return [f"{name}: {one.dtype}{list(one.shape)}" for name, one in every.items()]

    def check(self) -> None:
        """Check that what is trained is what is exchanged. ValueError: it is not."""
        if (now := _handled(self._optimizer)) != self._handled:
            raise ValueError(
                f"the optimizer has other parameters ({len(now)}) than at the start ({len(self._handled)}): call "
                "add_param_group of malt.torch.Optimizer, or restart() on all ranks first"
            )
        for name, one in self.trained.items():
            if _kind(one) != self._kinds[name]:
                self._check_kinds({**self._found, name: one})
        for name, one in self._frozen.items():
            if one.requires_grad:
                raise ValueError(f"{name} was frozen at the start and is trained now: {_REMEDY}")

    def look_up(self) -> None:
        """Find the tensors that the module has now. ValueError: they differ in more than in buffers assigned anew."""
        now, before = _found(self._model), self._found
        if len(now) == len(before) and all(one is before.get(name) for name, one in now.items()):
            return
        self._check_kinds(now)
        for name, one in self.trained.items():
            if now[name] is not one:
                raise ValueError(
                    f"{name} has been replaced by another parameter, as by load_state_dict(assign=True), and the "
                    "optimizer trains the old one: create both optimizers again after such a change"
                )
        for name, first in self._tied.items():
            if now[name] is not now[first]:
                raise ValueError(f"{name} and {first} were one tensor at the start and are two now: {_REMEDY}")
        self._take_over(now)

    # -- private ----------------------------------------------------------------------------------------------

    def _check_all(self) -> None:
        for name, one in {**self.trained, **self.buffers, **self.left}.items():
            check(name, one)
        for name, one in self.trained.items():
            if one.is_complex():
                raise TypeError(
                    f"{name} is of {one.dtype}, and malt.torch averages real numbers: make the parameter one of these, "
                    "of which the model uses torch.view_as_complex"
                )

    def _check_kinds(self, now: dict[str, Tensor]) -> None:
        """Check `now`, which has tensors of other kinds than those of the start, or other names. ValueError.

        Caches may differ: buffers that are no part of a state dict. Those of the last lookup stand for them.
        """
        caches = self._caches | _caches(self._model)
        for name in {**self._kinds, **now}:
            if name in now and self._kinds.get(name) == _kind(now[name]):
                continue
            if name not in caches:
                was, there_is = (_in_words(kind) for kind in (self._kinds.get(name, ()), _kind(now.get(name))))
                raise ValueError(f"{name} was {was} at the start and is {there_is} now: {_REMEDY}")
            now.pop(name, None)
            if name in self._kinds:
                now[name] = self._found[name]

    def _take_over(self, now: dict[str, Tensor]) -> None:
        """Take the tensors that the module has `now`. A buffer that was assigned anew gets memory of its own.

        Ranks write into it, and it may be a view of what the loop reads again: of its rows, say.
        """
        copies: dict[int, Tensor] = {}
        for name, one in now.items():
            if one is not self._found[name] and not isinstance(one, torch.nn.Parameter):
                path, _, attribute = name.rpartition(".")
                now[name] = copies.setdefault(id(one), one.detach().clone())
                setattr(self._model.get_submodule(path), attribute, now[name])
        self._found = now


def _handled(optimizer: torch.optim.Optimizer) -> set[int]:
    """Return the ids of the parameters of an optimizer."""
    return {id(one) for group in optimizer.param_groups for one in group["params"]}


def _found(model: torch.nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers, by all the names that they have."""
    return dict(chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)))


def _caches(model: torch.nn.Module) -> set[str]:
    """The names of the buffers that are no part of a state dict."""
    return {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules(remove_duplicate=False)
        for name in module._non_persistent_buffers_set
    }


def _is_averaged(buffer: Tensor) -> bool:
    return buffer.is_floating_point() and buffer.layout == torch.strided


def _kind(one: Tensor | None) -> tuple[Any, ...]:
    """Return what must not change in a tensor: dtype, device, shape; if sparse, those of its parts. () for None."""
    if one is None:
        return ()
    if one.layout == torch.strided:
        return one.dtype, one.device, one.shape
    return one.layout, *map(_kind, dense_of("", one).values())


def _in_words(kind: tuple[Any, ...]) -> str:
    if not kind:
        return "not there"
    if isinstance(kind[0], torch.layout):
        return f"{kind[0]} of " + ", ".join(map(_in_words, kind[1:]))
    return f"{kind[0]}{list(kind[2])} on {kind[1]}"

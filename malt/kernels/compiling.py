"""How kernels are compiled: one `Kernels` for each file of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from malt.files import heartbeats
from malt.session.collectives import barrier
from malt.session.session import hosts, rank, world

FAST: Final = {"reassoc", "contract", "nsz", "arcp"}
"""The flags of fast arithmetic that keep NaN and infinity, by which divergence is found."""
Function = TypeVar("Function", bound=Callable[..., Any])


class Kernels:
    """A decorator of the kernels of one file. Numba is imported when the first of them is decorated. Local.

        kernel = Kernels(fast=True)

        @kernel(types.f8)
        def half(x): ...

        compile_kernels = kernel.compile

    The kernels release the GIL and divide as NumPy does. Numba caches them on disk. It compiles them anew where their
    own file has changed, and not where a function in another file has that they call: so these lie in the same file.

    `fast`: with the flags of fast arithmetic that keep NaN and infinity.
    """

    def __init__(self, fast: bool = False) -> None:
        self._flags = FAST if fast else False
        self.signed: list[tuple[Any, tuple[Any, ...]]] = []
        """The kernels that have a signature, as numba's dispatchers, and their signatures."""
        self._are_compiled = False

    def __call__(self, *signature: Any) -> Callable[[Function], Function]:
        """A decorator that compiles a kernel: for `signature` in `compile`, or on first use if there is none."""
        from numba import njit

        def decorated(function: Function) -> Function:
            dispatcher = njit(nogil=True, cache=True, error_model="numpy", fastmath=self._flags)(function)
            if signature:
                self.signed.append((dispatcher, signature))
            return cast(Function, dispatcher)

        return decorated

    def compile(self) -> None:
        """Compile every kernel with a signature, or load it from numba's cache, which takes a fraction of a second.

        Call it before the clock starts, by `compile_first`. After it an argument of a wrong type is a TypeError, and
        not another compilation.
        """
        if not self._are_compiled:
            for dispatcher, signature in self.signed:
                dispatcher.compile(signature)
                dispatcher.disable_compile()
                heartbeats.give()
            self._are_compiled = True


def compile_first(kernels: Callable[[], Any]) -> None:
    """Call kernels() on one rank of each host, which fills numba's cache, and then on the others. Collective.

    A rank that comes back calls it at once: the cache is filled.
    """
    if world().is_outside:
        kernels()
        return
    names = hosts()
    is_first = names.index(names[rank()]) == rank()
    for turn in (True, False):
        if is_first == turn:
            kernels()
        barrier()

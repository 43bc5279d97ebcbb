"""Compiles kernels, or interprets them: one `Kernels` for each file of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Final, TypeVar, cast

import numpy as np

from malt.files import heartbeats
from malt.session.collectives import barrier, lowest
from malt.session.session import hosts, rank, world

FAST: Final = {"reassoc", "contract", "nsz", "arcp"}
"""The flags of fast arithmetic that keep NaN and infinity, by which divergence is found."""
Function = TypeVar("Function", bound=Callable[..., Any])


class Kernels:
    """A decorator of the kernels of one file. Numba is imported where one is made. Local.

        kernel = Kernels(fast=True, slower=300)

        @kernel(types.f8)
        def half(x): ...

        compile_kernels = kernel.compile

    The kernels release the GIL and divide as NumPy does. Numba caches them on disk. It compiles them anew where their
    own file has changed, and not where a function in another file has that they call: so these lie in the same file.

    `fast`: with the flags of fast arithmetic that keep NaN and infinity.

    `slower`: about how many times longer the slowest of them takes interpreted, as where numba cannot be used. Without
    it they need numba. ImportError: they do, and it cannot be used.
    """

    slowest: ClassVar[float] = 0
    """About how many times slower interpreted kernels are, of all files so far; 0: none are interpreted."""
    are_cached: ClassVar[bool] = True
    """Whether numba could write its cache, of all kernels so far."""

    def __init__(self, fast: bool = False, slower: float | None = None) -> None:
        from malt.kernels import compiler  # it imports numba

        self._compiler = compiler
        if compiler.TROUBLE and slower is None:
            raise ImportError(f"these kernels need a compiler: {compiler.TROUBLE}: {compiler.REMEDY}", name="numba")
        if compiler.TROUBLE:
            Kernels.slowest = max(Kernels.slowest, slower or 0)
        self._flags = FAST if fast else False
        self.signed: list[tuple[Any, tuple[Any, ...]]] = []
        """The kernels that have a signature, as numba's dispatchers, and their signatures."""
        self._compiled = 0
        """How many of these are compiled."""

    def __call__(
        self, *signature: Any, interpreted: Callable[..., Any] | None = None
    ) -> Callable[[Function], Function]:  # fmt: skip
        """A decorator that compiles a kernel: for `signature` in `compile`, or on first use if there is none.

        `interpreted`: what takes the place of the kernel without numba, where NumPy does the same in a line or two.
        """

        def decorated(function: Function) -> Function:
            """The compiled kernel, or what stands in for it where there is no compiler."""
            if self._compiler.TROUBLE:
                return cast(Function, _as_compiled(interpreted or function) if signature else interpreted or function)
            dispatcher = self._compiler.numba.njit(nogil=True, error_model="numpy", fastmath=self._flags)(function)
            if not self._compiler.enable_caching(dispatcher):
                Kernels.are_cached = False
            if signature:
                self.signed.append((dispatcher, signature))
            return cast(Function, dispatcher)

        return decorated

    def compile(self) -> None:
        """Compile every kernel with a signature, or load it from numba's cache, which takes a fraction of a second.

        Call it before the clock starts, by `compile_first`. After it an argument of a wrong type is a TypeError, and
        not another compilation.
        """
        for dispatcher, signature in self.signed[self._compiled :]:
            try:
                dispatcher.compile(signature)
            except OSError:  # it is compiled, but the disk is full
                Kernels.are_cached = False
            dispatcher.disable_compile()
            heartbeats.give()
            self._compiled += 1


def _as_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose floats overflow and are divided as in a compiled kernel: without an exception or a warning."""

    @wraps(function)
    def kernel(*arguments: Any) -> Any:
        """The function, on floats of NumPy."""
        with np.errstate(all="ignore"):
            return function(*(np.float64(one) if isinstance(one, float) else one for one in arguments))

    return kernel


def compile_first(kernels: Callable[[], Any]) -> None:
    """Call kernels() on one rank of each host, which fills numba's cache, and then on the others. Collective.

    Without a cache all call it at once. The lowest rank says so, or that kernels are interpreted, in a line on stderr.
    A rank that comes back calls it at once: the cache is filled.
    """
    if world().is_outside:
        kernels()
        return
    names = hosts()
    is_first = names.index(names[rank()]) == rank() or not Kernels.are_cached
    for turn in (True, False):
        if is_first == turn:
            kernels()
        barrier()
    note = _note()
    if note not in _said and lowest():
        print(f"malt: {note}", file=sys.stderr, flush=True)
        _said.add(note)


_said: Final = {""}
"""The notes that this process has printed."""


def _note() -> str:
    """Return why kernels are slower than they could be, or an empty string."""
    if Kernels.are_cached and not Kernels.slowest:
        return ""
    from malt.kernels import compiler

    if Kernels.slowest:
        how = f"kernels run interpreted, up to {Kernels.slowest:.0f} times slower"
        return f"{compiler.TROUBLE}: {how}: {compiler.REMEDY}"
    return f"{compiler.NO_CACHE}: each rank compiles its kernels again: {compiler.CACHE_REMEDY}"

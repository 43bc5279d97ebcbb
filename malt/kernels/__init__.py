"""Compiles kernels, or interprets them. Nothing imports this by itself.

numba compiles them: pip install '.[apps]' in the checkout. Without numba, kernels that state how much slower they are
without it are interpreted, as all of malt.models and apps/ do. The others raise ImportError.

The models that have kernels are in `malt.models`.
"""

from importlib import import_module
from typing import Any

from malt.kernels.compiling import FAST, Kernels, compile_first

__all__ = ["FAST", "Kernels", "compile_first", "types"]


def __getattr__(name: str) -> Any:
    if name == "types":  # those of numba, for the signatures of kernels; networks of dense layers do not import it
        return import_module("malt.kernels.compiler").types
    raise AttributeError(f"module 'malt.kernels' has no attribute {name!r}")

"""Compiled kernels that programs and estimators share, and how kernels are compiled. Nothing imports it by itself.

`malt.kernels.linear`: linear models. `malt.kernels.factors`: matrix factorization. `malt.kernels.trees`: boosted trees.
`malt.kernels.networks`: networks of dense layers, which are NumPy; those of sparse rows are compiled.

They are compiled by numba: pip install '.[apps]' in the checkout. Without numba, those of linear models and of matrix
factorization are interpreted, and the others raise ImportError.
"""

from importlib import import_module
from typing import Any

from malt.kernels.compiling import FAST, Kernels, compile_first

__all__ = ["FAST", "Kernels", "compile_first", "types"]


def __getattr__(name: str) -> Any:
    if name == "types":  # those of numba, for the signatures of kernels; networks of dense layers do not import it
        return import_module("malt.kernels.compiler").types
    raise AttributeError(f"module 'malt.kernels' has no attribute {name!r}")

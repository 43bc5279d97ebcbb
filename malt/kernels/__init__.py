"""Compiled kernels that programs and estimators share, and how kernels are compiled. Nothing imports it by itself.

`malt.kernels.linear`: linear models. `malt.kernels.factors`: matrix factorization. `malt.kernels.trees`: boosted trees.
They need numba: pip install 'malt[apps]'. `malt.kernels.networks`: networks of dense layers.
"""

from malt.kernels.compiling import FAST, Kernels, compile_first

__all__ = ["FAST", "Kernels", "compile_first"]

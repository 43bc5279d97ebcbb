"""What MALT uses beside mpi4py, NumPy and scipy, where it is installed; and whether its kernels are compiled."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

PURPOSES: Final = {
    "scikit-learn": "malt.sklearn, apps.embed, and the digits of apps.mlp and apps.autoencoder",
    "torch": "malt.torch",
    "greenlet": "malt.simulate and malt plan",
    "rich": "malt run --view",
    "matplotlib": "malt graph --plot",
    "tensorboardX": "malt run --metrics, to write event files",
}
"""What each distribution is for. Numba is not among them: `kernels` tells of it."""
_MODULES: Final = {"scikit-learn": ("sklearn",), "tensorboardX": ("tensorboardX", "tensorboard")}
"""The modules of which one is enough, where they have another name."""


def missing() -> tuple[str, ...]:
    """The distributions of PURPOSES that are not installed. Local."""
    return tuple(name for name in PURPOSES if not any(map(find_spec, _MODULES.get(name, (name,)))))


def kernels() -> tuple[str, str]:
    """How kernels are compiled; what helps if they are not, or not once for all. Imports numba. Local."""
    from malt.kernels import compiler

    if compiler.TROUBLE:
        how = "apps.svm, .mf and .logistic run interpreted, up to 300 times slower, and most others not at all"
        return f"{compiler.TROUBLE}: {how}", compiler.REMEDY
    if not compiler.has_cache():
        return f"{compiler.NO_CACHE}: each rank compiles its kernels anew", compiler.CACHE_REMEDY
    return f"compiled by numba {compiler.numba.__version__}", ""

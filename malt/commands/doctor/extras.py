"""The optional dependencies of MALT that are installed, and whether its kernels are compiled."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

PURPOSES: Final = {
    "scikit-learn": "malt.sklearn, apps.embed, and the digits of apps.mlp and apps.autoencoder",
    "torch": "malt.torch",
    "transformers": "malt.torch.hf",
    "lightning": "malt.torch.lightning",
    "jax": "malt.jax",
    "greenlet": "malt.simulate of several ranks and malt plan",
    "rich": "malt run --view",
    "matplotlib": "malt graph --plot",
    "ipykernel": "notebooks that call malt.run",
    "tensorboardX": "malt run --metrics, to write event files",
}
"""What each distribution is for. Numba is not among them: `kernels` reports it."""
_EXTRAS: Final = {
    "scikit-learn": "sklearn",
    "torch": "torch",
    "transformers": "hf",
    "lightning": "lightning",
    "jax": "jax",
    "greenlet": "simulate",
    "rich": "view",
    "matplotlib": "plot",
    "ipykernel": "notebook",
}
"""The extra of MALT that installs each distribution. tensorboardX belongs to none."""
_MODULES: Final = {"scikit-learn": ("sklearn",), "tensorboardX": ("tensorboardX", "tensorboard")}
"""The modules of which one is enough, where they have another name."""


def shortfall(name: str) -> tuple[str, str]:
    """Return what is missing without the distribution `name`, and the command that installs it. Pure."""
    extra = _EXTRAS.get(name)
    if extra is None:
        return f"not installed; needed for {PURPOSES[name]}", f"pip install {name}"
    return f"not installed (extra {extra}); needed for {PURPOSES[name]}", f"pip install '.[{extra}]' in the checkout"


def missing() -> tuple[str, ...]:
    """The distributions of PURPOSES that are not installed. Local."""
    return tuple(name for name in PURPOSES if not any(map(find_spec, _MODULES.get(name, (name,)))))


def kernels() -> tuple[str, str]:
    """Return the state of compiled kernels, and the remedy if they are not compiled or cached. Imports numba. Local."""
    from malt.kernels import compiler

    if compiler.TROUBLE:
        how = "the programs run interpreted, up to 300 times slower"
        return f"{compiler.TROUBLE}: {how}", compiler.REMEDY
    if not compiler.has_cache():
        return f"{compiler.NO_CACHE}: each rank compiles its kernels again", compiler.CACHE_REMEDY
    return f"compiled by numba {compiler.numba.__version__}", ""

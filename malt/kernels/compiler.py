"""The compiler of kernels, numba. Where it cannot be used: why not, and stand-ins for what files of kernels take of it.

Importing this module imports numba, which takes half a second.
"""

from __future__ import annotations

from typing import Any, Final


class _Anything:
    """Stands for the types of numba where there is no numba: whatever is made of it is itself."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __call__(self, *_: Any, **__: Any) -> _Anything:
        return self


def _found() -> tuple[Any, str, str]:
    """numba, or a stand-in, why it cannot be used, and what helps."""
    try:
        import numba
        import numba.core.cgutils
        import numba.extending
    except ModuleNotFoundError as error:
        return _Anything(), f"{error.name} is not installed", f"pip install {error.name}"
    except Exception as error:  # with a NumPy that it does not know: ImportError, AttributeError or SystemError
        why = str(error).partition("\n")[0]
        return _Anything(), f"numba cannot be imported ({why})", "pip install --upgrade numba"
    if vars(numba.config)["DISABLE_JIT"]:
        return _Anything(), "NUMBA_DISABLE_JIT is set", "unset it"
    return numba, "", ""


numba, TROUBLE, REMEDY = _found()
"""numba; why it cannot be used, or an empty string; what helps."""
types: Final[Any] = numba.types
cgutils: Final[Any] = numba.core.cgutils
from_dtype: Final[Any] = numba.from_dtype
intrinsic: Final[Any] = numba.extending.intrinsic
NO_CACHE: Final = "numba has no writable folder for its cache"
CACHE_REMEDY: Final = "set NUMBA_CACHE_DIR to a folder of your own"


def enable_caching(dispatcher: Any) -> bool:
    """Have numba cache what `dispatcher` compiles. Return whether there is a folder for that. Local."""
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # neither beside the file nor in the home folder
        return False
    return True


def has_cache() -> bool:
    """Return whether numba has a folder for its cache of kernels of malt. Local."""
    return enable_caching(numba.njit(enable_caching))

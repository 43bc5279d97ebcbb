"""The packages that malt is made of, each of which a file of the user's may hide: vol.py, beside the program."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_NAMES = ("dstorm", "vol")


def check() -> None:
    """ImportError: Python finds something else by one of their names. Local; imports nothing."""
    for name in _NAMES:
        spec = find_spec(name)
        found = Path(spec.origin) if spec is not None and spec.origin else None
        if found is not None and not found.samefile(Path(__file__).parents[2] / name / "__init__.py"):
            raise ImportError(
                f"{found} hides the package {name} that malt is made of: rename it, or run from elsewhere"
            )


check()

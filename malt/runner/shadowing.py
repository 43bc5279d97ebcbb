"""A check that no file of the user hides a package of malt, as vol.py beside the program would."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_NAMES = ("dstorm", "vol")


def check() -> None:
    """Raise ImportError if Python finds another module by the name of a package of malt. Local; imports nothing."""
    for name in _NAMES:
        spec = find_spec(name)
        found = Path(spec.origin) if spec is not None and spec.origin else None
        if found is not None and not found.samefile(Path(__file__).parents[2] / name / "__init__.py"):
            raise ImportError(
                f"{found} hides the package {name} that malt is made of: rename it, or run from elsewhere"
            )


check()

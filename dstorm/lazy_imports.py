"""Names of a package that are imported at their first use, so that a program loads what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def at_first_use(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of `package`. Local.

    `names`: the names that are imported at their first use, and the modules that define them.
    """

    def find(name: str) -> Any:
        """Return what has that name, and keep it in the package. AttributeError: nothing has."""
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return vars(sys.modules[package]).setdefault(name, getattr(import_module(names[name]), name))

    def listed() -> list[str]:
        """Return all names of the package, also those that are not imported yet."""
        return sorted({*vars(sys.modules[package]), *names})

    return find, listed

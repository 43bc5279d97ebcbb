"""Programs of malt that run on other hosts before there is any malt: they are sent as text, with what they import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

START: Final = (
    "import os; exec(compile(b''.join(iter(lambda: os.read(0, 1).strip(b'\\0'), b'')), 'malt-agent', 'exec'))"
)
"""Runs the text that comes on standard input up to a zero byte. What follows is for that program."""


def text(main: str, modules: Sequence[str]) -> bytes:
    """Return the text of the module `main`, which first makes the `modules` that it imports. Local.

    These are in an order in which each finds what it imports itself.
    """
    lines = ["import sys, types"]
    for name in modules:
        lines.append(f"sys.modules[{name!r}] = types.ModuleType({name!r})")
        lines.append(f"exec(compile({_source(name)!r}, {name!r}, 'exec'), vars(sys.modules[{name!r}]))")
    return "\n".join([*lines, f"exec(compile({_source(main)!r}, 'malt-agent', 'exec'))"]).encode()


def _source(module: str) -> str:
    return Path(__file__).parents[3].joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")

"""Planting a fault: a function with one expression exchanged, for as long as a test lasts."""

from __future__ import annotations

import inspect
import sys
import textwrap


def plant(monkeypatch, owner, name, *exchanges):
    """Replace each expression of `exchanges`, (healthy, sick), which must be there once, in owner.name."""
    attribute = inspect.getattr_static(owner, name)
    function = attribute.fget if isinstance(attribute, property) else attribute
    source = textwrap.dedent(inspect.getsource(function))
    for healthy, sick in exchanges:
        assert source.count(healthy) == 1, f"{name}: {healthy!r} is there {source.count(healthy)} times"
        source = source.replace(healthy, sick)
    scope: dict = {}
    exec(source, vars(sys.modules[function.__module__]), scope)
    monkeypatch.setattr(owner, name, scope[function.__name__])

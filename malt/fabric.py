"""The fast networks of this machine, and what Open MPI is told where there is none.

By itself it looks for them in each process: MPI_Init then takes a second longer, which btl/ofi sleeps where it finds no
device (Open MPI 5.0.11), and each window complains that osc/ucx finds none.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

_CLASSES = Path("/sys/class")
_UCX, _OFI = {"infiniband"}, {"infiniband", "cxi"}
"""Devices that the two libraries drive: what is called infiniband is also RoCE, Omni-Path and EFA, cxi is Slingshot."""


def found(classes: Path = _CLASSES) -> frozenset[str]:
    """The kinds of devices that are there. Local."""
    return frozenset(kind for kind in _UCX | _OFI if any(classes.glob(f"{kind}/*")))


def settings(kinds: Collection[str]) -> dict[str, str]:
    """What Open MPI is to be told, as variables of the environment, where there are these `kinds` of devices. Pure."""
    osc = {} if _UCX & set(kinds) else {"OMPI_MCA_osc": "^ucx"}
    btl = {} if _OFI & set(kinds) else {"OMPI_MCA_btl": "^ofi"}
    return osc | btl


@contextmanager
def settled() -> Iterator[None]:
    """Load MPI in here: it is told, but for what the user has set. Local; leaves the environment as it was."""
    added = {name: value for name, value in settings(found()).items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)

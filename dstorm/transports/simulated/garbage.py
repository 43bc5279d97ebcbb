"""The frequency at which Python collects young objects while groups of simulated ranks run."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG_OBJECTS = 100_000
"""After so many new objects it looks at them. Usually it does after 700."""
_lock = threading.Lock()
_groups = 0
"""How many groups run, each in a thread of its own."""
_usual = (0, 0, 0)
"""The thresholds without them."""


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Collect less often until all groups have ended: the queues of many ranks stay, and each collection visits them.

    Local. Groups may begin and end in any order.
    """
    global _groups, _usual
    with _lock:
        _groups += 1
        if _groups == 1:
            _usual = gc.get_threshold()
            young, *older = _usual
            gc.set_threshold(max(young, _YOUNG_OBJECTS) if young else 0, *older)
    try:
        yield
    finally:
        with _lock:
            _groups -= 1
            if not _groups:
                gc.set_threshold(*_usual)

"""The limit of the system for the files that a process holds open (ulimit -n)."""

from __future__ import annotations

import resource

OTHERS = 96
"""Files that a process opens beside those that are counted: of Python, of libraries, and for a moment."""


def allow(count: int) -> int | None:
    """Raise the limit of this process so that it may hold `count` files open, where it is lower. Local.

    Returns None, or the limit that the system does not let it raise so far. Its children have the same limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or count <= soft:
        return None
    if hard != resource.RLIM_INFINITY and count > hard:
        return hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    return None

"""Errors in the user's code: the same on all ranks, with the number of the chunk and the traceback."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from malt.files import values
from malt.session.world.agreement import described, rebuilt

ChunkError = list[Any]
"""The number of a chunk, and the error as JSON can express it, with its traceback."""

_OWN_FOLDERS = {os.path.dirname(file) for file in (__file__, values.__file__)}


class _KeyError(KeyError):
    """A KeyError that shows its message as it is. A plain one shows its repr, with all lines in one."""

    __str__ = Exception.__str__


_KeyError.__name__ = _KeyError.__qualname__ = KeyError.__name__
_KeyError.__module__ = KeyError.__module__


def chunk_error(chunk: int, rank: int, error: Exception) -> ChunkError:
    """Return `error`, raised for `chunk` on this rank, in the form that the others receive."""
    frames = _users(error.__traceback__)
    lines = "".join(traceback.format_exception(type(error), error, frames)).rstrip() if frames else ""
    report = described(error)
    report[1] = f"malt.map_reduce: chunk {chunk} on rank {rank}: {report[1]}" + (lines and f"\n\n{lines}")
    return [chunk, report]


def _users(frames: TracebackType | None) -> TracebackType | None:
    """The frames from the user's first on; None: there is none."""
    while frames is not None and os.path.dirname(frames.tb_frame.f_code.co_filename) in _OWN_FOLDERS:
        frames = frames.tb_next
    return frames


def raise_first(errors: Iterable[ChunkError], own: Exception | None = None) -> None:
    """Raise the error of the lowest chunk, if there is one. `own`: this rank's own error, its cause."""
    if found := sorted(errors, key=lambda one: int(one[0])):
        problem = rebuilt(found[0][1], "")
        raise (_KeyError(*problem.args) if isinstance(problem, KeyError) else problem) from own

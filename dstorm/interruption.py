"""Errors of signal handlers (Ctrl-C) that are deferred to the end of the message under way.

A message must not be interrupted between its stages. The handler, in the main thread, calls `defers` with the frame
that it interrupted. So a message that is not interrupted costs one test of `pending`, at its end.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

pending: BaseException | None = None
"""The error to raise at the end of the message; None: no error."""
_thread = 0
"""The thread that raises it."""
_messages: set[CodeType] = set()
_waits: set[CodeType] = set()


def message(function: _Function) -> _Function:
    """Decorate a function that sends a message and calls raise_pending at its end."""
    _messages.add(function.__code__)
    return function


def wait(function: _Function) -> _Function:
    """Decorate a function that waits. It may be interrupted, also where a message calls it before it begins."""
    _waits.add(function.__code__)
    return function


def defers(frame: FrameType | None, error: BaseException) -> bool:
    """Whether `frame`, of this thread, lies within a message. If so, `error` is raised at the end of it. Local."""
    global pending, _thread
    if is_within := _is_within(frame):
        pending, _thread = error, threading.get_ident()
    return is_within


def raise_pending() -> None:
    """Raise the deferred error, if there is one for this thread. Local.

    Where its caller, a message, is itself part of a message, that one raises it.
    """
    global pending
    if pending is not None and threading.get_ident() == _thread and not _is_within(sys._getframe(2)):
        error, pending = pending, None
        raise error


def _is_within(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code not in _waits:
        if frame.f_code in _messages:
            return True
        frame = frame.f_back
    return False

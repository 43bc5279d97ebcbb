"""What a signal handler raises (Ctrl-C) while a message is under way comes out after it, not between its stages.

The handler calls `defers` with the frame that it interrupted, in the main thread. So a message costs nothing but a look
at `pending` at its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

pending: BaseException | None = None
"""What is to be raised once the message is whole."""
_thread = 0
"""By whom."""
_messages: set[CodeType] = set()
_waits: set[CodeType] = set()


def message(function: _Function) -> _Function:
    """Decorates one that sends a message, and calls raise_pending last of all."""
    _messages.add(function.__code__)
    return function


def wait(function: _Function) -> _Function:
    """Decorates one that waits, also before a message begins."""
    _waits.add(function.__code__)
    return function


def defers(frame: FrameType | None, error: BaseException) -> bool:
    """Whether `frame`, of this thread, is within a message: `error` is then raised at its end. Local."""
    global pending, _thread
    while frame is not None and frame.f_code not in _waits:
        if frame.f_code in _messages:
            pending, _thread = error, threading.get_ident()
            return True
        frame = frame.f_back
    return False


def raise_pending() -> None:
    """Raise what was deferred, in the thread that it is for. Local."""
    global pending
    if pending is not None and threading.get_ident() == _thread:
        error, pending = pending, None
        raise error

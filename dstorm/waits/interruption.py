"""Errors of signal handlers (Ctrl-C) that are deferred until what must be whole is whole.

A scatter or a gather is done as a whole, with all its accounts, or not at all. So a handler, which Python calls in the
main thread between two operations, does not raise its error within one: it calls `defers` with the frame that it
interrupted, and the error comes out

- at the end of the outermost function that is `whole`,
- between two polls of a wait, where nothing has begun that would be left undone (`raise_in_wait`),
- at once where user code runs, as a gather function (`exposed`).

The handler finds out by the frames. So what is not interrupted pays for one test of `pending`, at its end. That test
lies outside the function that is whole: an error that is deferred after it would come out after the next one, or never.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Result = TypeVar("_Result")

pending: BaseException | None = None
"""The error that was deferred; None: none."""
_thread = 0
"""The thread that raises it."""
_whole: set[CodeType] = set()
_exposed: set[CodeType] = set()


def undivided(function: _Function) -> _Function:
    """Decorate a function that no signal interrupts. Its caller tests `pending` after it, and calls raise_pending."""
    _whole.add(function.__code__)
    return function


def whole(function: _Function) -> _Function:
    """Decorate a function that no signal interrupts: a deferred error is raised once it has returned, or raised."""
    undivided(function)

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        """The function; the deferred error comes outside of it."""
        try:
            return function(*arguments, **options)
        finally:
            if pending is not None:
                raise_pending()

    return cast("_Function", call)


def exposed(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Return function(*arguments), of the user's code, which a signal may interrupt also where its caller is whole."""
    return function(*arguments)


_exposed.add(exposed.__code__)


def defers(frame: FrameType | None, error: BaseException) -> bool:
    """Return whether `frame`, of this thread, lies within a function that is whole. If so, `error` is deferred. Local.
    """
    global pending, _thread
    if is_within := _is_within(frame):
        pending, _thread = error, threading.get_ident()
    return is_within


def take_interrupts() -> None:
    """Handle SIGINT by such a handler from now on, where Python's own would raise KeyboardInterrupt at once. Local."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    error = KeyboardInterrupt()
    if not defers(frame, error):
        raise error


def raise_pending() -> None:
    """Raise the deferred error, if there is one for this thread. Local.

    The caller of its caller is asked: where it lies within a function that is whole, that one raises it.
    """
    if pending is not None and not _is_within(sys._getframe(2)):
        raise_in_wait()


def raise_in_wait() -> None:
    """Raise the deferred error, if there is one for this thread, also within a function that is whole. Local."""
    global pending
    if pending is not None and threading.get_ident() == _thread:
        error, pending = pending, None
        raise error


def _is_within(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code not in _exposed:
        if frame.f_code in _whole:
            return True
        frame = frame.f_back
    return False

"""A signal at a chosen line of malt's own code, as the handler of `malt run` raises its error there."""

import os
import sys
import threading
from pathlib import Path

from greenlet import getcurrent

from dstorm.waits import interruption

LONG = os.environ.get("MALT_FAULTS") == "long"
ROOT = Path(__file__).parents[1]
CODE = tuple(f"{ROOT / folder}/" for folder in ("dstorm", "vol", "malt/session/replica"))
"""Where lines are counted: what exchanges are made of."""


MOST_LINES = 700


class Signal:
    """KeyboardInterrupt at line `at`, from 1, that this rank runs of malt's code while the block runs, and no sooner.

    It comes out of the block at that line, or where it is deferred to. A simulated rank has a greenlet of its own.
    """

    def __init__(self, at):
        self._left, self._rank = at, getcurrent()
        self.where = None
        """The line at which it came; None: the block has fewer lines."""
        self.is_deferred = False

    def __enter__(self):
        interruption.threading = self
        sys.settrace(self._trace_call)
        return self

    def __exit__(self, *error):
        sys.settrace(None)
        interruption.threading = threading
        assert interruption.pending is None, f"the signal at {self.where} is still to come"

    @staticmethod
    def get_ident():
        """What takes the place of the thread, which simulated ranks share."""
        return id(getcurrent())

    def _trace_call(self, frame, event, arg):
        is_counted = self._left and frame.f_code.co_filename.startswith(CODE) and getcurrent() is self._rank
        return self._trace_line if is_counted else None

    def _trace_line(self, frame, event, arg):
        if event != "line" or not self._left or getcurrent() is not self._rank:
            return self._trace_line
        self._left -= 1
        if self._left:
            return self._trace_line
        self.where = f"{Path(frame.f_code.co_filename).relative_to(ROOT)}:{frame.f_lineno}"
        error = KeyboardInterrupt(self.where)
        self.is_deferred = interruption.defers(frame, error)
        if not self.is_deferred:
            raise error
        return None


def lines():
    """The lines at which signals come, one after the other. What an exchange has more is mostly polls of a wait."""
    return range(1, MOST_LINES) if LONG else range(1, MOST_LINES // 2, 17)


def rest_of(call, at):
    """Make call(), interrupted at line `at` of malt's code, and once more where that signal comes out.

    Return whether it came. `at`: None: there is none, as on all ranks but one.
    """
    if at is None:
        call()
        return False
    signal = Signal(at)
    try:
        with signal:
            call()
    except KeyboardInterrupt:
        call()
    return signal.where is not None

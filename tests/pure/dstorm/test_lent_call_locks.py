"""A lock of calls that is lent, and a call at any line of that: a call that overlaps no other one is never refused."""

import sys
import threading
from itertools import chain, product

from dstorm import call_lock

WAITS_S = 0.002
"""A thread that does not come to its next line for so long waits. Where it was only slow, the order is another one."""
LENT_LINES, CALL_LINES = 9, 4
"""Lines of call_lock.py that a thread comes to while it lends a lock, and before it has taken one; or some more."""


class Stepped:
    """A thread that stops before each line of call_lock.py until it is let on."""

    def __init__(self, function):
        self._stopped, self._go, self._is_let_on = threading.Semaphore(0), threading.Semaphore(0), False
        self._function, self.refused = function, None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._stopped.acquire(timeout=5)

    def _run(self):
        sys.settrace(self._trace)
        try:
            self._function()
        except RuntimeError as error:
            self.refused = error

    def _trace(self, frame, event, _):
        if frame.f_code.co_filename != call_lock.__file__:
            return None
        if event == "line" and not self._is_let_on:
            self._stopped.release()
            self._go.acquire()
        return self._trace

    def step(self, lines):
        """Go on for so many lines; for less where it waits or has ended."""
        for _ in range(lines):
            self._go.release()
            if not self._stopped.acquire(timeout=WAITS_S if self._thread.is_alive() else 0):
                return

    def end(self):
        self._is_let_on = True
        self._go.release()
        self._thread.join(5)
        assert not self._thread.is_alive()


def test_no_call_is_refused_while_its_lock_is_lent():
    """It is lent twice: up to any line when the call begins; or not yet, or held then, and up to any later line after
    each line of the call."""

    def lend():
        for _ in range(2):
            with one.lent():
                pass

    def call():
        with one.taken("a call"):
            pass

    begins = product(range(LENT_LINES), [0], [0])
    schedules = chain(begins, product((0, LENT_LINES // 2), range(CALL_LINES), range(1, 2 * LENT_LINES)))
    for before, called, after in schedules:
        one = call_lock.CallLock()
        lending = Stepped(lend)
        lending.step(before)
        calling = Stepped(call)
        calling.step(called)
        lending.step(after)
        calling.step(CALL_LINES + 2)
        lending.end()
        calling.end()
        assert calling.refused is None, (before, called, after)

"""Two threads in one function: the call of one before each instruction of that of the other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType

WAITS_S = 0.005
"""A call that takes longer waits for the other one, which then goes on."""


def interleaved(code: CodeType, prepare: Callable[[], tuple[Callable, Callable]]) -> Iterator[int]:
    """Yield the number of each instruction of `code`, once both functions that prepare() returns have been called.

    The second one is called by another thread, before that instruction of the first one.
    """
    place, threads = 0, [threading.current_thread()]
    while threads:
        place, passed, threads = place + 1, [], []
        one, other = prepare()

        def trace(frame, event, _):
            frame.f_trace_opcodes = frame.f_code is code
            if event == "opcode":
                passed.append(1)  # noqa: B023
                if len(passed) == place:  # noqa: B023
                    threads.append(threading.Thread(target=other))  # noqa: B023
                    threads[0].start()  # noqa: B023
                    threads[0].join(WAITS_S)  # noqa: B023
            return trace

        sys.settrace(trace)
        try:
            one()
        finally:
            sys.settrace(None)
        for thread in threads:
            thread.join(5)
            yield place

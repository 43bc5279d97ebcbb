"""Tests whether the network of a host answers while its agent is silent: otherwise its link or the host is down.

A host answers a connection to a port where nobody listens by refusing it. Its kernel does this, so a host whose
processes are busy or stopped answers, too.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Sequence

ANSWER_S = 3.0
"""How long an answer may take: TCP asks again after 1 and 3 s."""


class Probe:
    """Questions to a host at `addresses`, each of which it has answered before, and `port`. They are asked in a thread.

    Without an address none is asked.
    """

    def __init__(self, addresses: Sequence[str] = (), port: int = 0, answer_s: float = ANSWER_S) -> None:
        self._addresses, self._port, self._answer_s = tuple(addresses), port, answer_s
        self._thread: threading.Thread | None = None
        self._is_unanswered, self._silence = False, 0

    def ask(self) -> bool:
        """Ask again, where no question is under way. Returns whether the last one has had no answer. Local."""
        if self._addresses and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._ask, args=[self._silence], name="malt probe", daemon=True)
            self._thread.start()
        return self._is_unanswered

    def forget(self) -> None:
        """Take the host as one that answers, as it was heard of. A question that is under way counts no more. Local."""
        self._is_unanswered, self._thread = False, None
        self._silence += 1

    def _ask(self, silence: int) -> None:
        is_unanswered = not answers(self._addresses, self._port, self._answer_s)
        if silence == self._silence:
            self._is_unanswered = is_unanswered


def answers(addresses: Sequence[str], port: int, patience_s: float) -> bool:
    """Return whether a host accepts or refuses a connection at one of `addresses` within `patience_s`. Local."""
    for address in addresses:
        try:
            socket.create_connection((address, port), patience_s / len(addresses)).close()
            return True
        except ConnectionRefusedError:
            return True
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # too many files are open: nothing is known
                return True
    return False

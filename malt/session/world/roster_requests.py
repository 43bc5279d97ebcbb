"""Changes the roster of the job (malt/runner/roster.py): the file of this host, or through the launcher."""

from __future__ import annotations

import copy
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

from dstorm.waits.stopwatch import Stopwatch
from malt.runner import departure, reporting, roster
from malt.runner.roster import Roster

ANSWER_S = 10.0
"""How long a rank of another host waits for the answer of the launcher."""
_numbers = itertools.count(1)
"""Those of the questions of this process, in all its sessions: the last answer to the one before is still there."""


class Asking:
    """The roster of the job in `folder`, as this rank changes it; `found` at first.

    A rank of another host asks the launcher. Where that has ended, or does not answer, it goes on with what it knows:
    it changes a copy of its own, from which others learn nothing. After one wait in vain it does not wait again until
    something is heard.

    pause(polls): what a rank does between two looks while it waits. The constructor is Local.
    """

    def __init__(self, folder: str, found: Roster, pause: Callable[[int], object]) -> None:
        self._folder, self._known, self._pause = folder, found, pause
        self._number = self._unheard = 0
        """The number of its last question; and that which was not answered, since none was."""
        self._changing = threading.RLock()
        """Held while it asks: the answer to a question takes the place of the one before."""

    def read(self) -> Roster:
        """The roster, as far as this rank knows it. Local."""
        found = roster.read(self._folder)
        if found is not None and found.version >= self._known.version:
            self._known = found
        return self._known

    def change(self, name: str, *arguments: Any) -> tuple[Roster, Any]:
        """Have `Roster.follow` called with these arguments; return the roster, and its result. Local.

        ValueError: it is refused.
        """
        if not reporting.is_connected():
            with roster.changing(self._folder, self._pause) as found:
                result = found.follow(name, *arguments)
            self._known = found
            return found, result
        with self._changing:
            answer = self._asked(name, arguments)
        if answer is None:
            changed = copy.deepcopy(self.read())
            result = changed.follow(name, *arguments)
            changed.version += 1
            self._known = changed
            return changed, result
        _, result, why, line = answer
        if why:
            raise ValueError(why)
        self._known = roster.parsed(line)
        return self._known, result

    def _asked(self, name: str, arguments: tuple[Any, ...]) -> list[Any] | None:
        """The answer of the launcher. None: there is none, or it has no roster any more."""
        if self._unheard and (self._answer() or [0])[0] >= self._unheard:
            self._unheard = 0
        self._number = next(_numbers)
        reporting.publish(roster.ASK, json.dumps([self._number, name, *arguments]))
        waited, polls = Stopwatch(), 0
        while not self._unheard and not departure.is_disconnected():
            answer = self._answer()
            if answer is not None and answer[0] == self._number:
                return answer if answer[2] or answer[3] else None
            if waited.seconds() > ANSWER_S:
                self._unheard = self._number
            polls += 1
            self._pause(polls)
        return None

    @staticmethod
    def _answer() -> list[Any] | None:
        """The last answer of the launcher, as roster.ANSWER says."""
        found: list[Any] | None = json.loads(departure.published(roster.ANSWER) or "null")
        return found

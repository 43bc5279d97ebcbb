"""The ranks of a host, which share memory and files, at work together while ranks may fail. Collective."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from dstorm import Transport
from malt.world.agreement import exchange, succeed

Result = TypeVar("Result")


class Incomplete(Exception):
    """A rank of the team has failed."""


class Team:
    """The ranks that are alive, and those of them that are on the host of this one.

    Where one fails, all that its members do together raises Incomplete, on all of them alike."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.members = list(exchange(transport, None))
        self.hosts = self._by_host()
        """The ranks of each host, ascending; the hosts by their lowest."""
        self.ranks = next(ranks for ranks in self.hosts if transport.rank in ranks)
        """Those of this host."""
        self.index = self.ranks.index(transport.rank)
        self.size = len(self.ranks)

    def _by_host(self) -> list[list[int]]:
        hosts: dict[str, list[int]] = {}
        for rank in self.members:
            hosts.setdefault(self.transport.hosts[rank], []).append(rank)
        return list(hosts.values())

    def exchange(self, value: Any) -> dict[int, Any]:
        """What each member gave, by rank, as `malt.world.agreement.exchange`. Collective. Incomplete."""
        reports = exchange(self.transport, value)
        if reports.keys() != set(self.members):
            raise Incomplete
        return reports

    def check_same(self, path: str, identity: str) -> None:
        """ValueError: hosts have different files at `path`. Collective. Incomplete."""
        found, names = self.exchange(identity if self.index == 0 else None), self.transport.hosts
        first = self.members[0]
        for rank in (ranks[0] for ranks in self.hosts):
            if found[rank] != found[first]:
                raise ValueError(f"{path}: hosts {names[first]} and {names[rank]} have different files")

    def step(self, work: Callable[[], Any] | None) -> list[Any] | None:
        """What work() gave, by rank of this host; None where one had none to do or met an OSError. Collective."""

        def tried() -> list[Any] | None:
            try:
                return None if work is None else [work()]
            except OSError:  # no place to write, or no room: there may be another
                return None

        reports = self.exchange(succeed(self.transport, tried))
        done = [reports[rank] for rank in self.ranks if reports[rank] is not None]
        return [result for (result,) in done] if len(done) == self.size else None


def with_a_team(transport: Transport, work: Callable[[Team], Result]) -> Result:
    """What work(team) returned, of a team of which no rank failed meanwhile. Collective."""
    while True:
        with suppress(Incomplete):
            return work(Team(transport))

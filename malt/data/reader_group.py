"""Reader groups: the live ranks of each host, which share memory and files, and work together while ranks may fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from dstorm import Transport
from dstorm.transports.solo import LoneTransport
from malt.session.world.agreement import exchange, succeed

Result = TypeVar("Result")


class Incomplete(Exception):
    """A member of the group has failed."""


class ReaderGroup:
    """The live ranks, grouped by host. Collective.

    If a member fails, each collective call of the group raises Incomplete on all other members.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.members = list(exchange(transport, None))
        self.hosts = self._by_host()
        """The members on each host, ascending. The hosts are ordered by their lowest member."""
        self.ranks = next(ranks for ranks in self.hosts if transport.rank in ranks)
        """The members on the host of this rank."""
        self.index = self.ranks.index(transport.rank)
        """The position of this rank in `ranks`."""
        self.size = len(self.ranks)

    def _by_host(self) -> list[list[int]]:
        hosts: dict[str, list[int]] = {}
        for rank in self.members:
            hosts.setdefault(self.transport.hosts[rank], []).append(rank)
        return list(hosts.values())

    def exchange(self, value: Any) -> dict[int, Any]:
        """Return the value of each member, by rank. Collective. Incomplete: a member has failed."""
        values = exchange(self.transport, value)
        if values.keys() != set(self.members):
            raise Incomplete
        return values

    def check_same(self, path: str, identity: str) -> None:
        """Check that all hosts have the same file at `path`. Collective.

        `identity`: the same string for the same file. ValueError: hosts have different files. Incomplete: a member has
        failed.
        """
        found, names = self.exchange(identity if self.index == 0 else None), self.transport.hosts
        first = self.members[0]
        for rank in (ranks[0] for ranks in self.hosts):
            if found[rank] != found[first]:
                raise ValueError(f"{path}: hosts {names[first]} and {names[rank]} have different files")

    def step(self, work: Callable[[], Any] | None) -> list[Any] | None:
        """Call work() on each member; return the results of the members on this host. Collective.

        The results are in the order of `ranks`. Return None if a member on this host has no work (`work` is None), or
        if its work() raises an OSError. Any other error is raised on all members. Incomplete: a member has failed.
        """

        def tried() -> list[Any] | None:
            """The result of `work` in a list; None where there is none, or this folder cannot be written. Local."""
            try:
                return None if work is None else [work()]
            except OSError:  # no write access, or no space: the caller tries another folder
                return None

        results = self.exchange(succeed(self.transport, tried))
        done = [results[rank] for rank in self.ranks if results[rank] is not None]
        return [result for (result,) in done] if len(done) == self.size else None


def readers(transport: Transport) -> list[int]:
    """Return the ranks among which the rows of a file are dealt, ascending. Collective.

    For a rank that reads alone, as it comes back, they are all: as the others were when they read it.
    """
    return list(range(transport.size)) if isinstance(transport, LoneTransport) else list(exchange(transport, None))


def with_reader_group(transport: Transport, work: Callable[[ReaderGroup], Result]) -> Result:
    """Return work(group). Collective. If a member fails meanwhile, work is called again with a new group."""
    while True:
        with suppress(Incomplete):
            return work(ReaderGroup(transport))

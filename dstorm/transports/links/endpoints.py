"""Connections between ranks of different hosts, and the endpoints at which ranks listen."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from dstorm.errors import DeadlinePassed
from dstorm.transports.links.addresses import own_addresses
from dstorm.transports.links.server import AuthenticatedServer, call
from dstorm.waits.stopwatch import Stopwatch

_ANSWER_S = 2.0
"""How long an address may take to answer."""
_TAKEN_S = 10.0
"""How long a rank that has answered may take to say that it has taken the connection. It is at work on that."""
_NAP_S = 0.02
_YES = b"Y"
_ANY_PORT = 9
_LOOPBACK = "127.0.0.1"
_RANK_BITS = 32
_TO, _FROM = 0, 1
"""Which of its two connections to another rank one that was started again makes: that to it, or that from it."""

Join = Callable[[int, int, socket.socket, socket.socket], object]
"""A function that is given a rank that was started again, its incarnation, and the connections to and from it."""


class Endpoint(NamedTuple):
    """The addresses and the port at which a rank listens."""

    addresses: tuple[str, ...]
    port: int


def addresses_towards(names: Iterable[str]) -> tuple[str, ...]:
    """The IPv4 addresses from which this host reaches the hosts `names`; () where that is not known of one. Local.

    Nothing is sent to these hosts.
    """
    found: dict[str, None] = {}
    for name in names:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                any_socket.connect((name, _ANY_PORT))
                address = any_socket.getsockname()[0]
        except OSError:  # a name that ssh alone knows, say
            return ()
        if not address.startswith("127."):  # this host's own name may be one of the loopback
            found[address] = None
    return tuple(found)


def interfaces(names: Iterable[str]) -> tuple[str, ...]:
    """The addresses at which the hosts `names` may reach this one: towards them where that is known, else all. Local.

    That of the loopback where there is no other.
    """
    return addresses_towards(names) or own_addresses() or (_LOOPBACK,)


class Exchange:
    """The end of one rank at which connections are made. It listens at `endpoint` from the start. Local.

    `key`: that of the job, which callers must know. `session`: a name that no other session has. `hosts`: the names of
    all hosts of the job, as far as they are known: it listens on the interfaces towards these.
    """

    def __init__(self, rank: int, key: str, session: str = "", hosts: Iterable[str] = ()) -> None:
        self._rank, self._key, self._session = rank, key, session
        addresses = interfaces(hosts)
        self._server = AuthenticatedServer(_name(session, rank), key, addresses)
        self.endpoint = Endpoint(addresses, self._server.port)
        self._into: dict[int, socket.socket] = {}
        self._halves: dict[tuple[int, int], dict[int, socket.socket]] = {}
        """The connections of ranks that were started again, by rank, incarnation and kind."""
        self._calling: frozenset[tuple[int, int]] = frozenset()
        """Ranks with higher numbers, and their incarnations, that it calls, as it was started again: it does not take
        their calls meanwhile."""
        self._reached: set[tuple[int, int]] = set()
        """Ranks, and their incarnations, that it has reached so: it does not take their calls."""
        self._join: Join | None = None
        self._changing = threading.Lock()

    def connect(
        self, endpoints: Mapping[int, Endpoint], deadline_s: float, later: Collection[int] = ()
    ) -> tuple[dict[int, socket.socket], dict[int, socket.socket]]:  # fmt: skip
        """The connections to, and those from, the ranks of `endpoints`, by rank. Collective: they do the same.

        A rank that has ended before it called is left out. DeadlinePassed: a rank could not be reached, or did not
        call. It stops listening at the end, unless there are ranks that may call `later`: those that are started again,
        or come only then.
        """
        waited, into = Stopwatch(longest_step_s=_ANSWER_S), self._into
        self._server.start(partial(self._answer, {*endpoints, *later}))
        out: dict[int, socket.socket] = {}
        while missing := [rank for rank in endpoints if rank not in out]:
            for rank in missing:
                _check(waited, [one for one in missing if one not in out], deadline_s)
                with contextlib.suppress(OSError):
                    out[rank] = self._call(rank, endpoints[rank])
        while missing := [rank for rank in endpoints if rank not in into and not _has_ended(out[rank])]:
            _check(waited, missing, deadline_s)
            time.sleep(_NAP_S)
        if not later:
            self._server.stop()
        return {rank: out[rank] for rank in into}, into

    def listen(self, ranks: Collection[int], incarnations: Mapping[int, int]) -> None:
        """Answer those of `ranks` that are started again. Local. For one that was itself, in place of `connect`.

        `incarnations`: as of `call_again`, which follows.
        """
        self._calling = frozenset(one for one in incarnations.items() if one[0] in ranks and one[0] > self._rank)
        self._server.start(partial(self._answer, ranks))

    def call_again(
        self, endpoints: Mapping[int, Endpoint], incarnations: Mapping[int, int]
    ) -> dict[int, tuple[socket.socket, socket.socket]]:  # fmt: skip
        """Connections to and from the ranks of `endpoints` that answer, or have called, by rank. One-sided.

        This rank was started again; the others have begun, or were so, too. `incarnations`: of these and of itself. Of
        two that call each other the lower one makes the connections. `end_calls` ends that.
        """
        found = {}
        for rank, endpoint in endpoints.items():
            with self._changing:
                halves = self._halves.get((rank, incarnations.get(rank, 0)), {})
                if len(halves) > 1:
                    del self._halves[rank, incarnations[rank]]
                    found[rank] = halves[_FROM], halves[_TO]
                    continue
            with contextlib.suppress(OSError):
                out = self._call(rank, endpoint, incarnations[self._rank], _TO)
                try:
                    found[rank] = out, self._call(rank, endpoint, incarnations[self._rank], _FROM)
                    self._reached.add((rank, incarnations.get(rank, 0)))
                except OSError:
                    out.close()
        return found

    def end_calls(self) -> None:
        """Take the calls of all ranks that were started again. Local. After the last `call_again`."""
        self._calling = frozenset()

    def join_by(self, join: Join) -> None:
        """Give `join` each rank that was started again and has made both connections. Local. Any thread may call it."""
        with self._changing:
            self._join = join
            waiting = [(key, halves) for key, halves in self._halves.items() if len(halves) > 1]
            for key, _ in waiting:
                del self._halves[key]
        for key, halves in waiting:
            join(*key, halves[_FROM], halves[_TO])

    def _answer(self, known: Collection[int], number: int, caller: socket.socket) -> bool:
        """Take the connection of a caller of this number; return whether it was taken."""
        rank, kind = number & (1 << _RANK_BITS) - 1, number >> _RANK_BITS & 1
        incarnation = number >> _RANK_BITS + 1
        if not incarnation:
            return _take(self._into, known, rank, caller)
        if (rank, incarnation) in self._calling | self._reached:
            return False
        with self._changing:
            for former in [one for one in self._halves if one[0] == rank and one[1] < incarnation]:
                for connection in self._halves.pop(former).values():
                    connection.close()
            halves = self._halves.setdefault((rank, incarnation), {})
        taken: dict[int, socket.socket] = {}
        if not _take(taken, known, rank, caller):
            return False
        with self._changing:
            if self._halves.get((rank, incarnation)) is not halves:  # its next incarnation has called meanwhile
                taken[rank].close()
                return True
            halves[kind] = taken[rank]
            join = self._join if len(halves) > 1 else None
            if join is not None:
                self._halves.pop((rank, incarnation), None)
        if join is not None:
            join(rank, incarnation, halves[_FROM], halves[_TO])
        return True

    def _call(self, rank: int, endpoint: Endpoint, incarnation: int = 0, kind: int = _TO) -> socket.socket:
        """A connection to `rank`, which listens at `endpoint`. OSError: none of its addresses answers.

        All addresses are tried at once: one that drops packets takes _ANSWER_S, and a host may have several that others
        cannot reach (docker0, virbr0).
        """
        name = _name(self._session, rank)
        number = self._rank | kind << _RANK_BITS | incarnation << _RANK_BITS + 1
        answers: queue.SimpleQueue[socket.socket | None] = queue.SimpleQueue()
        one_at_a_time, is_over = threading.Lock(), threading.Event()

        def attempt(address: str) -> None:
            """Answer with a connection to `address` if it is the first that is confirmed, else with None. Local."""
            made = _answered((address, endpoint.port), self._key, name, number)
            with one_at_a_time:
                if made is not None and is_over.is_set():
                    made.close()  # the other end takes one alone
                elif made is not None and _confirmed(made):
                    is_over.set()
                    answers.put(made)
                    return
            answers.put(None)

        for address in endpoint.addresses:
            threading.Thread(target=attempt, args=[address], name="malt connect", daemon=True).start()
        for _ in endpoint.addresses:
            if (found := answers.get()) is not None:
                _prepare(found)
                return found
        time.sleep(_NAP_S)
        raise OSError("nobody answers")


def _answered(where: tuple[str, int], key: str, name: str, number: int) -> socket.socket | None:
    """A connection to a rank that has answered to a call with this number, or None."""
    with contextlib.suppress(OSError):
        made = call(where, key, name, number, _ANSWER_S)
        with contextlib.suppress(OSError):
            made.settimeout(_ANSWER_S)
            if made.recv(1) == _YES:
                return made
        made.close()
    return None


def _confirmed(made: socket.socket) -> bool:
    """Tell the rank that has answered that this connection is used; return whether it has taken it.

    One that has waited for that too long has not: a later call is answered.
    """
    with contextlib.suppress(OSError):
        made.sendall(_YES)
        made.settimeout(_TAKEN_S)
        if made.recv(1) == _YES:
            return True
    made.close()
    return False


def _name(session: str, rank: int) -> str:
    return f"malt connect {session} {rank}"


def _take(into: dict[int, socket.socket], known: Collection[int], rank: int, caller: socket.socket) -> bool:
    """Add the connection of a rank to `into`; return whether it was added.

    It is not where the rank is not `known`, or has given up meanwhile.
    """
    caller.settimeout(_ANSWER_S)
    if rank not in known or not caller.send(_YES) or caller.recv(1) != _YES or not caller.send(_YES):
        return False
    _prepare(caller)
    into[rank] = caller
    return True


def _prepare(connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _has_ended(connection: socket.socket) -> bool:
    """Return whether the other end has closed the connection."""
    try:
        return connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _check(waited: Stopwatch, missing: Collection[int], deadline_s: float) -> None:
    if waited.seconds() > deadline_s:
        raise DeadlinePassed(
            "TCP connections between hosts", dict.fromkeys(missing, 0), dict.fromkeys(missing, deadline_s)
        )

"""Links: Puts to ranks of other hosts over TCP connections, in jobs that go on when a rank fails.

MPI's own Puts do not survive a failure over TCP. With Open MPI 5.0.11 (osc rdma, btl tcp, ULFM) a Put or a flush to a
failed rank may hang, and with it those to live ranks. A rank that has an answer to a failed one still in its queue
crashes: 7 jobs of 59 (btl_tcp_endpoint.c calls the callback that btl_base_am_rdma.c has set to NULL). Without ULFM the
first call that sees the closed connection ends the job.

Each rank has one connection to each rank of other hosts (dstorm/transports/links/channels.py). When a process ends, the
system closes its connections. So does a network that drops them, while both ranks live. So the end of a connection, as
silence, makes a suspicion, and the ranks agree on who goes on (dstorm/transports/links/arbiter.py). A rank that is
marked failed is cut off, so that nothing arrives that it sends later. What has arrived before is still written: `part`
waits for that.

A rank that was started again makes both connections to each rank of other hosts (`join`). They are used once the
former incarnation is parted, where that has taken part: nothing that was meant for it, or has come from it, is on its
way then.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

from dstorm.errors import PeerLost
from dstorm.membership.heartbeat import HeartbeatTimeout
from dstorm.membership.quorum import GRANT_S, LONGEST_S
from dstorm.transport import Bytes, Places, Put
from dstorm.transports.links.arbiter import Arbiter
from dstorm.transports.links.channels import ALIVE, CUT, END, STATE, VOTE, Incoming, Outgoing, framed
from dstorm.transports.links.server import shut
from dstorm.waits import interruption
from dstorm.waits.stopwatch import Stopwatch, uptime_s

HEARTBEAT_S = 0.25
"""Period of the heartbeats, and of the check for those of others."""
_HASTE_S = 0.02
"""The same while ranks agree on who goes on."""
_PART_S = 5.0
"""How long to wait until what has arrived is written. It is one socket buffer at most."""
_CLOSE_S = 0.5
"""How long to try to say that this rank ends. Where that is not heard, the ranks agree on its failure."""
_MOMENT_S = 0.05
"""How long to wait for a heartbeat that is being sent."""
_WRITE_S = 0.4 * GRANT_S
"""How long the answers to a question count for the one who has asked, from the moment at which it asked."""
_NAP_S = 0.001


class Links:
    """The links to the ranks of other hosts. All methods are One-sided where they do not say otherwise.

    Threads write what these ranks put into `memory`. `out`, `into`: a connection to and from each live rank of another
    host. `arbiter`: this rank's part in the agreement on who goes on. `leave(why)`: ends this process when the others
    go on without it, or may do so. `suspect_after_s`: the heartbeat timeout. `unreached`: ranks of other hosts to which
    there is no connection. `incarnations`: of those that were started again, by rank.
    """

    keeps_order = True
    """One thread writes what comes over one connection."""

    def __init__(
        self, memory: Bytes, out: Mapping[int, socket.socket], into: Mapping[int, socket.socket],
        arbiter: Arbiter, leave: Callable[[str], object], suspect_after_s: float | None = None,
        unreached: Iterable[int] = (), incarnations: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        self._memory, self._arbiter, self._leave = memory, arbiter, leave
        self._out = {peer: self._outgoing(peer, connection) for peer, connection in out.items()}
        self._into = {peer: Incoming(connection) for peer, connection in into.items()}
        self._heartbeat_timeout = HeartbeatTimeout(out, time.monotonic(), suspect_after_s)
        self._ended: set[int] = set()
        """The ranks whose connections have ended."""
        self._leaving: set[int] = set()
        """The ranks that have said that they end in order."""
        self._cut: set[int] = set()
        """The ranks that it has cut off."""
        self._incarnations = dict(incarnations or {})
        """Those of the ranks that were started again, by rank."""
        self.takes_part: Callable[[int, int], bool] = lambda rank, incarnation: False
        """Whether an incarnation of a rank takes part, as this rank sees it: only then can something be on its way."""
        self._joining: dict[int, tuple[int, socket.socket, socket.socket]] = {}
        """The incarnations whose connections are not used yet, and these, to and from it."""
        self._changing = threading.RLock()
        """Held while the next incarnation of a rank is linked, and while something is noted of the one that is."""
        self._closed = False
        self._questions = 0
        self._far = frozenset(out) | frozenset(unreached)
        arbiter.suspect(unreached)
        arbiter.is_linked = self._is_linked_again
        self._receivers = {
            peer: threading.Thread(target=self._receive, args=(peer, incoming), name="malt link", daemon=True)
            for peer, incoming in self._into.items()
        }
        for receiver in self._receivers.values():
            receiver.start()
        threading.Thread(target=self._give_heartbeats, name="malt heartbeat", daemon=True).start()

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """Start to write all of `source` (C-contiguous) at byte `offset` of `peer`'s memory. One-sided."""
        if peer in self._out:
            self._out[peer].put(source, offset)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """Return a function that does `put` with these arguments. Local."""
        return partial(self.put, source, peer, offset)

    def flush(self, peers: Iterable[int]) -> None:
        """Wait until all Puts to these peers have arrived. Puts to ranks that this rank has lost are dropped.

        Only members wait for each other: one that was started again may still be starting.
        """
        for way in self._ask(peers):
            while not way.is_done() and self._arbiter.has(way.peer):
                with way.lock:
                    if not way.is_done():
                        way.listen()

    def flush_local(self, peers: Iterable[int]) -> None:
        """Let all earlier Puts to `peers` leave; return when their sources may change (MPI_Win_flush_local)."""
        self._ask(peers)

    def _ask(self, peers: Iterable[int]) -> list[Outgoing]:
        """Send what waits for `peers`, and flushes that they answer."""
        ways = [self._out[peer] for peer in peers if peer in self._out]
        for way in ways:
            with way.lock:
                way.ask()
        return ways

    def linger(self, peers: Iterable[int]) -> None:
        """Do nothing: a flush sleeps."""

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> int:
        """Read from `peer`'s memory, which may be this rank's own, into `destination`; complete on return."""
        wanted = np.zeros(1, np.int64) if places is None else places
        if not destination.size:
            return 0
        if peer not in self._out or not self._out[peer].get(destination, offset, wanted):
            raise PeerLost(peer, "it failed before this rank had read its memory")
        return destination.nbytes + wanted.nbytes

    def evict(self, rank: int) -> None:
        """Ask `rank` to end, as it holds up the others, with each heartbeat. Once it has, the ranks agree on that."""
        if rank in self._out:
            self._out[rank].is_evicted = True

    def cut(self, ranks: Iterable[int]) -> None:
        """Cut `ranks` off: what they send does not arrive any more. They are notified where that is possible."""
        for rank in ranks:
            self._cut.add(rank)
            if rank in self._into:
                # Another thread may hold the other connection for its flush.
                self._into[rank].try_answer(CUT, _MOMENT_S)
                shut(self._into[rank].connection)
            if rank in self._out:
                self._out[rank].break_off()

    def part(self, incarnations: Mapping[int, int]) -> None:
        """Cut these incarnations of ranks off. On return all that they have sent is written, and nothing more will be.
        Local."""
        linked = {rank: self._incarnations.get(rank, 0) for rank, one in incarnations.items()}
        meant = {rank: one for rank, one in linked.items() if one <= incarnations[rank]}
        for rank, one in meant.items():
            self._cut_off(rank, one)
        for rank, one in meant.items():
            self._end(rank, one)

    def _cut_off(self, peer: int, incarnation: int) -> None:
        """Cut a rank off (`cut`) where this incarnation is linked."""
        with self._changing:
            if self._incarnations.get(peer, 0) == incarnation:
                self.cut([peer])

    def _end(self, peer: int, incarnation: int) -> None:
        """Return when all that this incarnation has sent is written; then use the connections of the next one."""
        receiver = self._receivers.get(peer)
        if receiver is not None and self._incarnations.get(peer, 0) == incarnation:
            receiver.join(_PART_S)  # it reads only what has arrived already
        with self._changing:
            if self._incarnations.get(peer, 0) == incarnation and peer in self._joining:
                self._link_again(peer)

    def join(self, peer: int, incarnation: int, out: socket.socket, into: socket.socket) -> None:
        """Take the connections to and from `peer`, which was started again. Local. Any thread may call it."""
        self._arbiter.note_over({peer: incarnation - 1})
        with self._changing:
            linked = self._incarnations.get(peer, 0)
            waiting = self._joining.get(peer, (linked if peer in self._out else -1,))
            is_newest = incarnation > waiting[0]
            if is_newest:
                self._joining[peer] = incarnation, out, into
            for connection in waiting[1:] if is_newest else (out, into):
                connection.close()
        if is_newest and not self.takes_part(peer, linked):
            self._cut_off(peer, linked)
            self._end(peer, linked)

    def _link_again(self, peer: int) -> None:
        """Use the connections that `peer` has made as it was started again. The caller holds the lock."""
        incarnation, out, into = self._joining.pop(peer)
        former = [some[peer].connection for some in (self._out, self._into) if peer in some]
        self._incarnations[peer] = incarnation
        self._heartbeat_timeout.begin(peer, time.monotonic())
        self._out = {**self._out, peer: self._outgoing(peer, out)}
        self._into = {**self._into, peer: Incoming(into)}
        for some in (self._ended, self._leaving, self._cut):
            some.discard(peer)
        receiver = threading.Thread(target=self._receive, args=(peer, self._into[peer]), name="malt link", daemon=True)
        self._receivers = {**self._receivers, peer: receiver}
        receiver.start()
        for connection in former:
            connection.close()

    def _is_linked_again(self, peer: int) -> bool | None:
        """Return whether `peer` is on this host, or its connections are in use.

        None: they are once the former incarnation is parted. This rank may compute for long before that.
        """
        if peer in self._joining:
            return None
        return peer not in self._far or (peer in self._into and self._is_linked(peer))

    def settle(self) -> None:
        """Return once it is decided who goes on, if ranks have lost each other. This process ends where it does not."""
        while self._arbiter.is_undecided and not self._closed:
            time.sleep(_NAP_S)

    def confirm(self) -> None:
        """Return once a quorum of the ranks has confirmed that it goes on with this one. Any thread may call it.

        The answer holds for 0.4 s from the call's last question on. Where none comes, this process ends.
        """
        waited = Stopwatch()
        while not self._closed and not self._is_confirmed():
            self.settle()
            if waited.seconds() > LONGEST_S:
                return self._go(f"no majority of the ranks has confirmed for {LONGEST_S:g} s that they go on with it")

    def close(self) -> None:
        """Stop giving and checking heartbeats, as the job is over, or this rank ends. Local.

        The connections last until the process ends, as other ranks may still be in their last flush.
        """
        self._closed = True
        left, end = dict(self._into), time.monotonic() + _CLOSE_S
        while left := {peer: to for peer, to in left.items() if self._is_linked(peer) and not to.try_answer(END)}:
            if time.monotonic() > end:
                return
            time.sleep(_NAP_S)  # another thread sends rows there, or the connection takes no more

    def _is_linked(self, peer: int) -> bool:
        return peer not in self._ended and peer not in self._cut

    @interruption.whole
    def _is_confirmed(self) -> bool:
        """Ask all members; return whether a quorum has confirmed this rank within _WRITE_S."""
        self._questions += 1
        number, end = self._questions, uptime_s() + _WRITE_S
        members = self._arbiter.begin(number)
        ways = [self._out[peer] for peer in members if peer in self._out]
        for way in ways:
            if way.lock.acquire(timeout=max(0.0, end - uptime_s())):
                way.question(number)
                way.lock.release()
        while uptime_s() < end:
            if self._arbiter.is_confirmed(number):
                return True
            self._listen(ways)
            time.sleep(_NAP_S)
        return False

    def _receive(self, peer: int, incoming: Incoming) -> None:
        """Write what `peer` puts into memory, until its connection ends."""
        why = f"rank {peer} waits for it no longer: it made no call of malt before the deadline"
        with contextlib.suppress(OSError):
            answer = partial(self._arbiter.answer, peer)
            incoming.serve(self._memory, partial(self._hear, peer), answer, partial(self._go, why))
        with self._changing:
            if self._into[peer] is incoming:  # else it was started again
                self._ended.add(peer)
                self._out[peer].break_off()  # it may still bring what the peer has said of its end
                self._judge_end(peer)

    def _judge_end(self, peer: int) -> None:
        if peer in self._leaving:
            self._arbiter.note_over({peer: self._incarnations.get(peer, 0)})
        else:
            self._arbiter.suspect([peer])

    def _note(self, peer: int, connection: socket.socket, kind: bytes, body: bytes) -> None:
        """Note what `peer` has sent without being asked, or as an answer to a question."""
        with self._changing:
            if self._out[peer].connection is not connection:  # it was started again, before this thread came to that
                return
            if kind == STATE:
                self._arbiter.note(peer, body)
            elif kind == VOTE:
                self._arbiter.note_answer(peer, body)
            elif kind == CUT:
                self._go(f"rank {peer} has lost it: the others go on without it")
            elif kind == END:
                self._leaving.add(peer)
                if peer in self._ended:
                    self._judge_end(peer)

    def _outgoing(self, peer: int, connection: socket.socket) -> Outgoing:
        return Outgoing(peer, connection, partial(self._hear, peer), partial(self._note, peer, connection))

    def _hear(self, peer: int) -> None:
        self._heartbeat_timeout.heard(peer, time.monotonic())

    def _give_heartbeats(self) -> None:
        """Give heartbeats to all ranks, suspect those that give none, and take part in the agreement."""
        while not self._closed:
            time.sleep(_HASTE_S if self._arbiter.is_undecided else HEARTBEAT_S)
            self._listen(self._out.values())
            with self._changing:
                self._suspect_silent()
                if why := self._arbiter.decide():
                    self._go(why)
                self.cut(rank for rank in self._into.keys() - self._cut if self._arbiter.was_cut_off(rank))
            for peer, incoming in self._into.items():
                if peer not in self._ended:
                    self._arbiter.tell(peer, partial(_send_state, incoming))
            for way in self._out.values():
                if way.is_evicted:
                    way.try_dismiss()

    def _listen(self, ways: Iterable[Outgoing]) -> None:
        for way in ways:
            if way.lock.acquire(blocking=False):  # else the thread that waits there receives them
                way.listen(socket.MSG_DONTWAIT)
                way.lock.release()

    def _suspect_silent(self) -> None:
        for peer, way in self._out.items():
            if self._arbiter.has_ended(peer, self._incarnations.get(peer, 0)):
                way.break_off()  # the network may have dropped what its host has said of that
        if self._arbiter.is_outside:  # its peers do not use its connections before the former incarnation is parted
            return
        present = self._out.keys() - set(self._arbiter.failed())
        heard = present - self._ended - self._leaving
        missed = set(self._heartbeat_timeout.silent(heard, time.monotonic()))
        missed |= {peer for peer in heard if self._out[peer].broken}
        if missed:
            self._arbiter.suspect(missed)
            for peer in missed:
                self._out[peer].break_off()  # no flush waits for it any more
        for peer in present & self._ended:  # one that was started again may have ended before it was a member
            self._judge_end(peer)
        self._arbiter.suspect(self._far - self._out.keys() - set(self._arbiter.failed()))

    def _go(self, why: str) -> None:
        if not self._closed:
            self._leave(why)


def _send_state(to: Incoming, state: bytes) -> bool:
    """Send a heartbeat, with a state or b"", if that is possible without waiting; return whether it was."""
    return to.try_answer(framed(STATE, state) if state else ALIVE)

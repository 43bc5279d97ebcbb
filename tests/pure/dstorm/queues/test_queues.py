"""Queues between many ranks in process, under schedules that seeds decide and Puts that arrive in pieces."""

import pytest
from queued import payload, run
from schedules import send

from dstorm import DeadlinePassed, PeerLost, header
from dstorm.view import FaultTolerantView


def test_a_scatter_that_waits_ends_at_its_deadline_and_names_the_missing():
    def live(rank, queues, transport):
        if rank == 2:
            return
        send(queues, [1 - rank, 2], 1, payload(rank, 1))
        queues.receive(lambda: [1 - rank], newest=False)
        queues.acknowledge([])
        named = r"scatter: the deadline passed waiting for .*rank 2 \(last step 0"
        with pytest.raises(DeadlinePassed, match=named) as raised:
            send(queues, [1 - rank, 2], 2, payload(rank, 2))
        assert raised.value.missing[2] == 0

    run(live, "aaa", sync="notify-ack", deadline_s=0.5)


@pytest.mark.parametrize("sync", ["bsp", "ssp:0", "notify-ack"])
def test_time_in_which_the_job_was_suspended_does_not_count(sync):
    """All ranks are stopped for long while one computes, and two wait for it, one of them with a timeout."""

    def live(rank, queues, transport):
        transport.longest_poll_s = 0.05
        peers = [peer for peer in range(3) if peer != rank]
        for step in (1, 2, 3):
            if rank == 2:
                end = transport.clock() + 0.3
                while transport.clock() < end:
                    transport.pause(30)
                transport._group._schedule.now += 100.0
            send(queues, peers, step, payload(rank, step))
            queues.receive(lambda: peers, newest=False, timeout_s=0.4 if rank == 1 else None)
            queues.acknowledge([])

    run(live, "aaa", sync=sync, deadline_s=0.5)


def test_a_scatter_sends_nothing_to_a_receiver_that_closes_while_it_looks_for_acknowledgements():
    """Its first look finds none, and the next one that the receiver has closed."""

    def live(rank, queues, transport):
        if rank == 1:
            return
        send(queues, [1], 1, payload(0, 1))
        place, sync = queues.layout.acknowledgement(0, 1), queues.window.sync

        def closes():
            header.write(queues.window.memory.data, place, 0, 0, header.DONE)
            sync()

        queues.window.sync = closes
        assert send(queues, [1], 2, payload(0, 2)) == (0, 1.0)

    run(live, "aa", sync="notify-ack")


@pytest.mark.parametrize("opens", [False, True])
def test_a_scatter_sends_nothing_to_a_receiver_that_comes_back_during_the_wait(opens):
    """Whether that has opened its queues by then or not: who calls looks for the present neighbours."""

    def live(rank, queues, transport):
        view = transport.view

        def come_back():
            view.change(failed=[1])
            view.change(joined=[1])
            if opens:
                queues.renew(1, 1 << 40)

        if rank == 0:
            send(queues, [1], 1, payload(0, 1))
            transport.duties.append(come_back)
            with pytest.raises(PeerLost, match="has come back"):
                send(queues, [1], 2, payload(0, 2))

    run(live, "aa", sync="notify-ack", view=FaultTolerantView)

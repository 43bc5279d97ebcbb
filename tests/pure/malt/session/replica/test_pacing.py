"""When a Replica exchanges, step by step."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import malt
from malt.session import session
from malt.session.replica.interval import Interval
from malt.session.replica.options import bounds
from malt.session.replica.pacing import Auto, Fixed, Led, Traffic, traffic

pytestmark = pytest.mark.serial


class Loop:
    """A loop of a virtual clock, whose counts take `count_s` seconds, and whose exchanges `held_s`.

    After each of them the loop has no core for `off_core_s`.
    """

    def __init__(self, pacing, count_s=1e-3, held_s=0.05, off_core_s=0.0):
        self.now, self.off_core_s, self.count, self.exchanged = 0.0, off_core_s, 0, []
        self.pacing = pacing(self)
        self.count_s, self.held_s = count_s, held_s
        self.due_at = self.pacing.begin(0)

    def clock(self):
        return self.now

    def step(self, n=1):
        self.now += n * self.count_s
        self.count += n
        if self.count >= self.due_at:
            self.due_at = self.pacing.begin(self.count)
            self.now += self.held_s
            self.due_at = self.pacing.end()
            self.exchanged.append(self.count)
            self.now += self.off_core_s


@pytest.mark.parametrize("n", [1, 3, 7])
def test_a_fixed_number_is_kept_however_far_a_step_counts(n):
    loop = Loop(lambda loop: Fixed(5))
    for _ in range(50):
        loop.step(n)
    assert loop.exchanged == sorted({-(-5 * turn // n) * n for turn in range(1, 10 * n + 1)})


def test_fragments_have_their_turns():
    loop = Loop(lambda loop: Fixed(10, 4))
    for _ in range(20):
        loop.step()
    assert loop.exchanged == [3, 5, 8, 10, 13, 15, 18, 20]


@pytest.mark.parametrize("n", [1, 32])
def test_auto_finds_twenty_times_the_cost_in_counts(n):
    loop = Loop(lambda loop: Auto(Interval(), loop.clock))
    while len(loop.exchanged) < 30:
        loop.step(n)
    assert loop.pacing.every == 1000 and loop.exchanged[-1] - loop.exchanged[-2] == -(-1000 // n) * n


def test_ranks_that_are_to_agree_keep_the_lowest_one_and_know_their_wish():
    loop = Loop(lambda loop: Auto(Interval(2, 400), loop.clock, agrees=True))
    for _ in range(16):
        loop.step()
    assert loop.pacing.is_open and loop.exchanged == [2, 4, 6, 8, 10, 12, 14, 16]
    assert (loop.pacing.every, loop.pacing.wish) == (2, 400)


def test_superseded_messages_are_those_since_the_last_exchange():
    totals = [0, 0]
    loop = Loop(lambda loop: Auto(Interval(), loop.clock, lambda: Traffic(*totals)), held_s=0.0)
    for _ in range(12):
        totals[:] = totals[0] + 1, totals[1] + 1
        loop.step(loop.pacing.every)
    slow = loop.pacing.every
    for _ in range(60):
        totals[0] += 1
        loop.step(loop.pacing.every)
    assert slow > 1000 and loop.pacing.every < slow / 2


@pytest.mark.parametrize(("sending_s", "every"), [(0.0, 10), (1.0, 109)])
def test_time_without_a_core_counts_while_messages_are_on_their_way(sending_s, every):
    def sent(count):
        return Traffic(count, 0, sending_s * count, off_core_s=1e-2 * count)

    loop = Loop(lambda loop: Auto(Interval(), loop.clock, lambda: sent(len(loop.exchanged))), 1e-3, 1e-3, 1e-2)
    while len(loop.exchanged) < 60:
        loop.step()
    assert loop.pacing.every == pytest.approx(every, abs=1)


def test_the_traffic_is_that_to_other_hosts():
    def edge(sent, superseded):
        return SimpleNamespace(sent=sent, superseded=superseded)

    vectors = [SimpleNamespace(statistics=lambda: SimpleNamespace(peers={1: edge(9, 0), 2: edge(5, 1), 3: edge(2, 1)}))]
    ranks = SimpleNamespace(rank=0, hosts=("a", "a", "b", "c"), carrier=SimpleNamespace(busy_s=2.0))
    assert traffic(ranks, vectors, lambda: 0.5)() == Traffic(7, 2, 2.0, 0.5)
    ranks.carrier = None
    assert traffic(ranks, vectors, lambda: 0.5)() == Traffic(7, 2, 0.0, 0.5)
    ranks.hosts = ("a",) * 4
    assert traffic(ranks, vectors, lambda: 0.5)() == Traffic()


def test_who_is_led_is_never_due_by_itself():
    loop = Loop(lambda loop: Led(7))
    for _ in range(100):
        loop.step()
    assert not loop.exchanged and loop.pacing.every == 7


NONE = {"outer": None, "wire": None, "top": None, "fragments": 1}


@pytest.mark.parametrize(
    ("every", "sync", "changed", "expected"),
    [
        (None, "asp", {}, (1, None)), (None, "ssp:3", {}, (1, None)), (None, "bsp", {}, (1, 1)),
        (None, "notify-ack", {}, (1, 1)), (None, "asp", {"outer": len}, (1, 1)), (None, "asp", {"top": 1}, (1, 1)),
        (None, "asp", {"wire": "int8"}, (1, 1)), (None, "asp", {"fragments": 2}, (1, 1)),
        ("auto", "asp", {}, (1, None)), ("auto", "bsp", {}, (1, None)), ((10, 200), "asp", {}, (10, 200)),
        ([10, 10], "bsp", {}, (10, 10)),
        ((10, None), "asp", {}, (10, None)), (np.int64(7), "asp", {"fragments": 2}, (7, 7)),
    ],
)  # fmt: skip
def test_what_every_means(every, sync, changed, expected):
    assert bounds(every, sync, **{**NONE, **changed}) == expected


@pytest.mark.parametrize(
    ("every", "changed", "message"),
    [
        ("auto", {"outer": len}, 'every="auto" cannot be combined with outer: give the counts'),
        ((1, 9), {"wire": "int8"}, 'every="auto" cannot be combined with wire'),
        ("auto", {"top": 1}, 'every="auto" cannot be combined with top'),
        ("auto", {"fragments": 2}, 'every="auto" cannot be combined with fragments'),
        ((0, 9), {}, "every: the lower bound must be an integer of at least 1, got 0"),
        ((5, 4), {}, "every: the upper bound must be an integer of at least 5, got 4"),
        ("often", {}, 'every must be an integer of at least 1, "auto" or bounds, .low, high., got \'often\''),
        ((1, 2, 3), {}, "every must be an integer of at least 1"), (0, {}, "every must be an integer of at least 1"),
    ],
)  # fmt: skip
def test_what_every_cannot_be(every, changed, message):
    with pytest.raises((ValueError, TypeError), match=message):
        bounds(every, "asp", **{**NONE, **changed})


@pytest.mark.parametrize(("every", "fixed"), [(None, 1), ("auto", 1), ((4, 90), 4), (3, 3)])
@pytest.mark.parametrize("sync", ["asp", "bsp"])
def test_in_a_simulation_it_is_the_lowest_number(every, fixed, sync):
    def train(rank):
        replica = malt.Replica(np.zeros(3), every=every, sync=sync, graph="all")
        exchanged = [replica.step() for _ in range(12)]
        replica.finish()
        return exchanged, replica.statistics().every

    for exchanged, used in malt.simulate(train, 3):
        assert exchanged == [number % fixed == 0 for number in range(1, 13)] and used == fixed


def test_over_a_slow_link_it_is_as_long_as_a_message_takes(monkeypatch):
    """On virtual time, where work takes what malt.compute says: 1 ms a step, and 80 ms for a model to another host."""
    monkeypatch.setattr(session, "in_simulation", lambda: False)

    def train(rank, seconds=4.0):
        w = np.zeros(2500, np.float32)
        with malt.Replica([w], graph="all") as replica:
            replica.trust()
            while malt.clock() < seconds:
                malt.compute(1e-3)
                replica.step()
            return replica.statistics()

    for found in malt.simulate(train, 2, network=malt.Network(1e-4, 12.5e4, ["here", "there"])):
        assert 60 < found.every < 160 and found.superseded < 0.2 * found.sent


def test_an_epoch_is_a_number_of_counts():
    with pytest.raises(ValueError, match="epoch must be an integer of at least 1, got 0"):
        malt.Replica(np.zeros(3), epoch=0)


def test_counts_are_not_negative_and_whole():
    def live(rank):
        exchanges = malt.Exchanges(3)
        for wrong, kind in ((-1, ValueError), (1.5, TypeError), ("1", TypeError), (True, TypeError)):
            with pytest.raises(kind, match="^n must be an integer of at least 0, got "):
                exchanges.count(wrong)
        return [exchanges.count(np.int64(1)) for _ in range(3)]

    assert malt.simulate(live, 1) == [[False, False, True]]


def test_what_is_computed_between_the_parts_of_an_exchange_is_no_cost(monkeypatch):
    now = [0.0]

    def live(rank):
        monkeypatch.setattr(session, "in_simulation", lambda: False)
        exchanges = malt.Exchanges()
        exchanges._clock = exchanges._pacing._clock = lambda: now[0]
        exchanges._pacing._began_at = exchanges._pacing._ended_at = 0.0
        for _ in range(30):
            now[0] += 1e-3 * exchanges.every
            exchanges.count(exchanges.every)
            for _ in range(2):
                with exchanges.part_of_exchange():
                    now[0] += 0.05
                now[0] += 0.1
            exchanges.end()
        return exchanges.every

    (every,) = malt.simulate(live, 1)
    assert every == pytest.approx(1000 - 200, rel=0.01)  # 10 times 0.1 s, of which 0.2 s are between the parts

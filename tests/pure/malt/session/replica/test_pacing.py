"""When a Replica exchanges, step by step."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import malt
from malt.session import session
from malt.session.replica.interval import Interval
from malt.session.replica.options import bounds
from malt.session.replica.pacing import Auto, Led, Traffic, traffic


def exchanged(ranks=1, n=1, steps=20, **options):
    """The steps at which a Replica exchanges, and its statistics; each step counts `n`. The same on all ranks."""

    def train(rank):
        replica = malt.Replica([np.zeros(3) for _ in range(4)], **options)
        found = [number for number in range(1, steps + 1) if replica.step(n)]
        replica.finish()
        return found, replica.statistics().every

    first, *others = malt.simulate(train, ranks)
    assert all(one == first for one in others)
    return first


@pytest.mark.parametrize("n", [1, 3, 7])
def test_a_fixed_number_is_kept_however_far_a_step_counts(n):
    found, _ = exchanged(n=n, steps=50, every=5)
    assert found == sorted({-(-5 * turn // n) for turn in range(1, 10 * n + 1)})


def test_fragments_have_their_turns():
    assert exchanged(every=10, fragments=4, sync="bsp")[0] == [3, 5, 8, 10, 13, 15, 18, 20]


def paced(number, interval, held_s=0.0, traffic=lambda number: Traffic(), **options):
    """The intervals after so many exchanges, of counts of 1 ms; traffic(number) is what was sent until each."""
    now, count, found, sent = 0.0, 0, [], Traffic()
    pacing = Auto(interval, lambda: now, lambda: sent, **options)
    for place in range(number):
        count, now, sent = count + pacing.every, now + 1e-3 * pacing.every, traffic(place)
        pacing.begin(count)
        now += held_s
        pacing.end()
        found.append(pacing.every)
    return found, pacing


def test_superseded_messages_are_those_since_the_last_exchange():
    found, _ = paced(72, Interval(), traffic=lambda number: Traffic(number, min(number, 12)))
    assert found[12] > 1000 and found[-1] < found[12] / 2


def test_ranks_that_are_to_agree_keep_the_lowest_one_and_know_their_wish():
    found, pacing = paced(8, Interval(2, 400), held_s=0.05, agrees=True)
    assert set(found) == {2} and pacing.is_open and pacing.wish == 400


def test_who_is_led_is_never_due_by_itself():
    assert Led(7).every == 7 and Led(7).begin(100) == Led(7).end() == math.inf


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
    found, used = exchanged(3, steps=12, every=every, sync=sync, graph="all")
    assert found == list(range(fixed, 13, fixed)) and used == fixed


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

"""The ring under every interleaving, and proof that each of its checks is needed."""

from __future__ import annotations

import pytest
from mutation import plant
from schedules import Violation, explore

from dstorm import header
from dstorm.header import WHOLE, WRITING, Header, Watched
from dstorm.queues import ring
from dstorm.queues.receiving import receiver
from dstorm.queues.ring import ReceiveRing, SendRing, SlotState
from dstorm.queues.sending.near import NearEdges
from dstorm.queues.sending.sender import Outbox

SCENARIOS = [  # those of few schedules first
    dict(messages=2, depth=1, newest=False),
    dict(messages=2, depth=1, newest=True),
    dict(messages=2, depth=1, newest=True, mapped=True),
    dict(messages=2, depth=1, newest=False, cut_headers=True),
    dict(messages=2, depth=1, newest=False, cut_headers=True, mapped=True),
    dict(messages=3, depth=1, newest=True, mapped=True, zeroed=True),
    dict(messages=3, depth=2, newest=False),
    dict(messages=3, depth=2, newest=True),
]


@pytest.fixture(autouse=True)
def few_retries(monkeypatch):
    """Each retry multiplies the schedules."""
    monkeypatch.setattr(receiver, "_TORN_RETRIES", 2)


def first_order(stages):
    """One order of arrival; the others only matter within stages."""
    yield [piece for stage in stages for piece in stage]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_every_schedule_keeps_the_promises(scenario):
    orders = {} if scenario["messages"] < 3 and not scenario.get("cut_headers") else {"orders": first_order}
    assert explore(**scenario, **orders) > 100


def no_mark(monkeypatch):
    """The sender does not mark the slot before it writes the payload."""
    plant(monkeypatch, NearEdges, "send", ("if self._marks:", "if False:"))


def no_second_look(monkeypatch):
    monkeypatch.setattr(ReceiveRing, "look_again", lambda self, first, second: True)


def writing_passes_for_whole(monkeypatch):
    monkeypatch.setattr(ring, "WHOLE", WRITING)


def header_unchecked(monkeypatch):
    def unpacked(buffer, offset):
        *fields, check = header._WORDS.unpack_from(buffer, offset)
        return check, Header(*fields)

    monkeypatch.setattr(header, "_checked", unpacked)


def believes_a_hash_that_was_read_before(monkeypatch):
    """A header is kept with the hash that was there before it was unpacked. That is 0 while it is zeroed."""
    keeps = "self._known = read"
    plant(monkeypatch, Watched, "read", ("if self._check[0] ==", "if (check := self._check[0]) =="),
          (keeps, "self._known = check, read[1]"))  # fmt: skip


def taken_again(monkeypatch):
    """The receiver does not see that it has had the message already."""
    look = ReceiveRing.look

    def forgetful(self, seen):
        if seen is not None and seen.number == self.taken and seen.state == WHOLE and self.gathered < 9:
            self.taken -= 1
        return look(self, seen)

    monkeypatch.setattr(ReceiveRing, "look", forgetful)


def newest_ignores_state(monkeypatch):
    def newest(self, seen):
        return max([one for one in seen if one is not None and one.number > self.taken], default=None)

    monkeypatch.setattr(ReceiveRing, "newest", newest)


def newest_ignores_taken(monkeypatch):
    def newest(self, seen):
        return max([one for one in seen if one is not None and one.state == WHOLE], default=None)

    monkeypatch.setattr(ReceiveRing, "newest", newest)


def loss_uncounted(monkeypatch):
    def lose(self, number):
        self.taken = max(self.taken, number)

    monkeypatch.setattr(ReceiveRing, "skip", lose)


def loses_one_too_many(monkeypatch):
    def look(self, seen):
        if seen is not None and seen.number > self.taken + 1:
            self.skip(seen.number)
            return SlotState.LOST
        return original(self, seen)

    original = ReceiveRing.look
    monkeypatch.setattr(ReceiveRing, "look", look)


def writes_into_one_slot(monkeypatch):
    plant(monkeypatch, Outbox, "_ready", ("ring.sent % ring.depth", "0"))


def no_flush_after_payload(monkeypatch):
    """Payload and publishing header arrive in any order."""
    plant(monkeypatch, NearEdges, "send", ("edge.put_payload()\n    self._flush()", "edge.put_payload()"))


MUTANTS = [
    no_mark, no_second_look, writing_passes_for_whole, header_unchecked, taken_again, newest_ignores_state,
    newest_ignores_taken, loss_uncounted, loses_one_too_many, writes_into_one_slot, no_flush_after_payload,
]  # fmt: skip
ON_BOTH_WAYS = [(mutant, mapped) for mutant in MUTANTS for mapped in (False, True)]


@pytest.mark.thorough(but="no_mark-mapped")
@pytest.mark.parametrize(
    ("mutant", "mapped"),
    [*ON_BOTH_WAYS, (believes_a_hash_that_was_read_before, True)],
    ids=lambda one: one.__name__ if callable(one) else "mapped" if one else "Puts",
)
def test_some_schedule_catches(mutant, mapped, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(Violation):
        for scenario in SCENARIOS:
            if scenario.get("mapped", mapped) == mapped:
                orders = {} if scenario["messages"] < 3 and not scenario.get("cut_headers") else {"orders": first_order}
                explore(**{**scenario, "mapped": mapped}, **orders)


def test_sender_may_not_pass_what_is_in_flight():
    ring = SendRing(depth=2)
    ring.sent = 2
    assert not ring.may_send(2)
    ring.acknowledged(1)
    assert ring.may_send(2) and not ring.may_send(1)
    ring.acknowledged(9)  # never sent: not believed
    assert ring.taken == 1


def test_a_length_beyond_the_slot_is_not_sound():
    ring = ReceiveRing(depth=1, capacity=8)
    assert ring.is_sound(Header(1, 1, WHOLE, 0, 8))
    assert not ring.is_sound(Header(1, 1, WHOLE, 0, 9))
    assert not ring.is_sound(Header(1, 1, WHOLE, 0, -1))


def test_an_acknowledgement_that_is_old_or_impossible_is_ignored():
    ring = SendRing(4)
    ring.sent = 3
    taken = []
    for number in (1, 0, 4, 3, 2, 5):
        ring.acknowledged(number)
        taken.append(ring.taken)
    assert taken == [1, 1, 1, 3, 3, 3]


def test_what_is_skipped_is_settled_once_as_overwritten():
    ring = ReceiveRing(4, 8)
    account = []
    for number in (2, 2, 1, 3):
        ring.skip(number)
        account.append((ring.taken, ring.overwritten))
    assert account == [(2, 2), (2, 2), (2, 2), (3, 3)] and ring.gathered == 0

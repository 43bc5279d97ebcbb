"""The ring under every interleaving, and proof that each of its checks is needed."""

import pytest
from mutation import plant
from schedules import Violation, explore

from dstorm import header
from dstorm.header import WHOLE, Header, Watched
from dstorm.queues.receiving import receiver
from dstorm.queues.ring import ReceiveRing, SendRing
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


def played(scenario):
    is_short = scenario["messages"] < 3 and not scenario.get("cut_headers")
    return explore(**scenario, **({} if is_short else {"orders": first_order}))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_every_schedule_keeps_the_promises(scenario):
    assert played(scenario) > 100


MUTANTS = {
    # The sender does not mark the slot before it writes the payload.
    "no_mark": (NearEdges, "send", ("if self._marks:", "if False:")),
    "no_second_look": (ReceiveRing, "look_again", ("if first == second:", "if True:")),
    "writing_passes_for_whole": (ReceiveRing, "look", ("READY if seen.state == WHOLE", "READY if True")),
    "header_unchecked": (header, "_checked", ("if check == hash(fields):", "if True:")),
    # The receiver does not see that it has had the message already.
    "taken_again": (
        ReceiveRing, "look", ("self.taken + 1", "self.taken + (seen.number != self.taken or self.gathered > 8)"),
    ),
    "newest_ignores_state": (ReceiveRing, "newest", (" and one.state == WHOLE", "")),
    "newest_ignores_taken": (ReceiveRing, "newest", ("number = None, self.taken", "number = None, 0")),
    "loss_uncounted": (ReceiveRing, "skip", ("self.overwritten += number - self.taken", "pass")),
    "loses_one_too_many": (ReceiveRing, "look", ("self.skip(seen.number - self.depth)", "self.skip(seen.number)")),
    "writes_into_one_slot": (Outbox, "_ready", ("ring.sent % ring.depth", "0")),
    # Payload and publishing header arrive in any order.
    "no_flush_after_payload": (NearEdges, "send", ("edge.put_payload()\n    self._flush()", "edge.put_payload()")),
    # A header is kept with the hash that was there before it was unpacked. That is 0 while it is zeroed.
    "believes_a_hash_that_was_read_before": (
        Watched, "read", ("if self._check[0] ==", "if (check := self._check[0]) =="),
        ("self._known = read", "self._known = check, read[1]"),
    ),
}  # fmt: skip
CASES = [(mutant, mapped) for mutant in MUTANTS for mapped in (False, True)]
CASES.remove(("believes_a_hash_that_was_read_before", False))


@pytest.mark.thorough(but="no_mark-mapped")
@pytest.mark.parametrize(
    ("mutant", "mapped"), CASES, ids=lambda one: one if isinstance(one, str) else "mapped" if one else "Puts"
)
def test_some_schedule_catches(mutant, mapped, monkeypatch):
    plant(monkeypatch, *MUTANTS[mutant])
    with pytest.raises(Violation):
        for scenario in SCENARIOS:
            if scenario.get("mapped", mapped) == mapped:
                played({**scenario, "mapped": mapped})


def test_an_acknowledgement_that_is_old_or_impossible_is_ignored():
    ring = SendRing(4)
    ring.sent = 3
    taken = []
    for number in (1, 0, 4, 3, 2, 5):
        ring.acknowledged(number)
        taken.append(ring.taken)
    assert taken == [1, 1, 1, 3, 3, 3]


def test_a_length_beyond_the_slot_is_not_sound():
    ring = ReceiveRing(depth=1, capacity=8)
    assert [ring.is_sound(Header(1, 1, WHOLE, 0, nbytes)) for nbytes in (8, 9, -1)] == [True, False, False]


def test_what_is_skipped_is_settled_once_as_overwritten():
    ring = ReceiveRing(4, 8)
    account = []
    for number in (2, 2, 1, 3):
        ring.skip(number)
        account.append((ring.taken, ring.overwritten))
    assert account == [(2, 2), (2, 2), (2, 2), (3, 3)] and ring.gathered == 0

"""What a rank tells newcomers while another thread follows the next admission of one; what a newcomer takes."""

from types import SimpleNamespace

import numpy as np
import pytest
from interleaved import interleaved

from dstorm.membership.returns.returns import Answer, Opening, Returns
from dstorm.queues.consistency import BSP
from dstorm.view import FaultTolerantView
from vol.returns.packing import packed
from vol.returns.returning import Returning

PLACE = 64
"""Where the vector lies."""
NOTE = {"incarnation": 1, "open": {str(PLACE): Opening(2, 3)}, "opens": True}
"""That of rank 1, which has opened it."""


class Notes(dict):
    """The board of rank 0, which has written to rank 1 what is in it."""

    def write(self, peer, note):
        self[peer] = note

    def read(self, peer):
        return NOTE if peer == 1 else {}


def taken_up(at):
    """Rank 0, which has answered the first incarnation of rank 1 that came back; `at`: its step."""
    view, notes = FaultTolerantView(3), Notes()
    view.change(failed=[1])
    view.change(joined=[1])
    returns = Returns(notes, view, 0, None, None)
    returns.poll()
    window = SimpleNamespace(place=PLACE)
    queues = SimpleNamespace(window=window, closed=False, renew=lambda rank, base: None)
    transport = SimpleNamespace(view=view, rank=0, clock=lambda: 0.0)
    returning = Returning(transport, returns, queues, dict, BSP, lambda: (at[0], True))
    returning.take_up()
    assert notes[1]["answers"][str(PLACE)].step == at[0]
    return returning, returns, view, notes


def follow(returns, view):
    """Rank 0 admits the next incarnation of rank 1, as the lowest rank, and follows that."""
    view.change(failed=[1])
    view.change(joined=[1])
    returns.welcome(1, {"session": {"made": []}})


@pytest.mark.parametrize("code", [Returning.serve, Returning.close, Returning._tell, Returns.answer, follow])
def test_what_is_for_a_former_incarnation_is_not_told_to_the_next_one(code):
    """It would take the vector up at a step at which this rank does not wait for it."""
    boards = []

    def prepare():
        at = [3]
        returning, returns, view, notes = taken_up(at)
        boards.append(notes)

        def tell():
            at[0] = 4
            returning.close() if code is Returning.close else returning.serve()

        calls = tell, lambda: follow(returns, view)
        return calls[::-1] if code is follow else calls

    for place in interleaved(code.__code__, prepare):
        assert "answers" not in boards[-1][1] and boards[-1][1]["admission"]["session"] == {"made": []}, place
    assert len(boards) > 10


def test_a_note_has_either_the_admission_or_answers():
    """It has a longest length, and the admission was found short enough alone."""
    _, returns, view, notes = taken_up([3])
    follow(returns, view)
    assert "admission" in notes[1]
    returns.answer(view.member(1), PLACE, Answer(3, False))
    assert "answers" in notes[1] and "admission" not in notes[1]


@pytest.mark.parametrize("cleared", [None, 0, 1])
def test_values_are_not_taken_from_memory_that_the_next_process_of_a_rank_clears(cleared):
    """It does so before the read, or once that has begun: the rank has failed, and was started again at once."""
    values = {"w": np.arange(5.0)}
    memory = np.concatenate(packed(values))
    reads = []

    def read(server, offset, nbytes):
        if len(reads) == cleared:
            memory[:] = 0
        reads.append(server)
        return memory[offset : offset + nbytes].copy()

    returning = object.__new__(Returning)
    returning._own, returning._returns = Opening(2, 3), SimpleNamespace(arena=SimpleNamespace(read=read))
    found = returning._read(0, memory.nbytes)
    assert (found is None) == (cleared is not None)
    assert found is None or np.array_equal(found["w"], values["w"])

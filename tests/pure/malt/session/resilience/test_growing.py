"""The time to an objective of ranks that become more while they train, beside that of ranks that stay as many."""

import numpy as np
import pytest
from returning import Job

import malt
from malt.runner import roster
from malt.runner.roster import Roster
from malt.session import session
from malt.session.world.crew import Crew

WIDTH, ROWS, ROW_S, EVERY, EPOCHS, COMES_S = 400, 200, 0.001, 10, 40, 0.5
"""A rank takes so long for a row, by the virtual clock. Two more come that long after the start."""
PAUSE_S = 0.01
"""What a turn takes of a rank that is not there yet."""
TARGET = WIDTH / 6_000
"""What the objective is after so many rows, of all ranks."""


def seconds(folder, seed, ranks):
    """The virtual seconds until rank 0 is as good as TARGET: the squared distance of its parameters from the best.

    Rows are noise alone, and steps fall as 1 / t: the parameters are the mean of what the ranks have seen.
    """
    reached, later = [], range(2, ranks)
    found = Roster.of(2, 1, 4)
    found.scale(ranks)
    roster.write(folder, found)

    def live(transport):
        incarnation = job.group.incarnations[transport.rank]
        session.world().crew = Crew(str(folder), transport, incarnation, found, comes_later=incarnation > 0)
        generator, w = np.random.default_rng([seed, transport.rank]), np.ones(WIDTH)
        replica = malt.Replica(w, every=EVERY, average="model", graph="all", sync="bsp")
        for epoch in malt.epochs(EPOCHS):
            for _ in malt.shard(ROWS, shuffle=True, seed=epoch):
                w += (generator.normal(size=WIDTH) - w) / ((replica.vectors[0].step + 1) * EVERY)
                job.group.compute(transport.rank, ROW_S)
                replica.step()
                if transport.rank == 0 and (w**2).sum() < TARGET:
                    reached.append(transport.clock())

    turns = dict.fromkeys(later, int(COMES_S / PAUSE_S))
    job = Job(ranks, seed, turns, {rank: [0] for rank in later}, absent=later)
    job.run(live)
    return reached[0]


@pytest.mark.thorough
def test_ranks_that_become_twice_as_many_reach_an_objective_in_two_thirds_of_the_time(tmp_path):
    """By the variance of the mean it is 3.0 s with two, and 1.9 s where there are four after 0.5 s."""
    stay, grow = (seconds(tmp_path, 0, ranks) for ranks in (2, 4))
    assert 2.7 < stay < 3.5 and grow < 0.75 * stay, (stay, grow)

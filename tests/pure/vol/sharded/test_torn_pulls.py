"""A pull beside an owner that changes its part: no block is half-done, whatever the schedule. Mutants are found."""

import numpy as np
import pytest
from mutation import plant

import malt
from vol.sharded import part
from vol.sharded.part import Parts

ROWS, BLOCK_ROWS = 20, 8
STEPS = 8


class Torn(AssertionError):
    """A block was read half-done."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("vol.sharded.layout.BLOCK_NBYTES", 4 * BLOCK_ROWS)


def change(s, other, step):
    """Change this rank's part so that all of it has one value."""
    if step % 4 == 0:
        s.fill(step)
    elif step % 4 == 1:
        s.axpy(step, other)
    elif step % 4 == 2:
        s.zip(lambda mine: mine * 0 + step)
    else:
        s.scale(0)
        s += other


def blocks(values):
    return [values[start : start + BLOCK_ROWS] for start in range(0, len(values), BLOCK_ROWS)]


def play(seed):
    """Rank 1 changes its part, rank 2 pushes to it, and rank 0 pulls all the while and checks each block."""

    def program(rank):
        s, other = malt.sharded(3 * ROWS), malt.sharded(3 * ROWS)
        other.fill(1)
        malt.barrier()
        mine = np.arange(ROWS, 2 * ROWS)
        for step in range(STEPS):
            if rank == 1:
                change(s, other, step)
            elif rank == 2:
                s.push(np.ones(ROWS), mine)
            else:
                whole, listed = s.pull()[mine], s.pull(mine[::-1])[::-1]
                for block in [*blocks(whole), *blocks(listed)]:
                    if (block != block[0]).any():
                        raise Torn(block)
        malt.barrier()

    malt.simulate(program, 3, seed)


@pytest.mark.parametrize("seed", range(20))
def test_no_block_is_half_done(seed):
    play(seed)


EQUAL, EVEN = "(before == after)", "(before % 2 == 0)"
MUTANTS = {
    "ranges_unchecked": (Parts, "read_range", ("_whole(before, after)", "_whole(before, before)")),
    "rows_unchecked": (Parts, "read_rows", ("_whole(before, after)", "_whole(before, before)")),
    "odd_passes_for_whole": (part, "_whole", (EVEN, "True")),
    "any_even_version_passes": (part, "_whole", (EQUAL, "(after % 2 == 0)")),
    "odd_too_late": (Parts, "changing", ("    versions += 1\n    self._window.sync()\n    try", "    try")),
    "even_too_early": (Parts, "changing", ("        yield\n", "        versions += 1; self._window.sync(); yield\n")),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.thorough] if name == "odd_passes_for_whole" else []) for name in MUTANTS
])  # fmt: skip
def test_a_mutant_is_found(name, monkeypatch):
    plant(monkeypatch, *MUTANTS[name])
    with pytest.raises(Torn):
        for seed in range(3000):
            play(seed)

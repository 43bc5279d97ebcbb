"""malt.torch.Sampler: which rows a loop takes, what counts as trained, and where it goes on."""

from itertools import chain

import pytest

pytest.importorskip("torch")

import torch
from torch.utils.data import DataLoader, DistributedSampler

import malt

ROWS = 23


def made(rows=ROWS, workers=0, batch=4, drop_last=False, **options):
    """A sampler and its loader, of rows that are their numbers."""
    sampler = malt.torch.Sampler(range(rows), **options)
    return sampler, DataLoader(range(rows), batch, sampler=sampler, num_workers=workers, drop_last=drop_last)


def test_a_job_that_grows_has_another_way(monkeypatch):
    monkeypatch.setattr(type(malt.init()), "is_elastic", True)
    with pytest.raises(RuntimeError, match="come and go .*: deal the rows of each epoch of malt.epochs by malt.shard"):
        made()


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("shuffle", [True, False])
def test_rows_are_those_of_distributed_sampler_but_nobody_is_padded(ranks, shuffle):
    def run(rank):
        sampler = malt.torch.Sampler(range(ROWS), shuffle, 3)
        epochs = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            epochs.append(list(sampler))
            assert len(sampler) == len(epochs[-1])
            assert list(sampler) == epochs[-1]  # an epoch that is repeated
        return epochs

    found = malt.simulate(run, ranks)
    for epoch in range(3):
        assert sorted(chain.from_iterable(mine[epoch] for mine in found)) == list(range(ROWS))
        for rank, mine in enumerate(found):
            other = DistributedSampler(range(ROWS), ranks, rank, shuffle, 3)
            other.set_epoch(epoch)
            assert list(other)[: len(mine[epoch])] == mine[epoch] and len(other) - len(mine[epoch]) in (0, 1)
    assert (found[0][0] != found[0][1]) == shuffle


@pytest.fixture
def step():
    """A step of a malt.torch.Optimizer, to be called."""
    model = torch.nn.Linear(1, 1)
    with malt.torch.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model) as optimizer:
        yield optimizer.step


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_trained_counts_and_not_what_workers_have_fetched(workers, step):
    sampler, loader = made(workers=workers)
    positions = []
    for number, _ in enumerate(sampler.batches(loader)):
        positions.append(sampler.state_dict()["places"][0][1])
        if number != 2:  # a batch whose gradients are added to those of the next one
            step()
        positions.append(sampler.state_dict()["places"][0][1])
    assert positions == [0, 4, 4, 8, 8, 8, 8, 16, 16, 20, 20, 23]
    assert sampler.state_dict()["places"] == [[0, ROWS, True]]
    sampler.set_epoch(1)
    assert sampler.state_dict()["places"] == [[1, 0, False]]


def test_without_a_step_all_counts_at_the_end_or_as_the_loop_says():
    sampler, loader = made()
    for _ in sampler.batches(loader):
        assert sampler.state_dict()["places"][0][1] == 0
    assert sampler.state_dict()["places"][0][1] == ROWS
    for _ in sampler.batches(loader):  # once more
        sampler.trained()
        break
    assert sampler.state_dict()["places"][0][1] == 4


def test_a_loop_over_the_loader_itself_has_no_known_place():
    sampler, loader = made()
    next(iter(loader))
    with pytest.raises(ValueError, match=r"Sampler.state_dict: iterate over sampler.batches\(loader\), which counts"):
        sampler.state_dict()
    sampler.set_epoch(1)
    assert sampler.state_dict()["epoch"] == 1


def epochs_of(sampler, loader, stop=None, count=0, epochs=3):
    """The batches by epoch that a loop takes; `stop`: how many it takes before it saves and is left."""
    found = []
    for epoch in range(sampler.epoch, epochs):
        sampler.set_epoch(epoch)
        for batch in sampler.batches(loader):
            found.append((epoch, batch.tolist()))
            sampler.trained()
            if len(found) == stop:
                return found, sampler.state_dict()
    return found, None


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_it_goes_on_with_the_next_batch(workers, drop_last):
    options = {"drop_last": drop_last, "seed": 1}
    torch.manual_seed(0)
    whole, _ = epochs_of(*made(**options))
    drawn = torch.rand(1).item()
    for stop in range(1, len(whole), 1 if not workers else 9):
        torch.manual_seed(0)
        first, state = epochs_of(*made(workers=workers, **options), stop=stop)
        sampler, loader = made(workers=workers, **options)
        sampler.load_state_dict(state)
        rest, _ = epochs_of(sampler, loader)
        assert first + rest == whole, stop
        assert torch.rand(1).item() == drawn  # a loader draws once an epoch


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("fewer", [1, 3, 4])
def test_on_any_number_of_ranks_each_row_is_trained_once(ranks, fewer):
    states = malt.simulate(lambda rank: epochs_of(*made(batch=2, seed=5), stop=2), ranks)
    assert all(str(state) == str(states[0][1]) for _, state in states)
    begun = list(chain.from_iterable(batch for done, _ in states for _, batch in done))

    def go_on(rank):
        sampler, loader = made(batch=2, seed=5)
        sampler.load_state_dict(states[0][1])
        return epochs_of(sampler, loader)[0]

    found = list(chain(*malt.simulate(go_on, fewer)))
    for epoch in range(3):
        rows = begun * (epoch == 0) + list(chain.from_iterable(batch for one, batch in found if one == epoch))
        assert sorted(rows) == list(range(ROWS))


def test_a_rest_that_was_dealt_anew_is_saved_and_dealt_anew():
    def part(state, ranks, stop=1):
        def run(rank):
            sampler, loader = made(batch=2)
            if state is not None:
                sampler.load_state_dict(state)
            found, after = epochs_of(sampler, loader, stop=stop, epochs=1)
            return list(chain.from_iterable(batch for _, batch in found)), after

        found = malt.simulate(run, ranks)
        return list(chain.from_iterable(rows for rows, _ in found)), found[0][1]

    trained, state = part(None, 2)
    for ranks in (3, 3, 1):  # on as many ranks, too, the rest is that of the rest
        more, state = part(state, ranks)
        trained += more
    last, _ = part(state, 2, None)
    assert sorted(trained + last) == list(range(ROWS))


def test_ranks_of_other_epochs_are_known():
    """A rank of fewer rows is in the next epoch while another one is not."""

    def run(rank, state=None, ranks=2):
        sampler, loader = made(rows=9, batch=1, shuffle=False)
        if state is not None:
            sampler.load_state_dict(state)
            return epochs_of(sampler, loader, epochs=2)[0]
        return epochs_of(sampler, loader, stop=5)

    (_, state), (_, other) = malt.simulate(run, 2)
    assert str(state) == str(other) and state["places"] == [[0, 5, True], [1, 1, True]]
    own, of_other = malt.simulate(lambda rank: run(rank, state), 2)
    assert [rows for _, rows in own] == [[0], [2], [4], [6], [8]] and [rows for _, rows in of_other] == [[3], [5], [7]]
    alone = malt.simulate(lambda rank: run(rank, state), 1)[0]
    assert [rows for _, rows in alone] == [[row] for row in range(9)]  # of epoch 0 nothing is left


@pytest.mark.parametrize(("rows", "drop_last"), [(25, False), (24, False), (24, True), (23, True), (2, False)])
def test_ranks_save_after_batches_that_all_have(tmp_path, rows, drop_last):
    """Else one with a batch more would save while the others are through."""

    def run(rank):
        sampler, loader = made(rows, drop_last=drop_last)
        one = malt.Checkpoint(tmp_path / "x", 0)
        saved = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            one.save({"sampler": sampler}, mine={})
            for _ in sampler.batches(loader):
                sampler.trained()
                saved.append(one.save({"sampler": sampler}, mine={}))
        malt.barrier()
        return saved, one.load()["sampler"]["places"]

    found = malt.simulate(run, 3)
    least = rows // 3 // 4 if drop_last else -(-(rows // 3) // 4)
    assert [sum(saved) for saved, _ in found] == [2 * least, 0, 0]
    assert found[0][1] == [[1, min(least * 4, rows // 3 + (rank < rows % 3)), bool(least)] for rank in range(3)]


class Exchange:
    """What ranks exchange together by."""

    is_in_step = True

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize(("rows", "drop_last"), [(24, True), (23, False), (26, True), (26, False)])
def test_ranks_that_exchange_together_save_where_all_have_as_many_batches(tmp_path, rows, drop_last, capsys):
    def run(rank, ranks=3):
        sampler, loader = made(rows, drop_last=drop_last)
        one = malt.Checkpoint(tmp_path / "x", 0)
        one.restore({"sampler": sampler}, mine={})
        saved = []
        for epoch in range(sampler.epoch, 2):
            sampler.set_epoch(epoch)
            for _ in sampler.batches(loader):
                sampler.trained()
                saved.append(one.save({"sampler": sampler}, mine={"exchange": Exchange()}))
                if ranks == 3 and len(saved) == 1:
                    return len(saved)
        return len(saved), sum(saved)

    counts = {rows // 3, -(-rows // 3)}
    if len({count // 4 if drop_last else -(-count // 4) for count in counts}) == 2:
        with pytest.raises(ValueError, match=f"an epoch, and save together: give the loader drop_last={not drop_last}"):
            malt.simulate(run, 3)
        return
    assert malt.simulate(run, 3) == [1] * 3
    found = malt.simulate(lambda rank: run(rank, 2), 2)  # the rest, on two ranks: 12 of 24, or 14 of 26
    is_told = "no checkpoint is saved from here on" in capsys.readouterr().err
    assert is_told == (len({one for one, _ in found}) == 2) and (found[0][1] == found[0][0] or is_told)


def failing(turns, live, size=3):
    """What ranks 0 and 1 return of live(transport), where the last rank fails after so many turns."""
    from dstorm import Group, SimulatedTransport
    from dstorm.membership.resilient import SurvivingTransport
    from malt.session import session
    from malt.session.world.world import World

    group = Group(size, 0, {size - 1: turns})

    def start(rank):
        inner = SimulatedTransport(group, rank)
        transport = SurvivingTransport(inner, inner.window(1 << 21), inner.find_failed, 5.0)
        session.enter_simulation(World(transport))
        return live(transport)

    found = group.run(start)
    assert group.failed == {size - 1}
    return found[:-1]


@pytest.mark.parametrize("stop", [None, 9, 0])
def test_rows_of_a_failed_rank_are_trained_by_the_others(monkeypatch, stop):
    """They learn of it within their epoch. A save then has what is left, for any number of ranks."""
    monkeypatch.setattr("dstorm.membership.resilient._CHECK_S", 0.0)

    def live(transport):
        sampler, loader = made(rows=60, batch=2)
        taken = []
        for number, batch in enumerate(sampler.batches(loader)):
            taken += batch.tolist()
            sampler.trained()
            while stop == 0 and not transport.view.failed:  # it fails after the last row was drawn
                transport.poll_failures()
                transport.pause(1)
            if number == stop:
                return taken, len(sampler), sampler.state_dict()
            for _ in range(40):
                transport.poll_failures()
                transport.pause(1)
        return taken, len(sampler), sampler.state_dict()

    (own, length, state), (others, _, same) = failing(200, live)
    assert len(set(own)) == len(own) and str(state) == str(same)
    assert not set(own) & set(others) and (len(own) == length > 20 or stop is not None)
    for ranks in (1, 2, 3):
        rest = malt.simulate(lambda rank: after(state), ranks)
        assert sorted(own + others + list(chain(*rest))) == list(range(60))


def after(state):
    sampler, loader = made(rows=60, batch=2)
    sampler.load_state_dict(state)
    return list(chain.from_iterable(batch for _, batch in epochs_of(sampler, loader, epochs=1)[0]))


def test_what_does_not_fit_is_refused():
    sampler, _ = made()
    state = sampler.state_dict()
    for other, what in [
        (malt.torch.Sampler(range(5)), "rows 23, not 5"), (malt.torch.Sampler(range(ROWS), False), "shuffle True, not"),
        (malt.torch.Sampler(range(ROWS), seed=4), "seed 0, not 4"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=f"the state is of a sampler with {what}"):
            other.load_state_dict(state)
    for loader in (DataLoader(range(ROWS)), DataLoader(range(ROWS), sampler=sampler, in_order=False, num_workers=0)):
        with pytest.raises(ValueError, match="the loader must have this sampler"):
            next(sampler.batches(loader))
    for words in ({"shuffle": 1}, {"seed": -1}, {"seed": 1.5}):
        with pytest.raises((TypeError, ValueError)):
            malt.torch.Sampler(range(3), **words)
    with pytest.raises(ValueError, match="epoch"):
        sampler.set_epoch(-1)


def test_ranks_with_other_samplers_are_told():
    def run(rank):
        malt.torch.Sampler(range(9), seed=rank).state_dict()

    with pytest.raises(ValueError, match="Sampler.state_dict: ranks disagree on seed: rank 0 has 0, rank 1 has 1"):
        malt.simulate(run, 2)

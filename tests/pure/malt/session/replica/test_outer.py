"""malt.Replica with an outer optimizer, and with changes that are rounded or sent in part."""

import numpy as np
import pytest

import malt

N = 200
SMOOTH = dict(rate=0.7, decay=0.9, warmup=2)


def changes(rank, step):
    """What `rank` changes before exchange `step`."""
    return np.random.default_rng([rank, step]).standard_normal(N) * (step <= 5)


def test_a_step_that_counts_may_be_given_to_one_replica_after_the_other():
    """As for each fold of a cross-validation. It went on from where the last one had ended, which differed by rank."""
    outer = malt.optim.adam(0.1, warmup=1)
    first, second = (trained(2, 4, outer=outer, sync="bsp")[0] for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    assert outer.steps == 0


def trained(ranks, exchanges, start=1.0, **options):
    """What each rank's parameters are after each exchange, and the vectors' statistics."""

    def train(rank):
        w, seen = np.full(N, start), []
        replica = malt.Replica([w[:50], w[50:]], average="delta", **{"graph": "all", **options})
        for step in range(1, exchanges + 1):
            w += changes(rank, step)
            replica.step()
            seen.append(w.copy())
        state = [array.copy() for array in replica.outer_state]
        sent = replica.vectors[0].statistics().bytes_sent
        replica.finish()
        return seen, state, sent

    return malt.simulate(train, ranks, seed=1)


def twin(ranks, exchanges, decay=0.9, warmup=2):
    """DiLoCo with Nesterov momentum, as it is written, after the warm-up: parameters, and the velocity in the end."""
    base, velocity, seen = np.full(N, 1.0), np.zeros(N), []
    for step in range(1, exchanges + 1):
        gradient = -np.mean([changes(rank, step) for rank in range(ranks)], axis=0)
        if step <= warmup:
            base = base - gradient
        else:
            velocity = decay * velocity - 0.7 * gradient
            base = base + decay * velocity - 0.7 * gradient
        seen.append(base)
    return seen, velocity


@pytest.mark.parametrize(("ranks", "warmup", "given"), [(1, 2, [2]), (2, 0, [0]), (3, 3, [3]), (2, 5, [])])
def test_an_outer_step_is_one_by_the_mean_of_changes(ranks, warmup, given):
    everyone = trained(ranks, 8, sync="bsp", outer=malt.optim.nesterov(0.7, 0.9, *given))
    expected, velocity = twin(ranks, 8, warmup=warmup)
    for seen, state, _ in everyone:
        np.testing.assert_allclose(seen, expected)
        np.testing.assert_allclose(state[0], velocity)
        assert [one.tolist() for one in state[1:]] == [[8]] * bool(warmup), "a state goes on in its warm-up"
        assert np.array(seen).tobytes() == np.array(everyone[0][0]).tobytes()


def test_a_step_that_counts_does_so_for_each_dtype():
    def live(rank):
        both = {"a": np.zeros(3), "b": np.zeros(2, np.float32)}
        replica = malt.Replica(both, every=1, average="delta", sync="bsp", outer=malt.optim.adam(0.1, warmup=1))
        alone = {name: [np.zeros_like(array) for _ in range(3)] for name, array in both.items()}
        steps = {name: malt.optim.adam(0.1) for name in both}
        for exchange in range(4):
            for name, (w, *state) in alone.items():
                change = w.dtype.type(exchange + 1)
                both[name] += change
                if exchange:
                    steps[name](w, *state, np.full_like(w, -change))
                else:
                    w += change
            replica.step()
        assert all(np.array_equal(both[name], alone[name][0]) for name in both)

    malt.simulate(live, 1)


def test_under_asp_no_change_and_no_momentum_is_lost():
    """Nobody waits, so messages are late or overwritten. Once the velocity has faded the parameters are the same."""
    everyone = trained(3, 300, sync="asp", outer=malt.optim.nesterov(**SMOOTH))
    expected, _ = twin(3, 300)
    for seen, _, _ in everyone:
        assert not np.allclose(seen[4], expected[4], atol=1e-3), "messages are under way"
        np.testing.assert_allclose(seen[-1], expected[-1])


@pytest.mark.thorough(but="4-1")
@pytest.mark.parametrize("fragments", [1, 2])
@pytest.mark.parametrize("ranks", [4, 5])
def test_pairs_make_the_outer_step_together_and_come_together(ranks, fragments):
    """The mean over ranks moves as if all had heard of all changes."""
    exchanges, warmup = 80, 2 if fragments == 1 else 0  # fragments that leave in turn divide what changes otherwise
    everyone = trained(ranks, exchanges * fragments, sync="bsp", graph="pairs", every=fragments, fragments=fragments,
                       outer=malt.optim.nesterov(0.7, 0.5, warmup))  # fmt: skip
    seen, expected = np.array([one[0] for one in everyone]), twin(ranks, exchanges, decay=0.5, warmup=warmup)[0]
    np.testing.assert_allclose(seen.mean(0)[-1], expected[-1], atol=1e-6)
    if fragments == 1:  # else ranks have also what they have changed since they sent
        np.testing.assert_allclose(seen.mean(0), expected)
    assert 0.3 < seen.std(0)[4].max() <= seen.std(0).max() < 4, "ranks stay near each other"
    assert seen.std(0)[-1].max() < 1e-4, "and come together once nothing changes"
    if ranks % 2 == 0 and fragments == 1:
        assert all(sent == 8 * N * exchanges for _, _, sent in everyone), "one message a round"


def test_an_outer_step_of_pairs_sends_models():
    def refused(rank):
        options = dict(average="delta", sync="bsp", graph="pairs", outer=malt.optim.nesterov(0.7, 0.5))
        with pytest.raises(ValueError, match="outer along the graph 'pairs' sends models, and wire and top are for"):
            malt.Replica(np.zeros(2), wire="int8", **options)

    malt.simulate(refused, 3)


@pytest.mark.parametrize(("wire", "top"), [("int8", None), (None, 0.5), ("int8", 0.5), ("float16", 0.3)])
def test_what_is_rounded_off_or_left_out_is_sent_later(wire, top):
    everyone = trained(3, 30, sync="bsp", wire=wire, top=top)
    expected = 1 + sum(np.mean([changes(rank, step) for rank in range(3)], axis=0) for step in range(1, 6))
    for seen, _, _ in everyone:
        assert np.array(seen).tobytes() == np.array(everyone[0][0]).tobytes(), "all ranks make the same step"
        assert np.abs(seen[4] - expected).max() > 1e-3
        np.testing.assert_allclose(seen[-1], expected, atol=1e-6)


def test_less_is_sent():
    whole, int8, part = (trained(2, 1, sync="bsp", **options)[0][2] for options in (
        dict(), dict(wire="int8"), dict(wire="int8", top=0.5)
    ))  # fmt: skip
    assert whole == 8 * N and int8 == 4 * (64 + 4) + 1 and part == 2 * (64 + 4 + 4)


EVERYTHING = sum(np.mean([changes(rank, step) for rank in range(3)], axis=0) for step in range(1, 6))


@pytest.mark.parametrize("options", [
    dict(sync="bsp"), dict(sync="notify-ack", wire="int8"), dict(sync="asp"), dict(sync="bsp", fragments=3, every=3),
], ids=str)  # fmt: skip
def test_fragments_in_turn_lose_no_change(options):
    outer = malt.optim.nesterov(0.7, 0.9, warmup=0)
    everyone = trained(3, 400, **{"every": 2, "fragments": 2, **options}, outer=outer)
    for seen, state, _ in everyone:
        np.testing.assert_allclose(seen[-1], 1 + 0.7 / 0.1 * EVERYTHING, atol=1e-4)
        assert [len(array) for array in state] == [50, 150]


def test_a_fragment_is_merged_at_the_next_turn_with_what_the_loop_has_changed_meanwhile():
    def train(rank):
        a, b, seen = np.zeros(2), np.zeros(2), []
        replica = malt.Replica([a, b], every=4, average="delta", sync="bsp", fragments=2)
        for _ in range(6):
            a += 1 + rank
            b += 1 + rank
            replica.step()
            seen.append([a[0], b[0]])
        replica.close()
        return seen

    first, second = malt.simulate(train, 2)
    assert first == [[1, 1], [2, 2], [3, 3], [3 + 2, 4], [4 + 2, 5], [5 + 2, 6 + 2]]
    assert second == [[2, 2], [4, 4], [6, 6], [3 + 4, 8], [5 + 4, 10], [7 + 4, 6 + 4]]


def test_models_in_fragments():
    """Means of models as they were at the last turn, and what has changed since."""

    def train(rank):
        a, b = np.full(2, 8.0 * rank), np.full(3, 8.0 * rank)
        replica = malt.Replica([a, b], every=2, sync="bsp", fragments=2)
        a += 4 * rank
        b += 4 * rank
        for _ in range(3):
            replica.step()
            a += 1
        replica.close()
        return a[0], b[0]

    assert malt.simulate(train, 2) == [(2 + 3, 2.0), (2 + 3, 2.0)]

"""malt.TRAINED on simulated ranks: each model weighs as many examples as are new in it."""

import numpy as np
import pytest

import malt

VALUES = [np.array([0.1, -3.0, 7.7], np.float32) * np.float32(rank + 1.3) for rank in range(3)]
ASP = ["asp", "ssp:9"]


def merged(counts, sync="asp", depth=2):
    """Rank 0's array after a merge. `counts`: by rank, its count of examples at each of its scatters."""

    def train(rank):
        v = malt.vector(VALUES[rank].copy(), graph="all", sync=sync, depth=depth)
        results = []
        for turn in range(max(map(len, counts))):
            malt.barrier()
            if turn < len(counts[rank]):
                v.array[:] = VALUES[rank]
                v.scatter(weight=float(counts[rank][turn]))
            malt.barrier()
            v.gather(malt.TRAINED)
            results.append(v.array.copy())
        v.close()
        return results

    return malt.simulate(train, 3)[0]


def mean(*weights):
    total = np.zeros(3, np.float32)
    for weight, values in zip(weights, VALUES, strict=True):
        total += np.float32(weight) * values
    return (total / np.float32(sum(weights))).tobytes()


PLAIN = ((VALUES[0] + VALUES[1] + VALUES[2]) / np.float32(3)).tobytes()


@pytest.mark.parametrize("sync", ASP)
def test_each_model_weighs_the_examples_that_are_new_in_it(sync):
    first, second = merged([[10, 20], [30, 100], [5, 5]], sync)
    assert first.tobytes() == mean(10, 30, 5)
    assert second.tobytes() == mean(10, 70, 0)


@pytest.mark.parametrize("sync", ASP)
def test_equal_counts_give_the_bits_of_the_plain_mean(sync):
    first, second = merged([[10, 17], [10, 17], [10, 17]], sync)
    assert first.tobytes() == second.tobytes() == PLAIN


def test_an_overwritten_message_counts_in_the_next():
    def train(rank):
        v = malt.vector(VALUES[rank].copy(), graph="all", sync="asp")
        for count in (4, 8, 12) if rank else (4,):
            v.scatter(weight=float(count))
        malt.barrier()
        v.gather(malt.TRAINED)
        v.close()
        return v.array

    assert malt.simulate(train, 3)[0].tobytes() == mean(4, 12, 12)


@pytest.mark.parametrize("sync", ["bsp", "notify-ack"])
def test_where_senders_wait_it_is_the_plain_mean(sync):
    assert merged([[10], [30], [5]], sync)[0].tobytes() == PLAIN


@pytest.mark.parametrize("dense_copies", [False, True])
def test_without_new_examples_nothing_is_merged(dense_copies, monkeypatch):
    if dense_copies:  # the other way of a merge: of copies, not in place
        monkeypatch.setattr("vol.dense.DenseVector._average_in_place", lambda *arguments: None)
    first, second = merged([[0, 0], [0, 0], [0, 8]])
    assert first.tobytes() == VALUES[0].tobytes()
    assert second.tobytes() == VALUES[2].tobytes()


@pytest.mark.parametrize(("graph", "weights"), [("auto", (1, 3, 2)), ("all", (1, 1, 1))])
@pytest.mark.parametrize("sync", ASP)
def test_a_replica_on_several_hosts_weighs_by_the_root_of_what_is_new(graph, weights, sync):
    def train(rank):
        w = np.zeros(3, np.float32)
        replica = malt.Replica(w, every=1000, graph=graph, sync=sync)
        w[:] = VALUES[rank]
        if rank:  # the counts are those of scatters: rank 1 has 9, rank 2 has 4
            replica.step((0, 9000, 4000)[rank])
        malt.barrier()
        w[:] = VALUES[rank]
        if not rank:
            replica.step(1000)
        malt.barrier()
        replica.close()
        return w

    network = malt.Network(1e-3, 1e9, ["a", "a", "b"])
    expected = np.average(VALUES, axis=0, weights=weights)
    np.testing.assert_allclose(malt.simulate(train, 3, network=network)[0], expected, rtol=1e-6)
    assert malt.simulate(train, 3)[0].tobytes() == PLAIN

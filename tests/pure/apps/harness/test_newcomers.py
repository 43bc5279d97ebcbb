"""Ranks that come back to a training of the harness: what they are given, and where they stay out."""

import json
import re
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
from returning import Job

import malt
from apps.harness import memory, newcomers
from apps.harness.errors import BadInput, StaysOut
from apps.harness.marks import Mark
from apps.harness.shares import Shares
from apps.harness.training import Training
from malt.session import session


@pytest.fixture
def outside(monkeypatch):
    """This rank was started again, and is not admitted yet."""
    monkeypatch.setattr(malt, "init", lambda: SimpleNamespace(is_outside=True, is_elastic=False))


def test_a_newcomer_has_the_numbers_of_the_rank_that_gives_them():
    begun, trained = [], []
    checkpoints = SimpleNamespace(
        epoch=3, before=Mark(examples=30, seconds=1.5), begin_as=lambda *all: begun.append(all)
    )
    one, other = (Training(SimpleNamespace(options=Namespace()), checkpoints, None) for _ in range(2))
    one.trainer = SimpleNamespace(state=lambda: {"w": np.ones(2)})
    one._epoch, one._clock.seconds = 7, 4.5
    other.trainer = SimpleNamespace(go_on_from=lambda state, epochs: trained.append((state["w"].tolist(), epochs)))
    other._go_on_from(one._offered())
    assert begun == [(3, Mark(examples=30, seconds=1.5))] and trained == [([1.0, 1.0], 4)]
    assert (other._epoch, other._clock.seconds, other.is_newcomer, other.marks) == (7, 4.5, True, 4 * [Mark()])


def test_it_stays_out_where_ranks_come_together(outside):
    with pytest.raises(StaysOut, match="meet in each epoch"):
        newcomers.refuse()


def test_a_job_that_may_grow_is_refused_where_ranks_come_together(monkeypatch):
    monkeypatch.setattr(malt, "init", lambda: SimpleNamespace(is_outside=False, is_elastic=True))
    with pytest.raises(BadInput, match="meet in each epoch.*: start it without --elastic"):
        newcomers.refuse()


def test_it_stays_out_where_the_others_have_ended(monkeypatch):
    vector = SimpleNamespace(accompany=lambda state: None)
    monkeypatch.setattr(malt, "rejoined", lambda: False)
    assert newcomers.exchanged([vector], dict) is None
    monkeypatch.setattr(malt, "rejoined", lambda: True)
    with pytest.raises(StaysOut, match="have ended their training"):
        newcomers.exchanged([vector], dict)


@pytest.mark.serial
def test_rows_go_back_to_a_rank_that_comes_back():
    def shares(_):
        made, gone = Shares(40), malt.size() - 1
        alive = tuple(range(malt.size()))
        assert not made.changed(alive)
        assert made.changed(alive[:gone])
        more = made.rows(0)
        assert made.changed(alive) and made.rows(0) < more
        return True

    assert malt.simulate(shares, 4) == [True] * 4


def test_a_rank_beyond_a_job_that_has_shrunk_knows_what_its_queues_take(monkeypatch):
    monkeypatch.setattr(malt, "size", lambda: 2)
    monkeypatch.setattr(malt, "rank", lambda: 3)
    monkeypatch.setattr(malt, "init", lambda: SimpleNamespace(reachable=lambda senders: (0, 1, 2)))  # any may be one
    assert memory.queues_nbytes(Namespace(graph="all", degree=None), 100, depth=2) == 3 * 2 * 100


@pytest.mark.serial
@pytest.mark.parametrize("options", ["--sync bsp", "--average delta --vector sparse"])
def test_a_rank_that_comes_back_goes_on_from_the_epoch_of_the_others(options, tmp_path, monkeypatch, capsys):
    """As jobs do in tests/faults/test_programs_rejoin.py."""
    program, trainer = (pytest.importorskip(f"apps.svm.{name}") for name in ("program", "sgd"))
    parts, train, trained, of_others, begun = malt.Exchanges.parts, trainer.Trainer.train, [], [], []

    def noted(self, epoch, order):
        if malt.rejoined() and not trained:
            begun.append((max(of_others), self.state()["trained"]))
        (trained if malt.rejoined() else of_others).append(epoch)
        return train(self, epoch, order)

    def slow(self, order):
        for part in parts(self, order):
            for _ in range(40):
                session.world().transport.pause(14)
            yield part

    draw, report, rows = np.random.default_rng(0), tmp_path / "report.json", tmp_path / "rows"
    X = draw.standard_normal((400, 20))
    signs = np.sign(X @ draw.standard_normal(20))
    rows.write_text("".join(
        f"{sign:.0f} {' '.join(f'{j}:{x:.3f}' for j, x in enumerate(row, 1))}\n"
        for sign, row in zip(signs, X, strict=True)
    ))  # fmt: skip
    monkeypatch.setattr(malt.Exchanges, "parts", slow)
    monkeypatch.setattr(trainer.Trainer, "train", noted)
    words = [str(rows), "--exchange-every", "20", "--epochs", "20", "--json", str(report), *options.split()]
    job = Job(4, 0, {3: 900}, {3: [0]})
    assert job.run(lambda transport: program.run(words)) == [None] * 4 and job.group.incarnations == [0, 0, 0, 1]
    assert trained[0] > 1 and trained == [*range(trained[0], 21)]
    [(epoch, examples)] = begun
    assert trained[0] <= epoch and examples >= 100 * (trained[0] - 1)  # a quarter of the rows an epoch
    models = dict(re.findall(r"model on rank (\d): (\w+)", capsys.readouterr().out))
    assert models.keys() == set("0123") and len(set(models.values())) == 1
    epochs = json.loads(report.read_text())["epochs"]
    curve = [one["objective"] for one in epochs]
    assert [one["epoch"] for one in epochs] == [*range(1, 21)] and max(curve[5:]) < 0.6 * curve[0], curve

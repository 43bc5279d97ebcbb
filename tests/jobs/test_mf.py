"""apps.mf as a user runs it."""

import json
import lzma
import re

import numpy as np
import pytest
from programs import in_process, last_line

import malt
from apps.harness import BadInput, Start, job
from apps.mf import mix, reading
from apps.mf.planted import NOISE, planted
from apps.mf.program import Problem, Program, Trainer, run
from malt.models.factors import Model, numbered, rotation

pytestmark = pytest.mark.serial


@pytest.fixture
def alone(capsys):
    """Runs the program here, on simulated ranks."""
    return in_process(run, capsys)


def final(done):
    """(train RMSE, test RMSE, model) of the last line."""
    shape = r"final: (?:train RMSE ([\d.]+) )?(?:test RMSE ([\d.]+) )?model ([0-9a-f]{64})"
    train, test, model = last_line(done, shape)
    return train and float(train), test and float(test), model


@pytest.fixture
def tiny(tmp_path):
    """Ratings that are products of two numbers. The ids of items are letters."""
    rng = np.random.default_rng(0)
    mine, theirs = rng.standard_normal(40), rng.standard_normal(20)
    lines = [
        f"{100 + user},{chr(97 + item)},{3 + mine[user] * theirs[item]:.3f}\n"
        for user in range(40) for item in range(20) if (user + item) % 3
    ]  # fmt: skip
    file = tmp_path / "tiny.csv"
    file.write_text("user,item,rating\n" + "".join(lines))
    return file


class TestPlanted:
    """A model of the true factors would err by the noise. Rank 16 adds at most the noise that it fits."""

    def test_alone(self, alone):
        train, test, _ = final(alone())
        assert train < test < 1.2 * NOISE

    @pytest.mark.thorough(but="rotate")
    @pytest.mark.parametrize("mix", ["rotate", "average"])
    def test_four_ranks(self, alone, tmp_path, mix):
        report = tmp_path / "report.json"
        options = ["--mix", "average", "--exchange-every", 5000] if mix == "average" else []
        done = alone("--json", report, *options, "--epochs", 12, ranks=4)
        _, test, model = final(done)
        assert test < 1.3 * NOISE
        assert re.findall(r"model on rank (\d): ([0-9a-f]{64})", done.stdout) == [
            (str(rank), model) for rank in range(4)
        ]
        reports = json.loads(report.read_text())
        assert [reports[key] for key in ("program", "ranks", "graph", "sync", "seed")] == [
            "apps.mf",
            4,
            *(["all", "asp"] if options else [None, None]),
            0,
        ]
        assert reports["options"]["rank"] == 16 and reports["options"]["biases"] is True
        assert reports["final"]["model_sha256"] == model and reports["lost_ranks"] == []
        check_epochs(reports)
        if not options:
            check_passes(reports)

    @pytest.mark.thorough
    def test_bsp_ends_the_same_bit_by_bit_however_ranks_take_turns(self, alone):
        options = ["--mix", "average", "--sync", "bsp", "--epochs", 2, "--exchange-every", 7000, "--graph", "ring"]
        first, second = (final(alone(*options, ranks=3, seed=seed)) for seed in range(2))
        assert first == second

    def test_another_seed_makes_another_model(self, alone):
        one, other = (final(alone("--epochs", 1, "--seed", k)) for k in (0, 1))
        assert one != other


def check_epochs(reports):
    epochs, end = reports["epochs"], reports["final"]
    assert [epoch["epoch"] for epoch in epochs] == list(range(1, 13))
    assert [epoch["examples"] for epoch in epochs] == [epochs[0]["examples"] * number for number in range(1, 13)]
    last = epochs[-1]
    assert last["merged"] > 0 and last["merged"] + last["overwritten"] <= last["rows_sent"]
    assert 0 < last["rows_sent"] * 17 * 4 <= last["bytes_sent"]
    assert last["ratings_per_s"] == last["examples"] / last["seconds"]
    assert last["bytes_dense"] % (500 * 17 * 4) == 0 and last["bytes_dense"] > 0
    assert 0 < last["seconds"] == end["seconds"] and end["examples_per_s"] > 0
    assert abs(last["test_rmse"] - end["test_rmse"]) < 0.05 and abs(last["train_rmse"] - end["train_rmse"]) < 0.05
    assert epochs[0]["test_rmse"] > last["test_rmse"]


def check_passes(reports):
    """Each of 8 blocks goes to three ranks an epoch, and nobody holds an old row at its end."""
    last = reports["epochs"][-1]
    assert last["merged"] == 12 * 8 * 3 and last["overwritten"] == 0
    assert last["bytes_dense"] == last["merged"] * 500 * 17 * 4
    assert last["bytes_sent"] == 12 * 3 * 500 * 17 * 4 == last["rows_sent"] * 17 * 4
    assert last["test_rmse"] == pytest.approx(reports["final"]["test_rmse"], rel=1e-5)
    assert reports["final"]["passes_lost"] == 0


def test_rotating_blocks_are_as_good_as_one_rank(alone, tmp_path):
    """Means of rows end at 0.37 after as many epochs, one rank at 0.33."""
    final(alone("--epochs", 6, "--json", tmp_path / "one.json"))
    many = [str(word) for word in ("--epochs", 6, "--json", tmp_path / "many.json")]
    malt.simulate(lambda rank: run(many), 3)
    one, three = (json.loads((tmp_path / f"{name}.json").read_text())["final"] for name in ("one", "many"))
    assert three["test_rmse"] == pytest.approx(one["test_rmse"], rel=0.02)


def test_blocks_of_items_with_many_ratings_go_round_more_often(monkeypatch):
    """Each round takes another part of the users, and each rating is trained once an epoch."""
    monkeypatch.setattr(rotation, "UPDATES", 100)  # an item has 360 ratings

    def on_rank(rank):
        part, trained = trainer("--epochs", "1"), []
        keep = part.learner._train

        def noted(data, users, *rest):
            trained.append(np.diff(data.starts)[users].sum())
            keep(data, users, *rest)

        part.learner._train = noted
        return part.train(1, part.order()), sum(trained), len(trained), part.learner.items.statistics().sent

    for examples, trained, visits, sent in malt.simulate(on_rank, 2):
        assert examples == trained and visits == 2 * 4 == 2 * sent


def test_few_rows_travel_where_ranks_share_few_items(alone, tmp_path):
    """Each of 100 users rates an item with all others, one with four others, and eight alone."""
    file, report = tmp_path / "own.txt", tmp_path / "report.json"
    pairs = [(u, i) for u in range(100) for i in (0, 1000 + u % 20, *range(9 * u + 1, 9 * u + 9))]
    file.write_text("".join(f"{u} {i} {1 + (u * i) % 5}\n" for u, i in pairs))
    average = ["--mix", "average", "--exchange-every", 50]
    final(alone(file, "--test", file, "--epochs", 3, *average, "--json", report, ranks=3))
    last = json.loads(report.read_text())["epochs"][-1]
    assert last["bytes_sent"] == last["rows_sent"] * (17 * 4 + 4) and 0 < last["bytes_sent"] < last["bytes_dense"] / 100
    peers, epochs, shared = 2, 3, 200  # ratings of shared items: no row is sent more often than it is trained on
    assert last["rows_sent"] <= peers * epochs * shared
    final(alone(file, "--test", file, "--epochs", 3, "--json", report, ranks=3))
    last = json.loads(report.read_text())["epochs"][-1]
    assert 0 < last["rows_sent"] <= peers * epochs * 21 and last["bytes_sent"] == last["rows_sent"] * 17 * 4


def test_epochs_are_measured_with_the_rows_of_all_ranks(alone, tmp_path):
    """Some items are trained by one rank alone, and tested with users of other ranks."""
    rng = np.random.default_rng(0)
    level = 4 * rng.random(30)
    train, test = tmp_path / "train.txt", tmp_path / "test.txt"
    train.write_text("".join(f"{u} {i} {level[i]:.2f}\n" for i in range(30) for u in [i % 4] for _ in range(40)))
    test.write_text("".join(f"{u} {i} {level[i]:.2f}\n" for i in range(30) for u in range(4)))
    report = tmp_path / "report.json"
    final(alone(train, "--test", test, "--epochs", 8, "--step", 0.1, "--l2", 1e-4, "--json", report, ranks=4))
    reports = json.loads(report.read_text())
    assert reports["final"]["test_rmse"] == pytest.approx(reports["epochs"][-1]["test_rmse"], rel=1e-5)
    assert reports["epochs"][-1]["test_rmse"] < 0.9 * np.std(level)


def trainer(*arguments):
    """One rank's part of a training on a planted problem."""
    options = job.parser(Program()).parse_args(arguments)
    mix.settle(options)
    problem = Problem(options, *planted(0), None)
    return Trainer(problem, Start(np.random.default_rng([0, 1 + malt.rank()]), problem.shares(), 0, {}))


def lose(part, living):
    """Do what the harness does when only these ranks have not failed."""
    assert part._shares.changed(living)
    part.take()


@pytest.mark.parametrize("options", [[], ["--checkpoint", "train.ckpt"]], ids=["", "checkpoint"])
def test_a_message_holds_the_rows_of_an_exchange_also_after_failures(options, tmp_path, monkeypatch):
    """Ranks that wait for each other after epochs make the same number of exchanges."""
    monkeypatch.chdir(tmp_path)

    def on_rank(rank):
        part = trainer("--mix", "average", "--exchange-every", "150", *options)
        room = 150 + part.learner.ratings.user_counts.max()
        numbers = []
        for living in ((0, 1, 2, 3), (0, 2, 3), (0, 3)):
            if rank in living:
                if len(living) < 4:
                    lose(part, living)
                exchanges = part.order()
                assert max(part.learner.counts[users].sum() for users in exchanges) <= room
                numbers.append(len(exchanges))
        return numbers

    zero, *_, three = malt.simulate(on_rank, 4)
    assert all(numbers[0] < numbers[1] < numbers[2] for numbers in (zero, three))
    assert zero == three or not options


def test_the_ratings_of_failed_ranks_include_those_taken_over_from_others(capsys):
    def on_rank(rank):
        part, had = trainer(), []
        for failed, living in ((1, (0, 2, 3)), (2, (0, 3))):
            had.append(part.learner.ratings.ratings_of_ranks()[failed])
            if rank in living:
                lose(part, living)
        return had

    one, two = malt.simulate(on_rank, 4)[0]
    assert capsys.readouterr().err == (
        f"malt: {one:,} ratings of rank 1 are dealt to ranks 0, 2, 3\n"
        f"malt: {two:,} ratings of rank 2 are dealt to ranks 0, 3\n"
    )
    assert two > 1.2 * one  # where all had as many at first


@pytest.mark.parametrize("options", [[], ["--mix", "average", "--exchange-every", "20000"]], ids=["rotate", "average"])
def test_users_of_a_failed_rank_catch_up_and_no_item_moves(options):
    def on_rank(rank):
        part = trainer("--epochs", "6", *options)
        for epoch in range(1, 6):
            part.train(epoch, part.order())
            part.keep(epoch)
        had, items = part.learner.mine, part.learner.items.array.copy()
        if rank == 0:
            lose(part, (0,))
        known = np.isin(part.learner.mine, had)
        assert (part.learner.items.array == items).all()
        return [float(np.abs(part.learner.users[some]).mean()) for some in (known, ~known) if some.any()]

    (known, new), _ = malt.simulate(on_rank, 2)
    assert new == pytest.approx(known, rel=0.1)  # rows begin with small numbers


def test_more_ranks_than_users(alone, tmp_path):
    file = tmp_path / "two.txt"
    file.write_text("1 1 1\n1 2 2\n7 1 3\n")
    for options in ([], ["--mix", "average", "--exchange-every", 1, "--sync", "bsp"]):
        final(alone(file, "--test", file, *options, ranks=3))


def test_no_epochs_predict_the_mean(alone, tiny):
    ratings = np.loadtxt(tiny, delimiter=",", skiprows=1, usecols=2)
    train, test, _ = final(alone(tiny, "--epochs", 0))
    assert train == pytest.approx(ratings.std(), rel=2e-3) and test is None


@pytest.mark.parametrize("option", ["--biases", "--no-biases"])
def test_biases(alone, tiny, tmp_path, option):
    file = tmp_path / "model.npz"
    final(alone(tiny, option, "--save", file))
    model = reading.load(str(file))
    assert model.biases == bool(model.items[:, -1].any()) == bool(model.users[:, -1].any()) == (option == "--biases")


def test_who_is_not_in_training_gets_the_bias(alone, tiny, tmp_path):
    file, test = tmp_path / "model.npz", tmp_path / "test.txt"
    test.write_text("100 b 3\n100 new 3\n999 b 3\nnew new 3\n")
    trained = final(alone(tiny, "--test", test, "--save", file, "--step", 0.1, "--l2", 0))
    model = reading.load(str(file))
    u, i = model.users[0].astype(float), model.items[1].astype(float)
    scaled = [u[:-1] @ i[:-1] + u[-1] + i[-1], u[-1], i[-1], 0.0]
    expected = np.clip(model.mean + model.spread * np.array(scaled), model.low, model.high)
    found = model.predict(np.array([b"100", b"100", b"999", b"new"]), np.array([b"b", b"new", b"b", b"new"]))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert model.user_ids[0] == 100 and model.item_ids[1] == b"b"
    rmse = final(alone("--model", file, "--test", test))[1]
    assert rmse == trained[1] == pytest.approx(np.sqrt(np.mean((expected - 3) ** 2)), abs=1e-4)


def test_predictions_are_held_in_the_range_of_the_ratings():
    users, items = np.array([[3, 0]], np.float32), np.array([[2, 0], [-2, 0]], np.float32)
    model = Model(users, items, np.array([7]), np.array([1, 2]), 3.0, 1.0, 1.0, 5.0, True)
    assert model.predict(np.array([7, 7, 8]), np.array([1, 2, 1])).tolist() == [5, 1, 3]


@pytest.mark.parametrize("kind", [int, "S"])
@pytest.mark.parametrize("known", [int, "S"])
def test_where_ids_stand(known, kind):
    """Ids may be numbers or text: 9 is before 10, b"10" before b"9"."""
    ids = np.sort(np.array([9, 10, 100]).astype(known))
    found = numbered(ids, np.array([100, 9, 11, 10, 9]).astype(kind))
    assert [int(ids[place]) if place >= 0 else -1 for place in found] == [100, 9, -1, 10, 9]
    assert numbered(ids[:0], ids).tolist() == [-1, -1, -1]


class TestSavedModel:
    @pytest.fixture
    def saved(self, alone, tiny, tmp_path):
        file = tmp_path / "model.npz"
        self.trained = final(alone(tiny, "--test", tiny, "--rank", 4, "--epochs", 30, "--step", 0.1, "--save", file))
        return file

    def test_is_measured(self, alone, saved, tiny, tmp_path):
        report = tmp_path / "report.json"
        assert final(alone("--model", saved, "--test", tiny, "--json", report))[1:] == self.trained[1:]
        assert json.loads(report.read_text())["final"]["model_sha256"] == self.trained[2]
        assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []

    def test_is_the_start_of_more(self, alone, saved, tiny):
        assert final(alone(tiny, "--test", tiny, "--model", saved, "--epochs", 0, ranks=2))[:2] == self.trained[:2]
        more = final(alone(tiny, "--test", tiny, "--model", saved, "--epochs", 1, "--step", 0.01, ranks=2))
        assert more[1] < 1.2 * self.trained[1] < 0.3  # from the very start, 1.1

    def test_with_other_users(self, alone, saved, tmp_path):
        other = tmp_path / "other.txt"
        other.write_text("100 a 1\n100 zz 2\nnew b 3\n")
        final(alone(other, "--test", other, "--model", saved))

    def test_of_another_rank(self, saved, tiny):
        with pytest.raises(BadInput, match="has rank 4, so --rank 8 does not match"):
            run([str(tiny), "--model", str(saved), "--rank", "8"])

    def test_without_anything_to_do(self, saved):
        with pytest.raises(BadInput, match="needs --test"):
            run(["--model", str(saved)])

    @pytest.mark.parametrize("harm", ["text", "svm", "rows", "nan", "ids", "extra"])
    def test_that_is_none(self, saved, tiny, harm):
        with np.load(saved) as file:
            arrays = dict(file)
        changes = {
            "text": {},
            "svm": {"program": "apps.svm"},
            "rows": {"users": arrays["users"][:, :-1]},
            "nan": {"items": arrays["items"] * np.float32(np.nan)},
            "ids": {"item_ids": arrays["item_ids"][::-1]},
            "extra": {"more": 1},
        }
        np.savez(saved, **{**arrays, **changes[harm]})
        if harm == "text":
            saved.write_text("a model")
        known = {"text": "not an .npz as malt.files writes it", "svm": "not a model of apps.mf"}
        message = known.get(harm, "not a model that apps.mf has saved (")
        with pytest.raises(BadInput, match=re.escape(f"{saved}: {message}")) as reports:
            run([str(tiny), "--model", str(saved)])
        assert "\n" not in str(reports.value)


BAD = {
    "no such file": (["nothing.txt"], "nothing.txt: No such file or directory"),
    "no such test": (["--test", "nothing.txt"], "nothing.txt: No such file or directory"),
    "no such model": (["--model", "nothing.npz", "--test", "x"], "nothing.npz: No such file or directory"),
    "an option that is not there": (["--ranks", "3"], "unrecognized arguments"),
    "a graph that is not there": (["--graph", "chrod"], "chord"),
    "a mode that is not there": (["--mix", "average", "--sync", "ssp:x"], "ssp:S"),
    "an option of the other mix": (["--sync", "asp"], "--sync is for --mix average"),
    "another one": (["--exchange-every", "9"], "--exchange-every is for --mix average"),
    "a third one": (["--graph", "all"], "--graph is for --mix average"),
    "a problem beside ratings": (["x.txt", "--problem", "film"], "--problem is a problem generated from the seed"),
    "rank 0": (["--rank", "0"], "of at least 1, got 0"),
    "a huge rank": (["--rank", "100000"], "--rank must be at most 1024, got 100000"),
    "l2 not a number": (["--l2", "nan"], "of at least 0, got nan"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    arguments, message = BAD[name]
    with pytest.raises(BadInput, match=re.escape(message)):
        run(arguments)


def test_a_bad_line_is_named(alone, tiny):
    tiny.write_text(tiny.read_text() + "100,a,nan\n")
    with pytest.raises(BadInput, match=f"{tiny}:.*rating 'nan' is not finite"):
        alone(tiny, ranks=2)


def test_a_step_that_is_too_large_is_named(alone, tiny):
    with pytest.raises(FloatingPointError, match=r"the step size, 1e\+20, is too large"):
        alone(tiny, "--step", "1e20", ranks=2)


@pytest.mark.thorough
def test_real_ratings_are_predicted_as_well_on_four_ranks_as_on_one(alone, data, tmp_path):
    """Those of each sixth user."""
    for part in ("train", "test"):
        with lzma.open(data / "epinions" / f"{part}.txt.xz", "rt") as lines:
            some = [line for line in lines if int(line.split()[0]) % 6 == 0]
        (tmp_path / part).write_text("".join(some))
    words = [tmp_path / "train", "--test", tmp_path / "test", "--epochs", 12, "--json", tmp_path / "report.json"]
    one, four = (final(alone(*words, ranks=ranks))[1] for ranks in (1, 4))
    assert max(one, four) <= 1.06 and four <= 1.005 * one
    last = json.loads((tmp_path / "report.json").read_text())["epochs"][-1]
    assert 0 < last["bytes_sent"] <= 0.25 * last["bytes_dense"]

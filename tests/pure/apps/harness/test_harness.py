"""Tests of apps.harness with a program that learns a mean: the calls, their order, the report."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from programs import ROOT

import malt
from apps import harness
from apps.harness import BadInput, Column, Measured, Need, job
from malt.models import common_mean
from malt.session.world.world import World

pytestmark = [pytest.mark.serial, pytest.mark.single]

DATA = np.arange(12.0)
MEAN = DATA.mean()


class Mean:
    """w <- w - (w - mean) / 2, with the mean over ranks."""

    def __init__(self, problem, start):
        super().__init__()
        self.problem, self.start, self.calls = problem, start, problem.calls
        self.calls.append("trainer")
        if problem.options.refused:
            raise ValueError("it cannot be trained")
        self.w = np.array(start.state.get("w", 100.0))
        self.tolerance = problem.options.tolerance
        if start.state and self.tolerance:
            self.keep(start.epoch)

    def run(self, training):
        if self.problem.options.own_loop:
            training.train_by(self.loop)
        else:
            super().run(training)

    def loop(self, ended):
        for epoch in range(1, 100):
            if ended(self.train(epoch, malt.shard(DATA))):
                return

    def has_converged(self):
        return super().has_converged() or self.objective({"w": self.w}) < self.problem.options.enough

    def order(self):
        self.calls.append("order")
        return malt.shard(DATA)

    def train(self, epoch, order):
        self.calls.append(f"train {epoch}")
        gradient = np.array(self.w - order.mean())
        malt.allreduce(gradient, weight=len(order))
        self.w -= gradient / 2
        self.loss = self.objective({"w": self.w})
        return len(order)

    def model(self):
        self.calls.append("model")
        return {"w": self.w}

    def objective(self, model):
        return abs(float(model["w"]) - MEAN)

    def state(self):
        self.calls.append("state")
        return {"w": self.w}

    def finish(self):
        self.calls.append("finish")
        common_mean([self.w])

    def saved(self):
        self.calls.append("saved")
        return {"w": self.w}

    def warning(self, report):
        self.calls.append("warning")
        return "it is far from the mean" if report.final["error"] > 10 else ""


class Apart(Mean, harness.Replicas):
    """Each rank has a model of its own."""

    def measures(self, model):
        self.calls.append("measures")
        return {"error": self.objective(model)}


class Together(Mean, harness.Trainer):
    """No rank has all of the model."""

    def __init__(self, problem, start):
        self.kept = []
        super().__init__(problem, start)

    def keep(self, epoch):
        self.calls.append(f"keep {epoch}")
        self.kept.append(self.objective({"w": self.w}))

    def measures_of_all(self):
        self.calls.append("measures_of_all")
        return [{"error": error} for error in malt.allgather([*self.kept, self.objective({"w": self.w})])[0]]


class Problem(harness.Problem):
    rows = len(DATA)

    def __init__(self, options, calls):
        self.options, self.calls = options, calls
        self.trains = Together if options.together else Apart

    @property
    def tolerance(self):
        return self.options.tolerance or self.options.enough

    def memory(self):
        self.calls.append("memory")
        return Need(self.options.needs, "--needs", "need less")

    def facts(self):
        self.calls.append("facts")
        return {"rows": self.rows}

    def compile(self):
        self.calls.append("compile")

    def shares(self):
        self.calls.append("shares")
        return super().shares()

    def introduction(self, trainer):
        self.calls.append("introduction")
        return f"{self.rows} numbers"


class Program(harness.Program):
    name, summary = "apps.mean", "The mean of some numbers."
    measures = (Column("error", "error", ".3f"),)
    rate = "numbers_per_s"

    def __init__(self):
        self.calls = []

    def add_options(self, parser):
        self.calls.append("add_options")
        for name in ("--together", "--refused", "--measured", "--own-loop"):
            parser.add_argument(name, action="store_true")
        parser.add_argument("--needs", type=int, default=0)
        parser.add_argument("--enough", type=float, default=0.0)
        parser.add_argument("--data", metavar="FILE")
        parser.real("--tolerance", 0.0, "stop when an epoch improves the error by less than this fraction")
        parser.whole("--epochs", default=3, least=0, text="passes over the numbers")

    def inputs(self, options):
        self.calls.append("inputs")
        return [("--data", options.data)]

    def load(self, options):
        self.calls.append("load")
        return Measured([np.ones(2)], {"error": 0.5}) if options.measured else Problem(options, self.calls)


@pytest.fixture
def run(tmp_path):
    """run(ranks, *arguments) returns the report and the calls on rank 0."""

    def run(ranks, *arguments):
        report, calls = tmp_path / "report.json", []

        def live(rank):
            program = Program()
            harness.run(program, [*map(str, arguments), "--json", str(report)])
            return program.calls

        calls = malt.simulate(live, ranks) if ranks > 1 else [live(0)]
        return json.loads(report.read_text()), calls[0]

    return run


KEYS = [
    "epoch", "examples", "seconds", "bytes_sent", "bytes_across", "bytes_dense", "merged", "overwritten", "rows_sent",
    "start_s", "training_s", "waiting_s", "every", "error", "numbers_per_s",
]  # fmt: skip
FINAL_KEYS = ["error", "seconds", "examples_per_s", "start_s", "training_s", "waiting_s", "every", "model_sha256"]
BEFORE = ["add_options", "inputs", "load", "memory", "facts", "shares", "compile", "trainer", "introduction"]


def epoch(number, *after):
    return ["order", f"train {number}", *after]


@pytest.mark.parametrize("ranks", [1, 3])
def test_methods_are_called_in_order(run, ranks, tmp_path, capsys):
    report, calls = run(ranks, "--save", tmp_path / "model.npz")
    epochs = [call for number in (1, 2, 3) for call in epoch(number, "model")]
    assert calls == [
        *BEFORE, *epochs, "finish", "model", "model", *4 * ["measures"], "warning", "saved",
    ]  # fmt: skip
    assert [one["error"] for one in report["epochs"]] == pytest.approx([(100 - MEAN) / 2**k for k in (1, 2, 3)])
    assert [one["examples"] for one in report["epochs"]] == [12, 24, 36]
    rates = [one["examples"] / one["seconds"] if one["seconds"] else None for one in report["epochs"]]
    assert [one["numbers_per_s"] for one in report["epochs"]] == rates
    assert list(report["epochs"][0]) == KEYS and list(report["final"]) == FINAL_KEYS
    assert (report["graph"], report["sync"], report["seed"], report["lost_ranks"]) == (None, None, 0, [])
    assert "graph" not in report["options"] and report["final"]["error"] == report["epochs"][-1]["error"]
    printed = capsys.readouterr()
    assert f", {'1 rank' if ranks == 1 else '3 ranks'}, seed 0\n12 numbers, 3 epochs\n" in printed.out
    assert printed.err.count("warning: it is far from the mean\n") == 1
    assert float(malt.files.load_npz(tmp_path / "model.npz")["w"]) == pytest.approx(MEAN + (100 - MEAN) / 8)


@pytest.mark.parametrize("together", [(), ("--together",)])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run_resumes_from_a_checkpoint(run, ranks, together, tmp_path):
    keeping = [*together, "--checkpoint", tmp_path / "train.ckpt", "--checkpoint-every", 0, "--resume"]
    whole, _ = run(ranks, *together, "--epochs", 5)
    first, _ = run(ranks, *keeping, "--epochs", 2)
    rest, calls = run(ranks, *keeping, "--epochs", 5)
    over, after = run(ranks, *keeping, "--epochs", 5)
    assert [one["error"] for one in first["epochs"] + rest["epochs"]] == [one["error"] for one in whole["epochs"]]
    assert rest["resumed_from"] == 2 and rest["final"]["model_sha256"] == whole["final"]["model_sha256"]
    assert calls[len(BEFORE) :][:4] == ["order", "order", "order", "train 3"]
    assert over["final"]["model_sha256"] == whole["final"]["model_sha256"] and not any("train " in one for one in after)


def test_a_model_that_no_rank_has_whole(run, tmp_path):
    report, calls = run(3, "--together", "--checkpoint", tmp_path / "train.ckpt", "--checkpoint-every", 0)
    assert [call for call in calls if call.split()[0] in ("keep", "state", "finish", "measures_of_all")] == [
        "keep 1", "state", "keep 2", "state", "keep 3", "finish", "state", "measures_of_all",
    ]  # fmt: skip
    assert len(report["epochs"]) == 3 and report["final"]["error"] == pytest.approx((100 - MEAN) / 8)


@pytest.mark.parametrize(("tolerance", "epochs"), [(0.4, 20), (0.6, 2)])
def test_the_tolerance_ends_training(run, tolerance, epochs):
    """Each epoch halves the error."""
    report, _ = run(3, "--tolerance", tolerance, "--epochs", 20)
    assert len(report["epochs"]) == epochs


@pytest.mark.parametrize(("words", "refused"), [((), 0), (("--tolerance", 0.1), 1), (("--together",), 1)])
def test_ranks_that_come_together_in_each_epoch_refuse_those_that_come_later(run, words, refused, monkeypatch):
    asked = []
    monkeypatch.setattr(job.newcomers, "refuse", lambda: asked.append(1))
    run(1, *words)
    assert len(asked) == refused


@pytest.mark.parametrize("together", [(), ("--together",)])
def test_a_loop_of_its_own_makes_the_same_epochs(run, together, tmp_path):
    keeping = [*together, "--checkpoint", tmp_path / "train.ckpt", "--checkpoint-every", 0, "--resume"]
    whole, _ = run(3, *together, "--epochs", 4)
    first, calls = run(3, *keeping, "--own-loop", "--epochs", 2)
    rest, _ = run(3, *keeping, "--own-loop", "--epochs", 4)
    again, after = run(3, *keeping, "--own-loop", "--epochs", 4)
    assert "order" not in calls and "train 1" not in after
    for field in ("epoch", "examples", "error"):
        assert [one[field] for one in first["epochs"] + rest["epochs"]] == [one[field] for one in whole["epochs"]]
    assert again["final"]["model_sha256"] == rest["final"]["model_sha256"] == whole["final"]["model_sha256"]
    assert rest["epochs"][-1]["seconds"] == pytest.approx(rest["final"]["seconds"])


@pytest.mark.parametrize("own", [(), ("--own-loop",)])
def test_a_training_that_has_converged_is_not_resumed(run, own, tmp_path):
    words = ["--epochs", 20, "--enough", 10, "--checkpoint", tmp_path / "train.ckpt", "--resume", *own]
    first, _ = run(3, *words)
    over, _ = run(3, *words)
    assert [one["error"] < 10 for one in first["epochs"]] == [False] * 3 + [True] and over["epochs"] == []
    assert over["final"]["model_sha256"] == first["final"]["model_sha256"]


def test_a_model_that_is_only_measured(run, capsys):
    report, calls = run(2, "--measured")
    assert calls == BEFORE[:3] and report["epochs"] == [] and report["final"]["error"] == 0.5
    assert f"final: error 0.500 model {report['final']['model_sha256']}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message", "called"),
    [
        (["--refused"], "it cannot be trained", 8),
        (["--needs", 10**18], "--needs: 2 ranks of this host need 2,000,000,000.0 GB, and", 4),
        (["--data", "x", "--save", "x"], "x: --save needs a file of its own, and --data is that file", 2),
        (["--save", ""], "--save needs the name of a file, not ''", 2),
        (["--epochs", -1], "argument --epochs: must be an integer of at least 0, got -1", 1),
        (["--epochs", 10**400], "argument --epochs: must be an integer from 0 to 9223372036854775807, got 1000", 1),
        (["--seed", 2**128], f"argument --seed: must be an integer from 0 to {2**128 - 1}, got {2**128}", 1),
    ],
)
def test_wrong_options_are_refused_on_all_ranks(words, message, called):
    def live(rank):
        program = Program()
        with pytest.raises(BadInput, match=message):
            harness.run(program, [str(word) for word in words])
        return program.calls

    assert malt.simulate(live, 2) == [BEFORE[:called]] * 2


@pytest.mark.parametrize("ends", [("--enough", 30), ("--tolerance", 0.6)])
def test_a_training_that_has_converged_goes_on_to_less(run, ends, tmp_path):
    """Each epoch halves the error."""
    words = [*ends, "--epochs", 20, "--checkpoint", tmp_path / "train.ckpt", "--resume"]
    first, _ = run(3, *words)
    over, calls = run(3, *words)
    assert len(first["epochs"]) == 2 and over["epochs"] == [] and "train 3" not in calls
    assert over["final"]["model_sha256"] == first["final"]["model_sha256"]
    assert len(run(3, *words[2:])[0]["epochs"]) == 18


@pytest.mark.parametrize("together", [(), ("--together",)])
def test_the_final_model_is_saved_beside_the_state_unless_they_are_the_same(run, together, tmp_path):
    run(2, *together, "--checkpoint", tmp_path / "train.ckpt")
    arrays = {name for name in malt.Checkpoint(tmp_path / "train.ckpt").load() if name.endswith("w")}
    assert arrays == ({"w"} if together else {"w", "final_w"})


MEANS = [
    ((1.0, 2.0, 6.0), (True, True, True), False, (3.0, 3.0, 3.0)),
    ((1.0, 2.0, 6.0), (True, False, True), False, (3.5, 3.5, 3.5)),
    ((1.0, 2.0, 6.0), (False, False, False), False, (1.0, 2.0, 6.0)),
    ((1.0, 2.0, 6.0), (False, False, False), True, (3.0, 3.0, 3.0)),
    ((1.0, np.nan, 6.0), (True, True, True), False, (3.5, 3.5, 3.5)),
]


@pytest.mark.parametrize(("given", "counts", "else_all", "found"), MEANS)
def test_the_common_model_is_the_mean_over_ranks_that_count(given, counts, else_all, found, capsys):
    def live(rank):
        array = np.full(3, given[rank])
        common_mean([array], counts[rank], else_all)
        return array.tolist()

    assert malt.simulate(live, 3) == [[one] * 3 for one in found]
    left_out = "malt: the model of rank 1 is not finite, and is left out of the mean\n"
    assert capsys.readouterr().err == (left_out if np.isnan(given[1]) else "")


def test_a_rank_that_the_others_have_not_admitted_yet_keeps_its_model(monkeypatch):
    def live(rank):
        array = np.full(3, 1.0 + rank)
        common_mean([array])
        return array.tolist()

    monkeypatch.setattr(World, "is_outside", True)
    assert malt.simulate(live, 2) == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("own_loop", [(), ("--own-loop", "--enough", "12")])
def test_each_epoch_is_shown_with_the_loss_that_training_has(run, monkeypatch, own_loop):
    seen = []
    monkeypatch.setattr("malt.watch.reports._callbacks", [seen.append])
    run(1, *own_loop)
    errors = [(100 - MEAN) / 2**epoch for epoch in (1, 2, 3)]
    assert [(one["epoch"], one["epochs"], one["examples"]) for one in seen] == [(1, 3, 12), (2, 3, 24), (3, 3, 36)]
    assert [one["loss"] for one in seen] == pytest.approx(errors)


@pytest.mark.parametrize(("kind", "span", "fits", "not_in_it"), [
    (harness.number, "of at least 0", "0", ("-1", "inf", "nan")),
    (harness.positive_number, "above 0", "5e-324", ("0", "inf")),
    (harness.share_below_1, "of at least 0 and below 1", "0", ("1", "-0.1")),
])  # fmt: skip
def test_numbers_that_an_option_takes(kind, span, fits, not_in_it):
    parser = harness.Parser()
    parser.add_argument("--size", type=kind)
    assert parser.parse_args(["--size", fits]).size == float(fits)
    for text in not_in_it:
        with pytest.raises(BadInput, match=f"argument --size: must be a number {span}, got {text} "):
            parser.parse_args([f"--size={text}"])
    with pytest.raises(BadInput, match="argument --size: invalid number value: 'many'"):
        parser.parse_args(["--size", "many"])


@pytest.mark.parametrize(("words", "together", "every"), [
    ([], False, harness.AUTO), (["--sync", "ssp:4"], False, harness.AUTO), (["--sync", "bsp"], False, 70),
    (["--sync", "notify-ack"], False, 70), ([], True, 70), (["--exchange-every", "5"], True, 5),
    (["--exchange-every", "auto"], False, harness.AUTO),
])  # fmt: skip
def test_ranks_that_need_not_exchange_together_find_intervals_of_their_own(words, together, every, monkeypatch):
    monkeypatch.setattr(malt, "size", lambda: 2)
    parser = harness.Parser()
    harness.add_exchange_every(parser, 70, "rows")
    harness.add_graph(parser, "all", "asp")
    options = parser.parse_args(["--sync", "asp", *words])
    harness.settle_exchange_every(options, 70, together)
    assert options.exchange_every == every


def test_one_rank_has_a_number():
    """So that a run repeats bit by bit."""
    options = SimpleNamespace(sync="asp", exchange_every=harness.AUTO)
    harness.settle_exchange_every(options, 70)
    assert options.exchange_every == 70


def test_where_ranks_exchange_together_auto_is_refused(monkeypatch):
    monkeypatch.setattr(malt, "size", lambda: 2)
    options = SimpleNamespace(sync="bsp", exchange_every=harness.AUTO)
    with pytest.raises(ValueError, match="--exchange-every auto: here ranks exchange together: give a number, 70 say"):
        harness.settle_exchange_every(options, 70)


def test_words_that_are_no_interval_are_refused():
    parser = harness.Parser()
    harness.add_exchange_every(parser, 70, "rows")
    for word in ("0", "automatic", "1.5"):
        with pytest.raises(BadInput, match="--exchange-every"):
            parser.parse_args(["--exchange-every", word])


WATCHED = """
import sys
from apps.harness.training import Training

train = Training.train

def watched(self):
    run = self.trainer.run

    def noting(training):
        before = set(sys.modules)
        run(training)
        print("imported:", sorted(set(sys.modules) - before))

    self.trainer.run = noting
    train(self)

Training.train = watched
sys.argv[1:] = ["--epochs", "2"]
from apps.harness import main
main("apps.svm")
"""


def test_ranks_import_nothing_once_they_train():
    """An import takes each rank another few milliseconds, and in as many epochs of small data they train apart."""
    done = subprocess.run([sys.executable, "-c", WATCHED], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert "imported: []" in done.stdout, done

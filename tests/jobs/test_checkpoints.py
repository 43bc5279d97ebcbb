"""--checkpoint and --resume of the programs: a failed run is resumed, on any number of ranks, and ends as well."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import wait_for
from programs import ROOT, as_job, in_process, kill_all, last_line

import malt
from apps.gbdt import program as gbdt
from apps.harness import BadInput, checkpoints
from apps.kmeans import program as kmeans
from apps.mf import planted
from apps.mf import program as mf
from apps.mlp import problem as mlp_problem
from apps.mlp import program as mlp
from apps.svm import program as svm
from malt.files import checkpoint

pytestmark = pytest.mark.serial

SPLIT = "start_s", "training_s", "waiting_s", "every"
"""What a run is like, and not its model."""
KILLS = int(os.environ.get("MALT_TEST_KILLS", "0"))
"""How often each job of `test_kills_of_all_ranks` is killed, by `make faults`. Else see test_exact_resume.py."""
PROGRAMS = {"apps.svm": svm, "apps.mf": mf, "apps.mlp": mlp, "apps.kmeans": kmeans, "apps.gbdt": gbdt}
MEASURE = {
    "apps.svm": "objective", "apps.mf": "test_rmse", "apps.mlp": "train_loss", "apps.kmeans": "inertia",
    "apps.gbdt": "test_logloss",
}  # fmt: skip
every_program = pytest.mark.parametrize("name", PROGRAMS)
make_faults = pytest.mark.skipif(not KILLS, reason="make faults")


@pytest.fixture(autouse=True)
def digits(request):
    """apps.mlp trains on the digits of scikit-learn."""
    if "apps.mlp" in request.node.name:
        pytest.importorskip("sklearn")


@pytest.fixture(autouse=True)
def few_ratings(monkeypatch):
    """apps.mf trains on those of 400 users."""
    monkeypatch.setattr(planted, "USERS", 400)


@pytest.fixture
def file(tmp_path):
    """The path of the checkpoint."""
    return tmp_path / "train.ckpt"


@pytest.fixture
def alone(capsys, tmp_path):
    """alone(name, *arguments): the report of a run of that program here, in a world of one."""

    def alone(name, *arguments):
        report = tmp_path / "report.json"
        in_process(PROGRAMS[name].run, capsys)(*arguments, "--json", report)
        return json.loads(report.read_text())

    return alone


class Failed(BaseException):
    """An error in place of a kill."""


@pytest.fixture
def failing(monkeypatch):
    """failing(epochs, run): run(), which fails after that number of epochs."""

    def failing(epochs, run):
        def dying(name):
            save = getattr(checkpoints.Checkpoints, name)

            def save_and_die(self, epoch, *rest, **named):
                save(self, epoch, *rest, **named)
                if epoch == epochs and malt.rank() == 0:
                    raise Failed

            return save_and_die

        with monkeypatch.context() as patch:
            for name in ("save", "save_parts"):
                patch.setattr(checkpoints.Checkpoints, name, dying(name))
            with pytest.raises(Failed):
                run()

    return failing


OPTIONS = {
    "apps.svm": [
        [], ["--average", "gradient"], ["--vector", "sparse"], ["--average", "none"],
        ["--exchange-every", 700, "--loss", "logistic", "--step", 0.01], ["--optimizer", "dual"],
    ],
    "apps.mf": [[], ["--mix", "average", "--exchange-every", 3000]],
    "apps.mlp": [[], ["--optimizer", "adam", "--batch", 50, "--hidden", "20,10"]],
    "apps.kmeans": [[], ["--batch", 5000]],
    "apps.gbdt": [[]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name, some in OPTIONS.items() for options in some], ids=str
)
def test_a_resumed_run_ends_bit_by_bit_as_one_that_never_failed(alone, failing, file, monkeypatch, name, options):
    monkeypatch.setattr(malt, "clock", time.perf_counter)  # computation takes no virtual time
    options = [*options, "--epochs", 4]
    whole = alone(name, *options)
    keeping = [*options, "--checkpoint", file, "--checkpoint-every", 0]
    failing(1, lambda: alone(name, *keeping))
    failing(3, lambda: alone(name, *keeping, "--resume"))
    rest = alone(name, *keeping, "--resume")
    assert rest["final"]["model_sha256"] == whole["final"]["model_sha256"]
    assert (whole["resumed_from"], rest["resumed_from"]) == (None, 3)
    [last] = rest["epochs"]
    for field in ("epoch", "examples", MEASURE[name]):
        assert last[field] == whole["epochs"][-1][field], field
    assert last["seconds"] == rest["final"]["seconds"] > checkpoint.read(str(file)).arrays["seconds"] / 2
    over = alone(name, *keeping, "--resume")
    assert over["epochs"] == [] and over["final"]["model_sha256"] == whole["final"]["model_sha256"]
    assert over["final"]["seconds"] == rest["final"]["seconds"]


SEVERAL = [
    ("apps.svm", 2, ["--exchange-every", 700]),
    ("apps.svm", 4, ["--exchange-every", 900, "--average", "delta", "--graph", "one-peer"]),
    ("apps.svm", 2, ["--exchange-every", 700, "--average", "reweighted", "--loss", "logistic"]),
    ("apps.svm", 2, ["--exchange-every", 700, "--vector", "sparse"]),
    ("apps.svm", 3, ["--exchange-every", 700, "--vector", "sparse", "--average", "delta"]),
    ("apps.svm", 2, ["--average", "gradient", "--exchange-every", 500]),
    ("apps.svm", 4, ["--average", "gradient", "--exchange-every", 480, "--vector", "sparse", "--graph", "one-peer"]),
    ("apps.svm", 2, ["--average", "none"]),
    ("apps.svm", 2, ["--tolerance", 1e-9, "--exchange-every", 3000]),
    ("apps.mlp", 2, ["--exchange-every", 7]),
    ("apps.mlp", 4, ["--exchange-every", 4, "--optimizer", "adam", "--graph", "one-peer", "--hidden", "20,10"]),
    ("apps.mlp", 2, ["apps/linear/data/a9a/train.svm.xz", "--hidden", 4, "--exchange-every", 13]),
]  # fmt: skip


@pytest.mark.thorough(but="case0")
@pytest.mark.parametrize("case", SEVERAL, ids=[f"case{number}" for number in range(len(SEVERAL))])
def test_several_ranks_that_exchange_together_resume_bit_by_bit(failing, tmp_path, file, monkeypatch, case):
    monkeypatch.setattr(malt, "clock", time.perf_counter)
    name, ranks, options = case
    monkeypatch.chdir(ROOT)
    options = [*options, "--sync", "bsp", "--epochs", 4, "--json", tmp_path / "report.json"]
    keeping = [*options, "--checkpoint", file, "--checkpoint-every", 0]
    whole = simulated(name, ranks, *options)
    for epoch in (1, 3):
        failing(epoch, lambda: simulated(name, ranks, *keeping, "--resume"))
    rest = simulated(name, ranks, *keeping, "--resume")
    assert rest["resumed_from"] == 3 and rest["final"]["model_sha256"] == whole["final"]["model_sha256"]
    assert len(checkpoint.read(str(file)).parts) in (0, ranks)  # 0: the last one, which is for any number


@pytest.mark.parametrize("average", ["model", "gradient"])
def test_a_checkpoint_is_left_out_where_a_rank_has_made_an_exchange_more(tmp_path, file, average):
    """It would wait in that for one that waits to save."""
    data = tmp_path / "data.svm"
    data.write_text("".join(f"{1 - 2 * (k % 2)} {1 + k}:1\n" for k in range(5)))
    options = [data, "--sync", "bsp", "--exchange-every", 3, "--average", average, "--epochs", 7]
    report = simulated("apps.svm", 2, *options, "--checkpoint", file, "--checkpoint-every", 0, "--json", tmp_path / "x")
    assert len(report["epochs"]) == 7 and epoch_of(file) == 7


@every_program
def test_a_checkpoint_changes_nothing_and_the_last_epoch_writes_one(alone, file, name):
    whole, kept = alone(name, "--epochs", 2), alone(name, "--epochs", 2, "--checkpoint", file)
    assert kept["final"]["model_sha256"] == whole["final"]["model_sha256"]
    program, _, arrays, *_ = checkpoint.read(str(file))
    assert program == name and int(arrays["epoch"]) == 2 and int(arrays["examples"]) == whole["epochs"][1]["examples"]


def test_a_longer_training_goes_on_from_what_was_before_the_end(alone, file):
    """At the end the model takes the place of the weights that are trained."""
    whole, keeping = alone("apps.svm", "--epochs", 3), ["--checkpoint", file]
    alone("apps.svm", "--epochs", 1, *keeping)
    rest = alone("apps.svm", "--epochs", 3, *keeping, "--resume")
    assert rest["final"]["model_sha256"] == whole["final"]["model_sha256"]


@pytest.mark.parametrize("ends", ["--gap", "--tolerance"])
def test_the_tolerance_is_resumed_too(alone, failing, file, ends):
    options = [ends, 0.05, "--epochs", 50, "--optimizer", "dual" if ends == "--gap" else "sgd"]
    whole = alone("apps.svm", *options)
    keeping = [*options, "--checkpoint", file, "--checkpoint-every", 0]
    failing(1, lambda: alone("apps.svm", *keeping))
    rest = alone("apps.svm", *keeping, "--resume")
    assert rest["epochs"][-1]["epoch"] == whole["epochs"][-1]["epoch"]
    assert rest["final"]["model_sha256"] == whole["final"]["model_sha256"]
    sealed = file.read_bytes()
    over = alone("apps.svm", *keeping, "--resume")
    assert over["epochs"] == [] and over["final"]["model_sha256"] == whole["final"]["model_sha256"]
    assert file.read_bytes() == sealed
    for more in ([ends, 0.01], ["--epochs", 51]):
        shutil.copy(file, copy := file.with_name("copy"))
        assert alone("apps.svm", *keeping[:7], copy, "--resume", *more)["epochs"]


def simulated(name, ranks, *arguments):
    """The report of a run on simulated ranks in this process."""
    report = str(arguments[arguments.index("--json") + 1])
    malt.simulate(lambda rank: PROGRAMS[name].run([str(argument) for argument in arguments]), ranks)
    return json.loads(Path(report).read_text())


@pytest.mark.thorough(but="apps.svm-3-2-bsp")
@pytest.mark.parametrize(("wrote", "goes_on", "sync"), [(3, 2, "bsp"), (2, 4, "asp")])
@every_program
def test_on_another_number_of_ranks(failing, tmp_path, file, capsys, name, wrote, goes_on, sync):
    """Half of the epochs on one number of ranks, half on another: the result is as good as with all on either."""
    every = {"apps.svm": 500, "apps.mf": 5000, "apps.mlp": 3}.get(name)
    options = ["--sync", sync, "--exchange-every", every] if every else []
    if name == "apps.mf":
        options = [*options, "--mix", "average"] if sync == "bsp" else []
    options += ["--json", tmp_path / "report.json", "--epochs", 8]
    keeping = ["--checkpoint", file, "--checkpoint-every", 0]
    failing(4, lambda: simulated(name, wrote, *options, *keeping))
    rest = simulated(name, goes_on, *options, *keeping, "--resume")
    told = f"{file}: the number of ranks was {wrote}, and is {goes_on}: all start from what the lowest of them had"
    assert capsys.readouterr().out.count(told) == (sync == "bsp" and name in ("apps.svm", "apps.mlp"))
    wholes = [simulated(name, ranks, *options) for ranks in (wrote, goes_on)]
    assert [epoch["epoch"] for epoch in rest["epochs"]] == [5, 6, 7, 8] and rest["resumed_from"] == 4
    assert rest["epochs"][-1]["examples"] == wholes[0]["epochs"][-1]["examples"]
    assert rest["final"][MEASURE[name]] < 1.02 * max(whole["final"][MEASURE[name]] for whole in wholes)


FINISHED = [
    ("apps.svm", ["--exchange-every", 500]), ("apps.svm", ["--exchange-every", 500, "--vector", "sparse"]),
    ("apps.svm", ["--optimizer", "dual"]),
    ("apps.mf", []), ("apps.mlp", ["--exchange-every", 5]), ("apps.kmeans", []),
    ("apps.gbdt", []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), FINISHED, ids=str)
def test_a_finished_job_that_is_resumed_ends_with_its_model(tmp_path, file, capsys, name, options):
    """It does so on any number of ranks, though no replica is that model. A job with more epochs trains on."""
    model, report = tmp_path / "model.npz", tmp_path / "report.json"
    options = [*options, "--json", report, "--save", model, "--checkpoint", file]
    first = simulated(name, 3, *options, "--epochs", 2)
    digest, untimed = first["final"].pop("model_sha256"), dict.fromkeys(SPLIT, 0)
    saved, sealed = model.read_bytes(), file.read_bytes()
    reports = f"{file}: the training ended after epoch 2: nothing is trained\n"
    assert reports not in capsys.readouterr().out
    for ranks, epochs in ((1, 2), (2, 2), (3, 1)):
        model.unlink()
        over = simulated(name, ranks, *options, "--resume", "--epochs", epochs)
        assert over["epochs"] == [] and over["resumed_from"] == 2
        assert over["final"].pop("model_sha256") == digest
        assert {**over["final"], **untimed} == pytest.approx({**first["final"], **untimed}, rel=1e-6)
        assert model.read_bytes() == saved and file.read_bytes() == sealed
        assert capsys.readouterr().out.count(reports) == 1
    longer = simulated(name, 2, *options, "--resume", "--epochs", 3)
    assert [epoch["epoch"] for epoch in longer["epochs"]] == [3]
    assert longer["final"]["model_sha256"] != digest


def test_a_rank_without_rows_keeps_the_last_checkpoint_too(tmp_path, file):
    data = tmp_path / "data.svm"
    data.write_text("1 1:1\n-1 1:-1 2:1\n")
    options = [data, "--checkpoint", file, "--json", tmp_path / "report.json", "--epochs", 2]
    first, over = (simulated("apps.svm", 4, *options, *resume) for resume in ([], ["--resume"]))
    assert over["epochs"] == [] and over["final"]["model_sha256"] == first["final"]["model_sha256"]


@pytest.mark.parametrize("name", ["apps.svm", "apps.mlp"])
def test_exchanges_fall_where_they_would_in_an_uninterrupted_run(failing, tmp_path, file, name):
    every = {"apps.svm": 3000, "apps.mlp": 14}[name]
    options = ["--sync", "bsp", "--exchange-every", every, "--json", tmp_path / "report.json", "--epochs", 6]
    keeping = ["--checkpoint", file, "--checkpoint-every", 0]
    failing(3, lambda: simulated(name, 2, *options, *keeping))
    rest = simulated(name, 2, *options, *keeping, "--resume")["epochs"]
    whole = simulated(name, 2, *options)["epochs"]
    assert [epoch["merged"] for epoch in rest] == [epoch["merged"] - whole[2]["merged"] for epoch in whole[3:]]


@pytest.mark.parametrize("sync", ["", "asp", "bsp", "ssp:1", "notify-ack"])
def test_ranks_wait_for_each_other_only_for_a_checkpoint(tmp_path, file, sync):
    """This holds also if one rank has more ratings than another, or none."""
    data = tmp_path / "ratings.txt"
    data.write_text("".join(f"1 {item} {item}\n" for item in range(9)) + "7 1 3\n")
    mix = ["--mix", "average", "--exchange-every", 1, "--sync", sync] if sync else []
    options = [*mix, "--checkpoint", file, "--checkpoint-every", 0, "--epochs", 3]
    simulated("apps.mf", 3, data, *options, "--json", tmp_path / "report.json")
    assert epoch_of(file) == 3


def test_the_first_step_is_not_chosen_again(alone, file, capsys):
    alone("apps.svm", "--epochs", 1, "--checkpoint", file)
    content = checkpoint.read(str(file))
    checkpoint.write(str(file), content._replace(arrays={**content.arrays, "first_step": np.array(0.0123)}))
    svm.run(["--checkpoint", str(file), "--resume", "--epochs", "1"])
    assert "first step 0.0123," in capsys.readouterr().out


def test_a_model_that_is_not_finite_does_not_take_the_place_of_one_that_is(alone, file, monkeypatch):
    pytest.importorskip("sklearn")
    options = ["--checkpoint", file, "--checkpoint-every", 0, "--exchange-every", 10**6]
    alone("apps.mlp", "--epochs", 1, *options)
    before = file.read_bytes()
    monkeypatch.setattr(mlp_problem, "step_at", lambda *_, **__: 1e30)
    with pytest.raises(BadInput, match="the training loss is not finite"):
        alone("apps.mlp", "--epochs", 3, *options, "--resume")
    assert file.read_bytes() == before


def kill_when(launcher, condition, pause_s):
    """Kill all that came from the launcher, that long after the condition has come true."""
    wait_for(lambda: condition() or launcher.poll() is not None)
    time.sleep(pause_s)
    assert launcher.poll() is None
    kill_all(launcher)


KILLED = [
    ("apps.svm", [], 0.3545),  # 0.3531 at best; after 10 epochs without a failure, 0.3538
    ("apps.kmeans", ["--batch", 5000], 190_000),
    ("apps.gbdt", ["--depth", 3], 0.69),
]


@make_faults
@pytest.mark.parametrize(("name", "more", "bound"), KILLED)
def test_kills_of_all_ranks(job_environment, file, tmp_path, name, more, bound):
    """They come at random moments, between writes and within them. Each time another number of ranks resumes."""
    draw = random.Random()
    options = [*more, "--checkpoint", file, "--epochs"]
    begun = 0
    for kill in range(KILLS):
        ranks = (3, 2, 4)[kill % 3]
        words = [*options, 10**6, "--checkpoint-every", 0, *(["--resume"] if kill else [])]
        command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), "-m", name, *map(str, words)]
        with open(tmp_path / "output", "wb") as reports:
            launcher = subprocess.Popen(command, cwd=ROOT, env=job_environment, stdout=reports, stderr=reports)
        kill_when(launcher, lambda begun=begun: file.exists() and epoch_of(file) > begun, 0.3 * draw.random())
        begun = epoch_of(file)
    report = tmp_path / "report.json"
    done = as_job(name, job_environment)(*options, begun + 3, "--resume", "--json", report, ranks=4)
    last_line(done, r"final: (.*)")
    reports = json.loads(report.read_text())
    assert [epoch["epoch"] for epoch in reports["epochs"]] == [begun + 1, begun + 2, begun + 3]
    assert reports["epochs"][-1]["examples"] == 32_561 * (begun + 3)
    assert reports["final"][MEASURE[name]] < bound
    assert sorted(os.listdir(tmp_path)) == ["output", "report.json", "train.ckpt"]


def epoch_of(file):
    return int(checkpoint.read(str(file)).arrays["epoch"])


class TestRefused:
    """A checkpoint is refused in one line, on all ranks, and nothing is overwritten."""

    @pytest.fixture
    def kept(self, alone, file):
        """kept(name): the checkpoint of that program after an epoch."""

        def kept(name):
            alone(name, "--epochs", 1, "--checkpoint", file)
            return file.read_bytes()

        return kept

    @every_program
    def test_a_file_that_is_there(self, kept, file, name):
        before = kept(name)
        with pytest.raises(BadInput, match=r"the file exists: continue from it with --resume, or remove it"):
            PROGRAMS[name].run(["--checkpoint", str(file)])
        assert file.read_bytes() == before

    @every_program
    def test_no_file_to_resume_from_or_no_folder(self, file, name):
        with pytest.raises(BadInput, match="--resume needs --checkpoint FILE"):
            PROGRAMS[name].run(["--resume"])
        for resume in ([], ["--resume"]):
            with pytest.raises(BadInput, match="nowhere"):
                PROGRAMS[name].run(["--checkpoint", str(file.parent / "nowhere" / "train.ckpt"), *resume])
        assert not file.exists()

    @every_program
    def test_a_file_for_two_things(self, file, name):
        with pytest.raises(BadInput, match="--checkpoint needs a file of its own"):
            PROGRAMS[name].run(["--checkpoint", str(file), "--save", str(file.parent / "." / file.name)])

    OTHERS = {  # noqa: RUF012
        "apps.svm": ["--loss logistic", "--l2 0.1", "--no-intercept", "--average gradient", "--step 0.5", "--seed 1"],
        "apps.mf": ["--rank 4", "--no-biases", "--l2 0.1", "--step 0.5", "--seed 1"],
        "apps.mlp": ["--hidden 7", "--hidden 128,128", "--optimizer adam", "--step 0.5", "--l2 0.1", "--seed 1"],
        "apps.kmeans": ["--clusters 4", "--batch 7", "--seed 1"],
        "apps.gbdt": ["--depth 3", "--bins 9", "--learning-rate 0.3", "--missing", "--l2 1"],
    }

    @every_program
    def test_another_problem(self, kept, file, name):
        before = kept(name)
        for other in self.OTHERS[name]:
            with pytest.raises(BadInput, match=rf"^{re.escape(str(file))}: a checkpoint with .*, not .* as here: "):
                PROGRAMS[name].run(["--checkpoint", str(file), "--resume", *other.split()])
            assert file.read_bytes() == before

    def test_other_data(self, kept, file, tmp_path):
        before = kept("apps.svm")
        text = "".join(f"{k % 2} {1 + k % 3}:{k}\n" for k in range(9))
        for number, (old, new) in enumerate([("", ""), ("0 1:0", "0 7:0"), ("0 1:0", "1 1:0"), ("8", "8 4:1")]):
            data = tmp_path / f"{number}.svm"
            data.write_text(text.replace(old, new, 1))
            if number == 0:
                file.unlink()
                svm.run([str(data), "--checkpoint", str(file), "--epochs", "1"])
                before = file.read_bytes()
            else:
                with pytest.raises(BadInput, match="a checkpoint with"):
                    svm.run([str(data), "--checkpoint", str(file), "--resume"])
            assert file.read_bytes() == before

    def test_other_ratings(self, file, tmp_path):
        data = tmp_path / "ratings.txt"
        data.write_text("1 1 1\n1 2 2\n7 1 3\n")
        mf.run([str(data), "--checkpoint", str(file), "--epochs", "1"])
        for other in ("1 1 1\n1 2 2\n8 1 3\n", "1 1 1\n1 2 2\n7 1 4\n", "1 1 1\n1 2 2\n7 1 3\n7 2 2\n"):
            data.write_text(other)
            with pytest.raises(BadInput, match="a checkpoint with"):
                mf.run([str(data), "--checkpoint", str(file), "--resume"])

    def test_of_another_program(self, kept, file):
        kept("apps.svm")
        with pytest.raises(BadInput, match="a checkpoint of apps.svm, not of apps.mf: name another file"):
            mf.run(["--checkpoint", str(file), "--resume"])

    def test_a_damaged_one(self, kept, file):
        whole = kept("apps.svm")
        file.write_bytes(whole[:-1])
        with pytest.raises(BadInput, match="a damaged checkpoint"):
            svm.run(["--checkpoint", str(file), "--resume"])
        assert file.read_bytes() == whole[:-1]

    def test_a_model_that_is_only_measured(self, file, tmp_path):
        model = tmp_path / "model.npz"
        mf.run(["--epochs", "0", "--save", str(model)])
        with pytest.raises(BadInput, match="--checkpoint is for training"):
            mf.run(["--model", str(model), "--test", "x", "--checkpoint", str(file)])


@every_program
def test_one_command_line_begins_and_goes_on(capsys, tmp_path, file, name):
    words = ["--epochs", 2, "--checkpoint", file, "--resume", "--json", tmp_path / "report.json"]
    begun, begun_said = simulated(name, 2, *words), capsys.readouterr().out
    over, over_said = simulated(name, 2, *words), capsys.readouterr().out
    assert begun_said.count(f"{file}: no checkpoint yet: the training starts from the beginning\n") == 1
    assert "resumed" not in begun_said and "no checkpoint" not in over_said
    assert (begun["resumed_from"], over["resumed_from"]) == (None, 2)
    assert (len(begun["epochs"]), over["epochs"]) == (2, [])


@every_program
def test_a_job_that_is_run_again_resumes_if_it_can(alone, failing, file, monkeypatch, name):
    keeping = ["--epochs", 3, "--checkpoint", file, "--checkpoint-every", 0]
    whole = alone(name, "--epochs", 3)
    monkeypatch.setenv("MALT_RESTART", "1")
    failing(1, lambda: alone(name, *keeping))  # there is none yet: from the start
    for options in ([], ["--resume"]):
        shutil.copy(file, copy := file.with_name("copy"))
        rest = alone(name, *keeping[:3], copy, *options)
        assert rest["resumed_from"] == 1 and rest["final"]["model_sha256"] == whole["final"]["model_sha256"]


def test_fingerprints():
    a = np.arange(6.0)
    assert checkpoints.fingerprint(a) == checkpoints.fingerprint(a.copy()) != checkpoints.fingerprint(a + 1)
    assert checkpoints.fingerprint(a[::2]) == checkpoints.fingerprint(a[::2].copy())
    assert checkpoints.fingerprint(a, a) != checkpoints.fingerprint(a)

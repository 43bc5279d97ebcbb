"""apps.mlp as a user runs it."""

import json
import os
import re
import stat
import struct
from pathlib import Path

import numpy as np
import pytest
from programs import in_process, last_line

pytest.importorskip("sklearn")

from apps.harness import BadInput
from apps.harness.outputs import save_model
from apps.mlp.problem import load_layers
from apps.mlp.program import run
from malt.files import save_npz

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.serial


@pytest.fixture
def alone(capsys):
    """Runs the program here, on simulated ranks."""
    return in_process(run, capsys)


def final(done):
    shape = r"final: training loss ([\d.]+) test accuracy ([\d.]+) model ([0-9a-f]{64})"
    loss, accuracy, model = last_line(done, shape)
    return float(loss), float(accuracy), model


def write_idx(folder, rows, test_rows=5, seed=0):
    """Pictures of 2 x 2 pixels. The label is the brightest of the four."""
    rng = np.random.default_rng(seed)
    for name, count in (("train", rows), ("t10k", test_rows)):
        pictures = rng.integers(0, 256, (count, 4)).astype(np.uint8)
        labels = pictures.argmax(axis=1).astype(np.uint8)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 2, 2) + pictures.tobytes())
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels.tobytes())
    return folder


class TestDigits:
    @pytest.mark.thorough(but="3-ssp:2")
    @pytest.mark.parametrize(("ranks", "sync"), [(2, "bsp"), (4, "asp"), (4, "notify-ack"), (3, "ssp:2")])
    def test_reaches_its_accuracy(self, alone, tmp_path, ranks, sync):
        report = tmp_path / "report.json"
        done = alone("--sync", sync, "--json", report, ranks=ranks)
        loss, accuracy, model = final(done)
        assert accuracy >= 0.95 and loss < 0.2
        assert re.findall(r"model on rank (\d): ([0-9a-f]{64})", done.stdout) == [
            (str(rank), model) for rank in range(ranks)
        ]
        reports = json.loads(report.read_text())
        assert (reports["program"], reports["ranks"], reports["sync"], reports["seed"]) == ("apps.mlp", ranks, sync, 0)
        assert reports["final"]["model_sha256"] == model and reports["lost_ranks"] == []
        assert [epoch["examples"] for epoch in reports["epochs"]] == [1438 * (k + 1) for k in range(10)]
        last = reports["epochs"][-1]
        assert last["bytes_sent"] == last["bytes_dense"] and (last["bytes_sent"] > 0) == (ranks > 1)
        assert last["seconds"] == reports["final"]["seconds"]
        assert last["train_loss"] < reports["epochs"][0]["train_loss"]
        if sync in ("bsp", "notify-ack"):
            assert last["overwritten"] == 0

    def test_each_layer_is_sent_at_each_exchange(self, alone, tmp_path):
        report = tmp_path / "report.json"
        final(alone("--hidden", "20,10", "--sync", "bsp", "--epochs", 1, "--json", report, ranks=2))
        layers = 4 * (65 * 20 + 21 * 10 + 11 * 10)
        exchanges = 719 // 32 // 10  # of the 23 batches of 719 rows
        last = json.loads(report.read_text())["epochs"][-1]
        assert last["bytes_sent"] == 2 * exchanges * layers and last["merged"] == 2 * exchanges * 3

    def test_bsp_ends_the_same_bit_by_bit_however_ranks_take_turns(self, alone):
        first, second = (final(alone("--sync", "bsp", "--epochs", 2, ranks=3, seed=seed)) for seed in range(2))
        assert first == second

    def test_another_seed_makes_another_model(self, alone):
        one, other = (final(alone("--epochs", 1, "--seed", k)) for k in (0, 1))
        assert one != other

    @pytest.mark.parametrize("options", [
        ["--optimizer", "adam"], ["--hidden", "64,32"], ["--l2", "1e-4", "--warm-up", "0.1"],
    ], ids=str)  # fmt: skip
    def test_options(self, alone, options):
        assert final(alone(*options))[1] >= 0.95


def test_l2_shrinks_the_weights(alone, tmp_path):
    sizes = []
    for l2 in (0, 0.01):
        final(alone("--l2", l2, "--epochs", 3, "--save", tmp_path / "model.npz"))
        sizes.append(sum(np.square(layer).sum() for layer in load_layers(tmp_path / "model.npz", [64, 128, 10])))
    assert sizes[1] < 0.9 * sizes[0]


@pytest.mark.parametrize(
    ("rows", "sync"), [(3, "asp"), (3, "ssp:1"), (3, "bsp"), (3, "notify-ack"), (41, "bsp"), (41, "notify-ack")]
)
def test_uneven_and_empty_shards(alone, tmp_path, rows, sync):
    options = ["--batch", 2, "--exchange-every", 1, "--epochs", 3, "--sync", sync, "--graph", "ring"]
    final(alone(write_idx(tmp_path, rows), *options, ranks=4))


def test_a_rank_without_rows_does_not_hold_the_model_back(alone, tmp_path):
    """There is one row. The rank that has it ends with the weights of the serial program, and so does the job."""
    folder, files = write_idx(tmp_path, rows=1), [tmp_path / "alone.npz", tmp_path / "job.npz"]
    final(alone(folder, "--epochs", 5, "--save", files[0]))
    final(alone(folder, "--epochs", 5, "--save", files[1], ranks=3))
    with np.load(files[0]) as serial, np.load(files[1]) as parallel:
        for layer in ("layer_1", "layer_2"):
            assert np.allclose(serial[layer], parallel[layer], rtol=1e-5)


def test_no_epochs_leave_the_model_as_it_was(alone, tmp_path):
    file = tmp_path / "model.npz"
    trained = final(alone("--epochs", 2, "--save", file, ranks=2))
    assert trained == final(alone("--epochs", 0, "--model", file, ranks=3))
    better = final(alone("--epochs", 2, "--model", file))
    assert better[0] < trained[0]


class TestModelFile:
    SIZES = (4, 3, 2)

    @pytest.fixture
    def layers(self):
        return [np.full((5, 3), 0.5, np.float32), np.full((4, 2), -1, np.float32)]

    @pytest.fixture
    def file(self, tmp_path):
        return str(tmp_path / "model.npz")

    def test_comes_back_as_it_went(self, layers, file):
        mask = os.umask(0o022)
        try:
            save_model(file, "apps.mlp", layer_1=layers[0], layer_2=layers[1])
        finally:
            os.umask(mask)
        back = load_layers(file, self.SIZES)
        assert all(np.array_equal(one, other) for one, other in zip(back, layers, strict=True))
        assert all(layer.flags.c_contiguous and layer.flags.writeable for layer in back)
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o644
        assert os.listdir(os.path.dirname(file)) == ["model.npz"]

    def test_without_a_format_it_is_of_the_first(self, layers, file):
        np.savez(file, program="apps.mlp", layer_1=layers[0], layer_2=layers[1])
        assert np.array_equal(load_layers(file, self.SIZES)[0], layers[0])

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"program": "apps.svm"}, "not a model of apps.mlp"),
            ({"program": "apps.mlp" * 100}, "not a model of apps.mlp"),
            ({"format": [1, 1]}, "not of format 1"),
            ({"format": 2}, "not of format 1"),
            ({"layer_2": np.zeros((4, 5), np.float32)}, "a network of 4-3-5 neurons, not of 4-3-2 as here"),
            ({"layer_3": np.zeros((3, 2), np.float32)}, "a network of 4-3-2-2 neurons"),
            ({"layer_1": np.zeros((5, 3))}, "a network of"),
            ({"layer_1": np.zeros(5, np.float32)}, "a network of"),
            ({"layer_1": np.full((5, 3), np.nan, np.float32)}, "holds NaN or infinity"),
            ({"layer_1": np.array([{}])}, "not an .npz as malt.files writes it"),
        ],
    )
    def test_another_is_refused(self, layers, file, changed, message):
        whole = {"format": 1, "program": "apps.mlp", "layer_1": layers[0], "layer_2": layers[1]}
        np.savez(file, **{**whole, **changed})
        with pytest.raises(ValueError, match=re.escape(message)) as raised:
            load_layers(file, self.SIZES)
        assert str(raised.value).startswith(f"{file}: ")


def test_a_model_for_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        save_npz(str(tmp_path / "nowhere" / "model.npz"), weights=np.zeros(3))
    assert raised.value.filename == str(tmp_path / "nowhere" / "model.npz")


BAD = {
    "no such folder": (["nothing"], "nothing: No such file or directory"),
    "a file": (["README.md"], "README.md:3: label 'MALT' is not a number"),
    "a folder without the files": (["apps"], "apps: there is no file train-images-idx3-ubyte"),
    "a model that is none": (["--model", "README.md"], "README.md: not an .npz as malt.files writes it"),
    "no such model": (["--model", "nothing.npz"], "nothing.npz: No such file or directory"),
    "a layer of nothing": (["--hidden", "128,0"], "from 1 to 9223372036854775807, with commas between, got 128,0"),
    "layers of words": (["--hidden", "big"], "from 1 to 9223372036854775807, with commas between, got big"),
    "a layer that no memory holds": (["--hidden", "99999999999"], "7,499,999,999,935 weights: 1 rank of this"),
    "an empty batch": (["--batch", "0"], "of at least 1, got 0"),
    "an optimizer that is not there": (["--optimizer", "magic"], "invalid choice: 'magic'"),
    "a step that is no number": (["--step", "nan"], "of at least 0, got nan"),
    "a warm-up of all the training": (["--warm-up", "1"], "of at least 0 and below 1, got 1"),
    "a graph that is not there": (["--graph", "chrod"], "chord"),
    "a mode that is not there": (["--sync", "ssp:x"], "ssp:S"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments, message = BAD[name]
    with pytest.raises(BadInput, match=re.escape(message)):
        run(arguments)


@pytest.mark.parametrize("option", ["--json", "--save"])
def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path, option):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match="pipe: not a regular file"):
        run([option, str(pipe), "--epochs", "0"])
    assert pipe.is_fifo()


@pytest.mark.parametrize(("exchange_every", "step"), [(1, r"now [\d.]+e\+29"), (10**6, r"1e\+30 at first")])
def test_a_step_that_is_too_large_is_named(alone, exchange_every, step):
    with pytest.raises((BadInput, FloatingPointError), match=f"the step size, {step}, is too large"):
        alone("--step", "1e30", "--exchange-every", exchange_every, "--epochs", 1, ranks=2)


@pytest.mark.thorough
def test_a_folder_that_one_rank_alone_cannot_see_ends_all(malt_run):
    done = malt_run(
        "import sys, malt\nfrom apps import harness\nfrom apps.mlp import program\n"
        "sys.argv[1:] = ['--epochs', '1'] + ['nothing'] * malt.rank()\nharness.main('apps.mlp', program.run)\n"
    )
    assert done.returncode == 2 and "apps.mlp: error: nothing: No such file" in done.stderr


@pytest.mark.thorough
class TestMnist:
    """The reference: 0.98 with a small network. Ten epochs reach it; here are two."""

    def test_is_on_its_way(self, alone, data):
        _, accuracy, _ = final(alone(data / "mnist", "--epochs", 2, "--sync", "bsp", ranks=2))
        assert accuracy >= 0.95

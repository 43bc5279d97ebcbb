"""apps.autoencoder as a user runs it."""

import json
import re
import struct

import numpy as np
import pytest
from programs import in_process, last_line

pytest.importorskip("sklearn")

from apps.autoencoder.program import run
from apps.harness import BadInput
from malt.files import load_npz, save_npz

pytestmark = pytest.mark.serial
FEW = ("--patches", 200, "--hidden", 4)
FINAL = r"final: loss ([\d.e-]+) chunk bytes ([\d,]+) model ([0-9a-f]{64})"


@pytest.fixture
def alone(capsys):
    """Runs the program here, on simulated ranks."""
    return in_process(run, capsys)


@pytest.mark.thorough
def test_it_runs_at_once_on_four_ranks(alone, tmp_path):
    done = alone("--patches", 1500, "--epochs", 30, "--json", tmp_path / "report", ranks=4)
    loss, nbytes, model = last_line(done, FINAL)
    epochs = json.loads((tmp_path / "report").read_text())["epochs"]
    assert len(epochs) == 30 and epochs[-1]["loss"] < 0.9 * epochs[0]["loss"]
    assert {epoch["chunk_bytes"] for epoch in epochs} == {int(nbytes.replace(",", ""))}
    assert re.findall(r"model on rank (\d): ([0-9a-f]{64})", done.stdout) == [(str(rank), model) for rank in range(4)]
    one = last_line(alone("--patches", 1500, "--epochs", 30), FINAL)
    assert float(one[0]) == pytest.approx(float(loss), rel=1e-5) and one[1] == "0"


def test_the_model_is_saved_and_gone_on_with(alone, tmp_path):
    model = tmp_path / "model.npz"
    first = last_line(alone(*FEW, "--epochs", 5, "--save", model, "--picture", tmp_path / "features.png"), FINAL)
    assert {name: array.shape for name, array in load_npz(model).items()} == {
        "format": (), "program": (), "U": (64, 4), "b": (4,), "V": (4, 64), "c": (64,),
    }  # fmt: skip
    assert (tmp_path / "features.png").read_bytes()[:4] == b"\x89PNG"
    assert last_line(alone(*FEW, "--epochs", 0, "--model", model), FINAL) == first
    assert float(last_line(alone(*FEW, "--epochs", 5, "--model", model), FINAL)[0]) < float(first[0])


def test_a_run_resumes(alone, tmp_path):
    file = ("--checkpoint", tmp_path / "train.ckpt", "--checkpoint-every", 0)
    first = last_line(alone(*FEW, *file, "--epochs", 8), FINAL)
    assert last_line(alone(*FEW, *file, "--epochs", 8, "--resume"), FINAL) == first
    assert float(last_line(alone(*FEW, *file, "--epochs", 12, "--resume"), FINAL)[0]) < float(first[0])


def test_pictures_of_a_file_or_a_folder(alone, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 10, 9)).astype(np.uint8)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(struct.pack(">4I", 0x803, *pixels.shape) + pixels.tobytes())
    found = {last_line(alone(data, *FEW, "--epochs", 2), FINAL) for data in (file, tmp_path)}
    assert len(found) == 1


def other_model(path):
    save_npz(path, format=1, program="apps.autoencoder", U=np.zeros((64, 3)), b=np.zeros(3))


BAD = {
    "no such file": (["nowhere"], "nowhere: No such file or directory"),
    "an empty folder": (["."], r"\.: there is no file train-images-idx3-ubyte or train-images-idx3-ubyte.gz in it"),
    "no idx file": (["model"], "model: not an idx file"),
    "no model": (["--model", "text"], "text: not an .npz as malt.files writes it"),
    "another model": (["--model", "model"], r"model: a model of \(pixels, hidden units\) \(64, 3\), not of \(64, 4\)"),
    "no patches": (["--patches", "0"], "argument --patches: must be an integer of at least 1, got 0"),
    "too many patches": (["--patches", "10" + "0" * 12], r"--patches 10,000,000,000,000 take .* GB, and .* are free"),
    "all active": (["--sparsity", "1"], "argument --sparsity: must be a number of at least 0 and below 1, got 1"),
    "a picture over data": (["text", "--picture", "text"], "text: --picture needs a file of its own, and DATA is that"),
    "no folder": (["--picture", "none/a.png"], "none/a.png: No such file or directory"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name, alone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other_model("model")
    (tmp_path / "text").write_text("text")
    arguments, message = BAD[name]
    with pytest.raises(BadInput) as caught:
        alone(*FEW, *arguments)
    assert re.match(message, str(caught.value)) or re.search(message, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)

"""Tests that runs resume from checkpoints written before programs had a harness."""

import json
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.serial, pytest.mark.single]

FILES = Path(__file__).parent / "checkpoints_of_0_1"
"""Checkpoints of two epochs of each program on the data below, in a world of one."""
PROGRAMS = {"svm": "apps.svm.program", "mlp": "apps.mlp.program", "mf": "apps.mf.program"}
WORDS = {"svm": ["data.svm"], "mlp": ["pictures", "--hidden", "4"], "mf": ["ratings.txt", "--rank", "2"]}
FINAL = {
    "svm": "8200caee6e4aca26e031b9ae60dce062c878ea4ff1e2c6a578a1b77936955d42",
    "mlp": "eac120f16c0ba9220c2bfe47e30a12c70fa6711742a84ce0244388833cc6b21a",
    "mf": "16d1dcbc59c8a2a14d882ee40f3476ab5ddb98941e3ab8dbb79938766bc95ded",
}
AFTER_FOUR = {"svm": ("objective", 0.9996917), "mlp": ("train_loss", 1.1114733), "mf": ("train_rmse", 0.4977219)}


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data.svm").write_text("".join(f"{k % 2} 1:{k % 7} {2 + k % 3}:{1 + k % 5}\n" for k in range(40)))
    Path("ratings.txt").write_text("".join(f"{k % 7} {k % 5} {1 + k * k % 4}\n" for k in range(30)))
    Path("pictures").mkdir()
    for name, count in (("train", 20), ("t10k", 10)):
        k = np.arange(count)
        pixels = ((k[:, np.newaxis] * 37 + np.arange(9) * 11) % 256).astype(np.uint8)
        images, labels = np.array([0x803, count, 3, 3], ">u4"), np.array([0x801, count], ">u4")
        Path(f"pictures/{name}-images-idx3-ubyte").write_bytes(images.tobytes() + pixels.tobytes())
        Path(f"pictures/{name}-labels-idx1-ubyte").write_bytes(labels.tobytes() + (k % 3).astype(np.uint8).tobytes())


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_resumes_from_an_old_checkpoint(name):
    program = import_module(PROGRAMS[name])

    def resumed(epochs):
        shutil.copy(FILES / f"{name}.ckpt", "old.ckpt")
        words = ["--checkpoint", "old.ckpt", "--resume", "--epochs", str(epochs), "--json", "report.json"]
        program.run([*WORDS[name], *words])
        return json.loads(Path("report.json").read_text())

    over = resumed(2)
    assert over["epochs"] == [] and over["final"]["model_sha256"] == FINAL[name]
    longer, (measure, value) = resumed(4), AFTER_FOUR[name]
    assert longer["resumed_from"] == 2 and [epoch["epoch"] for epoch in longer["epochs"]] == [3, 4]
    assert longer["final"][measure] == pytest.approx(value, rel=1e-5)

"""apps.autoencoder: its gradient, the same losses on any number of ranks, ranks that fail, the picture."""

import json
import struct
import zlib

import numpy as np
import pytest
from ranks import run_failing

pytest.importorskip("sklearn")

import malt
from apps.autoencoder import patches, png
from apps.autoencoder.network import Sums, first_weights, objective, sums
from apps.autoencoder.program import run

FEW = ["--patches", "130", "--hidden", "5", "--epochs", "6"]


@pytest.mark.parametrize("rho", [0.0, 0.2])
def test_the_gradient_is_that_of_the_objective(rho):
    rng = np.random.default_rng(0)
    rows, w = rng.uniform(0.1, 0.9, (40, 6)), first_weights(6, 4, rng) + rng.normal(size=58) / 3

    def value(w):
        return objective(w, 6, Sums(*sums(w, rows)), rho, 0.7, 0.05)

    _, gradient = value(w)
    steps = 1e-6 * np.eye(len(w))
    slopes = [(value(w + step)[0] - value(w - step)[0]) / 2e-6 for step in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-8)


def test_the_objective_is_that_of_the_formula():
    rng = np.random.default_rng(0)
    x, w = rng.uniform(0.1, 0.9, (3, 2)), rng.normal(size=7)
    hidden = 1 / (1 + np.exp(-(x @ w[:2] + w[2])))
    output = 1 / (1 + np.exp(-(hidden[:, None] * w[3:5] + w[5:])))
    mean = hidden.mean()
    sparse = 0.1 * np.log(0.1 / mean) + 0.9 * np.log(0.9 / (1 - mean))
    wanted = ((output - x) ** 2).sum() / 6 + 0.3 / 2 * (w[[0, 1, 3, 4]] ** 2).sum() + 2 * sparse
    assert objective(w, 2, Sums(*sums(w, x)), 0.1, 2.0, 0.3)[0] == pytest.approx(wanted)


def report(tmp_path, ranks, *arguments):
    malt.simulate(lambda rank: run([*FEW, *arguments, "--json", str(tmp_path / "report")]), ranks)
    return json.loads((tmp_path / "report").read_text())


def test_losses_do_not_depend_on_the_ranks_and_chunks_travel_once(tmp_path):
    alone = report(tmp_path, 1)
    losses = [epoch["loss"] for epoch in alone["epochs"]]
    assert len(losses) == 6 and losses == sorted(losses, reverse=True) and alone["final"]["loss"] == losses[-1]
    for ranks in (3, 4):
        found = report(tmp_path, ranks)
        assert [epoch["loss"] for epoch in found["epochs"]] == losses
        assert found["final"]["model_sha256"] == alone["final"]["model_sha256"]
        nbytes = {epoch["chunk_bytes"] for epoch in found["epochs"]} | {found["final"]["chunk_bytes"]}
        assert len(nbytes) == 1 and min(nbytes) > 130 * 64 * 8 / 2
        assert {epoch["examples"] % 130 for epoch in found["epochs"]} == {0}


@pytest.mark.parametrize("failures", [{0: 180}, {1: 220}, {0: 270}, {0: 250, 2: 250}], ids=str)
def test_ranks_fail(tmp_path, failures):
    """The others end with the same model, also where the patches were on a rank that failed."""
    wanted = report(tmp_path, 1)["final"]
    _, failed = run_failing(3, 1, failures, lambda rank: run([*FEW, "--json", str(tmp_path / "report")]))
    found = json.loads((tmp_path / "report").read_text())
    assert failed == failures.keys()
    assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2, 3, 4, 5, 6]
    assert (found["final"]["model_sha256"], found["final"]["loss"]) == (wanted["model_sha256"], wanted["loss"])


def test_patches_are_drawn_by_the_seed():
    pictures = np.random.default_rng(0).integers(0, 256, (7, 12, 5)).astype(np.uint8)
    rows = patches.cut(pictures, 50, 3)
    assert rows.shape == (50, 40) and not rows.flags.writeable
    assert (rows == patches.cut(pictures, 50, 3)).all() and (rows != patches.cut(pictures, 50, 4)).any()
    assert rows.min() >= 0.1 and rows.max() <= 0.9
    for patch in patches.cut(pictures, 5, 3).reshape(5, 8, 5):
        order = patch.argsort(axis=None, kind="stable")
        windows = [one[y : y + 8].reshape(-1) for one in pictures for y in range(5)]
        assert any((np.diff(window[order].astype(int)) >= 0).all() for window in windows)


def test_a_picture_can_be_read(tmp_path):
    features = np.random.default_rng(0).normal(size=(5, 6))
    png.save_features(str(tmp_path / "picture.png"), features, 3)
    data, parts = (tmp_path / "picture.png").read_bytes(), {}
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place = 8
    while place < len(data):
        (length,) = struct.unpack_from(">I", data, place)
        name, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert struct.unpack_from(">I", data, place + 8 + length) == (zlib.crc32(name + body),)
        parts[name], place = body, place + 12 + length
    width, height, *kind = struct.unpack(">2I5B", parts[b"IHDR"])
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert kind == [8, 0, 0, 0, 0] and not lines[:, 0].any() and list(parts) == [b"IHDR", b"IDAT", b"IEND"]
    image = lines[3::6, 4::6]
    assert image.shape == (2 * 3 + 1, 3 * 4 + 1)
    first = image[1:3, 1:4].reshape(-1)
    assert (first.argsort() == features[0].argsort()).all() and (first.min(), first.max()) == (0, 255)

"""Files of models that lack what their programs save: each is refused in words."""

from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("numba")

import apps.embed.graph
import apps.kmeans.start
import apps.lda.corpus
from apps.harness.outputs import save_model

pytestmark = pytest.mark.serial
FOUND = SimpleNamespace(names=np.arange(2))


@pytest.mark.parametrize(("program", "load", "message"), [
    ("kmeans", lambda path: apps.kmeans.start.load(path, (2, 3)), "not a model of apps.kmeans"),
    ("lda", lambda path: apps.lda.corpus._model(Namespace(model=path, topics=3)), "its counts must be finite, of 3"),
    ("embed", lambda path: apps.embed.graph._model(Namespace(model=path, dim=3), FOUND), "its vectors must be"),
])  # fmt: skip
def test_a_model_that_lacks_an_array(program, load, message, tmp_path):
    path = str(tmp_path / "model.npz")
    save_model(path, f"apps.{program}", nodes=FOUND.names)
    with pytest.raises(ValueError, match=message):
        load(path)

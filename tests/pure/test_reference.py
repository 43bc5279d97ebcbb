"""The reference in docs/api/ names everything that is public."""

import importlib
import re
from pathlib import Path

import pytest

import malt

API = Path(__file__).parents[2] / "docs/api"
PACKAGES = ["malt", "malt.data", "malt.files", "malt.jax", "malt.optim", "malt.sklearn", "malt.torch"]
ELSEWHERE = {"malt.files", "malt.optim", "malt.kernels", "malt.models"}
"""Packages, whose names stand on pages of their own; malt.kernels and malt.models are for those who write programs."""


names_nothing = object()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_on_a_page(package):
    if package in ("malt.jax", "malt.sklearn", "malt.torch"):
        pytest.importorskip(package.removeprefix("malt."))
    named = {name for page in API.glob("*.md") for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)}
    module, again = importlib.import_module(package), {} if package == "malt" else vars(malt)
    names = [name for name in module.__all__ if getattr(module, name) is not again.get(name, names_nothing)]
    public = {f"{package}.{name}" for name in names} - ELSEWHERE
    assert {name for name in named if name.rpartition(".")[0] == package} == public


def test_the_names_of_malt_are_the_public_ones():
    packages = {package.removeprefix("malt.") for package in PACKAGES[1:]}
    assert dir(malt) == sorted({*malt.__all__, *packages})


def test_every_class_shows_its_signature_and_replica_is_first():
    page = (API / "malt.md").read_text()
    assert re.search(r"^::: (\S+)$", page, re.MULTILINE)[1] == "malt.Replica"
    assert "merge_init_into_class: true" in (API.parents[1] / "mkdocs.yml").read_text()

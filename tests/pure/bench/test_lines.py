"""Tests of bench.pages.lines: the lines that make examples parallel, and the page that shows them."""

import ast

import pytest
from documents import EXAMPLES
from programs import ROOT

import malt
from bench.pages import lines

FILES = sorted((ROOT / "examples").glob("*.py"))
SHOWN = {
    "serial": "logistic_serial",
    "parallel": "logistic_parallel",
    "gradients": "svm_parallel",
    "sparse": "talk_parallel",
    "torch": "cnn_parallel",
    "trainer": "trainer_parallel",
    "lightning": "lightning_parallel",
    "jax": "jax_parallel",
}
MOST_LINES = 60
CLOSE = 0.03

def test_a_parallel_program_is_as_good_as_its_serial_twin():
    for example in lines.EXAMPLES.values():
        assert example.parallel == pytest.approx(example.serial, rel=CLOSE)


def test_each_example_is_serial_and_parallel_or_sharded():
    names = {f"{name}_{kind}.py" for name in lines.EXAMPLES for kind in ("serial", "parallel")}
    assert {file.name for file in FILES} == names | {f"{name}.py" for name in lines.SHARDED}
    assert all(len((ROOT / f"examples/{name}.py").read_text().splitlines()) <= 40 for name in lines.SHARDED)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_program_is_short_and_uses_what_is_public(file):
    text = file.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    nodes = list(ast.walk(ast.parse(text)))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    packages = {str(name).split(".")[0] for name in modules}
    assert packages <= {"malt", "numpy", "numba", "torch", "transformers", "lightning", "jax", "mlflow"}
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "malt"}
    assert names <= {*malt.__all__, "jax", "torch"}


@pytest.mark.parametrize("example, name", SHOWN.items())
def test_the_pages_show_the_files(example, name):
    assert EXAMPLES[example] in (ROOT / f"examples/{name}.py").read_text()


def test_only_code_counts_as_a_line():
    serial = '"""Prose."""\n\nx = 1  # one\n# aside\nfor i in y:\n    f(i)\nprint(x)\n'
    parallel = '"""Other prose."""\nimport malt\nx = 1\nfor i in malt.shard(y):\n    f(i)\n    g()\n\nprint(x)\n'
    assert lines.code(serial) == ["x = 1", "for i in y:", "    f(i)", "print(x)"]
    assert lines.change(serial, parallel) == lines.Change(serial=4, parallel=6, added=2, changed=1)


def test_a_removed_line_is_not_an_added_line():
    assert lines.change("a = 1\nb = 2\nc = 3\n", "a = 1\nc = 3\n") == lines.Change(3, 2, 0, 0)
    assert lines.change("a = 1\nb = 2\n", "a = 1\nc = 3\nd = 4\n") == lines.Change(2, 3, 1, 1)


def test_a_listing_holds_both_programs():
    shown = lines.listing("a\nb\nc\n", "a\nd\nc\n").splitlines()
    assert shown == [" a", "-b", "+d", " c"]

"""Imports point down, and what decides imports neither MPI nor a clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.serial

ROOT = Path(__file__).parents[2]
LAYERS = ["dstorm", "vol", "malt", "apps"]
PURE = [
    "dstorm/membership/calls.py",
    "dstorm/transports/connections.py",
    "dstorm/queues/consistency.py",
    "dstorm/queues/layout.py",
    "dstorm/membership/view.py",
    "dstorm/reduction.py",
    "dstorm/queues/ring.py",
    "dstorm/membership/allocator.py",
    "dstorm/membership/heartbeat.py",
    "dstorm/header.py",
    "dstorm/queues/statistics.py",
    "dstorm/membership/status.py",
    "dstorm/transport.py",
    "dstorm/wait.py",
    "malt/launch/streams/banners.py",
    "malt/replica/cadence.py",
    "malt/replica/changes.py",
    "malt/data/dealing.py",
    "malt/doctor/findings.py",
    "malt/replica/parameters.py",
    "vol/graphs/graph.py",
    "vol/topology.py",
    "vol/graphs/spectrum.py",
    "vol/merge.py",
    "vol/update.py",
    "vol/arguments.py",
    "vol/sparse/dirty.py",
    "vol/sparse/merge.py",
    "vol/sparse/rows.py",
    "vol/sparse/wire.py",
    "apps/network.py",
    "apps/optimizer.py",
]
MODULES = [file for layer in LAYERS for file in sorted((ROOT / layer).rglob("*.py"))]


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{file}: a relative import"
    return names


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_point_down(file):
    layer = LAYERS.index(file.relative_to(ROOT).parts[0])
    above = [name for name in imported(file) if name.split(".")[0] in LAYERS[layer + 1 :]]
    assert not above


@pytest.mark.parametrize("name", PURE)
def test_what_decides_is_pure(name):
    roots = {one.split(".")[0] for one in imported(ROOT / name)}
    assert not roots & {"mpi4py", "time", "threading", "os", "socket"}


def test_one_module_calls_mpi_windows():
    assert [file.name for file in MODULES if "MPI.Win" in file.read_text() and "import MPI" in file.read_text()] == [
        "mpi.py"
    ]


def test_nothing_is_unpickled():
    for file in MODULES:
        names = imported(file)
        assert not {name for name in names if name.split(".")[0] in ("pickle", "marshal", "shelve", "dill", "joblib")}
        assert "allow_pickle=True" not in file.read_text()

"""A wrong value of any kind is shown in one short line, also one whose repr has many lines or is megabytes long."""

import os

import numpy as np
import pytest

import malt

_TABLE = np.zeros((3, 2))
_LONG = [0] * 100_000
_GRAPH = malt.graph("ring", 4)

_CALLS = {
    "name": lambda value: malt.vector(3, name=value),
    "to": lambda value: malt.vector(3).scatter(to=value),
    "rows": lambda value: malt.vector(3, kind="sparse").scatter(rows=[*map(str, np.ravel(value))]),
    "gather": lambda value: malt.vector(3).gather(value),
    "outer": lambda value: malt.Replica(np.zeros(3), average="delta", outer=value),
    "dtype": lambda value: malt.sharded(3, dtype=value),
    "n": lambda value: malt.sharded(np.asarray(value, float)),
    "map_reduce": lambda value: malt.map_reduce(value, None, [1]),
    "checkpoint": lambda value: malt.Checkpoint(value),
    "load": lambda value: malt.load_svmlight(value),
    "load_npz": lambda value: malt.files.load_npz(value),
    "graph": lambda value: malt.graph(value, 4),
    "hosts": lambda value: malt.graph("hierarchical", 1, hosts=[value]),
    "without": lambda value: _GRAPH.without([value]),
    "on_death": lambda value: malt.on_death(value),
    "on_report": lambda value: malt.on_report(value),
    "network": lambda value: malt.Network(value, 1e9),
    "simulate": lambda value: malt.simulate(value, 1),
    "run": lambda value: malt.run(value, 1),
}


@pytest.mark.parametrize("value", [_TABLE, _LONG], ids=["lines", "long"])
@pytest.mark.parametrize("call", _CALLS.values(), ids=_CALLS)
def test_a_wrong_value_is_shown_in_one_short_line(call, value):
    with pytest.raises((TypeError, ValueError)) as raised:
        call(value)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500


def test_a_number_is_no_path():
    reading, writing = os.pipe()
    try:
        with pytest.raises(TypeError, match=f"^path must be a string or a path, got {reading}$"):
            malt.files.load_npz(reading)
        os.fstat(reading)  # still open
    finally:
        os.close(reading)
        os.close(writing)

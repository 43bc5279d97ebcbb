"""The neighbours of a rank follow the graph and the membership view."""

from __future__ import annotations

import pytest

import malt
from dstorm.view import View
from vol.topology import Topology

pytestmark = pytest.mark.serial


def test_without_failures_neighbours_are_those_of_the_graph():
    graph = malt.graph("one-peer", 8)
    topology = Topology(graph, View(8), 3)
    for step in range(1, 8):
        assert topology.outs(step) == graph.out(3, step) and topology.ins(step) == graph.into(3, step)
    assert topology.now.targets == graph.targets(3) and topology.now.sources == graph.sources(3)
    assert topology.now is topology.now

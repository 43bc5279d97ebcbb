"""The neighbours of a rank follow the graph and the membership view."""

import pytest

import malt
from dstorm.view import FaultTolerantView
from vol.graphs.topology import Topology


@pytest.mark.parametrize("ask", [Topology.follow, lambda topology: topology.now])
def test_neighbours_follow_the_view(ask):
    mended = []
    view, graph = FaultTolerantView(5), malt.graph("ring", 5)
    topology = Topology(graph, view, 1, mended.append)
    first = topology.seen
    view.change(failed=[2])
    assert topology.seen is first and topology.peek().outs == ((3,),) and not mended
    ask(topology)
    assert (topology.now.out(1), topology.now.into(1)) == ((3,), (0,)) and mended == [first]
    view.change(failed=[0, 4])
    assert (topology.now.out(7), topology.now.into(7)) == ((3,), (3,))
    view.change(joined=[2, 0, 4])
    assert (topology.now.out(1), topology.now.into(1)) == ((2,), (0,))
    assert topology.now.graph == graph and len(mended) == 3

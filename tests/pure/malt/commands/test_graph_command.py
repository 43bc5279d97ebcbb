"""`malt graph`: what it prints of a graph, what it draws, and what it refuses in one line."""

import json
import re
import sys

import matplotlib
import pytest

import malt
from malt.commands import command_line


@pytest.mark.parametrize("name", ["all", "exponential", "one-peer", "base"])
def test_the_facts_are_those_of_the_graph(name, capsys):
    assert command_line.main(["graph", name, "-n", "12", "--json"]) == 0
    found, graph = json.loads(capsys.readouterr().out), malt.graph(name, 12)
    assert found["degree"] == graph.degree and found["rounds"] == graph.rounds() and found["period"] == graph.period
    assert found["spectral_gap"] == pytest.approx(graph.spectral_gap(), abs=1e-4)
    sent = [len(graph.out(rank, step)) for step in range(1, graph.period + 1) for rank in range(12)]
    assert found["messages"] == pytest.approx(sum(sent) / graph.period, abs=0.01)
    assert command_line.main(["graph", name, "-n", "12"]) == 0
    assert re.search(f"^messages +{found['messages']}$", capsys.readouterr().out, re.MULTILINE)


def test_a_drawing_has_a_number_for_each_rank_and_a_panel_for_each_phase(tmp_path, capsys):
    matplotlib.rcParams["svg.fonttype"] = "none"  # text as text
    assert command_line.main(["graph", "one-peer", "-n", "5", "--plot", str(tmp_path / "g.svg")]) == 0
    drawn = (tmp_path / "g.svg").read_text()
    assert [drawn.count(f">{rank}</text>") for rank in range(5)] == [3] * 5
    assert drawn.count(" of 3</text>") == 3
    assert drawn.count('<g id="patch_') == 1 + 15  # the background, and an arrow for each edge


def test_messages_across_hosts_are_counted(capsys, tmp_path):
    def facts(words):
        assert command_line.main(["graph", *words.split(), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert facts("hierarchical -n 16 --hosts a:8,b:8")["across_hosts"] == 16 == facts("ring -n 16")["messages"]
    assert facts("all -n 16 --hosts a,b")["across_hosts"] == 128, "hosts without a number share the ranks"
    assert facts("auto -n 6 --hosts a:4,b:4") == facts("hierarchical -n 6 --hosts a:4,b:4") | {"graph": "auto"}
    assert "across_hosts" not in facts("auto -n 6")
    facts(f"hierarchical -n 4 --hosts a,b --plot {tmp_path / 'g.svg'}")
    assert all((tmp_path / "g.svg").read_text().count(f"fill: {colour}") for colour in ("#fde725", "#5ec962"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("hierarchical -n 4", "hierarchical depends on the hosts.*give --hosts"),
        ("hierarchical -n 4 --hosts a:2,b:1", "the hosts have 3 slots, too few for 4 ranks"),
        ("exponentia -n 4", "no graph is called 'exponentia'.*did you mean 'exponential'"),
        ("all -n 4 --degree 2", "degree"),
        ("ring -n 4 --plot g.jpg", "ends in .png, .svg, .pdf"),
        ("ring -n 4 --plot gone/g.png", "gone/g.png: No such file"),
        ("all -n 100 --plot g.png", "9,900 edges are too many"),
    ],
)
def test_what_cannot_be_is_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command_line.main(["graph", *words.split()]) == 2
    assert re.fullmatch(f"malt graph: .*{said}.*\n", capsys.readouterr().err) and not list(tmp_path.iterdir())


def test_without_matplotlib_the_remedy_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert command_line.main(["graph", "ring", "-n", "4", "--plot", "g.png"]) == 2
    assert "'.[plot]' in the checkout" in capsys.readouterr().err

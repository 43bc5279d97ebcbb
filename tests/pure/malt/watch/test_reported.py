"""What ranks reported, in malt report: each number with a legend of ranks, speeds, intervals, and one sentence."""

import json
import re

import numpy as np
import pytest
from traces import report, traced

import malt
from malt.commands import command_line
from malt.watch.trace import files
from malt.watch.trace.page import page, runs_of
from malt.watch.trace.reading import read
from malt.watch.trace.reported import examples_per_s, intervals, names, outcome, over_examples, over_time


def training(every):
    def run(rank):
        replica = malt.Replica(np.zeros(3), every=every, name="model: of lines")
        for _ in range(20):
            replica.step()
        replica.finish()

    return run


@pytest.fixture
def folder(tmp_path):
    """A traced run of three ranks, of which two reported."""
    traced(tmp_path / "run", training("auto"), 3)
    (tmp_path / "run" / files.JOB).write_text(json.dumps({"version": 1, "status": 0, "seconds": 12.5}))
    return tmp_path / "run"


def at(folder, seconds, rank, **numbers):
    began = read(folder).ranks[0].wall
    with (folder / files.METRICS).open("a") as file:
        file.write(json.dumps({"rank": rank, "time": began + seconds, **numbers}) + "\n")


def test_every_number_is_drawn_with_a_legend_of_ranks(folder):
    for step in range(3):
        for rank in (0, 1):
            at(folder, step, rank, accuracy=step / 4, loss=1 / (1 + step), epoch=step, examples=100 * step * (1 + rank))
    report(folder, 1, grad_norm=float("nan"))
    trace = read(folder)
    assert names([trace]) == ["loss", "accuracy"]
    assert [value for _, value in over_time(trace, "accuracy")[1]] == [0, 0.25, 0.5]
    assert [place for place, _ in over_examples(trace, "loss")[1]] == [0, 300, 600]
    text = page(runs_of([trace]))
    headings = re.findall("<h2>(.*?)</h2>", text)
    assert headings[1:4] == ["Loss over time", "Loss over examples", "Accuracy over time"]
    legend = '<span class="key one"></span>rank 0<span class="key two"></span>rank 1'
    assert text.count(legend) == 3 and text.count('class="line two"') == 3
    both = page(runs_of([trace, trace]))
    assert "rank 0<span" not in both and both.count('class="line two"') == 2 * 3, "there it is the run"


@pytest.mark.parametrize("numbers", [
    (1e17, 1e17), (1e20, 1e20), (5e-324, 0), (1, 1 + 2.3e-16), (1e308, -1e308), (-1e299, 1e299),
], ids=str)  # fmt: skip
def test_numbers_of_any_size_are_drawn(numbers, folder):
    """The page ended in a traceback. Those whose difference is infinite count as infinite, and are left out."""
    for second, number in enumerate(numbers):
        at(folder, second, 0, loss=number)
    text = page(runs_of([read(folder)]))
    assert ("Loss over time" in text) == (abs(numbers[0]) < 1e300)
    assert "nan" not in text and "inf" not in re.sub("information", "", text)


def test_speeds_are_of_the_time_between_reports(folder):
    for seconds, examples in ((1, 0), (2, 50), (3, 10), (6, 60)):  # it was started again at 3
        at(folder, seconds, 0, examples=examples)
    at(folder, 2, 1, examples=10)
    at(folder, 4, 1, examples=30)
    assert examples_per_s(read(folder)) == pytest.approx({0: 20, 1: 10})
    assert "<th>examples/s</th><td>30 in all; 20 on rank 0, 10 on rank 1</td>" in page(runs_of([read(folder)]))


@pytest.mark.parametrize(("every", "said"), [
    ("auto", ["model of lines: 1 on each rank"]), ((2, 40), ["model of lines: 2 on each rank"]), (5, []),
])  # fmt: skip
def test_the_interval_that_auto_chose(every, said, tmp_path):
    """In simulated time the lower bound."""
    traced(tmp_path, training(every), 2)
    assert intervals(read(tmp_path)) == said
    assert ("every, by auto" in page(runs_of([read(tmp_path)]))) == bool(said)
    assert "model of lines" not in re.search("<th>exchanged</th><td>(.*?)</td>", page(runs_of([read(tmp_path)])))[1]


def test_a_first_sentence_says_how_it_went(folder, capsys):
    assert outcome(read(folder), []) == "3 ranks finished after 12.5 s. No number was reported (malt.report)."
    for rank in (0, 1):
        at(folder, 1, rank, loss=1.0 + rank, examples=0)
        at(folder, 3, rank, loss=0.25, examples=2000)
    assert command_line.main(["report", str(folder)]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == "3 ranks finished after 12.5 s: loss from 1.5 to 0.25, 2,000 examples/s."
    assert f"<p>{first}</p>" in (folder / files.REPORT).read_text()
    (folder / files.JOB).write_text(json.dumps({"version": 1, "status": 137, "seconds": 3}))
    said = outcome(read(folder), [(1, 2.0)])
    assert said.startswith("3 ranks, of which 1 failed, ended with status 137 after 3 s: loss from")

"""Tests of bench: what is made of the times that were measured, and what is measured on."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from measured import kept

from bench import __main__ as program
from bench.benchmarks import page, rows
from bench.benchmarks.rows import Row, missing, rated, timed
from bench.benchmarks.svm import planted
from bench.harness import document, jobs, timing
from bench.harness.timing import alternate, ratio
from bench.pages import network, torch
from malt.launch.machine.mpi_library import bound_library


def test_contenders_take_turns_and_are_timed_alike(monkeypatch):
    calls, now = [], [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def work(name, seconds):
        calls.append(name)
        now[0] += seconds

    times = alternate({"a": lambda: work("a", 0.001), "b": lambda: work("b", 0.004)}, rounds=4, calls=2)
    assert calls[:8] == ["a", "a", "b", "b", "b", "b", "a", "a"]  # the order rotates
    assert times == {"a": pytest.approx([0.001] * 4), "b": pytest.approx([0.004] * 4)}
    assert ratio(times["b"], times["a"]) == pytest.approx(4)


def test_a_row_is_the_median_of_pairs():
    row = timed("what", "whom", ours=[1.0, 1.0, 10.0], theirs=[3.0, 2.0, 20.0])
    assert (row.ratio, row.ours, row.theirs) == (2.0, 1.0, 3.0)
    assert rated("what", "whom", ours=[1.0, 1.0, 10.0], theirs=[3.0, 2.0, 20.0]).ratio == 0.5


def test_the_time_to_a_target_is_that_of_the_first_epoch_that_reaches_it():
    report = {"epochs": [{"seconds": 4.0 - error, "error": error} for error in (3.0, 2.0, 1.0)]}
    assert [jobs.seconds_to(target, "error", report) for target in (2.5, 1.0, 0.5)] == [2.0, 3.0, float("inf")]


def test_readers_see_both_ways_in_one_line_and_what_was_not_measured():
    made = [Row("a", "whom", 0.5, 2.0, 1.0), Row("a, with numba", "whom", 2.0, 0.5, 1.0),
            missing("b", "whom", "it is not installed"), Row("c", "", None, 2.0)]  # fmt: skip
    assert rows.table(made) == [
        ["what", "compared with", "reference", "MALT", "ratio", "MALT with numba", "ratio with numba", "notes"],
        ["a", "whom", "1 s", "2 s", "0.50 x", "500 ms", "2.00 x", ""],
        ["b", "whom", "-", "-", "-", "-", "-", "not measured: it is not installed"],
        ["c", "-", "-", "2 s", "-", "-", "-", ""],
    ]


def test_a_headline_never_has_the_better_number_alone():
    [headline] = [one for one in page.HEADLINES if one.name == "exchange of 100,000 floats, bsp"]
    name, whom = headline.name, headline.against
    made = [Row(name, whom, 0.65), Row(f"{name}, with numba", whom, 1.42)]
    found = page.headlines(made)
    assert page.table(found)[-1] == [headline.what, headline.peer, "0.65 x", "1.42 x"]
    assert all(text in page.picture(found) for text in (">0.65 x<", ">1.4 x<"))


def test_numbers_have_a_unit_that_reads_well():
    shown = [rows.shown(x, "s") for x in (0, 2.5, 0.0312, 4.31e-6, 2e-8)]
    assert shown == ["-", "2.5 s", "31.2 ms", "4.31 us", "20 ns"]
    assert [rows.shown(x, "1/s") for x in (17_920_000, 5_000)] == ["17.9 M/s", "5,000 1/s"]


def run(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["bench", *words])
    document.measure("bench", "", lambda _: {}, page.tables, parts=program.PARTS, scales=("whole", "quick"))


def test_parts_that_were_not_measured_again_are_kept(tmp_path, monkeypatch, capsys):
    file = tmp_path / "results.json"

    def ran(name, ratio):
        monkeypatch.setitem(program.ROWS, name, lambda quick: [Row(name, "whom", ratio)])
        run(monkeypatch, "--only", name, "--json", str(file))
        return sorted((row.name, row.ratio) for row in rows.every(json.loads(file.read_text())))

    assert ran("start", 1.0) == [("start", 1.0)]
    assert ran("messages", 2.0) == [("messages", 2.0), ("start", 1.0)]
    assert ran("start", 3.0) == [("messages", 2.0), ("start", 3.0)]
    assert bound_library().family in json.loads(file.read_text())["start"]["machine"]


def test_a_part_without_its_data_is_not_measured_and_a_row_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(program, "RCV1", tmp_path / "nowhere")
    run(monkeypatch, "--only", "logistic", "--json", str(tmp_path / "results.json"))
    assert "| logistic | - | - | - | - | not measured: it needs the data set rcv1-ccat" in capsys.readouterr().out


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(planted, "ROWS", 2000)
    return planted.made


def test_planted_rows_follow_the_seed_and_have_length_1(few_rows, tmp_path):
    data = few_rows(seed=1)
    planted.write(data, tmp_path)
    for other in (few_rows(seed=1), planted.read(tmp_path)):
        assert (data.X != other.X).nnz == 0 and (data.y == other.y).all()
    assert (data.X != few_rows(seed=2).X).nnz > 0
    assert np.allclose(data.X.power(2).sum(axis=1), 1, atol=1e-5) and set(data.y) == {-1, 1}
    assert 70 < data.X.nnz / len(data.y) < 78 and data.X.has_sorted_indices
    assert planted.read(tmp_path).X.indptr.dtype == np.int32


def test_runs_of_torch_become_a_table():
    def run(seconds):
        return [{"seconds": seconds / 2, "sent": 50e6, "test_accuracy": 0.97},
                {"seconds": seconds, "sent": 1e8, "test_accuracy": 0.99}]  # fmt: skip

    runs = {"DDP, gloo": [run(10.0)] * 2, "changes": [run(4.0)] * 2}
    ddp, changes = torch.table(runs, "sent")[1:]
    assert ddp == ["DDP, gloo", "0.9900", "10.0", "1.00", "100.00", "1", "50.00", "100.00"]
    assert torch.table(runs, "seconds")[2] == [*changes[:-2], "2.0", "4.0"] and changes[3] == "0.40"


def test_the_picture_has_a_bar_for_each_headline():
    """A row that was renamed would lose its bar."""
    shown = page.headlines(rows.every(kept("benchmarks")))
    assert [one.headline for one in shown] == list(page.HEADLINES)
    ratios = sum(ratio is not None for one in shown for ratio in (one.plain, one.compiled))
    assert page.picture(shown).count("<rect") == ratios + 1, "with the legend"


def test_a_page_has_the_median_seconds_to_the_accuracy():
    def run(*epochs):
        return [{"seconds": seconds, "test_accuracy": accuracy} for seconds, accuracy in epochs]

    first, second = list(network.CONTENDERS)[:2]
    reached = [run((1.0, 0.9), (2.0, last), (3.0, 0.981)) for last in (0.98, 0.97, 0.99)]
    _, *rows = network.table({first: reached, second: [run((1.0, 0.9))]})
    assert [row[:4] for row in rows] == [
        [first, "2.00", "2.00, 3.00", "0.9810"],
        [second, "not reached", "not reached, not reached", "0.9000"],
    ]


def test_a_file_without_a_folder_is_refused_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["bench.x", "--json", str(tmp_path / "none/page.json")])
    with pytest.raises(SystemExit):
        document.measure("bench.x", "", lambda _: pytest.fail("it measures"))
    assert f"there is no folder {tmp_path / 'none'}" in capsys.readouterr().err

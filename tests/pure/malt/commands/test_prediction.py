"""What malt plan predicts of a measured program."""

import math

import pytest

from malt.commands.command_line import main
from malt.commands.plan.command import bests, table
from malt.commands.plan.losses import Losses
from malt.commands.plan.measuring import Measured, is_on_harness
from malt.commands.plan.prediction import OWN, Choice, Prediction, across

WAN, LATENCY_S, BANDWIDTH = "WAN 100 Mbit/s", 20e-3, 12.5e6
PROGRAM = Measured(0.5, 1e6, exchanges=32, every=10, merge_s=0.001)


ALL, RING = (Choice(graph, "bsp", 1) for graph in ("all", "ring"))


def test_an_exchange_takes_its_messages_latencies_and_merges():
    """A message of a megabyte is simulated by one of 8192 bytes that counts for more."""
    found = Prediction(PROGRAM, WAN)
    message_s = (1e6 + 2 * 64) / BANDWIDTH
    assert found.exchange_s(RING, 4) == pytest.approx(3 * LATENCY_S + message_s + 0.001, rel=0.02)
    least_s = 3 * LATENCY_S + 3e6 / BANDWIDTH + 0.003
    assert least_s < found.exchange_s(ALL, 4) < least_s + 2 * message_s  # ranks send to the same peer at once


def test_a_network_of_the_users_own_is_one_of_its_numbers():
    own, known = Prediction(PROGRAM, OWN, networks={OWN: (LATENCY_S, BANDWIDTH)}), Prediction(PROGRAM, WAN)
    assert own.exchange_s(RING, 4) == known.exchange_s(RING, 4)
    assert Prediction(PROGRAM, OWN, networks={OWN: (LATENCY_S, BANDWIDTH / 2)}).exchange_s(RING, 4) > own.exchange_s(
        RING, 4
    )


@pytest.mark.parametrize("words, why", [
    (["--latency", "0.02"], "a network of your own needs --bandwidth BYTES_A_SECOND, too"),
    (["--bandwidth", "12.5e6"], "a network of your own needs --latency SECONDS, too"),
    (["--latency", "20", "--bandwidth", "1e6"], "a latency is a number of seconds from 0 to 10, not '20'"),
    (["--latency", "-1", "--bandwidth", "1e6"], "a latency is a number of seconds from 0 to 10, not '-1'"),
    (["--latency", "0", "--bandwidth", "100"], "a number of bytes a second from 1000 to 1e+13, not '100'"),
    (["--latency", "0", "--bandwidth", "fast"], "a number of bytes a second from 1000 to 1e+13, not 'fast'"),
    (["--loss", "nan"], "a loss is a finite number, not 'nan'"),
])  # fmt: skip
def test_what_is_no_network_is_refused_in_one_line(words, why, capsys):
    try:
        status = main(["plan", *words, "loop.py"])
    except SystemExit as ended:
        status = ended.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1) and err.startswith("malt plan: ") and why in err


def test_under_asp_messages_leave_while_ranks_compute():
    found = Prediction(PROGRAM, WAN)
    assert found.exchange_s(Choice("ring", "asp", 1), 4) == pytest.approx(0.001)
    assert found.exchange_s(Choice("all", "asp", 4), 4) == pytest.approx(0.003)
    busy = Prediction(PROGRAM._replace(compute_s=0.01), WAN)
    assert 0 <= busy.exchange_s(Choice("ring", "asp", 1), 4) < 0.001  # a message takes 0.2 s: few are merged
    epoch = busy.epoch(Choice("ring", "asp", 1), 4)
    assert epoch.nbytes == pytest.approx(4 * BANDWIDTH * epoch.seconds)  # the rest is superseded


def test_a_rank_merges_before_it_sends_again():
    slow, fast = (Prediction(PROGRAM._replace(merge_s=merge_s), WAN) for merge_s in (0.5, 0.0))
    assert slow.exchange_s(RING, 4) - fast.exchange_s(RING, 4) == pytest.approx(0.5, rel=0.1)


def test_an_epoch_has_as_many_exchanges_as_the_rows_of_a_rank_need():
    found = Prediction(PROGRAM, WAN)
    epoch = found.epoch(RING._replace(interval=4), 4)
    assert epoch.nbytes == 32 / 4 * 1e6 and not epoch.is_extrapolated
    assert epoch.seconds == pytest.approx(32 / 4 * 0.5 + 32 / 4 / 4 * found.exchange_s(RING, 4))
    assert epoch.exchange_share == pytest.approx(1 - 4 / epoch.seconds)


def test_ranks_of_a_host_share_its_link():
    found = {graph: Prediction(PROGRAM, WAN, slots=2).epoch(Choice(graph, "bsp", 1), 4)
             for graph in ("all", "hierarchical", "ring")}  # fmt: skip
    assert [found[graph].nbytes for graph in found] == [8 * 2 * 4e6, 8 * 4e6, 8 * 2e6]  # 8 exchanges of each rank
    assert found["all"].seconds > found["hierarchical"].seconds > found["ring"].seconds
    assert Prediction(PROGRAM, WAN, slots=4).epoch(ALL, 4).nbytes == 0
    assert [across(name, 8, 4) for name in ("all", "ring", "hierarchical", "one-peer")] == [4, 1 / 4, 1, 7 / 12]


def test_more_ranks_are_extrapolated_by_the_peers_of_a_rank():
    found = Prediction(PROGRAM, WAN)
    found._known = {("all", "bsp", 1, 16): 1.5, ("all", "bsp", 1, 64): 6.3}
    found._known |= {("ring", "bsp", 1, 16): 2.0, ("ring", "bsp", 1, 64): 2.1}
    found._known |= {("all", "asp", 4, 16): 2.0, ("all", "asp", 4, 64): 1.9}
    assert found.exchange_s(Choice("all", "asp", 4), 256) == 1.9
    assert found.exchange_s(ALL._replace(interval=4), 256) == pytest.approx(0.1 * 255)
    assert found.exchange_s(RING, 1024) == 2.1
    assert found.epoch(RING, 1024).is_extrapolated
    assert [across(name, 1024) for name in ("all", "exponential", "one-peer", "ring")] == [1023, 10, 1, 1]


def test_epochs_to_a_loss_grow_as_between_the_last_numbers_that_were_simulated():
    found = Losses("apps.svm", (), PROGRAM, 0.1)
    found._known = {(RING, 16, "any"): 5.0, (RING, 64, "any"): 10.0}
    assert found.epochs(RING, 1024, WAN) == 40.0  # where ranks wait they learn the same on each network
    found._known = {(RING, 16, "any"): 5.0, (RING, 64, "any"): math.inf}
    assert found.epochs(RING, 256, WAN) == math.inf
    found._known = {(RING, 16, "any"): math.inf, (RING, 64, "any"): 5.0}
    assert found.epochs(RING, 256, WAN) == math.inf
    found._known = {(RING, 16, "any"): 10.0, (RING, 64, "any"): 5.0}
    assert found.epochs(RING, 256, WAN) == 5.0


def test_a_program_on_the_harness_trains_on_simulated_ranks():
    assert is_on_harness("apps.svm") and not is_on_harness("apps.harness") and not is_on_harness("no.such")
    program = Measured(1e-4, 496, 32.5, 1000, 1e-6, (0.37, 0.36), "objective")
    words = ["--epochs", "3"]
    near, far = (Losses("apps.svm", words, program, target, slots=2) for target in (0.38, 0.2))
    assert near.epochs(Choice("hierarchical", "bsp", 1), 4, WAN) <= 3
    assert far.epochs(Choice("ring", "asp", 4), 2, WAN) == math.inf


def row(network="10 GbE", ranks=2, every=10, seconds=1.0, **more):
    return {
        "network": network, "ranks": ranks, "graph": "ring", "sync": "asp", "every": every, "bytes_an_epoch": 1e6,
        "seconds_an_epoch": seconds, "exchange_share": 0.25, "extrapolated": ranks > 64, **more,
    }  # fmt: skip


def test_the_best_is_that_of_least_time():
    rows = [row(), row(ranks=256, seconds=0.5), row(every=40, seconds=0.1), row("WAN 100 Mbit/s", seconds=9.0)]
    assert bests(rows, 10) == [rows[1], rows[3]]
    of_loss = [row(seconds_to_loss=None), row(ranks=4, every=40, seconds_to_loss=7.0)]
    assert bests(of_loss, 10) == of_loss[1:]


def test_the_table_marks_the_best_and_what_is_extrapolated():
    rows = [row(), row(ranks=256, seconds=0.5)]
    one = {"seconds_an_epoch": 2.0, "exchanges_an_epoch": 4, "bytes_a_message": 1e6, "every": 10, "compute_s": 0.5}
    facts = {"program": "p", "one_rank": one, "slots": 2, "loss": None, "best": rows[1:], "rows": rows}
    facts["networks"] = {"10 GbE": (25e-6, 1.25e9)}
    lines = table(facts).splitlines()
    assert lines[0] == "p on one rank: 2 s an epoch, 4 exchanges of 1,000,000 bytes, one every 10, 0.5 s apart"
    assert lines[1] == "2 ranks on each host"
    assert lines[5].split() == ["ring", "asp", "10", "1", "*~0.5"]
    assert lines[6].startswith("best: 256 ranks, graph ring, sync asp, every 10: 0.5 s; an epoch sends 1 MB between")

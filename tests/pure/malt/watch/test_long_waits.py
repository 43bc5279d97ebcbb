"""Long waits: who waits for whom, once, and where those are that are waited for."""

from malt.launch.reports.long_waits import LongWaits, longest_s, report
from malt.watch.ranks import Shown
from malt.watch.record import Record


def waits(rank, whom, wait_s, call="malt.barrier", state=""):
    return Shown(rank, state, Record(waits_for=whom, call=call, wait_s=wait_s))


def test_a_report_is_due_once_about_ranks_that_do_not_wait_themselves():
    long_waits = LongWaits()
    busy = Shown(1, "", Record())
    assert long_waits.due([waits(0, (1,), 29.9), busy]) == []
    shown = [waits(0, (1, 2), 31.0), busy, waits(2, (1,), 12.0), Shown(3, "", None)]
    assert longest_s(shown) == 31.0
    assert long_waits.due(shown) == [1]
    assert long_waits.due(shown) == []
    assert long_waits.due([waits(0, (3,), 31.0), busy, Shown(3, "", Record())]) == [3]
    assert LongWaits().due([waits(0, (1,), 40.0), waits(1, (0,), 35.0)]) == [0, 1]  # a circle
    assert LongWaits().due([waits(0, (1,), 40.0), Shown(1, "failed", Record())]) == []


def test_a_report_says_who_waits_for_whom_and_where_those_are_in_few_lines():
    shown = [waits(0, (1, 2), 31.0), waits(3, (1, 2), 33.0), waits(4, (2,), 30.0, "malt.Vector.gather")]
    stack = "\n".join(f'  File "x.py", line {line} in f' for line in range(100))
    text = report(shown, {1: f"Thread 1:\n  other\n\nThread 0:\n{stack}", 2: "its process is stopped"}, 77)
    lines = text.splitlines()
    assert lines[:3] == [
        "malt run: ranks 0, 3 wait for ranks 1, 2 in malt.barrier (33 s)",
        "malt run: rank 4 waits for rank 2 in malt.Vector.gather (30 s)",
        "malt run: `malt stacks 77` prints all threads of all ranks; of those that are waited for:",
    ]
    assert lines[3:6] == ["rank 1:", "Thread 0:", '  File "x.py", line 0 in f'] and "other" not in text
    assert lines[-2:] == ["rank 2:", "its process is stopped"] and "more" in lines[-3] and len(lines) <= 40
    many = [waits(rank, (rank + 1,), 31.0) for rank in range(0, 1000, 2)]
    assert len(report(many, dict.fromkeys(range(1, 1000, 2), stack), 77).splitlines()) == 40

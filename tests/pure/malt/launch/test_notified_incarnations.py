"""A signal that ends a job reaches each incarnation of a rank once: one that was just started again would go on."""

import signal
import subprocess
from types import SimpleNamespace

from processes import wait_for
from reported import add

from dstorm.membership.processes import stat_fields
from malt.launch.processes.departure import Departure
from malt.runner.events import Stream


def test_a_rank_that_reports_its_start_after_the_notice_of_the_one_before_gets_it_too(tmp_path):
    departure = Departure(Stream(tmp_path), 1, is_fault_tolerant=True)
    for life in range(2):
        with subprocess.Popen(["sleep", "60"]) as process:
            if life:
                add(tmp_path, "again-0", "1")
            add(tmp_path, "started-0", f"{process.pid} {int(stat_fields(process.pid)[19])}")
            if not life:
                process.kill()
                process.wait()
            departure.notify(signal.SIGTERM)
            wait_for(lambda process=process: process.poll() is not None, 10)
            assert process.returncode == -(signal.SIGTERM if life else signal.SIGKILL)


def test_one_on_another_host_is_notified_once_more_where_it_connects_again(tmp_path):
    told = []
    departure = Departure(Stream(tmp_path), 2, True, True, SimpleNamespace(notify=told.append))
    for calls in (1, 2):
        add(tmp_path, "elsewhere-1")
        for _ in range(2):
            departure.notify(signal.SIGINT)
        assert told == [signal.SIGINT] * calls

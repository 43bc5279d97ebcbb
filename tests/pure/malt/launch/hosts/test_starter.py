"""The starter of a job of plain processes, in this process: which of its ranks it starts again, and when."""

import os
import signal
import subprocess
import sys
import time

import pytest
from processes import is_alive, wait_for
from reported import add, reported

from malt.launch.hosts.plain import starter
from malt.launch.hosts.plain.starter import AGAIN_S, FAILURES, Ranks, Restarts
from malt.runner import roster
from malt.runner.roster import Roster

BEGAN = 100.0


@pytest.mark.parametrize(
    ("lives_s", "is_given_up"),
    [([1, 4, 4.9], True), ([1, 1], False), ([1, 1, 60, 1, 1], False), ([60, 1, 1, 1], True), ([6] * 9, False)],
)
def test_one_that_fails_at_its_start_again_and_again_is_given_up(lives_s, is_given_up):
    now = BEGAN
    restarts = Restarts(now)
    for life_s in lives_s:
        for seen_s in (life_s, life_s + 1):  # its end is seen more than once
            restarts.note_failure(now + seen_s)
        last = restarts.is_given_up()
        now += max(life_s, AGAIN_S) + 1
        restarts.begin(now)
    assert last == is_given_up


@pytest.fixture
def started(tmp_path, capfd):
    """started(*programs): ranks that run these programs, by rank, and are started again. Killed at the end."""
    made = []

    def start(*programs):
        program = f"import os; exec({list(programs)!r}[int(os.environ['MALT_RANK'])])"
        numbers, environ = list(range(len(programs))), {**os.environ, "MALT_REJOIN": "1"}
        made.append(Ranks(numbers, len(numbers), [sys.executable, "-c", program], str(tmp_path), environ))
        made[0].start()
        return made[0]

    yield start
    for ranks in made:
        ranks.kill()
        for process in ranks._processes.values():
            process.wait()


FAILS, STAYS = "os._exit(3)", "import time; time.sleep(60)"


def await_end(ranks, rank):
    wait_for(lambda: ranks._processes[rank].poll() is not None)


def test_a_rank_that_failed_is_started_again_until_it_is_given_up(started, tmp_path, capfd):
    ranks, now = started(FAILS, "pass"), time.monotonic()
    await_end(ranks, 1)
    for life in range(FAILURES):
        await_end(ranks, 0)
        assert ranks._restarts[0].incarnation == life
        now += 1
        assert ranks.look_after(now) == (life < FAILURES - 1)
        now += AGAIN_S
        ranks.look_after(now)
    assert not ranks.look_after(now + 60) and not ranks._restarts[1].incarnation
    assert capfd.readouterr().err.splitlines() == [
        "malt: rank 0 failed (status 3), started again (1st time)",
        "malt: rank 0 failed (status 3), started again (2nd time)",
        "malt: rank 0 failed 3 times in a row within 5 s of its start, at last status 3: it is not started again",
    ]


def test_ranks_are_started_as_the_roster_asks_for_them(started, tmp_path, capfd):
    """And again where they have left as the job shrank, but not where they have come to their end."""
    roster.write(tmp_path, Roster.of(1, 1, 3))
    life = "print(os.environ['MALT_RANK'], os.environ.get('MALT_INCARNATION'), flush=True)"
    ranks, now = started(STAYS, life, f"{life}; {STAYS}"), time.monotonic()
    assert ranks.look_after(now) and set(ranks._processes) == {0}
    with roster.changing(tmp_path) as found:
        found.scale(3)
    assert ranks.look_after(now) and set(ranks._processes) == {0, 1, 2}
    await_end(ranks, 1)
    ranks.look_after(now + AGAIN_S)
    assert ranks._lives == {0: 0, 1: 1, 2: 1}
    with roster.changing(tmp_path) as found:
        found.retire(1, 1)
        found.scale(1)
    ranks.look_after(now + 2 * AGAIN_S)
    assert ranks._lives[1] == 1
    with roster.changing(tmp_path) as found:
        found.scale(2)
    ranks.look_after(now + 2 * AGAIN_S)
    await_end(ranks, 1)
    assert ranks._lives == {0: 0, 1: 2, 2: 1}
    said = []
    wait_for(lambda: said.extend(capfd.readouterr().out.splitlines()) or len(said) == 3)
    assert sorted(said) == ["1 1", "1 2", "2 1"]
    assert ranks._processes[2].poll() is None, "it goes by itself"


def test_a_change_within_a_tick_of_the_clock_of_files_is_seen(started, tmp_path):
    """The second of two takes the inode that the one before has left."""
    found, file = Roster.of(1, 1, 2), tmp_path / roster.FILE
    roster.write(tmp_path, found)
    ranks, at = started(STAYS, STAYS), file.stat()
    found.scale(2)
    file.write_text(roster.text(found))
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert ranks.look_after(time.monotonic()) and set(ranks._processes) == {0, 1}


def test_one_that_cannot_be_started_now_is_tried_later(started, monkeypatch, capfd):
    ranks, now = started(FAILS), time.monotonic()
    await_end(ranks, 0)
    with monkeypatch.context() as patch:
        patch.setattr(starter.subprocess, "Popen", refuse)
        assert ranks.look_after(now + 6) and ranks.look_after(now + 7)
    assert capfd.readouterr().err == "malt: rank 0 failed (status 3), cannot be started now: Cannot allocate memory\n"
    assert ranks.look_after(now + 12) and "2nd time" in capfd.readouterr().err


def test_a_rank_that_a_signal_finds_in_the_midst_of_its_start_ends(started, monkeypatch):
    """The handler does not know its process, and the agent would wait for its end."""
    ranks, now = started(FAILS), time.monotonic()
    await_end(ranks, 0)
    popen = ranks.popen

    def signalled(*arguments):
        made = popen(*arguments)
        ranks.kill()
        return made

    monkeypatch.setattr(ranks, "_words", [sys.executable, "-c", STAYS])
    monkeypatch.setattr(ranks, "popen", signalled)
    assert ranks.look_after(now + AGAIN_S)
    wait_for(lambda: not ranks.look_after(now + AGAIN_S), 10)
    assert ranks._lives[0] == 1 and ranks._processes[0].returncode == -signal.SIGKILL


def refuse(*words, **named):
    raise OSError(12, os.strerror(12))


def test_with_which_status_a_rank_has_failed_is_reported_once(started, tmp_path):
    ranks = started(FAILS, "os.kill(os.getpid(), 9)", "pass")
    for rank in range(3):
        await_end(ranks, rank)
    for _ in range(2):
        ranks.look_after(0.0)
    assert reported(tmp_path) == {"ended-0": "3", "ended-1": "137"}
    assert (tmp_path / "events-0").read_bytes().count(b"ended") == 1


def test_how_a_process_has_ended():
    assert starter._how(3) == "status 3" and starter._how(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert starter._how(-40) == "killed by signal 40"
    numbers = 1, 2, 3, 4, 11, 21, 112
    assert " ".join(map(starter._ordinal, numbers)) == "1st 2nd 3rd 4th 11th 21st 112th"


@pytest.mark.parametrize("order", [1, -1], ids=["ranks elsewhere end last", "the launcher says so last"])
def test_on_several_hosts_it_lasts_until_the_job_has_ended_and_so_have_the_ranks_that_were_heard_of(order, tmp_path):
    """Its end is that of the job: the launcher ends what is left then."""
    environ = {**os.environ, "MALT_FAILURE_DIR": str(tmp_path)}
    words = [sys.executable, starter.__file__, "0", "3", "-c", "pass"]
    with subprocess.Popen(words, env=environ) as process:
        for rank in (1, 2):
            add(tmp_path, f"elsewhere-{rank}")
        add(tmp_path, "ended-1")
        wait_for(lambda: "finished-0" in reported(tmp_path), 60)
        for last in [lambda: (tmp_path / starter.ENDING).touch(), lambda: add(tmp_path, "ended-2")][::order]:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            last()
        assert process.wait(60) == 0


def test_one_that_is_ended_ends_its_ranks(tmp_path):
    """The launcher does so, or the system where that was killed."""
    environ = {**os.environ, "MALT_FAILURE_DIR": str(tmp_path), "MALT_REJOIN": "1"}
    program = f"import os; print(os.getpid(), file=open({str(tmp_path / 'runs')!r}, 'w'), flush=True); input()"
    words = [sys.executable, starter.__file__, "0", "1", "-c", program]
    with subprocess.Popen(words, env=environ, stdin=subprocess.PIPE) as process:
        wait_for(lambda: (tmp_path / "runs").exists() and (tmp_path / "runs").read_text().endswith("\n"))
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 128 + signal.SIGHUP
    wait_for(lambda: not is_alive(int((tmp_path / "runs").read_text())))

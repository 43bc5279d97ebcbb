"""`malt doctor --hosts`: which hosts a job can run on, and what the network between them does.

Each host is examined as before a job. Then a job of two ranks runs on the first host and each other one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

from malt.commands.doctor.facts import Facts, Outcome
from malt.commands.doctor.findings import FAIL, OK, Finding, between, can_run, judge, record
from malt.commands.doctor.self_test import PROGRAM, Examination
from malt.launch.command import Job
from malt.launch.hosts.allocation import Host
from malt.launch.hosts.examination import examined
from malt.launch.hosts.threads import on_each
from malt.launch.machine.mpi_library import LaunchError, Library

RunJob = Callable[[str], tuple[Outcome, Examination | None]]
"""Runs the job of two ranks on the hosts that are named as for --hosts."""


def examine(hosts: Sequence[Host], library: Library, environ: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each host on which no job can start, in order. Local."""
    troubles = zip(hosts, on_each(hosts, partial(_trouble, library, environ)), strict=True)
    return [Finding(FAIL, host.name, line) for host, line in troubles if line]


def _trouble(library: Library, environ: Mapping[str, str], host: Host) -> str:
    try:
        examined(Job(1, PROGRAM, (host,)), library, environ, []).close()
    except LaunchError as error:  # it contains the remedy
        return str(error).removeprefix(f"host {host.name}: ")
    return ""


def report(
    facts: Facts, hosts: Sequence[Host], environ: Mapping[str, str], run_job: RunJob
) -> tuple[list[Finding], dict[str, object]]:
    """Return the findings on jobs on `hosts`, and the same and all facts for JSON. Local."""
    findings = judge(facts)
    pairs: dict[str, Facts] = {}
    if facts.library is not None and can_run(findings):
        bad = examine(hosts, facts.library, environ)
        names = [host.name for host in hosts if host.name not in {finding.what for finding in bad}]
        good = [Finding(OK, "hosts", f"a job can start on {', '.join(names)}")] if names else []
        findings += good + bad
        for name in names[1:]:
            where = f"{names[0]}:1,{name}:1"
            outcome, examination = run_job(where)
            pair = replace(facts, where=where, job=outcome, examination=examination)
            pairs[f"{names[0]}, {name}"] = pair
            findings += between(f"{names[0]}, {name}", pair)
    return findings, {**record(facts, findings), "pairs": {name: asdict(pair) for name, pair in pairs.items()}}

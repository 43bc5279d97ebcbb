"""The findings of `malt doctor`: what its facts mean, with a remedy where something falls short. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from dstorm.words import count
from malt.commands.doctor.extras import shortfall
from malt.commands.doctor.facts import Facts, Outcome
from malt.commands.doctor.self_test import COMPUTE_S, Examination, deadline_s
from malt.launch.machine.mpi_library import INSTALL

OK, WARN, FAIL = "ok", "warn", "fail"

SMALL_SHM_NBYTES = 256_000_000
"""Less free space is soon used up: containers have 64 MB, and the windows of a rank take in-degree x depth x slot."""

LATE_MS = COMPUTE_S * 1e3 / 2
"""An update that takes longer than this has waited for its receiver, not for a busy core."""

SLOWEST_US = {True: 50.0, False: 500.0}
"""The longest normal time of a Put + Flush of 8 bytes inside a host (True) and between hosts."""

SLOWEST_GB_S = {True: 1.0, False: 0.1}
"""The lowest normal bandwidth inside a host (True: memory) and between hosts (Gigabit Ethernet)."""

LOWEST_SHARE = 0.5
"""The lowest normal bandwidth of a Put, as a share of that of a plain TCP stream between the same hosts."""

_PROGRESS = {
    "openmpi": "set OMPI_MCA_btl_tcp_progress_thread=1",
    "mpich": "set MPIR_CVAR_ASYNC_PROGRESS=1 (its thread takes compute time where all cores are busy)",
    "intel": "set I_MPI_ASYNC_PROGRESS=1",
}
_SLOW = {
    True: "let ranks of a host share memory: unset UCX_TLS, OMPI_MCA_btl, MPIR_CVAR_NOLOCAL; containers: --ipc=host",
    False: "choose the faster network: OMPI_MCA_btl_tcp_if_include (Open MPI), UCX_NET_DEVICES or FI_TCP_IFACE (MPICH)",
}

_WRITABLE = "mount it writable for this user: docker run --tmpfs /dev/shm"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: str
    """OK, WARN (a job runs, but not as well as it could) or FAIL (none can run)."""
    what: str
    value: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.value} — {self.remedy}" if self.remedy else self.value


def judge(facts: Facts) -> list[Finding]:
    """Return the findings, in the order of the report. Findings about unknown facts are left out."""
    findings = [check(facts) for check in _ON_MACHINE]
    if facts.examination is not None:
        findings += [check(facts, facts.examination) for check in _ON_JOB]
    findings += [Finding(OK, name, *shortfall(name)) for name in facts.missing]
    return [finding for finding in findings if finding is not None]


def can_run(findings: Sequence[Finding]) -> bool:
    """Return whether a job can run."""
    return all(finding.level != FAIL for finding in findings)


def between(name: str, facts: Facts) -> list[Finding]:
    """Return the findings on a job on two hosts, each with `name` before it."""
    checks = [_job(facts), _messages(facts)]
    if checks[0] is not None and checks[0].level == OK and (found := facts.examination) is not None:
        checks += [check(facts, found) for check in (_thread_level, _latency, _bandwidth, _one_sided)]
    return [replace(one, what=f"{name}: {one.what}") for one in checks if one is not None]


def text(job: str, findings: Sequence[Finding]) -> str:
    """Return the report as text: a line for each finding, and whether `job`, as in `a job of 2 ranks`, can run."""
    width = max(len(finding.what) for finding in findings) + 1
    lines = [f"{one.level:<4}  {one.what + ':':<{width}}  {one}" for one in findings]
    decision = "can run here" if can_run(findings) else "cannot run here"
    return "\n".join([*lines, "", f"{job} {decision}"])


def record(facts: Facts, findings: Sequence[Finding]) -> dict[str, object]:
    """Return the report as a dict of values that JSON can represent."""
    return {"ok": can_run(findings), "facts": asdict(facts), "findings": [asdict(finding) for finding in findings]}


def _versions(facts: Facts) -> Finding:
    value = f"MALT {facts.malt}, Python {facts.python}, NumPy {facts.numpy}"
    if facts.mpi4py is None:
        return Finding(OK, "versions", value)
    old = int(facts.mpi4py.split(".")[0]) < 4
    return Finding(
        WARN if old else OK, "versions", f"{value}, mpi4py {facts.mpi4py}", "pip install 'mpi4py>=4'" if old else ""
    )


def _library(facts: Facts) -> Finding:
    if facts.library is None:
        return Finding(FAIL, "MPI library", facts.trouble.removesuffix(f"; {INSTALL}"), INSTALL)
    value = str(facts.library) if facts.examination is None else facts.examination.mpi
    if facts.library.family == "openmpi" and facts.library.version[0] < 5:
        return Finding(
            WARN, "MPI library", value,
            "use Open MPI 5: older versions cannot open windows across hosts if threads call MPI",
        )
    return Finding(OK, "MPI library", value)


def _mpiexec(facts: Facts) -> Finding | None:
    if facts.library is None:
        return None
    if facts.mpiexec is None:
        return Finding(FAIL, "mpiexec", facts.trouble)  # it contains the remedy
    value = f"{facts.mpiexec}, of {facts.library} as mpi4py's library"
    if facts.other_mpiexec is None:
        return Finding(OK, "mpiexec", value)
    return Finding(WARN, "mpiexec", f"{value}; plain mpiexec is {facts.other_mpiexec}", "start jobs with malt run")


def _shared_memory(facts: Facts) -> Finding:
    if facts.shm_nbytes is None or facts.shm_free_nbytes is None:
        return Finding(OK, "/dev/shm", "there is none on this system")
    value = f"{facts.shm_free_nbytes / 1e6:,.0f} MB free of {facts.shm_nbytes / 1e6:,.0f} MB"
    if not facts.shm_is_writable:
        return Finding(WARN, "/dev/shm", f"{value}, where this user cannot create files", _WRITABLE)
    if facts.shm_free_nbytes < SMALL_SHM_NBYTES:
        remedy = "windows are stored there: docker run --shm-size=2g, or delete what earlier jobs left"
        return Finding(WARN, "/dev/shm", value, remedy)
    return Finding(OK, "/dev/shm", value)


def _cores(facts: Facts) -> Finding:
    value = f"{facts.cores} usable, {facts.processors} processors in the affinity mask"
    if facts.cores == 1:
        return Finding(WARN, "cores", value, "more ranks are no faster: docker run --cpus, taskset, or another machine")
    return Finding(OK, "cores", value)


def _ranks(facts: Facts) -> Finding:
    if facts.ranks > facts.cores:
        value = f"{facts.ranks} ranks take turns on {count(facts.cores, 'core')}"
        return Finding(WARN, "ranks", value, f"-n {facts.cores} at most, to train at full speed")
    return Finding(OK, "ranks", f"{count(facts.ranks, 'rank')} on {count(facts.cores, 'core')}")


def _job(facts: Facts) -> Finding | None:
    if facts.job is None:
        return None
    value, remedy = _failure(facts, facts.job)
    if value:
        return Finding(FAIL, "job", value, remedy)
    return Finding(OK, "job", f"ran {count(facts.ranks, 'rank')} in {facts.job.seconds:.1f} s")


def _failure(facts: Facts, outcome: Outcome) -> tuple[str, str]:
    """Return the reason why the job failed, and the remedy. Both are empty if it went well."""
    if outcome.status is None:
        reason = "where ranks are on several hosts: a firewall or the choice of a network between them"
        within = f"{deadline_s(facts.ranks, facts.cores):.0f} s"
        return f"did not finish within {within} and was ended", f"{_by_hand(facts)}; {reason}"
    found = facts.examination
    refusal = re.search(r"^malt run: (host .*)", outcome.messages, re.MULTILINE)
    if outcome.status == 2 and refusal:  # it contains the remedy
        return refusal[1], ""
    if found is None or outcome.status != 0:
        return f"ended with status {outcome.status}: {_cause(outcome.messages)}", _by_hand(facts)
    if found.ranks != facts.ranks:
        return f"each rank believed it was one of {found.ranks}", "mpiexec is not that of mpi4py's library: " + INSTALL
    if found.trouble:  # it contains the remedy
        return f"no window could be opened: {found.trouble}", ""
    return "", ""


def _messages(facts: Facts) -> Finding | None:
    """The messages of a job that went well. If it failed, the finding about the job quotes them."""
    messages = facts.job.messages.strip() if facts.job is not None and facts.job.status == 0 else ""
    if not messages:
        return None
    return Finding(
        WARN, "messages", f"{count(len(messages.splitlines()), 'line')}: {_first_line(messages)}", _by_hand(facts)
    )


def _by_hand(facts: Facts) -> str:
    where = f" --hosts {facts.where}" if facts.where else ""
    return f"malt run -n {facts.ranks}{where} -m malt.commands.doctor.self_test shows what it prints"


def _first_line(messages: str) -> str:
    return next((line.strip() for line in messages.splitlines() if any(map(str.isalnum, line))), messages)


def _cause(messages: str) -> str:
    """The last line that names an error or a signal. Advice and rulers may follow it."""
    backwards = messages.splitlines()[::-1]
    causes = [line for line in backwards if re.search(r"error|signal", line, re.IGNORECASE)]
    return _first_line("\n".join(causes or backwards)) or "it printed nothing"


def _binding(facts: Facts, found: Examination) -> Finding | None:
    if not all(found.processors):
        return None
    shared = [ranks for ranks in _by_host(found) if _share(found, ranks) < min(len(ranks), facts.cores)]
    if len({tuple(row) for row in found.processors}) == 1 and not shared:
        return Finding(OK, "binding", f"none: every rank may use processors {_ranges(found.processors[0])}")
    value = "; ".join(f"rank {rank}: {_ranges(row)}" for rank, row in enumerate(found.processors))
    if shared:
        remedy = "unset the binding policy (Open MPI: PRTE_MCA_hwloc_default_binding_policy=none)"
        return Finding(WARN, "binding", f"ranks share processors while others are idle: {value}", remedy)
    return Finding(OK, "binding", value)


def _by_host(found: Examination) -> list[list[int]]:
    return [[rank for rank in range(found.ranks) if found.hosts[rank] == host] for host in dict.fromkeys(found.hosts)]


def _share(found: Examination, ranks: Sequence[int]) -> int:
    """The number of processors that these ranks have together."""
    return len(set().union(*(found.processors[rank] for rank in ranks)))


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text: 0-2,5."""
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _thread_level(facts: Facts, found: Examination) -> Finding:
    if found.thread_level == "multiple":
        return Finding(OK, "thread level", "multiple")
    remedy = "unset MPI4PY_RC_THREAD_LEVEL and MPI4PY_RC_THREADS, or use an MPI with MPI_THREAD_MULTIPLE: " + INSTALL
    return Finding(WARN, "thread level", f"{found.thread_level}: only one thread of a rank may call MPI", remedy)


def _memory_model(facts: Facts, found: Examination) -> Finding | None:
    if found.memory_model is None:
        return None
    if found.memory_model == "unified":
        return Finding(OK, "memory model", "unified")
    remedy = "use an MPI whose windows are unified: " + INSTALL
    return Finding(WARN, "memory model", f"{found.memory_model}: updates may be seen late", remedy)


def _latency(facts: Facts, found: Examination) -> Finding | None:
    if found.latency_us is None:
        return None
    near = _near(found)
    slow = found.latency_us > SLOWEST_US[near]
    value = f"{found.latency_us:.3g} us for a Put + Flush of 8 B, {_where(near)}"
    return Finding(WARN if slow else OK, "latency", value, _SLOW[near] if slow else "")


def _bandwidth(facts: Facts, found: Examination) -> Finding | None:
    if found.bandwidth_gb_s is None:
        return None
    near = _near(found)
    slow = found.bandwidth_gb_s < SLOWEST_GB_S[near]
    put = f"{found.bandwidth_gb_s:.3g} GB/s for a Put + Flush of 8 MiB"
    value = f"{put}, {_where(near)}"
    if found.stream_gb_s is not None:
        slow = found.bandwidth_gb_s < LOWEST_SHARE * found.stream_gb_s
        value = f"{put}, {found.stream_gb_s:.3g} for a plain TCP stream"
    return Finding(WARN if slow else OK, "bandwidth", value, _SLOW[near] if slow else "")


def _near(found: Examination) -> bool:
    return found.hosts[0] == found.hosts[1]


def _where(near: bool) -> str:
    return "inside a host" if near else "between hosts"


def _one_sided(facts: Facts, found: Examination) -> Finding | None:
    if found.landed_ms is None:
        return None
    value = f"an update lands in {found.landed_ms:.2g} ms while the receiver computes for {COMPUTE_S * 1e3:.0f} ms"
    if found.landed_ms < LATE_MS:
        return Finding(OK, "one-sided", value)
    value = f"an update waits {found.landed_ms:.0f} ms for a receiver that computes for {COMPUTE_S * 1e3:.0f} ms"
    return Finding(WARN, "one-sided", value, _progress(facts, found))


def _progress(facts: Facts, found: Examination) -> str:
    """The remedy: what makes updates land while the receiver computes."""
    if found.thread_level in ("single", "funneled"):
        return "with a higher thread level, see above, MALT's own thread receives"
    return _PROGRESS[facts.library.family] if facts.library is not None else ""


def _kernels(facts: Facts) -> Finding:
    value, remedy = facts.kernels
    return Finding(WARN if remedy else OK, "kernels", value, remedy)


def _failure_of_a_rank(facts: Facts, found: Examination) -> Finding:
    if not facts.shm_is_writable:
        return Finding(WARN, "a rank dies", "the whole job ends: survivors share memory in /dev/shm", _WRITABLE)
    return Finding(OK, "a rank dies", "the others continue under malt run --survive")


_ON_MACHINE = (_versions, _kernels, _library, _mpiexec, _shared_memory, _cores, _ranks, _job, _messages)
_ON_JOB = (_binding, _thread_level, _memory_model, _latency, _bandwidth, _one_sided, _failure_of_a_rank)

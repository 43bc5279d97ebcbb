"""The variables that belong to one job, and that a job which a rank starts must not inherit. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dstorm.membership.children import RANK_PROCESS, RANKS
from malt.runner.launch.command import RESTART
from malt.runner.launch.hosts.agent.processes import ELSEWHERE, WITHIN
from malt.runner.program import FAILURE_DIR, JOB_DIR
from malt.runner.reporting import CALL, CONTROL_SERVER, HOST_SIZE, INCARNATION, RANK, REJOIN, SIZE, SURVIVE
from malt.runner.watch.metrics import COUNTS, METRICS, TRACE

_OURS = (
    RANK_PROCESS, FAILURE_DIR, JOB_DIR, CONTROL_SERVER, CALL, SURVIVE, RESTART, METRICS, COUNTS, TRACE, RANK, SIZE,
    HOST_SIZE, REJOIN, INCARNATION, WITHIN, ELSEWHERE,
)  # fmt: skip
_ASKED = {SURVIVE, METRICS, TRACE}
"""Those of them that a user may set."""
_MPI = (
    "OMPI_APP_", "OMPI_ARGV", "OMPI_COMMAND", "OMPI_COMM_WORLD_", "OMPI_FILE_LOCATION", "OMPI_FIRST_RANKS",
    "OMPI_LIBDIR_LOC", "OMPI_NUM_APP_CTX", "OMPI_TOOL_NAME", "OMPI_UNIVERSE_SIZE", "OMPI_VERSION", "OMPI_WORLD_",
    "OMPI_MCA_PREFIXES", "OMPI_MCA_cpu_type", "OMPI_MCA_ess", "OMPI_MCA_initial_wdir", "OMPI_MCA_num_procs",
    "OMPI_MCA_orte_", "OPAL_USER_PARAMS_GIVEN", "PMIX_BFROP_", "PMIX_GDS_", "PMIX_HOSTNAME", "PMIX_ID",
    "PMIX_NAMESPACE", "PMIX_PARAM_", "PMIX_RANK", "PMIX_SECURITY_", "PMIX_SERVER_", "PMIX_SYSTEM_", "PMIX_VERSION",
    "PRTE_LAUNCHED", "PRTE_SHARED_FS", "PMI_", "PMI2_", "MPI_LOCAL", "HYDI_",
)  # fmt: skip
"""Prefixes of the variables that mpiexec sets for ranks. Those that users set remain: OMPI_MCA_btl."""


def outside(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of `environ`, in a rank without the variables of its job. Pure.

    What a user sets for jobs stays in a step of a batch system, which is no rank of malt.
    """
    if not any(name in environ for name in (RANK_PROCESS, *RANKS)):
        return dict(environ)
    is_rank = RANK_PROCESS in environ or RANK in environ
    dropped = _OURS if is_rank else set(_OURS) - _ASKED
    return {name: value for name, value in environ.items() if name not in dropped and not name.startswith(_MPI)}

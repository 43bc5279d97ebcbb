"""The variables of a job: those that ranks on other hosts get, and those that a job started by a rank must not inherit.
Pure.

The values of variables never stand on a command line: both MPIs are given names, and pass values over connections of
their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dstorm.membership.children import RANK_PROCESS, RANKS
from malt.launch.hosts.agent.processes import ELSEWHERE, WITHIN
from malt.runner.program import FAILURE_DIR, JOB_DIR
from malt.runner.reporting import CALL, CONTROL_SERVER, HOST_SIZE, INCARNATION, RANK, REJOIN, SIZE, SURVIVE
from malt.watch.metrics import COUNTS, METRICS, TRACE

RESTART = "MALT_RESTART"
"""The variable that holds the number of the restart, from 1. It is unset in the first run of a job."""
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
_DEVICES = (
    "ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HABANA_VISIBLE_*",
    "HIP_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES", "NEURON_RT_VISIBLE_CORES", "NVIDIA_VISIBLE_DEVICES",
    "ONEAPI_DEVICE_SELECTOR", "ROCR_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "TPU_VISIBLE_*",
    "ZE_AFFINITY_MASK",
)  # fmt: skip
"""Those that say which accelerators of one host a process may use."""
LOCAL = (
    "_", "COLUMNS", "COLORTERM", "DBUS_*", "DESKTOP_SESSION", "DISPLAY", "GPG_*", "HOME", "HOST", "HOSTNAME",
    "HOSTTYPE", "INVOCATION_ID", "JOURNAL_STREAM", "LINES", "LOGNAME", "MAIL", "OLDPWD", "PWD", "SESSION_MANAGER",
    "SHELL", "SHLVL",
    "SLURMD_NODENAME", "SLURM_CPU_BIND*", "SLURM_GTIDS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_PROCID",
    "SLURM_TASK_PID", "SSH_*", "STY", "SUDO_*", "TEMP", "TERM", "TERM_*", "TMP", "TMPDIR", "TMUX*", "TTY", "USER",
    "USERNAME", "VTE_VERSION", "WAYLAND_DISPLAY", "WINDOWID", "XAUTHORITY", "XDG_*", *_DEVICES,
)  # fmt: skip
"""The variables that stay: each host has its own. *: any end."""
_LOCAL = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in LOCAL))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def outside(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of `environ`, in a rank without the variables of its job. Pure.

    What a user sets for jobs stays in a step of a batch system, which is no rank of malt.
    """
    if not any(name in environ for name in (RANK_PROCESS, *RANKS)):
        return dict(environ)
    is_rank = any(name in environ for name in (RANK_PROCESS, RANK, WITHIN))
    dropped = _OURS if is_rank else set(_OURS) - _ASKED
    return {name: value for name, value in environ.items() if name not in dropped and not name.startswith(_MPI)}


def travelling(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that ranks on other hosts get, in ascending order.

    Functions that bash has exported have names that no mpiexec takes: they stay.
    """
    return sorted(name for name in environ if _NAME.fullmatch(name) and not _LOCAL.fullmatch(name))

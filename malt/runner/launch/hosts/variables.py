"""The variables that ranks on other hosts get from the launcher's environment: all but those of a host, a session or a
terminal. Pure.

Their values never stand on a command line: both MPIs are given names, and pass values over connections of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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


def travelling(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that ranks on other hosts get, in ascending order.

    Functions that bash has exported have names that no mpiexec takes: they stay.
    """
    return sorted(name for name in environ if _NAME.fullmatch(name) and not _LOCAL.fullmatch(name))

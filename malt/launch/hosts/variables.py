"""The variables that ranks on other hosts get from the launcher's environment: all but those of a host, a session or a
terminal. Pure.

Their values never stand on a command line: both MPIs are given names, and pass values over connections of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LOCAL = (
    "_", "COLUMNS", "COLORTERM", "DBUS_*", "DESKTOP_SESSION", "DISPLAY", "GPG_*", "HOME", "HOST", "HOSTNAME",
    "HOSTTYPE", "INVOCATION_ID", "JOURNAL_STREAM", "LINES", "LOGNAME", "MAIL", "OLDPWD", "PWD", "SESSION_MANAGER",
    "SHELL", "SHLVL",
    "SLURMD_NODENAME", "SLURM_CPU_BIND*", "SLURM_GTIDS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_PROCID",
    "SLURM_TASK_PID", "SSH_*", "STY", "SUDO_*", "TEMP", "TERM", "TERM_*", "TMP", "TMPDIR", "TMUX*", "TTY", "USER",
    "USERNAME", "VTE_VERSION", "WAYLAND_DISPLAY", "WINDOWID", "XAUTHORITY", "XDG_*",
)  # fmt: skip
"""The variables that stay: each host has its own. *: any end."""

_LOCAL = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in LOCAL))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def travelling(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that ranks on other hosts get, in ascending order.

    Functions that bash has exported have names that no mpiexec takes: they stay.
    """
    return sorted(name for name in environ if _NAME.fullmatch(name) and not _LOCAL.fullmatch(name))

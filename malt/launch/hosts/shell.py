"""The command by which an agent is started on another host: the one by which mpiexec starts its daemons, or srun. Pure
but for the search of the PATH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

SSH = ("ssh", "-T")
SRUN = ("srun", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist")
"""In an allocation of Slurm, on a host without ssh."""
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ConnectionAttempts=1")
_OPENMPI = [f"{kind}_MCA_{name}" for name in ("plm_ssh", "plm_rsh", "orte_rsh") for kind in ("PRTE", "OMPI")]
_AGENTS = {
    "openmpi": [f"{name}_agent" for name in _OPENMPI],
    "mpich": ["HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC"],
    "intel": ["I_MPI_HYDRA_BOOTSTRAP_EXEC", "HYDRA_BOOTSTRAP_EXEC"],
}
"""The variables by which users have the mpiexec of a family start its daemons by another program than ssh."""
_ARGUMENTS = {
    "openmpi": [f"{name}_args" for name in _OPENMPI],
    "mpich": ["HYDRA_LAUNCHER_EXTRA_ARGS"],
    "intel": ["I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "HYDRA_LAUNCHER_EXTRA_ARGS"],
}
"""Those of its further arguments."""


def remote_shell(environ: Mapping[str, str], family: str | None = "openmpi") -> list[str]:
    """Return the words that `command_on` completes. `family`: of the MPI library; None: the ranks use none. Local.

    mpiexec splits the variables at spaces, and knows no quotes. Of several programs, `ssh : rsh`, the first that there
    is counts. ssh gets options that keep it from asking, after those of the user, which win.
    """
    families = list(_AGENTS) if family is None else [family]
    several = [words.split() for words in _value(environ, _AGENTS, families).split(":")]
    own = [list(SSH), *([list(SRUN)] if "SLURM_JOB_ID" in environ else [])]
    programs = [words for words in several if words] or own
    words = next((words for words in programs if shutil.which(words[0], path=environ.get("PATH"))), programs[0])
    if words == list(SRUN):
        return words
    words = [*words, *_value(environ, _ARGUMENTS, families).split()]
    return [*words, *_OPTIONS] if os.path.basename(words[0]) == "ssh" else words


def command_on(shell: Sequence[str], host: str, command: str) -> list[str]:
    """Return the words that run `command`, of a POSIX shell, on `host`. `shell`: as `remote_shell` returns it. Pure."""
    return [*shell, host, *(["sh", "-c", command] if tuple(shell) == SRUN else [command])]


def _value(environ: Mapping[str, str], names: Mapping[str, Sequence[str]], families: Sequence[str]) -> str:
    several = [name for family in families for name in names[family]]
    return next((environ[name] for name in several if environ.get(name)), "")

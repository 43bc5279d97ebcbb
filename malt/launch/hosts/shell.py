"""The command by which an agent is started on another host: the one by which mpiexec starts its daemons. Pure but for
the search of the PATH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

SSH = ("ssh", "-T")
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


def remote_shell(environ: Mapping[str, str], family: str = "openmpi") -> list[str]:
    """Return the words to which a host and a command are added to run it there. `family`: of the MPI library. Local.

    mpiexec splits the variables at spaces, and knows no quotes. Of several programs, `ssh : rsh`, the first that there
    is counts. ssh gets options that keep it from asking, after those of the user, which win.
    """
    several = [words.split() for words in _value(environ, _AGENTS[family]).split(":")]
    programs = [words for words in several if words] or [list(SSH)]
    words = next((words for words in programs if shutil.which(words[0], path=environ.get("PATH"))), programs[0])
    words = [*words, *_value(environ, _ARGUMENTS[family]).split()]
    return [*words, *_OPTIONS] if os.path.basename(words[0]) == "ssh" else words


def _value(environ: Mapping[str, str], names: Sequence[str]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")

"""The examination of the other hosts of a job, before it starts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from malt.launch.command import Job, is_here
from malt.launch.hosts import allocation
from malt.launch.hosts.remote import RemoteHosts, Unreachable, need
from malt.launch.machine.mpi_library import LaunchError, Library
from malt.launch.program import files_of
from malt.launch.streams.display import say

_COME_S, _NAP_S = 300.0, 2.0
"""How long the hosts of an MPIJob may take to come: its launcher may run before its workers do."""


def examined(
    job: Job, library: Library | None, environ: Mapping[str, str], needed: Sequence[str], comes_late: bool = False
) -> RemoteHosts:
    """Return the other hosts of `job`, where it can start. LaunchError: it cannot, on one of them. Local.

    `library`: None: the ranks use none. `needed`: files that each host must have. `comes_late`: hosts that do
    not answer yet are waited for.
    """
    for path in needed:
        if not os.path.exists(path):
            raise LaunchError(f"--need {path}: there is no such file here")
    names = list(dict.fromkeys(host.name for host in job.hosts if not is_here(host.name)))
    if not names:
        return RemoteHosts()
    wanted = need(library, [*files_of(job.program), *map(os.path.abspath, needed)])
    end, said = time.monotonic() + (_COME_S if comes_late else 0.0), ""
    while True:
        remote = RemoteHosts(names, environ, family=None if library is None else library.family)
        try:
            remote.check(wanted, environ)
            return remote
        except Unreachable as error:
            remote.close()
            if time.monotonic() > end:
                if job.survive or not any(name in environ for name in allocation.BATCH_JOBS):
                    raise
                say(f"malt run: {error} (the batch system may still start ranks there, but nothing watches them)\n")
                return RemoteHosts()
            if str(error) != said:
                said = str(error)
                say(f"malt run: {said}; waiting up to {_COME_S:.0f} s for it\n")
        except BaseException:
            remote.close()
            raise
        time.sleep(_NAP_S)

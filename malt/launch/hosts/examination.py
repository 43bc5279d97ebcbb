"""The examination of the other hosts of a job, before it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from malt.launch.command import Job, is_here
from malt.launch.hosts import allocation
from malt.launch.hosts.remote import RemoteHosts, Unreachable, need
from malt.launch.machine.mpi_library import LaunchError, Library
from malt.launch.program import files_of
from malt.launch.streams.display import say


def examined(
    job: Job, library: Library | None, environ: Mapping[str, str], needed: Sequence[str]
) -> RemoteHosts:  # fmt: skip
    """Return the other hosts of `job`, where it can start. LaunchError: it cannot, on one of them. Local.

    `library`: None: the ranks use none. `needed`: files that each host must have.
    """
    for path in needed:
        if not os.path.exists(path):
            raise LaunchError(f"--need {path}: there is no such file here")
    names = list(dict.fromkeys(host.name for host in job.hosts if not is_here(host.name)))
    if not names:
        return RemoteHosts()
    wanted = need(library, [*files_of(job.program), *map(os.path.abspath, needed)])
    remote = RemoteHosts(names, environ, family=None if library is None else library.family)
    try:
        remote.check(wanted, environ)
        return remote
    except BaseException as error:
        remote.close()
        is_granted = any(name in environ for name in allocation.BATCH_JOBS)
        if job.survive or not is_granted or not isinstance(error, Unreachable):
            raise
        say(f"malt run: {error} (the batch system may still start ranks there, but nothing watches them)\n")
        return RemoteHosts()

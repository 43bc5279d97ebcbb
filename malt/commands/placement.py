"""The number of ranks of a job, and their hosts: from the options of `malt run`, else from the batch system."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from dstorm.words import count
from malt.launch.command import is_here
from malt.launch.hosts import allocation
from malt.launch.hosts.allocation import Allocation, Host
from malt.launch.machine.cores import usable_cores
from malt.launch.machine.mpi_library import LaunchError
from malt.launch.streams.display import say


def placement(chosen: argparse.Namespace, environ: Mapping[str, str]) -> tuple[int, tuple[Host, ...]]:
    """Return the number of ranks, and the hosts. No host: this machine alone. Local.

    The hosts are those of --hosts, else of --hostfile, else of the batch system. The number is that of the options,
    else of the slots of the hosts, else of the cores. What no option says is said in a line.

    LaunchError: the hosts cannot be read, or --nproc-per-node is given for several.
    """
    asked, where = chosen.n or chosen.nproc_per_node, tuple[Host, ...]()
    found = _named(chosen.hosts, chosen.hostfile) or allocation.found(environ)
    if found is None:
        ranks, source = asked or usable_cores(), ", one for each core (-n N: another number)"
    else:
        ranks, source = asked or found.slots(usable_cores()), found.source and f", from {found.source}"
        where = () if is_of_this_machine(found) and not found.is_binding else found.shared_by(ranks)
    if chosen.nproc_per_node and (several := len({host.name for host in where})) > 1:
        raise LaunchError(f"--nproc-per-node counts the ranks of one host: for {ranks} on each of {several} give the "
                          f"number of all, -n {several * ranks}")  # fmt: skip
    if asked is None or (where and source):
        at = f" on {','.join(map(str, where))}" if where else ""
        say(f"malt run: {count(ranks, 'rank')}{at}{source}\n")
    return ranks, where


def is_of_this_machine(found: Allocation) -> bool:
    """Return whether there is no other host. Local."""
    return len(found.hosts) == 1 and is_here(found.hosts[0].name)


def _named(hosts: tuple[Host, ...], path: str | None) -> Allocation | None:
    """The hosts of --hosts or --hostfile, whose slots the user has counted. None: neither is given."""
    if hosts or path is None:
        return Allocation(hosts, "", is_binding=True) if hosts else None
    try:
        where = allocation.of_hostfile(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise LaunchError(f"--hostfile {path}: {error.strerror}") from None
    except ValueError as error:
        raise LaunchError(f"--hostfile {path}: {error}") from None
    if not where:
        raise LaunchError(f"--hostfile {path}: it names no host")
    return Allocation(where, path, is_binding=True)

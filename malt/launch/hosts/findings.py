"""The reasons why a job cannot start on a host, a line for each: the host, what is wrong, and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from malt.launch.machine.mpi_library import INSTALL, Library, identify


@dataclass(frozen=True)
class Need:
    """The needs of a job on each host, as they are met on the launcher's."""

    folder: str
    """The working directory."""
    files: tuple[str, ...]
    """Files of the program, with absolute paths."""
    python: str
    """The path of the Python."""
    python_version: str
    """As 3.11."""
    version: str
    """That of malt."""
    sources: str
    """The digest of its files."""
    library: Library | None
    """The MPI library. None: the ranks use none."""


_SHELL = (  # what ssh prints, what it means, and what to do
    (r"Could not resolve hostname|Name or service not known", "its name is not known here",
     "correct it, or add it to /etc/hosts or the name server"),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key has changed since it was last used",
     "if that is right: ssh-keygen -R {host}, then ssh {host} once"),
    (r"Host key verification failed|No .* host key is known", "its host key is not known here",
     "ssh {host} once, and check the key that it shows"),
    (r"Permission denied|Too many authentication failures", "ssh asks for a password, or refuses this user",
     "ssh-copy-id {host}, so that ssh {host} works without a password"),
    (r"Connection refused", "ssh is refused", "start sshd there, or set its port in ~/.ssh/config"),
    (r"timed out|No route to host|Network is unreachable", "it does not answer",
     "see whether it runs, and whether a firewall lets ssh through"),
)  # fmt: skip


def of_shell(host: str, status: int | None, errors: str, python: str) -> str:
    """Return why no agent runs on `host`. `status`: of the remote shell, None: it has not ended."""
    for pattern, what, remedy in _SHELL:
        if re.search(pattern, errors):
            return f"host {host}: {what}: {remedy.format(host=host)}"
    if status in (126, 127) or re.search(r"not found|No such file|cannot execute", errors):
        return f"host {host}: there is no Python {python}: install the same environment there, or share its folder"
    if status is None:
        return f"host {host}: it has not answered in time: ssh {host} shows whether it can be reached"
    said = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "it printed nothing")
    return f"host {host}: the connection ended with status {status}: {said}"


def of_host(host: str, need: Need, found: Mapping[str, Any]) -> str:
    """Return what `host` lacks, or "". `found`: the answer of its agent to `check`."""
    share = "copy it there, or share its folder"
    if not found["folder"]:
        return f"host {host}: there is no folder {need.folder}: {share}"
    if found["missing"]:
        return f"host {host}: there is no file {found['missing'][0]}: {share}"
    if found["python"] != need.python_version:
        return f"host {host}: {need.python} is Python {found['python']} there, and {need.python_version} here"
    if not found["version"]:
        return f"host {host}: there is no malt where it is here: install the same environment there"
    if found["sources"] != need.sources:
        same = " with other files" if found["version"] == need.version else ""
        return (f"host {host}: malt is {found['version']}{same} there, and {need.version} here: "
                "install the same version on all hosts")  # fmt: skip
    if need.library is None:
        return ""
    if found["trouble"]:
        return f"host {host}: no MPI in {need.python}: {found['trouble']}; {INSTALL}"
    identity = identify(found["mpi"])
    other = str(Library(*identity)) if identity else "unknown"
    if other != str(need.library):
        return f"host {host}: its MPI is {other}, and {need.library} here: install the same on all hosts"
    return ""


def of_folder(host: str, above: str, trouble: str) -> str:
    """Return why the folder of a job cannot be made in the folder `above`. `trouble`: "": the hosts share it."""
    if trouble:
        return f"host {host}: nothing can be made in {above} ({trouble}): set TMPDIR to a folder that all hosts have"
    return f"host {host}: it shares {above} with other hosts: set TMPDIR to a folder that each host has for itself"


def of_network(unreached: Mapping[str, Sequence[str]]) -> str:
    """Return which hosts cannot connect with each other, or "". `unreached`: the hosts that each did not reach."""
    for host, others in unreached.items():
        if others:
            names = ", ".join(others)
            return f"host {host} cannot connect to {names}: a firewall between them must pass all TCP ports, for MPI"
    return ""

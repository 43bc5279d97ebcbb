"""The control groups of this process, version 1 or 2: where Linux says what they grant. *Local.*"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOUNT: Final = Path("/sys/fs/cgroup")


def folders(mount: Path, membership: str, controller: str) -> Iterator[Path]:
    """The folders of the groups that this process is in and that `controller` may bound: each of them counts.

    `membership`: the lines `id:controllers:path` of /proc/self/cgroup. Inside a container the path can be one of the
    host's, which is not there: then the mount itself is the container's own group.
    """
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        group = mount / controller if controllers else mount
        yield group
        yield from (group.joinpath(*path.split("/")[1:end]) for end in range(2, path.count("/") + 2))


def membership() -> str:
    """Which groups this process is in; empty where the system has none."""
    return read(Path("/proc/self/cgroup"))


def read(path: Path) -> str:
    """The text of a file; empty where there is none, or none to be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""

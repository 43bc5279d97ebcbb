"""The folders of the control groups of this process, in which Linux keeps their limits. Versions 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOUNT: Final = Path("/sys/fs/cgroup")


def folders(mount: Path, membership: str, controller: str) -> Iterator[Path]:
    """Yield the folders of the groups in which `controller` may limit this process. The limits of all of them hold.

    `membership`: the lines `id:controllers:path` of /proc/self/cgroup. In a container the path may be one of the host,
    which does not exist there. Then the mount itself is the group of the container.
    """
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        group = mount / controller if controllers else mount
        yield group
        yield from (group.joinpath(*path.split("/")[1:end]) for end in range(2, path.count("/") + 2))


def membership() -> str:
    """Return the lines of /proc/self/cgroup, or "" if the system has no control groups. Local."""
    return read(Path("/proc/self/cgroup"))


def read(path: Path) -> str:
    """Return the stripped text of a file, or "" if it cannot be read. Local."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""

"""The program that makes an environment on a host which has python3 alone. It is sent over ssh, and imports nothing of
malt.

It reads a line of JSON: the folders that are wanted, of the environment and of the program, the version of Python and
the machine, and the working directory. It answers by a line: which of the folders are not there yet, or what is wrong.
Then it reads these as an archive, and answers again. A folder is made under another name, and renamed when it is whole.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import sys
import tarfile
from typing import Any

_COMPLETE = "complete"


def main() -> None:
    """Answer to the launcher."""
    wanted = json.loads(sys.stdin.buffer.readline())
    try:
        missing = _missing(wanted)
        _say({"missing": missing})
        if missing:
            _unpack(wanted["folders"], missing)
            _say({"missing": []})
    except (OSError, ValueError, tarfile.TarError) as error:
        _say({"trouble": str(error)})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _missing(wanted: dict[str, Any]) -> list[str]:
    """The folders that are to be made. ValueError, OSError: none can be."""
    version = ".".join(map(str, sys.version_info[:2]))
    for what, here, there in (("Python", version, wanted["python"]), ("", platform.machine(), wanted["machine"])):
        if here != there:
            name = f"python3 is {what} {here} there" if what else f"its processor is {here}"
            raise ValueError(f"{name}, and {there} here: the environment can only be copied to an equal one")
    for folder in wanted["folders"].values():
        above = os.path.dirname(folder)
        os.makedirs(os.path.dirname(above), exist_ok=True)
        if not os.path.lexists(above):
            os.mkdir(above, 0o700)
        found = os.lstat(above)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise ValueError(f"others may write to {above}: remove it, or chmod 700 it")
    os.makedirs(wanted["working"], exist_ok=True)
    return [name for name, folder in wanted["folders"].items() if not os.path.exists(os.path.join(folder, _COMPLETE))]


def _unpack(folders: dict[str, str], missing: list[str]) -> None:
    made = {name: f"{folders[name]}.{os.uname().nodename}-{os.getpid()}" for name in missing}
    try:
        for folder in made.values():
            os.mkdir(folder, 0o700)
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
            for member in archive:
                name, _, path = member.name.partition("/")
                if name in made and member.isreg() and ".." not in path.split("/"):
                    _write(os.path.join(made[name], path), archive.extractfile(member), member.mode & 0o700)
        for name, folder in made.items():
            if name == "environment":
                _make_environment(folder)
            with open(os.path.join(folder, _COMPLETE), "w"):
                pass
            try:
                os.rename(folder, folders[name])
            except OSError:
                if not os.path.exists(os.path.join(folders[name], _COMPLETE)):  # else another job has made it
                    raise
    finally:
        for folder in made.values():
            shutil.rmtree(folder, ignore_errors=True)


def _write(path: str, source: Any, mode: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode | 0o600), "wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _make_environment(folder: str) -> None:
    """Make a virtual environment of what was unpacked: a link to this Python, and pyvenv.cfg. It needs no ensurepip."""
    own = os.path.realpath(sys.executable)
    os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
    for name in ("python3", "python"):
        os.symlink(own, os.path.join(folder, "bin", name))
    with open(os.path.join(folder, "pyvenv.cfg"), "w") as file:
        file.write(f"home = {os.path.dirname(own)}\ninclude-system-site-packages = false\n")


if __name__ == "__main__":
    main()

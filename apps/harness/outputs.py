"""What a program may write to: files of their own, where it can write."""

from __future__ import annotations

import contextlib
import errno
import os
from argparse import Namespace
from collections.abc import Iterable

import malt


def check_outputs(options: Namespace, inputs: Iterable[tuple[str, str | os.PathLike[str] | None]]) -> None:
    """Before anything is read: whether the files of --save, --json and --checkpoint can be written, as far as that can
    be told, and are no other file that is read or written. Collective.

    `inputs`: what is read, under the name that the command line has for it. --save may name the file of --model: it is
    read whole before, and replaced at once. On all ranks: OSError, the folder is not there or not writable, or the path
    is a folder or a device; ValueError, a file would be overwritten.
    """

    def check() -> None:
        taken = [(name, path) for name, path in inputs if path is not None]
        for option in ("--save", "--json", "--checkpoint"):
            if not (path := getattr(options, option[2:])):
                continue
            _check_writable(path)
            for name, other in taken:
                if _is_same_file(path, other) and (option, name) != ("--save", "--model"):
                    raise ValueError(f"{path}: {option} needs a file of its own, and {name} is that file")
            taken.append((option, path))

    malt.together(check)


def _check_writable(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if os.path.exists(path) and not os.path.isfile(path):  # a device, say, which the file would replace
        raise OSError(errno.EINVAL, "not a regular file", path)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _is_same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two paths lead to one file, under whatever names, or would if it were there. Local."""
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)

"""The files that a program writes: checks of them all, and the file of a model."""

from __future__ import annotations

import contextlib
import errno
import os
from argparse import Namespace
from collections.abc import Iterable
from typing import Any, Final

import malt
from malt import files

_FORMAT: Final = 1


def check_outputs(options: Namespace, inputs: Iterable[tuple[str, str | os.PathLike[str] | None]]) -> None:
    """Check that outputs (--save, --json, --checkpoint, --picture) can be written, each a file of its own. Collective.

    `inputs` are the files that are read, each with its name on the command line. --save may name the file of --model,
    which is read whole before it is replaced. The check comes before anything is read. OSError, on all ranks: a folder
    is missing or not writable, or a path is a folder or a device. ValueError, on all ranks: an output is also an input
    or another output.
    """

    def check() -> None:
        taken = [(name, path) for name, path in inputs if path is not None]
        for option in ("--save", "--json", "--checkpoint", "--picture"):
            if not (path := getattr(options, option[2:], None)):
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
    """Return whether two paths lead to one file, whether or not it exists yet. Local."""
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def save_model(path: str, program: str, **arrays: Any) -> None:
    """Write the model of a program as .npz, complete or not at all. OSError: the file cannot be written. Local."""
    files.save_npz(path, format=_FORMAT, program=program, **arrays)


def load_model(path: str, program: str) -> dict[str, Any]:
    """The arrays that `save_model` wrote. ValueError: the file is no model of `program`. OSError. Local."""
    found: dict[str, Any] = files.load_npz(path)
    if str(found.pop("program", None)) != program or found.pop("format", _FORMAT) != _FORMAT:
        raise ValueError(f"{path}: not a model of {program}")
    return found

"""Files that tests write: those of a machine, and pictures."""

import struct


def write(folder, **files):
    """Write a line to each file; `__` in a name stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def encoded(array, magic=None):
    """The bytes of an idx file."""
    head = [0x0800 + array.ndim if magic is None else magic, *array.shape]
    return struct.pack(f">{len(head)}I", *head) + array.tobytes()

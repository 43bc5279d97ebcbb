"""A checksum of data of any kind, by which ranks find that they were given different data.

Equal data has equal checksums, whatever it lies in: a copy, a slice, a file that is mapped. Objects of unknown classes
have none: their texts may hold addresses, and be others on each rank.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import zlib
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WHOLE_NBYTES: Final = 1 << 26
"""An array of up to so many bytes counts whole, which takes 30 ms; of a larger one SAMPLES elements count."""
WHOLE_ROWS: Final = 10_000
"""A list of so many numbers or texts, or a data frame of so many rows, counts whole; of a longer one SAMPLES rows."""
SAMPLES: Final = 1000
FEW: Final = 16
"""The rows that count of other objects: those of an array of h5py, or of a lazy list, are read from a file."""

_STRIDE: Final = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio: its multiples do not recur in step with any row length."""
_PLAIN: Final = {bool, int, float, complex, str, bytes, type(None)}
_WRITTEN: Final = {"builtins", "datetime", "decimal", "fractions", "pandas", "pathlib", "uuid"}
"""Packages of classes whose texts write down all that they hold."""
_ADDRESS: Final = " at 0x"
"""What the text of an object holds where its class has none of its own."""


class Checksum:
    """The CRC-32 of the values that are added."""

    def __init__(self, most_nbytes: int = WHOLE_NBYTES) -> None:
        self.number = 0
        self.unknown = ""
        """The class of a value that was added, or lies in one, and whose data is not known; "": there is none."""
        self._most_nbytes = most_nbytes

    def add(self, value: Any) -> None:
        """Add a value. Local. It may take as long as WHOLE_NBYTES do."""
        self._add(value, self._most_nbytes)

    def _add(self, value: Any, most_nbytes: int) -> None:
        try:
            if not self._add_known(value, most_nbytes):
                self._add_unknown(value)
        except Exception:  # of any type: methods of the value's class were called
            self._add_unknown(value)

    def _add_known(self, value: Any, most_nbytes: int) -> bool:
        """Add `value`, or nothing. Returns whether its data is known. It may raise any error."""
        if isinstance(value, (np.ndarray, np.generic)):
            self._add_array(value, most_nbytes)
        elif isinstance(value, (list, tuple)):
            self._add_list(value, most_nbytes)
        elif isinstance(value, Mapping):
            self._add_list(sorted(value.items(), key=lambda item: repr(item[0])), most_nbytes)
        elif isinstance(value, Set):
            self._add_list(sorted(value, key=repr), most_nbytes)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            compared = [field.name for field in dataclasses.fields(value) if field.compare]
            self._add_list([getattr(value, name) for name in compared], most_nbytes)
        elif hasattr(value, "tocsr"):
            matrix = value if value.format in ("csr", "csc") else value.tocsr()
            self._add_list([matrix.format, matrix.shape, matrix.data, matrix.indices, matrix.indptr], most_nbytes)
        elif (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
            self._add_array(_of_tensor(value, torch.uint8), most_nbytes)
        elif hasattr(value, "iloc"):
            self._add_frame(value, most_nbytes)
        elif (text := _text(value)) is not None:
            self._add_text(text)
        else:
            return self._add_other(value, most_nbytes)
        return True

    def _add_array(self, value: Any, most_nbytes: int) -> None:
        if isinstance(value, np.ma.MaskedArray):
            self._add_array(np.ma.getmaskarray(value), most_nbytes)
            value = value.filled()
        array = np.asarray(value)
        if array.dtype.hasobject and not array.ndim:
            raise TypeError("an object that is no array")
        self._add_text(f"{array.dtype} {array.shape}")
        if array.dtype.names is not None:  # there may be anything between its fields
            for name in array.dtype.names:
                self._add_array(array[name], most_nbytes)
            return
        if array.size and (array.nbytes > most_nbytes or array.dtype.hasobject):
            array = array.flat[_places(array.size)] if array.size > SAMPLES else array
        if array.dtype.hasobject:
            self._add_list(array.reshape(-1).tolist(), most_nbytes)
        elif array.nbytes:
            self.number = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, self.number)

    def _add_list(self, values: Sequence[Any], most_nbytes: int) -> None:
        is_plain = len(values) <= WHOLE_ROWS and set(map(type, values)) <= _PLAIN
        is_whole = is_plain or len(values) <= SAMPLES
        some = values if is_whole else [values[place] for place in _places(len(values)).tolist()]
        self._add_text(str(len(values)))
        if set(map(type, some)) <= _PLAIN:
            self._add_text(repr(list(some)))
            return
        for value in some:
            self._add(value, most_nbytes // len(some))

    def _add_frame(self, frame: Any, most_nbytes: int) -> None:
        """Add a data frame or a column of pandas, or what has their attributes. Its index does not count."""
        self._add_list([str(name) for name in getattr(frame, "columns", ())], most_nbytes)
        some = slice(None) if len(frame) <= WHOLE_ROWS else _places(len(frame))
        self._add_array(frame.iloc[some], most_nbytes)

    def _add_other(self, value: Any, most_nbytes: int) -> bool:
        """Add what can be read as an array or a list, also of pieces of it. Returns whether it can."""
        count = len(value) if hasattr(value, "__len__") else 0
        if count > FEW:
            self._add_text(str(count))
            for place in _places(count, FEW).tolist():
                self._add(value[place : place + 1], most_nbytes // FEW)
        elif hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
            self._add_array(value, most_nbytes)
        elif isinstance(value, Sequence):
            self._add_list([value[place] for place in range(count)], most_nbytes)
        else:
            return False
        return True

    def _add_unknown(self, value: Any) -> None:
        self.unknown = self.unknown or type(value).__name__
        self._add_text(type(value).__name__)

    def _add_text(self, text: str) -> None:
        self.number = zlib.crc32(text.encode(errors="surrogatepass"), self.number)


def checksum(value: Any, most_nbytes: int = WHOLE_NBYTES) -> int:
    """The checksum of one value. Local. Larger arrays than `most_nbytes` count by samples."""
    found = Checksum(most_nbytes)
    found.add(value)
    return found.number


def _places(count: int, samples: int = SAMPLES) -> NDArray[np.intp]:
    """The places of some of `count` elements, spread over all."""
    multiples = np.arange(samples, dtype=np.uint64) * np.uint64(_STRIDE)
    return (multiples % np.uint64(count)).astype(np.intp)


def _of_tensor(tensor: Any, bytes_dtype: Any) -> NDArray[Any]:
    """A tensor of torch as an array, a view where it can be one; of a long one on another device some rows."""
    tensor = tensor.detach()
    if tensor.ndim and len(tensor) > SAMPLES and tensor.device.type != "cpu":
        tensor = tensor[_places(len(tensor)).tolist()]
    tensor = tensor.cpu()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:  # NumPy has no such dtype, as bfloat16
        return np.asarray(tensor.contiguous().view(bytes_dtype).numpy())


def _text(value: Any) -> str | None:
    """The text of a value of a class that writes down all that it holds; None: it is of another one."""
    if type(value).__module__.partition(".")[0] not in _WRITTEN and not isinstance(value, enum.Enum):
        return None
    text = repr(value)
    return None if _ADDRESS in text else text

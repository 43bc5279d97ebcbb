"""The parameters of a model: lookup of their arrays, checks, and delivery of new values. Pure.

`Unchanged` finds arrays that a loop does not change in place.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, groupby
from operator import is_, itemgetter
from typing import Any

import numpy as np

from dstorm.waits import interruption
from vol.update import Array

_TENSOR = (
    "pass its .detach().numpy(), which shares its memory; or, where it is on a GPU or is assigned anew, as in "
    "p.data = ..., a function that returns such arrays, with set="
)
_NUMBER = ": keep a number in an array of one element, as in b = np.zeros(1)"
_MODULE = "pass {name: tensor.numpy() for name, tensor in model.state_dict().items()}, which shares its memory"
CHECKS = 3
"""An array that is unchanged in so many checks is warned about."""


class Parameters:
    """The arrays of `params`: an array, a dict or list of arrays, or a function that returns one of these.

    `set`: a function that takes new values, as private copies in the same structure. Without it new values are written
    into the arrays. Arrays of integers in a dict or list are set at the start alone. Local.

    TypeError, ValueError: `params`, `set` or an array is not valid.
    """

    def __init__(self, params: Any, set: Callable[[Any], object] | None = None) -> None:
        if hasattr(params, "state_dict"):
            raise TypeError(f"params is a {type(params).__name__}, which holds tensors: {_MODULE}")
        if set is not None and not (callable(params) and callable(set)):
            raise TypeError("set must be a function that takes new values, and params one that returns them")
        self._source = params
        self._set = set
        self._checks_left = 1 + CHECKS  # at the start, and as long as the arrays are watched
        got = self._get()
        self._type = type(got)
        self._keys: list[Any] | None = _keys(got)
        self.is_fixed = self._keys is None and not callable(params)
        """Whether `params` is a lone array, the same at each exchange."""
        self._kinds: dict[str, str] = {}
        """The dtype and the shape of each array, by name."""
        self._found: list[Array] = []
        """The objects that the last lookup found."""
        self.arrays: list[Array] = []
        """All arrays of the last lookup: the objects found, or private copies where there is a `set`."""
        self._take(got)
        self.names = list(self._kinds)
        """The names of the arrays in messages."""
        self.floats = [place for place, array in enumerate(self.arrays) if array.dtype.kind == "f"]
        """The places of the arrays that are exchanged."""
        self.integers = [place for place in range(len(self.arrays)) if place not in self.floats]
        """The places of the others."""
        if not self.floats:
            raise ValueError("params holds no arrays of floating-point numbers")
        if callable(params) and set is None:
            self._check_views()

    @property
    def described(self) -> list[str]:
        """Name, dtype and shape of each array, in words."""
        return [f"{name}: {kind}" for name, kind in self._kinds.items()]

    def by_dtype(self) -> list[list[int]]:
        """The places of the arrays that are exchanged: one list for each dtype."""
        kinds = dict.fromkeys(self.arrays[place].dtype for place in self.floats)
        return [[place for place in self.floats if self.arrays[place].dtype == kind] for kind in kinds]

    def groups(self, fragments: int) -> list[tuple[int, list[int]]]:
        """The places of the arrays that are exchanged, of one dtype and one fragment at a time, with its number.

        Fragments of a dtype are of about as many elements. One may be missing.
        """
        found: list[tuple[int, list[int]]] = []
        for places in self.by_dtype():
            sizes = [self.arrays[place].size for place in places]
            middles = [end - size / 2 for size, end in zip(sizes, accumulate(sizes), strict=True)]
            numbers = [min(int(fragments * middle / max(sum(sizes), 1)), fragments - 1) for middle in middles]
            groups = groupby(zip(numbers, places, strict=True), itemgetter(0))
            found += enumerate([place for _, place in some] for _, some in groups)
        return found

    def look_up(self) -> bool:
        """Look the arrays up again. Return whether some are not those that were found last.

        ValueError, TypeError: structure, shapes or dtypes differ from those of the first lookup. `arrays` is left
        unchanged.
        """
        got = self._get()
        if self._set is None and self._is_as_found(got):
            return False
        self._take(got)
        return True

    def deliver(self) -> bool:
        """Pass `arrays` to `set`, if there is one. They are the user's from then on.

        Return whether `set` is found to be wrong: the values were new, and the function still returns the old ones.
        This is checked at the first few calls, until values are new.
        """
        if self._set is None:
            return False
        if not self._checks_left:
            interruption.exposed(self._set, self._in_structure())
            return False
        self._checks_left -= 1
        before, new = self._sums(), [checksum(array) for array in self.arrays]
        interruption.exposed(self._set, self._in_structure())
        if new == before:
            return False
        self._checks_left = 0
        return before == self._sums()

    def trust(self) -> None:
        """Check `set` no longer: it may round new values to the old ones."""
        self._checks_left = 0

    # -- private ----------------------------------------------------------------------------------------------

    def _get(self) -> Any:
        return interruption.exposed(self._source) if callable(self._source) else self._source

    def _in_structure(self) -> Any:
        """`arrays` in the structure of `params`."""
        if self._keys is None:
            return self.arrays[0]
        if issubclass(self._type, Mapping):
            return dict(zip(self._keys, self.arrays, strict=True))
        if not issubclass(self._type, tuple):
            return list(self.arrays)
        make = getattr(self._type, "_make", tuple)  # of a namedtuple
        return make(self.arrays)

    def _sums(self) -> list[int]:
        """The checksums of the arrays that the function returns now."""
        found = _named(self._get())
        return [checksum(found[name]) for name in self.names]

    def _is_as_found(self, got: Any) -> bool:
        """Return whether `got` holds the same objects as the last lookup found."""
        if self._keys is None:
            return got is self._found[0]
        if type(got) is not self._type or len(got) != len(self._found):
            return False
        try:
            return all(map(is_, [got[key] for key in self._keys], self._found))
        except KeyError:
            return False

    def _take(self, got: Any) -> None:
        """Check the arrays of `got`, and keep them."""
        found = _named(got)
        in_place = self._set is None
        for name, array in found.items():
            _check_array(name, array, alone=name == "params", in_place=in_place)
        kinds = {name: f"{array.dtype.str}{list(array.shape)}" for name, array in found.items()}
        if self._kinds:
            _check_alike(self._kinds, kinds)
        else:
            self._kinds = kinds
        arrays = [found[name] for name in self._kinds]  # a dict may have been filled in another order
        # np.asarray: an np.matrix would stay two-dimensional through every reshape.
        self.arrays = [np.asarray(array) if in_place else np.array(array, order="C") for array in arrays]
        self._found = arrays if in_place else []

    def _check_views(self) -> None:
        """Check that the function returns the same memory each time. ValueError: it returns copies."""
        before = self.arrays
        self._take(self._get())
        for name, one, other in zip(self._kinds, before, self.arrays, strict=True):
            if one.size and not np.may_share_memory(one, other):
                raise ValueError(
                    f"{name}: the function returns a new copy at each call, so what is written into it is lost: give "
                    "set=, a function that takes new values"
                )


class Unchanged:
    """The arrays of `parameters` that have not been seen to change between two exchanges yet. Local.

    Each array is watched until it has changed once, or was checked often enough. A warning names those left then.
    `replica`: the name of the Replica. report(line) prints a line on one rank, and returns whether it is this one.
    """

    def __init__(self, parameters: Parameters, replica: str, report: Callable[[str], bool]) -> None:
        self._parameters, self._replica, self._print = parameters, replica, report
        arrays = parameters.arrays
        self._left = {place: 0 for place in parameters.floats if arrays[place].size}
        """The last checksums of the arrays that have not changed yet, by place."""
        self._checks = 0
        self.is_watching = True
        """Whether arrays are still watched."""
        self._has_warned = False
        self.go_on()

    def trust(self) -> None:
        """Watch no longer: the arrays are known to be those that are trained."""
        self.is_watching, self._left = False, {}

    def check(self) -> None:
        """Stop watching the arrays that have changed since they were recorded."""
        arrays = self._parameters.arrays
        self._left = {place: was for place, was in self._left.items() if checksum(arrays[place]) == was}
        self._checks += 1

    def go_on(self) -> None:
        """Record the arrays as they are now, before the loop goes on; or warn, after enough checks."""
        if self._left and self._checks < CHECKS:
            self._left = {place: checksum(self._parameters.arrays[place]) for place in self._left}
            return
        self.is_watching = False
        self._warn(self._names)

    def report(self) -> Mapping[str, Any]:
        """Check, and say to the other ranks what is left."""
        if self.is_watching:
            self.check()
        return {"_unchanged": self._names, "_warned": self._has_warned}

    def compare(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Warn of arrays that changed on no rank that counted a step, unless a rank has warned already.

        `reports`: what ranks have reported, and whether they have `_stepped`.
        """
        stepped = [one["_unchanged"] for one in reports if one["_stepped"]]
        if stepped and not any(one["_warned"] for one in reports):
            self._warn([name for name in stepped[0] if all(name in names for names in stepped)])

    # -- private ----------------------------------------------------------------------------------------------

    @property
    def _names(self) -> list[str]:
        return [self._parameters.names[place] for place in self._left]

    def _warn(self, names: Sequence[str]) -> None:
        if names:
            self._has_warned = self._print(
                f"malt: {self._replica}: {', '.join(names)} did not change between exchanges: does the loop make a new "
                "array, as in w = w + g, which the Replica does not know of? Change it in place (w += g), or give "
                "malt.Replica the dict or list that holds it, or a function that returns it (lambda: model.coef_), "
                "with set= where that cannot be written into. An array that is frozen may be left out."
            )


def checksum(array: Array) -> int:
    """The CRC-32 of all bytes of `array`. Pure."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _keys(params: Any) -> list[Any] | None:
    """The keys of the entries of `params`. None: it is a lone array, or should be."""
    if isinstance(params, Mapping):
        return list(params)
    return list(range(len(params))) if isinstance(params, (list, tuple)) else None


def _named(params: Any) -> dict[str, Any]:
    """The arrays of `params` by the names they have in messages."""
    keys = _keys(params)
    return {"params": params} if keys is None else {f"params[{key!r}]": params[key] for key in keys}


def _check_alike(first: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check that entries, shapes and dtypes are as at `first`. ValueError: they have changed."""
    for name in {**first, **now}:
        if first.get(name) != now.get(name):
            raise ValueError(
                f"{name} was {first.get(name, 'not there')} when the Replica was created, and is now "
                f"{now.get(name, 'not there')}: entries, shapes and dtypes must not change"
            )


def _check_array(name: str, array: Any, alone: bool, in_place: bool) -> None:
    """Check that `array` can be exchanged, or is of integers and not `alone`. TypeError, ValueError: it is neither."""
    if hasattr(array, "detach") and hasattr(array, "numpy"):
        raise TypeError(f"{name} must be a NumPy array, got a {type(array).__module__.split('.')[0]} tensor: {_TENSOR}")
    if not isinstance(array, np.ndarray) or array.dtype.kind not in ("f" if alone else "fiub"):
        kind = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        remedy = _NUMBER if isinstance(array, (int, float, np.number)) else ""
        raise TypeError(f"{name} must be a NumPy array of floating-point numbers, got {kind}{remedy}")
    if array.dtype.itemsize > 8 or not array.dtype.isnative:
        raise TypeError(f"{name} must be of float16, 32 or 64 in native byte order, got {array.dtype}")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a MaskedArray, whose mask would not be exchanged: pass np.asarray(it), a view")
    if in_place:
        _check_writable(name, array)


def _check_writable(name: str, array: Array) -> None:
    """Check that new values can be written into `array`. ValueError: they cannot."""
    remedy = "a copy, which the loop must then use in its place"
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be C-contiguous, to be updated in place: np.ascontiguousarray makes {remedy}")
    if not array.flags.writeable:
        raise ValueError(f"{name} must be writable, to be updated in place: its copy() makes {remedy}")

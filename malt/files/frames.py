"""Data frames and series of pandas as arrays, one or a few per column, and what is around them.

`parts` takes one apart into values that malt/files/values.py knows; `made` puts it together again. pandas is not
imported before there is a frame of it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

import numpy as np

_NUMBERS: Final = "biufcmM"
"""Kinds of dtypes of columns that are arrays: truth values, numbers, dates and durations."""
Parts = dict[str, Any]


def parts(value: Any) -> Parts | None:
    """Return the arrays, texts and numbers of a frame or series. Local. None: `value` is neither.

    TypeError: a column or the index cannot be sent. The message names it, and the remedy.
    """
    pandas: Any = sys.modules.get("pandas")
    if type(value) not in (getattr(pandas, "DataFrame", 0), getattr(pandas, "Series", 0)):
        return None
    if value.ndim == 1:
        return {"name": _name("the series", value.name), "index": _labels("the index", value.index),
                "columns": [_column(f"column {value.name!r}", value)]}  # fmt: skip
    columns = [_column(f"column {name!r}", value.iloc[:, place]) for place, name in enumerate(value.columns)]
    return {"names": _labels("the columns", value.columns), "index": _labels("the index", value.index),
            "columns": columns}  # fmt: skip


def made(found: Parts) -> Any:
    """The frame or series of these parts, with memory of its own. Local."""
    pandas: Any = import_module("pandas")
    index = _index(pandas, found["index"])
    columns = [_array(pandas, one) for one in found["columns"]]
    if "names" not in found:
        return pandas.Series(columns[0], index=index, name=found["name"], copy=False)
    frame = pandas.DataFrame(dict(enumerate(columns)), index=index, copy=False)
    frame.columns = _index(pandas, found["names"])
    return frame


def _labels(what: str, index: Any) -> Parts:
    """The labels of rows or of columns."""
    pandas: Any = sys.modules["pandas"]
    if isinstance(index, pandas.MultiIndex):
        raise TypeError(f"{what} has several levels: reset_index(), or join the names of its levels")
    name = _name(what, index.name)
    if isinstance(index, pandas.RangeIndex):
        return {"range": [index.start, index.stop, index.step], "name": name}
    return {"labels": _column(what, index), "name": name}


def _name(what: str, name: Any) -> Any:
    if not (name is None or isinstance(name, (str, int))):
        raise TypeError(f"{what} has the name {name!r}: rename it to text or a number")
    return name


def _column(what: str, column: Any) -> Parts:
    """A column or an index as arrays."""
    pandas: Any = sys.modules["pandas"]
    dtype, array = column.dtype, column.array
    if isinstance(dtype, np.dtype) and dtype.kind in _NUMBERS:
        return {"array": np.ascontiguousarray(column.to_numpy())}
    if isinstance(dtype, pandas.CategoricalDtype):
        categories = _labels(f"the categories of {what}", dtype.categories)
        return {"codes": np.ascontiguousarray(array.codes), "categories": categories, "ordered": bool(dtype.ordered)}
    if isinstance(dtype, pandas.DatetimeTZDtype):
        return {"array": np.ascontiguousarray(array.tz_convert("UTC").tz_localize(None).to_numpy()),
                "zone": str(dtype.tz)}  # fmt: skip
    if isinstance(dtype, pandas.StringDtype):
        return {"array": array.to_numpy(object, na_value=None), "storage": dtype.storage,
                "is_nan": dtype.na_value is not pandas.NA}  # fmt: skip
    is_mixed = isinstance(dtype, np.dtype) and dtype.hasobject
    if is_mixed and all(one is None or isinstance(one, (str, bool, int, float)) for one in array):
        return {"array": column.to_numpy()}
    if hasattr(dtype, "numpy_dtype") and not hasattr(dtype, "pyarrow_dtype"):  # Int64, boolean and their kind
        values = array.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0))
        return {"array": np.ascontiguousarray(values), "mask": array.isna(), "dtype": str(dtype)}
    held = " and holds other than numbers and text" if is_mixed else ""
    raise TypeError(f"{what} has dtype {dtype}{held}: astype() makes numbers, text, dates or categories of it")


def _index(pandas: Any, found: Parts) -> Any:
    if "range" in found:
        return pandas.RangeIndex(*found["range"], name=found["name"])
    return pandas.Index(_array(pandas, found["labels"]), name=found["name"])


def _array(pandas: Any, found: Parts) -> Any:
    """The array of a column."""
    if "codes" in found:
        dtype = pandas.CategoricalDtype(_index(pandas, found["categories"]), found["ordered"])
        return pandas.Categorical.from_codes(found["codes"], dtype=dtype)
    if "zone" in found:
        return pandas.DatetimeIndex(found["array"], copy=True).tz_localize("UTC").tz_convert(found["zone"]).array
    if "storage" in found:
        more = {"na_value": np.nan} if found["is_nan"] else {}
        return pandas.array(found["array"], dtype=pandas.StringDtype(found["storage"], **more))
    if "mask" in found:
        array = pandas.array(found["array"], dtype=found["dtype"])
        array[np.array(found["mask"])] = pandas.NA
        return array
    is_mixed = found["array"].dtype == object
    return pandas.Index(found["array"], dtype=object) if is_mixed else found["array"]  # else pandas would see text

"""What a stored column is: numbers, text, or something no study can use."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
from pandas.api import types

from unpooled.study.schema import level_name

Stored = Literal["numbers", "text", "unsupported"]

_IN_OBJECTS: dict[str, Stored] = {
    "string": "text",
    "boolean": "numbers",
    "integer": "numbers",
    "floating": "numbers",
    "mixed-integer-float": "numbers",
    "decimal": "numbers",
    "empty": "numbers",
}


def stored_as(series: pd.Series) -> Stored:
    """How the values are stored; a pandas category is text even when its categories are numbers."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "text"
    if types.is_complex_dtype(dtype):
        return "unsupported"
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype):
        return "numbers"
    return _IN_OBJECTS.get(types.infer_dtype(series.dropna()), "unsupported")


def numbers(series: pd.Series) -> np.ndarray:
    """The values as float64, with NaN where they are missing."""
    if isinstance(series.dtype, pd.SparseDtype):
        return np.asarray(series, dtype=np.float64)
    return series.to_numpy(dtype=np.float64, na_value=np.nan)


def level_names(series: pd.Series) -> np.ndarray:
    """The values as level names, in one spelling however they were stored; complete columns only."""
    codes, uniques = pd.factorize(series)
    if (codes < 0).any():
        raise ValueError("level names need a column without missing values")
    names = np.array([level_name(value) for value in uniques], dtype=object)
    return names[codes]


def missing(series: pd.Series) -> int:
    """How many values are missing."""
    return int(series.isna().sum())

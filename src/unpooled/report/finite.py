"""Numbers as JSON can hold them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def finite(value: Any) -> Any:
    """JSON has no word for infinite or undefined numbers: they become null; nor for arrays: lists."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value

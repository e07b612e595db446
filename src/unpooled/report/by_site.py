"""What a fit tells of every site, without the sites that nothing is shown of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

BY_SITE = ("estimate", "standard_error", "weights", "borrowed", "transfer", "covariance")
"""Diagnostics with a number for each site, or for each two."""


def told(diagnostics: dict[str, Any], sites: Sequence[str], hidden: Collection[str]) -> dict[str, Any]:
    """NaN where a number is about a hidden site.

    >>> told({"sites": {"estimate": [1.0, 2.0]}, "rounds": [3, 4]}, ("north", "south"), {"south": "few"})
    {'sites': {'estimate': [1.0, nan]}, 'rounds': [3, 4]}
    """
    places = [place for place, site in enumerate(sites) if site in hidden]
    return {name: _told(value, name, len(sites), places) for name, value in diagnostics.items()}


def _told(value: Any, name: str, sites: int, places: list[int]) -> Any:
    if isinstance(value, dict):
        return {key: _told(part, key, sites, places) for key, part in value.items()}
    if not places or name not in BY_SITE or np.shape(value) not in ((sites,), (sites, sites)):
        return value
    numbers = np.array(value, float)
    numbers[places] = np.nan
    numbers[..., places] = np.nan
    return numbers.tolist()

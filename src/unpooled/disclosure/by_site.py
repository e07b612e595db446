"""Types for diagnostics that belong to single sites, so that reports can withhold hidden sites."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled.protocol.records import Record

Diagnostic = Any
"""A number, a string, a boolean, None, `BySite`, `Trace`, or a dictionary of these."""
Diagnostics = Mapping[str, Diagnostic]


@dataclass(frozen=True)
class BySite(Record):
    """An array indexed by site along its first axis, or along its first two axes for pairs of sites."""

    values: np.ndarray
    axes: int = 1

    def without(self, hidden: Sequence[bool]) -> np.ndarray:
        """Return the values, with NaN for every entry that involves a hidden site.

        >>> BySite(np.array([1.0, 2.0])).without([False, True]).tolist()
        [1.0, nan]
        >>> BySite(np.ones((2, 2)), axes=2).without([False, True]).tolist()
        [[1.0, nan], [nan, nan]]
        """
        found = np.array(self.values, float)
        places = np.flatnonzero(hidden)
        for axis in range(self.axes):
            found[(slice(None),) * axis + (places,)] = np.nan
        return found


@dataclass(frozen=True)
class Trace(Record):
    """A sequence over the course of a fit, such as the objective by evaluation; not specific to a site."""

    values: tuple[float, ...]


def withhold(diagnostics: Diagnostics, sites: Sequence[str], hidden: Collection[str]) -> dict[str, object]:
    """Convert diagnostics to plain lists and numbers, with NaN for hidden sites.

    >>> withhold({"weight": BySite(np.array([0.4, 0.6])), "rounds": 3}, ("north", "south"), ["south"])
    {'weight': [0.4, nan], 'rounds': 3}
    """
    mask = [site in hidden for site in sites]
    return {name: _plain(value, mask) for name, value in diagnostics.items()}


def require_typed(diagnostics: Diagnostics) -> None:
    """Raise `TypeError` for a bare list or array, whose entries might belong to single sites."""
    for name, value in diagnostics.items():
        if isinstance(value, Mapping):
            require_typed(value)
        elif isinstance(value, list | tuple | set) or (np.ndim(value) > 0 and not isinstance(value, Record)):
            raise TypeError(f"diagnostic '{name}' must be a number, a string, BySite or Trace")


def _plain(value: Diagnostic, hidden: list[bool]) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(part, hidden) for key, part in value.items()}
    if isinstance(value, BySite):
        return value.without(hidden).tolist()
    return list(value.values) if isinstance(value, Trace) else value

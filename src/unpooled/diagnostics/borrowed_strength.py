"""Who borrows from whom: what a fit says of it, with the sites' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd


def borrowed(diagnostics: Mapping[str, Any], sites: Sequence[str]) -> pd.DataFrame | None:
    """The share of each site's fit (row) that comes from each site's people (column); None if not told.

    >>> told = {"chosen": "observed", "observed": {"borrowed": [[0.9, 0.1], [0.3, 0.7]]}}
    >>> float(borrowed(told, ["north", "south"]).loc["south", "north"])
    0.3
    """
    found = diagnostics.get(diagnostics.get("chosen", ""), {}).get("borrowed")
    if found is None:
        return None
    names = list(sites)
    return pd.DataFrame(
        np.asarray(found), index=pd.Index(names, name="site"), columns=pd.Index(names, name="from")
    )

"""Who borrows from whom: what a fit says of it, with the sites' names."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from unpooled.disclosure.by_site import Diagnostics


def borrowed(diagnostics: Diagnostics, sites: Sequence[str]) -> pd.DataFrame | None:
    """The share of each site's fit (row) that comes from each site's people (column); None if not told.

    >>> import numpy as np
    >>> from unpooled.disclosure.by_site import BySite
    >>> shares = BySite(np.array([[0.9, 0.1], [0.3, 0.7]]), axes=2)
    >>> told = {"chosen": "observed", "observed": {"borrowed": shares}}
    >>> float(borrowed(told, ["north", "south"]).loc["south", "north"])
    0.3
    """
    found = diagnostics.get(diagnostics.get("chosen", ""), {}).get("borrowed")
    if found is None:
        return None
    names = list(sites)
    return pd.DataFrame(
        found.values, index=pd.Index(names, name="site"), columns=pd.Index(names, name="from")
    )

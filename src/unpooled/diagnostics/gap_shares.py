"""Which share of each incomplete column is missing, at each site and over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from unpooled.diagnostics.withholding import complemented
from unpooled.protocol.messages import Tree
from unpooled.study import ALL_SITES


def gap_shares(scaling: Tree, sites: Sequence[str], hidden: Mapping[str, str]) -> pd.DataFrame | None:
    """From the numbers that sites agreed on; empty where few are missing; None: no incomplete column."""
    columns = scaling["incomplete_columns"]
    if not columns:
        return None
    counts = np.array(scaling["counts"])
    first = np.cumsum([0, *[width for _, _, width in columns]])[:-1]
    seen = np.asarray(scaling["seen"])[:, first]
    missing = counts[:, None] - seen
    groups = np.stack([missing, seen])
    kept = (
        np.all((groups == 0) | (groups >= 5), axis=0)
        & np.array([site not in hidden for site in sites])[:, None]
    )
    shown = complemented(kept, counts.tolist(), groups, groups.sum(axis=1))
    shares = np.vstack(
        [np.where(shown, missing / counts[:, None], np.nan), missing.sum(axis=0) / counts.sum()]
    )
    names = [name for name, _, _ in columns]
    return pd.DataFrame(shares, index=[*sites, ALL_SITES], columns=names)

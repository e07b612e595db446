"""Which share of each incomplete column is missing, at each site and over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from unpooled.disclosure.withheld import complemented, few
from unpooled.protocol.records import Scaling
from unpooled.study import ALL_SITES


def gap_shares(scaling: Scaling, sites: Sequence[str], hidden: Mapping[str, str]) -> pd.DataFrame | None:
    """From the numbers that sites agreed on; empty where few are missing; None: no incomplete column."""
    columns = scaling.incomplete_columns
    if not columns:
        return None
    counts = np.array(scaling.counts)
    first = np.cumsum([0, *[column.width for column in columns]])[:-1]
    seen = np.asarray(scaling.observed)[:, first]
    missing = counts[:, None] - seen
    groups = np.stack([missing, seen])
    totals = groups.sum(axis=1)
    may_be_shown = np.array([site not in hidden for site in sites])[:, None]
    shown = complemented(~few(groups).any(axis=0) & may_be_shown, counts.tolist(), groups, totals)
    by_site = np.where(shown, missing / counts[:, None], np.nan)
    everybody = np.where(few(totals).any(axis=0), np.nan, totals[0] / counts.sum())
    shares = np.vstack([by_site, everybody])
    names = [column.name for column in columns]
    return pd.DataFrame(shares, index=[*sites, ALL_SITES], columns=names)

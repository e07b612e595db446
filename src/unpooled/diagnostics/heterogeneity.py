"""Do sites tell of the same effect? Each site's own doubly robust estimate, and all without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from unpooled.maths.meta_analysis import heterogeneity as spread_of
from unpooled.maths.meta_analysis import pool
from unpooled.protocol.messages import Tree

REACH = float(ndtri(0.975))


def with_interval(frame: pd.DataFrame) -> pd.DataFrame:
    """The normal interval of 95 % beside estimates and standard errors."""
    reach = REACH * frame["standard_error"]
    return frame.assign(lower=frame["estimate"] - reach, upper=frame["estimate"] + reach)


def site_estimates(
    looked: Tree, scale: float, counts: Mapping[str, int], hidden: Mapping[str, str]
) -> pd.DataFrame:
    """site, people, estimate, standard_error, lower, upper."""
    found = looked["sites"]
    columns = {"people": found["people"], "estimate": scale * found["estimate"]}
    frame = pd.DataFrame({"site": list(counts), **columns, "standard_error": scale * found["error"]})
    return with_interval(frame[~frame["site"].isin(list(hidden))].reset_index(drop=True))


def pooled(sites: pd.DataFrame) -> dict[str, Any]:
    """Q, its p-value, I², τ², and both poolings; of sites whose estimate has a standard error."""
    usable = sites[np.isfinite(sites["standard_error"]) & (sites["standard_error"] > 0.0)]
    if len(usable) < 2:
        return {}
    pair = usable["estimate"].to_numpy(), usable["standard_error"].to_numpy()
    spread = spread_of(*pair)
    fixed, random = pool(*pair), pool(*pair, spread.tau_squared)
    return {
        "sites": len(usable),
        **spread._asdict(),
        "fixed": {"estimate": fixed.estimate, "standard_error": fixed.error},
        "random": {"estimate": random.estimate, "standard_error": random.error},
    }


def leave_one_out(
    looked: Tree, scale: float, counts: Mapping[str, int], hidden: Mapping[str, str]
) -> pd.DataFrame:
    """All people but one site's, for every site that may be shown; regressions are not fitted again."""
    found = looked["sites"]
    people, mean, error = (np.asarray(found[name]) for name in ("people", "estimate", "error"))
    rows = []
    for place, site in enumerate(counts):
        if site in hidden or len(counts) < 2:
            continue
        others = np.arange(len(people)) != place
        share = people[others] / people[others].sum()
        rows.append((site, scale * share @ mean[others], scale * np.sqrt(share**2 @ error[others] ** 2)))
    return with_interval(pd.DataFrame(rows, columns=["site", "estimate", "standard_error"]))

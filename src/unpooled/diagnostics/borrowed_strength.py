"""Who borrows from whom: what a fit says of it, with the sites' names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from unpooled.diagnostics.minimax_bound import minimax_bound
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


def study_bounds(diagnostics: Diagnostics, context: Any, counts: Sequence[int]) -> pd.DataFrame | None:
    """What no estimator could beat, in standard units; None where the method has no such bounds.

    λ^{s,v}, where it was not the paper's own, is what s borrows from v beside what it has of itself. B is
    half the number of features, as with sines and cosines: the regression's, or one per latent class.
    """
    chosen = diagnostics.get("chosen")
    told = diagnostics.get(chosen, {}) if isinstance(chosen, str) else {}
    if "borrowed" not in told:
        return None
    shares = np.maximum(told["borrowed"].values, 0.0)
    transfer = np.clip(shares / np.maximum(np.diagonal(shares)[:, None], 1e-12), 0.0, 1.0)
    proxies, frequencies = int(context.covariates), len(context.frequencies)
    features = told["classes"] if chosen == "categorical" else 1 + proxies + 2 * frequencies
    binary = np.isfinite(np.asarray(context.rates, dtype=float))
    return minimax_bound(
        counts,
        max(features // 2, 1),
        proxies,
        float(told["noise"]),
        transfer,
        outcome="binary" if context.binary_outcome else "continuous",
        proxies_kind="binary" if binary.mean() > 0.5 else "continuous",
    )

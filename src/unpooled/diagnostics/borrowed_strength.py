"""Borrowed strength: how much of each site's estimate comes from the other sites, and minimax bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from unpooled.diagnostics.minimax_bound import minimax_bound
from unpooled.disclosure.by_site import Diagnostics


def borrowed(diagnostics: Diagnostics, sites: Sequence[str]) -> pd.DataFrame | None:
    """Share of each site's estimate (row) from each site's data (column); None if the fit has none.

    >>> import numpy as np
    >>> from unpooled.disclosure.by_site import BySite
    >>> shares = BySite(np.array([[0.9, 0.1], [0.3, 0.7]]), axes=2)
    >>> diagnostics = {"chosen": "observed", "observed": {"borrowed": shares}}
    >>> float(borrowed(diagnostics, ["north", "south"]).loc["south", "north"])
    0.3
    """
    found = diagnostics.get(diagnostics.get("chosen", ""), {}).get("borrowed")
    if found is None:
        return None
    names = list(sites)
    return pd.DataFrame(
        found.values, index=pd.Index(names, name="site"), columns=pd.Index(names, name="from")
    )


def study_bounds(diagnostics: Diagnostics, context: object, counts: Sequence[int]) -> pd.DataFrame | None:
    """Minimax lower bounds in standard units; None if the method has none, and for counts.

    λ^{s,v} is the share that s borrows from v relative to the share from its own data. B is half the number
    of features (sines and cosines): those of the regression, or one per latent class.
    """
    from unpooled.methods.causal_rff.settings import CausalRFFContext  # with the whole method: late

    chosen = diagnostics.get("chosen")
    fit = diagnostics.get(chosen, {}) if isinstance(chosen, str) else {}
    if "borrowed" not in fit or not isinstance(context, CausalRFFContext) or context.family == "count":
        return None
    shares = np.maximum(fit["borrowed"].values, 0.0)
    transfer = np.clip(shares / np.maximum(np.diagonal(shares)[:, None], 1e-12), 0.0, 1.0)
    proxies, frequencies = int(context.covariates), len(context.frequencies)
    features = fit["classes"] if chosen == "categorical" else 1 + proxies + 2 * frequencies
    binary = np.isfinite(np.asarray(context.rates, dtype=float))
    return minimax_bound(
        counts,
        max(features // 2, 1),
        proxies,
        float(fit["noise"]),
        transfer,
        outcome="binary" if context.binary_outcome else "continuous",
        proxies_kind="binary" if binary.mean() > 0.5 else "continuous",
    )

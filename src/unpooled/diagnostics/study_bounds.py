"""The minimax bounds of a fitted study: its sizes, features, noise, and what its sites borrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from unpooled.diagnostics.minimax_bound import minimax_bound
from unpooled.disclosure.by_site import Diagnostics


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

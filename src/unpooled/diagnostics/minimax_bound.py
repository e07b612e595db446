"""The CausalRFF paper's minimax lower bounds, computed from sample sizes and transfer factors alone.

Each bounds E|θ̂ − θ|₂ of the best estimator in the worst case (Fano's method), for m sites with n_s rows,
B frequencies, and a_s = 1 + Σ_{v≠s} λ^{s,v}, the information of site s about all sites' parameters.

The constants are those of the paper, and each follows from the last steps of its proof. Note that:

* The proofs pack each site's parameters separately and assume that two points of the product differ by at
  least δ/2 at every site. They may differ at one site only, by δ/(2√m). The bounds still hold for B ≥ 2 and
  m ≤ 4^{2B−1}: pack one ball of all parameters, and use |φ(x)| = 1 instead of the paper's 2B.
* Lemma 3 needs Σ n_s a_s² ≥ 2(1/σ_y² + 1/2σ_x²) log 2√m, which is in its proof but not in its statement.
* These are lower bounds, not rates. Those of order 1/n are loose, because errors fall as 1/√n at best.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Literal, get_args

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from unpooled.errors import StudyError, nearest

Kind = Literal["continuous", "binary"]


def latent_bound(
    rows: ArrayLike,
    frequencies: int,
    proxies: int,
    transfer: ArrayLike,
    *,
    outcome: Kind = "continuous",
    proxies_kind: Kind = "continuous",
    noise: float = 1.0,
    proxy_noise: float = 1.0,
) -> float:
    """Lemma 3: parameters of outcome, treatment and d_x proxies given a latent confounder.

    Both continuous: √(m(d_x + 3)) log 2√m / (64 √B Σ n_s a_s²), or zero if there are too few rows for
    the proof. Both binary: 3m log 2√m / (128 Σ n_s a_s). For one of each, see `_mixed_latent_bound`.

    >>> round(latent_bound([100], 4, 1, [[0.0]]), 6)
    0.000108
    """
    rows, reach = _sizes(rows, transfer)
    _check_counts(frequencies=frequencies, proxies=proxies)
    _check_kinds(outcome=outcome, proxies_kind=proxies_kind)
    _check_noise(noise=noise, proxy_noise=proxy_noise)
    sites, linear, squared = len(rows), float(rows @ reach), float(rows @ reach**2)
    if outcome == proxies_kind == "binary":
        return 3 * sites * _log_packing(sites) / (128 * linear)
    if outcome == proxies_kind:
        enough = 2 * (1 / noise**2 + 1 / (2 * proxy_noise**2)) * _log_packing(sites)
        bound = sqrt(sites * (proxies + 3) / frequencies) * _log_packing(sites) / (64 * squared)
        return bound if squared >= enough else 0.0
    # Continuous variables add to the divergence's curvature; binary ones, including treatment, to its slope.
    continuous = outcome == "continuous"
    curvature, slope = (16 / noise**2, 1 + proxies) if continuous else (8 / proxy_noise**2, 3)
    packed = 2 * sites * frequencies * (proxies + 3) * _log_packing(sites)
    return _mixed_latent_bound(packed, frequencies**2 * curvature * squared, 8 * frequencies * slope * linear)


def _mixed_latent_bound(packed: float, curvature: float, slope: float) -> float:
    """Fano's bound if the divergence is at most curvature·δ² + slope·δ and the packing has e^packed points.

    The paper's remark leaves these cases to the reader. δ is the largest value for which each term uses at
    most a quarter; log 2 uses at most an eighth, which leaves δ/2 · 3/8.
    """
    return 3 / 16 * min(sqrt(packed / (4 * curvature)), packed / (4 * slope))


def treatment_bound(rows: ArrayLike, transfer: ArrayLike) -> float:
    """Lemma 4 (i), parameters of treatment given covariates: m log 2√m / (256 Σ n_s a_s).

    >>> round(treatment_bound([100], [[0.0]]), 8)
    2.708e-05
    """
    rows, reach = _sizes(rows, transfer)
    return len(rows) * _log_packing(len(rows)) / (256 * float(rows @ reach))


def outcome_bound(
    rows: ArrayLike, frequencies: int, noise: float, transfer: ArrayLike, *, outcome: Kind = "continuous"
) -> float:
    """Lemma 4 (ii), parameters of the outcome given covariates and treatment.

    Continuous, noise sd σ: σ/(16√2) · √(m log 2√m / (B Σ n_s a_s²)). Binary: m log 2√m / (32√2 Σ n_s a_s),
    whatever B and σ.

    >>> round(outcome_bound([100], 4, 1.0, [[0.0]]), 5)
    0.00184
    """
    rows, reach = _sizes(rows, transfer)
    _check_counts(frequencies=frequencies)
    _check_kinds(outcome=outcome)
    _check_noise(noise=noise)
    packed = len(rows) * _log_packing(len(rows))
    if outcome == "binary":
        return packed / (32 * sqrt(2) * float(rows @ reach))
    return noise / (16 * sqrt(2)) * sqrt(packed / (frequencies * float(rows @ reach**2)))


def minimax_bound(
    rows: ArrayLike,
    frequencies: int,
    proxies: int,
    noise: float,
    transfer: ArrayLike,
    *,
    outcome: Kind = "continuous",
    proxies_kind: Kind = "continuous",
) -> pd.DataFrame:
    """All three bounds, one row each, for models that share their transfer factors."""
    latent = latent_bound(
        rows, frequencies, proxies, transfer, outcome=outcome, proxies_kind=proxies_kind, noise=noise
    )
    seen = outcome_bound(rows, frequencies, noise, transfer, outcome=outcome)
    lines = [
        ("Lemma 3", latent, "outcome, treatment and proxies given the latent confounder"),
        ("Lemma 4 (i)", treatment_bound(rows, transfer), "treatment given covariates"),
        ("Lemma 4 (ii)", seen, "outcome given covariates and treatment"),
    ]
    return pd.DataFrame(lines, columns=["name", "bound", "parameters_of"])


def _log_packing(sites: int) -> float:
    """log 2√m: log of the number of points, per dimension, of a 1/(2√m)-packing of the unit ball."""
    return log(2 * sqrt(sites))


def _sizes(rows: ArrayLike, transfer: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """n_s and a_s = 1 + Σ_{v≠s} λ^{s,v}; the diagonal of λ is ignored."""
    rows, transfer = np.asarray(rows, float), np.asarray(transfer, float)
    if rows.ndim != 1 or rows.size == 0 or not np.all(np.isfinite(rows) & (rows >= 1)):
        raise StudyError(
            "rows must be one number per site, each at least one",
            found=f"{rows.tolist()}",
            remedy="give the sizes of the sites, without empty sites",
        )
    if transfer.shape != (rows.size, rows.size):
        raise StudyError(
            "transfer factors must have one row and one column per site",
            found=f"shape {transfer.shape} for {rows.size} sites",
            remedy="give a square matrix: how much site s (row) borrows from site v (column)",
        )
    others = transfer[~np.eye(rows.size, dtype=bool)].reshape(rows.size, -1)
    if not np.all((others >= 0) & (others <= 1)):
        raise StudyError(
            "transfer factors between sites must lie between 0 and 1",
            found=f"values from {others.min()} to {others.max()}",
            remedy="use 0 for no sharing and 1 for complete sharing",
        )
    return rows, 1.0 + others.sum(axis=1)


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1 or count != int(count):
            raise StudyError(
                f"{name} must be a whole number above zero", found=f"{count}", remedy=f"correct {name}"
            )


def _check_noise(**noises: float) -> None:
    for name, noise in noises.items():
        if not 0 < noise < np.inf:
            raise StudyError(
                f"{name} must be a standard deviation above zero", found=f"{noise}", remedy=f"correct {name}"
            )


def _check_kinds(**kinds: str) -> None:
    for name, kind in kinds.items():
        if kind not in get_args(Kind):
            raise StudyError(
                f"{name} must be a known kind", found=f"'{kind}'", remedy=nearest(kind, get_args(Kind))
            )

"""Little's (1988) test of values missing completely at random (MCAR), from sums by missing pattern.

μ̂ and Σ̂ are a Gaussian's maximum likelihood estimates, and d² = Σ_p n_p (ȳ_p − μ̂_p)ᵀ Σ̂_p⁻¹ (ȳ_p − μ̂_p)
measures whether the means of the patterns agree with μ̂. The test needs only the number of rows of each
pattern and the sums and cross-products of its observed columns. These add up over sites, so the result is
the same as on the pooled table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from unpooled.errors import DataError
from unpooled.maths.missing_patterns import Pattern, fit_by_em, roots, stacked


class McarTest(NamedTuple):
    """d², its degrees of freedom, P(χ² ≥ d²) (NaN with 0 degrees), and the patterns and rows it used."""

    statistic: float
    degrees: int
    p_value: float
    patterns: int
    rows: int
    converged: bool


class Stratified(NamedTuple):
    """d² and degrees of freedom summed over the sites' own tests, and why some sites were left out."""

    statistic: float
    degrees: int
    p_value: float
    sites: dict[str, McarTest]
    left_out: dict[str, str]


class Vote(NamedTuple):
    """The share of sites whose own test rejects; the vote rejects when it is more than half."""

    share: float
    rejected: bool
    p_values: dict[str, float]
    left_out: dict[str, str]


def little(patterns: Sequence[Pattern]) -> McarTest:
    """Little's d² with Σ_p k_p − d degrees of freedom, where pattern p observes k_p of d columns.

    Σ̂ has divisor n, as in the R packages naniar and BaylorEdPsych: R's airquality gives d² = 35.1062
    (35.1061 in naniar, whose EM stops at 1e-4). Constant columns count neither in k_p nor in d.
    """
    stack = stacked(patterns)
    fit = fit_by_em(stack)
    away = stack.seen * (stack.mean - fit.mean)
    white = np.linalg.solve(roots(stack, fit.covariance), away[:, :, None])[:, :, 0]
    statistic = float(stack.rows @ np.sum(white**2, axis=1))
    degrees = int(stack.seen.sum()) - len(stack.columns)
    rows = int(stack.rows.sum())
    return McarTest(statistic, degrees, _tail(statistic, degrees), len(stack.rows), rows, fit.converged)


def stratified(sites: Mapping[str, Sequence[Pattern]]) -> Stratified:
    """The test within sites, valid when sites differ in their means and in how much is missing.

    The pooled test takes such differences for values that are not missing completely at random.
    """
    tests, left_out = _alone(sites)
    statistic = sum((test.statistic for test in tests.values()), 0.0)
    degrees = sum(test.degrees for test in tests.values())
    return Stratified(statistic, degrees, _tail(statistic, degrees), tests, left_out)


def vote(sites: Mapping[str, Sequence[Pattern]], level: float) -> Vote:
    """Every site tests alone, and the majority decides.

    This has almost no power: when each site rejects with probability below ½, a majority becomes less likely
    with more sites. It is meant for comparison with the other two tests only.
    """
    tests, left_out = _alone(sites)
    p_values = {site: test.p_value for site, test in tests.items() if test.degrees}
    left_out |= {site: "no degrees of freedom" for site in tests if site not in p_values}
    share = float(np.mean([p < level for p in p_values.values()])) if p_values else np.nan
    return Vote(share, share > 0.5, p_values, left_out)


def _alone(sites: Mapping[str, Sequence[Pattern]]) -> tuple[dict[str, McarTest], dict[str, str]]:
    """Every site's own test, and why some sites have none."""
    tests: dict[str, McarTest] = {}
    left_out: dict[str, str] = {}
    for site, patterns in sites.items():
        try:
            test = little(patterns)
        except DataError as error:
            left_out[site] = error.found
            continue
        if test.converged:
            tests[site] = test
        else:
            left_out[site] = "EM did not converge"
    return tests, left_out


def _tail(statistic: float, degrees: int) -> float:
    return float(chdtrc(degrees, statistic)) if degrees else np.nan

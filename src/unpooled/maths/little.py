"""Little's (1988) test whether values are missing completely at random, from sums by missing pattern.

μ̂ and Σ̂ are those of a Gaussian by maximum likelihood; d² = Σ_p n_p (ȳ_p − μ̂_p)ᵀ Σ̂_p⁻¹ (ȳ_p − μ̂_p) asks
whether the patterns' means agree with μ̂. All of it needs of every pattern p only how many rows show it, and
the sums and cross-products of the columns it observes: sums over sites, so the sites' test is the pooled one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from unpooled.errors import DataError
from unpooled.maths.pattern_moments import climbed, roots, stacked
from unpooled.maths.patterns import Pattern


class McarTest(NamedTuple):
    """d², its degrees of freedom, P(χ² ≥ d²) (nan with 0 degrees), and what the test rests on."""

    statistic: float
    degrees: int
    p_value: float
    patterns: int
    rows: int
    converged: bool


class Stratified(NamedTuple):
    """d² and degrees of freedom added over the sites' own tests; why the other sites are left out."""

    statistic: float
    degrees: int
    p_value: float
    sites: dict[str, McarTest]
    left_out: dict[str, str]


class Vote(NamedTuple):
    """The share of the sites that reject by themselves, of those that can test; more than half reject."""

    share: float
    rejected: bool
    p_values: dict[str, float]
    left_out: dict[str, str]


def little(patterns: Sequence[Pattern]) -> McarTest:
    """Little's d² with Σ_p k_p − d degrees of freedom, k_p the columns that pattern p observes.

    Σ̂ has divisor n, not n − 1: so do naniar and BaylorEdPsych, and so R's airquality gives d² = 35.1062.
    (naniar gives 35.1061: its EM stops at 1e-4.) Constant columns count neither in k_p nor in d.
    """
    stack = stacked(patterns)
    fit = climbed(stack)
    away = stack.seen * (stack.mean - fit.mean)
    white = np.linalg.solve(roots(stack, fit.covariance), away[:, :, None])[:, :, 0]
    statistic = float(stack.rows @ np.sum(white**2, axis=1))
    degrees = int(stack.seen.sum()) - len(stack.columns)
    rows = int(stack.rows.sum())
    return McarTest(statistic, degrees, _tail(statistic, degrees), len(stack.rows), rows, fit.converged)


def stratified(sites: Mapping[str, Sequence[Pattern]]) -> Stratified:
    """The test within sites: right where sites differ in their means and in how much is missing.

    Pooled, such a difference looks like values that are not missing completely at random.
    """
    tests, left_out = _alone(sites)
    statistic = sum((test.statistic for test in tests.values()), 0.0)
    degrees = sum(test.degrees for test in tests.values())
    return Stratified(statistic, degrees, _tail(statistic, degrees), tests, left_out)


def vote(sites: Mapping[str, Sequence[Pattern]], level: float) -> Vote:
    """Every site tests alone and the majority decides.

    It has almost no power: where each site rejects with a chance below ½, more sites make the majority's
    rejection rarer, not more frequent. It is here to be compared with, not to be relied on.
    """
    tests, left_out = _alone(sites)
    p_values = {site: test.p_value for site, test in tests.items() if test.degrees}
    left_out |= {site: "no degrees of freedom" for site in tests if site not in p_values}
    share = float(np.mean([p < level for p in p_values.values()])) if p_values else np.nan
    return Vote(share, share > 0.5, p_values, left_out)


def _alone(sites: Mapping[str, Sequence[Pattern]]) -> tuple[dict[str, McarTest], dict[str, str]]:
    """Every site's own test, and why some have none."""
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
    return float(chi2.sf(statistic, degrees)) if degrees else np.nan

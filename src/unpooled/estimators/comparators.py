"""Estimates with standard errors as a table, read from a fit's diagnostics: nothing rests on draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import ndtri

from unpooled.coordinator.result import StudyResult
from unpooled.estimators.base import Estimator
from unpooled.study.study import ALL_SITES


def estimates_table(
    result: StudyResult, others: Mapping[str, Mapping[str, Any]], alpha: float
) -> pd.DataFrame:
    """One row per site, then the others by name: estimate, standard error and normal interval."""
    sites = result.fit_diagnostics["sites"]
    estimate, error = (
        np.append(sites[name].values, [one[name] for one in others.values()])
        for name in ("estimate", "standard_error")
    )
    reach = ndtri(1.0 - alpha / 2.0) * error
    columns = {
        "estimate": estimate,
        "standard_error": error,
        "lower": estimate - reach,
        "upper": estimate + reach,
    }
    return pd.DataFrame(columns, index=pd.Index([*result.sites, *others], name="site"))


class AIPW(Estimator):
    """Doubly robust average effects; or inverse propensity weights, or plain differences, to compare with.

    Parameters are those of `unpooled.methods.aipw.settings.Settings`, where each is explained. Draws are of
    normals with the estimates' standard errors. Effects of people come from linear outcome regressions.

    >>> AIPW(seed=7).get_params()["estimator"]
    'aipw'
    """

    method: ClassVar[str] = "aipw"

    def __init__(
        self,
        *,
        seed: int = 0,
        estimator: str = "aipw",
        site_terms: str = "offsets",
        folds: int = 3,
        ridge: float = 1.0,
        trim: float = 0.01,
        draws: int = 400,
    ) -> None:
        self.seed = seed
        self.estimator = estimator
        self.site_terms = site_terms
        self.folds = folds
        self.ridge = ridge
        self.trim = trim
        self.draws = draws

    def estimates(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Each site's estimate, their average over all people, and what one stacked table would give.

        The average is what `ate` tells: sites are compared within themselves. Stacked, weighted means are
        taken over everybody, and standard errors count who happens to be at which site as chance.
        """
        result = self._fitted()
        others = {ALL_SITES: result.fit_diagnostics["overall"], "stacked": result.fit_diagnostics["stacked"]}
        return estimates_table(result, others, alpha)


class MetaAnalysis(Estimator):
    """Every site's own doubly robust estimate, pooled by inverse variance, to compare with.

    Parameters are those of `unpooled.methods.meta_analysis.settings.Settings`, where each is explained. A
    site's effect is its estimate shrunken to the pooled one, and `ate` averages these over all sites' people;
    `estimates` tells the sites' own and the pooled estimates. They differ where sites do.

    >>> MetaAnalysis(seed=7).get_params()["effects"]
    'random'
    """

    method: ClassVar[str] = "meta_analysis"

    def __init__(
        self,
        *,
        seed: int = 0,
        effects: str = "random",
        folds: int = 3,
        ridge: float = 1.0,
        trim: float = 0.01,
        draws: int = 400,
    ) -> None:
        self.seed = seed
        self.effects = effects
        self.folds = folds
        self.ridge = ridge
        self.trim = trim
        self.draws = draws

    def estimates(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Each site's own estimate, not shrunken, and the pooled ones with fixed and with random effects."""
        result = self._fitted()
        others = {f"{name} effects": result.fit_diagnostics[name] for name in ("fixed", "random")}
        return estimates_table(result, others, alpha)

    def heterogeneity(self) -> pd.Series:
        """Cochran's Q with its degrees of freedom and p-value, I², and τ² in the outcome's units squared."""
        return pd.Series(self._fitted().fit_diagnostics["heterogeneity"])

"""AIPW and meta-analysis: estimates with standard errors, read from a fit's diagnostics, not from draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from unpooled.coordinator.result import StudyResult
from unpooled.estimators.base import Estimator
from unpooled.maths.meta_analysis import quantile
from unpooled.study.study import ALL_SITES


def estimates_table(
    result: StudyResult, others: Mapping[str, Mapping[str, float]], alpha: float
) -> pd.DataFrame:
    """One row per site, then the others by name: estimate, standard error and interval.

    Intervals are normal, or Student's if `degrees` of freedom are given.
    """
    sites, names = result.fit_diagnostics.get("sites", {}), result.sites_with_effects
    estimate, error = (
        np.append(sites[name].values if names else [], [one[name] for one in others.values()])
        for name in ("estimate", "standard_error")
    )
    degrees = [0] * len(names) + [int(one.get("degrees", 0)) for one in others.values()]
    reach = error * [quantile(1.0 - alpha / 2.0, one) for one in degrees]
    columns = {
        "estimate": estimate,
        "standard_error": error,
        "lower": estimate - reach,
        "upper": estimate + reach,
    }
    found = pd.DataFrame(columns, index=pd.Index([*names, *others], name="site"))
    found.loc[list(result.sites_without_effects)] = np.nan
    return found


class AIPW(Estimator):
    """Average effects by AIPW, inverse propensity weighting or an unadjusted difference, for comparison.

    AIPW is consistent if either the propensity model (logistic regression) or the outcome model (in each arm,
    linear regression, logistic regression of 0/1 outcomes or log-linear regression of counts) is correct. The
    estimator has no posterior: `ate_draws` draws from normal distributions with the estimates and their
    standard errors, and `estimates` returns both exactly. AIPW and inverse propensity weighting also estimate
    the mean outcomes of both arms, over everybody, the treated, the controls and the overlap population:
    see `effects`. Effects of single people come from the outcome regressions and are only rough.

    Parameters
    ----------
    seed : int, default=0
        Seed of the folds and of the draws. The same seed gives the same results. It overrides the seed of
        the study.
    estimator : {"aipw", "ipw", "difference"}, default="aipw"
        "aipw" averages doubly robust scores. "ipw" weights by the inverse propensity, with weights
        normalised within each site and arm. "difference" compares the unadjusted means of the arms within
        each site.
    site_terms : {"offsets", "none"}, default="offsets"
        Whether the treatment and outcome regressions have an intercept for each site. "none" assumes that
        sites are alike, and each site then sends less.
    folds : int, default=3
        Number of folds for cross-fitting, from 1 to 20. The scores of people in a fold use regressions
        fitted without that fold. With 1, there is no cross-fitting. No effect with "difference".
    repeats : int, default=3
        Number of times that people are assigned to folds, from 1 to 10, each time anew. The estimate is the
        median over these, and its standard error covers how much they differ. No effect with one fold.
    ridge : float, optional
        Penalty on the squared coefficients of the covariates, in standard units. By default, a penalty for
        each regression is chosen from 0.3 to 1000 by its fit to held-out people.
    trim : float, default=0.01
        Propensities are clipped to lie between `trim` and 1 - `trim`. Increase it if overlap is poor and a
        few people have very large weights. No effect with "difference".
    draws : int, default=400
        Number of draws, at least 20. It does not affect `estimates`.

    Attributes
    ----------
    result_ : StudyResult
        The fitted study: draws, schema, diagnostics of the fit, and cost. It contains no rows.
    sites_ : dict of str to Site
        The sites whose tables are in this process. It is empty if the sites are remote.

    References
    ----------
    J. M. Robins, A. Rotnitzky and L. P. Zhao, "Estimation of Regression Coefficients When Some Regressors
    Are Not Always Observed", JASA 89 (1994).

    F. Li, K. L. Morgan and A. M. Zaslavsky, "Balancing Covariates via Propensity Score Weighting", JASA 113
    (2018), on the overlap population.

    T. V. Vo et al., "Federated Causal Inference from Observational Data", Machine Learning (2025),
    doi:10.1007/s10994-025-06819-9, whose methods this estimator is compared with.

    Examples
    --------
    >>> AIPW(estimator="ipw", seed=7).get_params()["trim"]
    0.01
    """

    method: ClassVar[str] = "aipw"

    def __init__(
        self,
        *,
        seed: int = 0,
        estimator: str = "aipw",
        site_terms: str = "offsets",
        folds: int = 3,
        repeats: int = 3,
        ridge: float | None = None,
        trim: float = 0.01,
        draws: int = 400,
    ) -> None:
        self.seed = seed
        self.estimator = estimator
        self.site_terms = site_terms
        self.folds = folds
        self.repeats = repeats
        self.ridge = ridge
        self.trim = trim
        self.draws = draws

    def estimates(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Estimates by site, for all sites, and for the stacked table, with standard errors.

        Parameters
        ----------
        alpha : float, default=0.05
            The intervals have level 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            The columns estimate, standard_error, lower and upper. The row ``all sites`` is the average of
            the sites' estimates over all people, which is what `ate` returns. The row ``stacked`` is what a
            single table of everybody would give; its weighted means are taken over all sites at once, and
            its standard errors treat the site of a person as random.
        """
        result = self._fitted()
        others = {ALL_SITES: result.fit_diagnostics["overall"], "stacked": result.fit_diagnostics["stacked"]}
        return estimates_table(result, others, alpha)


class MetaAnalysis(Estimator):
    """Meta-analysis of the sites' own doubly robust estimates, pooled by inverse variance, for comparison.

    Each site's estimate is AIPW with regressions of its own people alone, so every site needs several times
    as many people in each arm as there are covariates. The effect of a site is its estimate shrunk towards
    the pooled estimate, and `ate` averages these effects over the people of all sites. `estimates` returns
    the sites' own estimates and the pooled ones.

    Parameters
    ----------
    seed : int, default=0
        Seed of the folds and of the draws. The same seed gives the same results. It overrides the seed of
        the study.
    pooling : {"random", "fixed"}, default="random"
        "random" lets the effects of the sites differ, with a variance τ² estimated by the method of
        DerSimonian and Laird, and intervals by the modified method of Hartung and Knapp. "fixed" assumes
        that all sites have the same effect.
    folds : int, default=3
        Number of folds for cross-fitting within each site, from 1 to 20. With 1, there is no cross-fitting.
        Reduce it if sites are small.
    repeats : int, default=3
        Number of times that people are assigned to folds, from 1 to 10, each time anew. The estimate is the
        median over these, and its standard error covers how much they differ. No effect with one fold.
    ridge : float, optional
        Penalty on the squared coefficients of the covariates, in standard units. By default, a penalty for
        each regression is chosen from 0.3 to 1000 by its fit to held-out people.
    trim : float, default=0.01
        Propensities are clipped to lie between `trim` and 1 - `trim`. Increase it if overlap is poor and a
        few people have very large weights.
    draws : int, default=400
        Number of draws of the sites' effects, at least 20. It does not affect `estimates`.

    Attributes
    ----------
    result_ : StudyResult
        The fitted study: draws, schema, diagnostics of the fit, and cost. It contains no rows.
    sites_ : dict of str to Site
        The sites whose tables are in this process. It is empty if the sites are remote.

    References
    ----------
    R. DerSimonian and N. Laird, "Meta-analysis in clinical trials", Controlled Clinical Trials 7 (1986).

    C. Röver, G. Knapp and T. Friede, "Hartung-Knapp-Sidik-Jonkman approach and its modification for
    random-effects meta-analysis with few studies", BMC Medical Research Methodology 15 (2015).

    T. V. Vo et al., "Federated Causal Inference from Observational Data", Machine Learning (2025),
    doi:10.1007/s10994-025-06819-9, whose methods this estimator is compared with.

    Examples
    --------
    >>> MetaAnalysis(pooling="fixed", seed=7).get_params()["folds"]
    3
    """

    method: ClassVar[str] = "meta_analysis"

    def __init__(
        self,
        *,
        seed: int = 0,
        pooling: str = "random",
        folds: int = 3,
        repeats: int = 3,
        ridge: float | None = None,
        trim: float = 0.01,
        draws: int = 400,
    ) -> None:
        self.seed = seed
        self.pooling = pooling
        self.folds = folds
        self.repeats = repeats
        self.ridge = ridge
        self.trim = trim
        self.draws = draws

    def estimates(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Estimates by site, pooled with fixed and with random effects, and predicted for another site.

        Parameters
        ----------
        alpha : float, default=0.05
            The intervals have level 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            The columns estimate, standard_error, lower and upper. The estimates of the sites are not shrunk.
            The interval of the row ``random effects`` is that of Hartung and Knapp. The row ``another site``
            has the interval in which the effect of another site would lie (the prediction interval).
        """
        result = self._fitted()
        fixed, random = (result.fit_diagnostics[name] for name in ("fixed", "random"))
        another = {**random, "standard_error": random["prediction_error"]}
        others = {"fixed effects": fixed, "random effects": random, "another site": another}
        return estimates_table(result, others, alpha)

    def heterogeneity(self) -> pd.Series:
        """How much the estimates of the sites differ.

        Returns
        -------
        pandas.Series
            Cochran's Q with its degrees of freedom and p-value, I², and τ² in squared units of the outcome.
        """
        return pd.Series(self._fitted().fit_diagnostics["heterogeneity"])

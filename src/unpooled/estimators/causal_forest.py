"""The estimator of causal forests."""

from __future__ import annotations

from typing import ClassVar

import pandas as pd

from unpooled.estimators.base import Estimator
from unpooled.estimators.comparators import estimates_table
from unpooled.study.study import ALL_SITES


class CausalForest(Estimator):
    """Effects of people by an honest causal forest, average effects by doubly robust scores.

    Forests for the propensity and for the mean outcome centre treatment and outcome. The trees of effects are
    then split where effects differ most, and other people than those by whom a tree was grown give the
    effects in its leaves. Every split is chosen from sums over all sites, so that the forest is that of the
    stacked table. Steps and interactions, which smooth models miss, are what trees are good at.

    Parameters
    ----------
    seed : int, default=0
        Seed of the trees and of the draws. The same seed gives the same results. It overrides the seed of
        the study.
    trees : int, default=100
        Number of trees of effects, a multiple of 5: five share a random half of the people. With more trees,
        effects depend less on the seed, and each round has more bytes.
    nuisance_trees : int, default=50
        Number of trees of each of the forests for the propensity and the mean outcome, a multiple of 5.
    leaf : int, default=5
        Fewest people on either side of a split, among those by whom a tree is grown. Larger leaves smooth
        more.
    site_terms : {"offsets", "none"}, default="offsets"
        Whether each site corrects propensities and mean outcomes by its own mean residual, which it does not
        tell. "none" assumes that sites are alike given the covariates.
    trim : float, default=0.01
        In doubly robust scores, propensities are clipped to lie between `trim` and 1 - `trim`.
    draws : int, default=400
        Number of draws of effects, at least 20.

    Attributes
    ----------
    result_ : StudyResult
        The fitted study: draws, schema, diagnostics of the fit, and cost. It contains no rows.
    sites_ : dict of str to Site
        The sites whose tables are in this process. It is empty if the sites are remote.

    References
    ----------
    S. Athey, J. Tibshirani and S. Wager, "Generalized Random Forests", Annals of Statistics 47 (2019).

    X. Nie and S. Wager, "Quasi-Oracle Estimation of Heterogeneous Treatment Effects", Biometrika 108 (2021).

    Examples
    --------
    >>> CausalForest(trees=200, seed=7).get_params()["leaf"]
    5
    """

    method: ClassVar[str] = "causal_forest"

    def __init__(
        self,
        *,
        seed: int = 0,
        trees: int = 100,
        nuisance_trees: int = 50,
        leaf: int = 5,
        site_terms: str = "offsets",
        trim: float = 0.01,
        draws: int = 400,
    ) -> None:
        self.seed = seed
        self.trees = trees
        self.nuisance_trees = nuisance_trees
        self.leaf = leaf
        self.site_terms = site_terms
        self.trim = trim
        self.draws = draws

    def estimates(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Doubly robust estimates of average effects by site and for all sites, with standard errors.

        Parameters
        ----------
        alpha : float, default=0.05
            The intervals have level 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            The columns estimate, standard_error, lower and upper. The row ``all sites`` is the average of
            the sites' estimates over all people, which is what `ate` returns; ``stacked`` is what a single
            table of everybody would give.
        """
        result = self._fitted()
        others = {ALL_SITES: result.fit_diagnostics["overall"], "stacked": result.fit_diagnostics["stacked"]}
        return estimates_table(result, others, alpha)

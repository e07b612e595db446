"""The estimator of boosted arms."""

from __future__ import annotations

from typing import ClassVar

import pandas as pd

from unpooled.estimators.base import Estimator
from unpooled.estimators.causal_forest import CausalForest


class BoostedArms(Estimator):
    """Effects of people by boosted trees in each arm, average effects by doubly robust scores.

    The outcome in each arm and the treatment are boosted, once without each fold. Every split is chosen from
    sums over all sites. The mean of the models without each fold predicts, and people who are held out decide
    how many steps of boosting are used.

    Parameters
    ----------
    seed : int, default=0
        Seed of the folds, the trees and the draws. The same seed gives the same results. It overrides the
        seed of the study.
    steps : int, default=16
        Most steps of boosting.
    rate : float, default=0.5
        Share of what the trees of a step predict that is added. With a smaller rate, use more steps.
    depth : int, default=3
        Depth of the trees, from 1 to 6: how many covariates may interact. Each level is a round.
    leaf : int, default=5
        Fewest people on either side of a split.
    folds : int, default=5
        Number of folds, from 2 to 20.
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
    J. H. Friedman, "Stochastic Gradient Boosting", Computational Statistics and Data Analysis 38 (2002).

    Examples
    --------
    >>> BoostedArms(steps=20, seed=7).get_params()["depth"]
    3
    """

    method: ClassVar[str] = "boosted_arms"

    def __init__(
        self,
        *,
        seed: int = 0,
        steps: int = 16,
        rate: float = 0.5,
        depth: int = 3,
        leaf: int = 5,
        folds: int = 5,
        site_terms: str = "offsets",
        trim: float = 0.01,
        draws: int = 400,
    ) -> None:
        self.seed = seed
        self.steps = steps
        self.rate = rate
        self.depth = depth
        self.leaf = leaf
        self.folds = folds
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
            As of `CausalForest.estimates`.
        """
        return CausalForest.estimates(self, alpha=alpha)  # pyright: ignore[reportArgumentType]

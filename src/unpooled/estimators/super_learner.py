"""The estimator of the super learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pandas as pd

from unpooled.estimators.base import Estimator
from unpooled.estimators.comparators import estimates_table
from unpooled.study.study import ALL_SITES


class SuperLearner(Estimator):
    """Several methods fitted side by side, weighted by how well they predict effects of held-out people.

    Which method is best depends on whether effects are smooth, change in steps, or do not vary at all, and
    nobody knows beforehand. The candidates are fitted in the same rounds. Their weights minimise the R-loss
    of people whom a fit has not seen, from sums over all sites; a constant effect is a candidate too.

    Parameters
    ----------
    seed : int, default=0
        Seed of all candidates. The same seed gives the same results. It overrides the seed of the study.
    candidates : sequence of str, default=("fedci", "causal_forest", "boosted_arms")
        The methods, of which the causal forest must be one.
    folds : int, default=4
        Number of folds of the candidates, from 2 to 20.
    simplicity : float, default=2.0
        By how much the log likelihood of held-out people must rise for the effect not to be constant.
    site_terms : {"offsets", "none"}, default="offsets"
        Whether sites may differ given the covariates. "none" assumes that they are alike.
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
    M. J. van der Laan, E. C. Polley and A. E. Hubbard, "Super Learner", Statistical Applications in Genetics
    and Molecular Biology 6 (2007).

    X. Nie and S. Wager, "Quasi-Oracle Estimation of Heterogeneous Treatment Effects", Biometrika 108 (2021).

    Examples
    --------
    >>> SuperLearner(seed=7).get_params()["folds"]
    4
    """

    method: ClassVar[str] = "super_learner"

    def __init__(
        self,
        *,
        seed: int = 0,
        candidates: Sequence[str] = ("fedci", "causal_forest", "boosted_arms"),
        folds: int = 4,
        simplicity: float = 2.0,
        site_terms: str = "offsets",
        trim: float = 0.01,
        draws: int = 400,
    ) -> None:
        self.seed = seed
        self.candidates = candidates
        self.folds = folds
        self.simplicity = simplicity
        self.site_terms = site_terms
        self.trim = trim
        self.draws = draws

    def weights(self) -> pd.DataFrame:
        """The candidates' weights, and their R-loss per person on held-out people.

        Returns
        -------
        pandas.DataFrame
            One row per candidate, with the columns weight and r_loss (in squared sds of the outcome), and one
            for the stack.
        """
        told = self._fitted().fit_diagnostics
        return pd.DataFrame(
            {"weight": told["weights_of_candidates"], "r_loss": told["r_loss"]},
            index=pd.Index(list(told["r_loss"]), name="candidate"),
        )

    def estimates(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Doubly robust estimates of average effects by site and for all sites, with standard errors.

        Parameters
        ----------
        alpha : float, default=0.05
            The intervals have level 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            The columns estimate, standard_error, lower and upper; the last two rows are for all sites and
            for a single table of everybody.
        """
        result = self._fitted()
        others = {ALL_SITES: result.fit_diagnostics["overall"], "stacked": result.fit_diagnostics["stacked"]}
        return estimates_table(result, others, alpha)

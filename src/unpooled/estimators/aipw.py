"""AIPW as an estimator."""

from __future__ import annotations

from typing import ClassVar

import pandas as pd

from unpooled.estimators.base import Estimator
from unpooled.estimators.exact import estimates_table
from unpooled.study.study import ALL_SITES


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

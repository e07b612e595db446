"""Meta-analysis as an estimator."""

from __future__ import annotations

from typing import ClassVar

import pandas as pd

from unpooled.estimators.base import Estimator
from unpooled.estimators.exact import estimates_table


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

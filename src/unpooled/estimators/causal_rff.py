"""CausalRFF as an estimator."""

from __future__ import annotations

from typing import ClassVar

import pandas as pd

from unpooled.diagnostics.borrowed_strength import borrowed, study_bounds
from unpooled.disclosure.by_site import Diagnostics
from unpooled.errors import StudyError
from unpooled.estimators.base import Estimator


class CausalRFF(Estimator):
    """Effects over sites that differ, with confounders that may be seen only through proxies.

    Parameters are those of `unpooled.methods.causal_rff.settings.Settings`, where each is explained.

    >>> CausalRFF(seed=7).get_params()["confounding"]
    'auto'
    """

    method: ClassVar[str] = "causal_rff"

    def __init__(
        self,
        *,
        seed: int = 0,
        confounding: str = "auto",
        latent: str = "categorical",
        kernel: str = "gaussian",
        frequencies: int = 32,
        orthogonal: bool = True,
        fourier_columns: str = "continuous",
        site_terms: str = "offsets",
        classes: int | None = None,
        starts: int = 4,
        rounds: int = 30,
        sweeps: int = 30,
        latent_dimension: int = 5,
        gaussian_rounds: int = 600,
        learning_rate: float = 0.02,
        monte_carlo: int = 5,
        regulariser: float = 1.0,
        transfer: float | None = None,
        symmetric: bool = False,
        sampler: str = "metropolis",
        folds: int = 5,
        draws: int = 400,
        noise_correlation: float = 0.0,
    ) -> None:
        self.seed = seed
        self.confounding = confounding
        self.latent = latent
        self.kernel = kernel
        self.frequencies = frequencies
        self.orthogonal = orthogonal
        self.fourier_columns = fourier_columns
        self.site_terms = site_terms
        self.classes = classes
        self.starts = starts
        self.rounds = rounds
        self.sweeps = sweeps
        self.latent_dimension = latent_dimension
        self.gaussian_rounds = gaussian_rounds
        self.learning_rate = learning_rate
        self.monte_carlo = monte_carlo
        self.regulariser = regulariser
        self.transfer = transfer
        self.symmetric = symmetric
        self.sampler = sampler
        self.folds = folds
        self.draws = draws
        self.noise_correlation = noise_correlation

    def bounds(self) -> pd.DataFrame:
        """What no estimator could beat: the paper's minimax bounds for these sites, in standard units.

        Floors under the error of coefficients at the worst truth, mostly far below any real error.
        """
        result = self._fitted()
        found = study_bounds(result.fit_diagnostics, result.context, result.counts)
        if found is None:
            raise _not_told(result.fit_diagnostics)
        return found

    def borrowed(self) -> pd.DataFrame:
        """How much of each site's fit (row) comes from the people of each site (column); rows sum to one.

        The diagonal is a site's own share. `docs/decisions/0010-borrowed-share.md` says what exactly it is.
        """
        result = self._fitted()
        shares = borrowed(result.fit_diagnostics, result.sites)
        if shares is None:
            raise _not_told(result.fit_diagnostics)
        return shares


def _not_told(diagnostics: Diagnostics) -> StudyError:
    return StudyError(
        "borrowed shares are told by regressions and latent classes",
        found=f"the model chosen is '{diagnostics.get('chosen')}'",
        remedy="confounding = 'observed', or latent = 'categorical'",
    )

"""CausalRFF as an estimator."""

from __future__ import annotations

from typing import ClassVar

import pandas as pd

from unpooled.diagnostics.borrowed_strength import borrowed, study_bounds
from unpooled.disclosure.by_site import Diagnostics
from unpooled.errors import StudyError
from unpooled.estimators.base import Estimator


class CausalRFF(Estimator):
    """Treatment effects over sites that differ, with confounders that may be observed only through proxies.

    The model learns from the data how much each site should borrow from the others. It also compares two
    explanations of the covariates: that they are the confounders themselves, and that they are proxies of a
    latent confounder.

    Parameters
    ----------
    seed : int, default=0
        Seed of all random numbers. The same seed gives the same results. It overrides the seed of the study.
    confounding : {"auto", "observed", "latent"}, default="auto"
        "observed" takes the covariates as the confounders and regresses the outcome on their features.
        "latent" takes them as proxies of a latent confounder. "auto" fits both and chooses the one under
        which the outcomes of held-out people are more probable.
    latent : {"categorical", "gaussian", "both"}, default="categorical"
        Distribution of the latent confounder: a few classes, or a Gaussian vector as in the paper, which
        takes several hundred rounds. "both" lets held-out people choose. With ``confounding="auto"``, the
        classes are always among the candidates. No effect with ``confounding="observed"``.
    kernel : str, default="gaussian"
        Kernel that the random Fourier features approximate: "gaussian", "laplacian", "matern12", "matern32",
        "matern52" or "rational_quadratic" (with shape 1). Used by the regression of observed confounding
        and by the Gaussian latent confounder.
    frequencies : int, default=32
        Number of random frequencies, from 0 to 1000, each of which gives a cosine and a sine. More of them
        follow more detail. With 0, the functions are linear. Used like `kernel`.
    orthogonal : bool, default=True
        Whether frequencies are drawn as orthogonal vectors, which approximates the kernel more closely with
        the same number of frequencies. Used like `kernel`.
    fourier_columns : {"continuous", "all"}, default="continuous"
        Columns that enter the Fourier features of the regression; all columns also enter linearly. "all"
        includes binary and categorical columns, to model their interactions.
    site_terms : {"offsets", "deviations", "covariance", "transfer", "none"}, default="offsets"
        How the regression of a site may differ from the others: by an offset in each arm ("offsets"), in
        every coefficient ("deviations"), in every coefficient with a learned covariance for each pair of
        sites ("covariance"), in every coefficient by the paper's transfer factors ("transfer"), or not at
        all ("none"). The options between "offsets" and "none" need each site's own Gram matrix. No effect
        with ``confounding="latent"``.
    classes : int, optional
        Number of latent classes, from 2 to 30. By default, the variational bound chooses between two and
        eight. Categorical latent confounder only, as are `starts`, `rounds` and `sweeps`.
    starts : int, default=4
        Number of random starting points. Increase it if different seeds give different classes.
    rounds : int, default=30
        Maximum number of rounds of variational EM.
    sweeps : int, default=30
        Number of rounds of Gibbs sampling after variational EM. The last two thirds are kept, from as many
        parallel chains as `draws` requires.
    latent_dimension : int, default=5
        Dimension of the Gaussian latent confounder.
    gaussian_rounds : int, default=600
        Maximum number of rounds of the paper's Algorithm 1. Gaussian latent confounder only.
    learning_rate : float, default=0.02
        Step size of Algorithm 1. Reduce it if the objective oscillates. Gaussian latent confounder only.
    monte_carlo : int, default=5
        Number of draws of each person's latent confounder in each round. Gaussian latent confounder only.
    regulariser : float, default=1.0
        Penalty ζ: coefficients have the prior N(0, 1/(2ζ)) in standard units. Gaussian latent confounder
        only.
    transfer : float, optional
        The paper's transfer factor λ between every two sites, from 0 (each site by itself) to 1 (all sites
        alike). By default it is learned for each pair. Used by ``site_terms="transfer"`` and by the Gaussian
        latent confounder.
    symmetric : bool, default=False
        Whether the transfer factors between two sites are the same in both directions. Used like `transfer`.
    sampler : {"metropolis", "proposal"}, default="metropolis"
        Whether a person's latent confounder is drawn from its posterior by Metropolis-Hastings, or from the
        variational approximation. Gaussian latent confounder only.
    folds : int, default=5
        Number of folds in which people are held out to choose between the candidates, from 2 to 20. It
        matters only if there is more than one candidate.
    draws : int, default=400
        Number of posterior draws, at least 20. Increase it for smoother intervals.
    noise_correlation : float, default=0.0
        Correlation between the noise of a person's two potential outcomes, between -1 and 1. It cannot be
        estimated, because nobody is observed in both arms. It affects `ite`, but neither `effect` nor `ate`.

    Attributes
    ----------
    result_ : StudyResult
        The fitted study: posterior draws, schema, diagnostics of the fit, and cost. It contains no rows.
        ``result_.fit_diagnostics["chosen"]`` is the chosen candidate.
    sites_ : dict of str to Site
        The sites whose tables are in this process. It is empty if the sites are remote.

    References
    ----------
    T. V. Vo et al., "Federated Causal Inference from Observational Data", Machine Learning (2025),
    doi:10.1007/s10994-025-06819-9, on CausalRFF.

    Examples
    --------
    >>> model = CausalRFF(confounding="observed", site_terms="deviations", seed=7)
    >>> model.get_params()["frequencies"]
    32
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
        """The paper's minimax lower bounds on the error of any estimator, for these sites.

        The bounds concern the error of the coefficients under the least favourable truth. They are usually
        far below the actual error.

        Returns
        -------
        pandas.DataFrame
            One row per bound: name, bound (in standard units), and which parameters it concerns.

        Raises
        ------
        StudyError
            If the chosen model is the Gaussian latent confounder, which has no shares, or if the outcome is a
            count.
        """
        result = self._fitted()
        found = study_bounds(result.fit_diagnostics, result.context, result.counts)
        if found is None:
            if getattr(result.context, "family", "") == "count":
                raise StudyError(
                    "the bounds concern continuous and 0/1 outcomes",
                    found=f"the outcome '{result.study.columns.outcome}' is a count",
                    remedy="use the bounds of a study with family = 'continuous', or go without",
                )
            raise _no_shares(result.fit_diagnostics)
        return found

    def borrowed(self) -> pd.DataFrame:
        """How much of each site's fit comes from the people of each site.

        `docs/decisions/0010-borrowed-share.md` has the definition.

        Returns
        -------
        pandas.DataFrame
            The share of each site's fit (row) that comes from each site (column). Rows sum to one, and the
            diagonal is a site's own share.

        Raises
        ------
        StudyError
            If the chosen model is the Gaussian latent confounder, which has no shares.
        """
        result = self._fitted()
        shares = borrowed(result.fit_diagnostics, result.sites)
        if shares is None:
            raise _no_shares(result.fit_diagnostics)
        return shares


def _no_shares(diagnostics: Diagnostics) -> StudyError:
    return StudyError(
        "borrowed shares exist for regressions and latent classes only",
        found=f"the model chosen is '{diagnostics.get('chosen')}'",
        remedy="confounding = 'observed', or latent = 'categorical'",
    )

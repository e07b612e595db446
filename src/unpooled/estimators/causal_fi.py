"""CausalFI as an estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from unpooled.estimators.base import Estimator


class CausalFI(Estimator):
    """Treatment effects over sites whose confounders have missing values.

    Incomplete confounders, treatment and outcome are modelled together, and the missing values are drawn anew
    in every round, at the site. Values are assumed to be missing at random: given what is observed of a
    person, whether a value is missing does not depend on the value itself. `unpooled.sensitivity` shows how
    the result depends on this assumption. List the columns with missing values as ``Study(incomplete=...)``.

    Parameters
    ----------
    seed : int, default=0
        Seed of all random numbers. The same seed gives the same results. It overrides the seed of the study.
    inference : {"compatible", "variational"}, default="compatible"
        "compatible" draws missing values and parameters in turn from one joint model. "variational" is the
        paper's own inference with Bayesian neural networks. It takes hundreds of rounds; choose it only for
        comparison with the paper.
    draws : int, default=160
        Number of posterior draws, at least 20. Increase it for smoother intervals.
    noise_correlation : float, default=0.0
        Correlation between the noise of a person's two potential outcomes, between -1 and 1. It cannot be
        estimated, because nobody is observed in both arms. It affects `ite`, but neither `effect` nor `ate`.
    averaged : {"completed", "seen"}, default="completed"
        What the average effect averages over. "completed" averages over everybody with their missing values
        drawn given their own treatment and outcome. "seen" averages the effects expected from the observed
        covariates, as the paper does; this is biased if missingness depends on the outcome.
    structure : {"auto", "linear", "softplus", "index"}, default="auto"
        How the outcome of an arm depends on the confounders: linearly, with one smooth knee ("softplus"), or
        with any smooth curve along one learned direction ("index"). "auto" chooses by the predictions for
        held-out people. A fixed structure is faster. Compatible inference only.
    folds : int, default=3
        Number of folds in which people are held out to choose the structure, from 2 to 20. Compatible
        inference with structure "auto" only.
    sweeps : int, default=20
        Fewest rounds whose draws are kept. Each of them gives one draw from each of as many parallel chains
        as `draws` requires. Compatible inference only.
    most_sweeps : int, default=80
        Most rounds after burn-in. Sampling ends earlier, once the chains have mixed. If they have not, the
        check "convergence" of `checks` fails. Compatible inference only.
    importance : bool, default=True
        Whether importance sampling is tried if chains are slow, both arms are linear, and outcome and
        incomplete covariates are numbers. It asks the sites for thousands of log likelihoods; small sites
        with limits do without it.
    shifts : sequence of dict, default=()
        Departures from missing at random: each dict has ``column`` and ``size``, and optionally ``arm``
        ("control" or "treated") and ``site``. Missing values of the column are then shifted by ``size``, in
        standard deviations of a number, or in probits of a binary column or a count. `unpooled.sensitivity`
        sets it. Compatible inference only.
    hidden : sequence of int, default=(20, 20, 20)
        Widths of the hidden layers of the networks. Variational inference only.
    rounds : int, default=300
        Maximum number of rounds of each of the two stages. Variational inference only.
    learning_rate : float, default=0.03
        Step size of the optimiser. Reduce it if the objective oscillates. Variational inference only.
    monte_carlo : int, default=4
        Number of draws of the networks' weights in each round. Variational inference only.
    imputations : int, default=100
        Number of draws of a person's missing values for each draw of the weights. Variational inference only.

    Attributes
    ----------
    result_ : StudyResult
        The fitted study: posterior draws, schema, diagnostics of the fit, and cost. It contains no rows.
    sites_ : dict of str to Site
        The sites whose tables are in this process. It is empty if the sites are remote.

    See Also
    --------
    unpooled.sensitivity : The average effect if values are not missing at random.

    References
    ----------
    T. V. Vo et al., "Federated Causal Inference from Observational Data", Machine Learning (2025),
    doi:10.1007/s10994-025-06819-9, on CausalFI.

    Examples
    --------
    >>> model = CausalFI(structure="linear", draws=60, seed=7)
    >>> model.get_params()["averaged"]
    'completed'
    """

    method: ClassVar[str] = "causal_fi"

    def __init__(
        self,
        *,
        seed: int = 0,
        inference: str = "compatible",
        draws: int = 160,
        noise_correlation: float = 0.0,
        averaged: str = "completed",
        structure: str = "auto",
        folds: int = 3,
        sweeps: int = 20,
        most_sweeps: int = 80,
        importance: bool = True,
        shifts: Sequence[Mapping[str, object]] = (),
        hidden: Sequence[int] = (20, 20, 20),
        rounds: int = 300,
        learning_rate: float = 0.03,
        monte_carlo: int = 4,
        imputations: int = 100,
    ) -> None:
        self.seed = seed
        self.inference = inference
        self.draws = draws
        self.noise_correlation = noise_correlation
        self.averaged = averaged
        self.structure = structure
        self.folds = folds
        self.sweeps = sweeps
        self.most_sweeps = most_sweeps
        self.importance = importance
        self.shifts = shifts
        self.hidden = hidden
        self.rounds = rounds
        self.learning_rate = learning_rate
        self.monte_carlo = monte_carlo
        self.imputations = imputations

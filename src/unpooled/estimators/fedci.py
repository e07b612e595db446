"""FedCI as an estimator."""

from __future__ import annotations

from typing import ClassVar

from unpooled.estimators.base import Estimator


class FedCI(Estimator):
    """Bayesian treatment effects from Gaussian processes, fitted over sites that share no rows.

    The outcome in each arm is a smooth function of the covariates that all sites share. Each site may differ
    from the others by a shift in each arm. Use `CausalRFF` if sites may differ more than that or if
    confounders are observed only through proxies, and `CausalFI` if confounders have missing values.

    Parameters
    ----------
    seed : int, default=0
        Seed of all random numbers. The same seed gives the same results. It overrides the seed of the study.
    inference : {"collapsed", "variational"}, default="collapsed"
        "collapsed" integrates all Gaussian parts of the model exactly. "variational" is the paper's own
        inference: a variational bound that is maximised by stochastic gradients over several hundred rounds.
        Choose it only for comparison with the paper.
    structure : {"auto", "projection", "isotropic", "ard", "paper"}, default="auto"
        Shape of the outcome functions. "projection" is a sum of smooth functions of two learned linear
        combinations of the covariates. "isotropic" has one length-scale for all covariates, "ard" one for
        each. "paper" is the paper's model, in which one covariance between the arms applies to all parts.
        "auto" fits "projection" and "isotropic" and averages them with weights that minimise the squared
        error of held-out predictions. A fixed structure is faster. Collapsed inference only.
    kernel : {"squared_exponential", "matern32", "matern52", "rational_quadratic"}, default="matern52"
        Covariance function of the Gaussian processes. "matern32" allows rougher functions,
        "squared_exponential" only very smooth ones, and "rational_quadratic" (with shape 1) functions that
        vary over short and long distances.
    basis : int, default=40
        Number of basis functions by which the sites share one function, from 0 to 1000. More of them follow
        more detail, and a site's limit on features per person then requires more people. With 0, every site
        has a function of its own. Collapsed inference with structure "auto", "isotropic" or "ard" only.
    arms_coupled : bool, default=True
        Whether the functions of the two arms may be correlated a priori. With False, neither arm informs the
        other.
    inter_dependency : bool, default=True
        Whether sites have shifts. Shifts are correlated between sites whose covariates have similar moments.
        With False, the sites are assumed to be alike.
    noise_correlation : float, default=0.0
        Correlation between the noise of a person's two potential outcomes, between -1 and 1. It cannot be
        estimated, because nobody is observed in both arms. It affects `ite`, but neither `effect` nor `ate`.
    folds : int, default=4
        Number of folds in which people are held out to weigh the structures, from 2 to 20. Collapsed
        inference with structure "auto" only.
    draws : int, default=400
        Number of posterior draws, at least 20. Increase it for smoother intervals.
    evaluations : int, optional
        Maximum number of evaluations of the objective, each of which takes two rounds. By default 50 for
        "projection" and 15 for the other structures. Increase it if `unpooled.plot.convergence` shows that
        the fit stopped early. Collapsed inference only.
    tolerance : float, default=0.02
        The fit stops when a step lowers the objective by less than this number of nats. Collapsed inference
        only.
    mean : {"linear", "network"}, default="linear"
        Mean functions of the variational bound. They are point estimates, so intervals are too narrow if
        there are few people per covariate. Variational inference only.
    optimiser : {"adam", "adagrad"}, default="adam"
        Stochastic gradient algorithm. Variational inference only.
    learning_rate : float, default=0.02
        Step size of the optimiser. Reduce it if the objective oscillates. Variational inference only.
    rounds : int, default=600
        Maximum number of rounds. The fit stops earlier once the bound no longer improves. Variational
        inference only.
    monte_carlo : int, default=4
        Number of draws with which the bound is approximated in each round. Variational inference only.
    wishart_degrees : float, default=5.0
        Prior degrees of freedom of the covariances Ψ (between the arms) and Σ (of the noise). The paper uses
        100. Variational inference only.
    wishart_mean : float, default=0.5
        Prior mean of the diagonals of Ψ and Σ, in variances of the outcome. Variational inference only.
    wishart_correlation : float, default=0.5
        Prior correlation in Ψ and Σ, at least 0 and below 1. Variational inference only.

    Attributes
    ----------
    result_ : StudyResult
        The fitted study: posterior draws, schema, diagnostics of the fit, and cost. It contains no rows.
    sites_ : dict of str to Site
        The sites whose tables are in this process. It is empty if the sites are remote.

    See Also
    --------
    CausalRFF : Sites that differ, and confounders observed through proxies.
    CausalFI : Confounders with missing values.

    References
    ----------
    T. V. Vo et al., "Federated Causal Inference from Observational Data", Machine Learning (2025),
    doi:10.1007/s10994-025-06819-9, section "Bayesian Federated Causal Inference".

    Examples
    --------
    >>> model = FedCI(structure="isotropic", draws=100, seed=7)
    >>> model.get_params()["structure"]
    'isotropic'
    """

    method: ClassVar[str] = "fedci"

    def __init__(
        self,
        *,
        seed: int = 0,
        inference: str = "collapsed",
        structure: str = "auto",
        kernel: str = "matern52",
        basis: int = 40,
        arms_coupled: bool = True,
        inter_dependency: bool = True,
        noise_correlation: float = 0.0,
        folds: int = 4,
        draws: int = 400,
        evaluations: int | None = None,
        tolerance: float = 0.02,
        mean: str = "linear",
        optimiser: str = "adam",
        learning_rate: float = 0.02,
        rounds: int = 600,
        monte_carlo: int = 4,
        wishart_degrees: float = 5.0,
        wishart_mean: float = 0.5,
        wishart_correlation: float = 0.5,
    ) -> None:
        self.seed = seed
        self.inference = inference
        self.structure = structure
        self.kernel = kernel
        self.basis = basis
        self.arms_coupled = arms_coupled
        self.inter_dependency = inter_dependency
        self.noise_correlation = noise_correlation
        self.folds = folds
        self.draws = draws
        self.evaluations = evaluations
        self.tolerance = tolerance
        self.mean = mean
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.rounds = rounds
        self.monte_carlo = monte_carlo
        self.wishart_degrees = wishart_degrees
        self.wishart_mean = wishart_mean
        self.wishart_correlation = wishart_correlation

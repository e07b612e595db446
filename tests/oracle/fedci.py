"""FedCI by brute force: one dense covariance over the people of all sites, and plain Gaussian conditioning.

Nothing here is federated, collapsed, whitened or jitted, and nothing is imported from the package.

An outcome is a sum of independent zero-mean processes plus noise. A process has a 2 × 2 covariance between
the arms and a kernel between people, and reaches everybody, the people of one site, or one person alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Free = dict[str, Any]


@dataclass(frozen=True)
class People:
    """Who is asked about, in which arm; one person may appear twice, once in each arm."""

    covariates: np.ndarray  # [n, d]
    arm: np.ndarray  # [n], 0 or 1
    site: np.ndarray  # [n]
    person: np.ndarray  # [n]

    def in_arm(self, arm: np.ndarray | int) -> People:
        return People(self.covariates, np.broadcast_to(arm, self.arm.shape), self.site, self.person)


@dataclass(frozen=True)
class Process:
    """One zero-mean process: Cov = arms[a, a']·kernel, where `reach` lets two people meet."""

    arms: np.ndarray
    kernel: Callable[[People, People], np.ndarray]
    reach: Literal["everybody", "site", "person"] = "everybody"

    def covariance(self, left: People, right: People) -> np.ndarray:
        value = self.arms[np.ix_(left.arm.astype(int), right.arm.astype(int))] * self.kernel(left, right)
        if self.reach == "everybody":
            return value
        here, there = (left.site, right.site) if self.reach == "site" else (left.person, right.person)
        return value * (here[:, None] == there[None, :])


@dataclass(frozen=True)
class Model:
    """The processes, and the covariance Σ of one person's two noises."""

    processes: tuple[Process, ...]
    noise: np.ndarray

    def functions(self, left: People, right: People) -> np.ndarray:
        """Covariance without noise."""
        return sum((process.covariance(left, right) for process in self.processes), start=np.zeros(()))

    def outcomes(self, left: People, right: People) -> np.ndarray:
        """Covariance with noise, which only a person's own two outcomes share."""
        same = left.person[:, None] == right.person[None, :]
        return (
            self.functions(left, right)
            + self.noise[np.ix_(left.arm.astype(int), right.arm.astype(int))] * same
        )


def log_marginal_likelihood(model: Model, people: People, outcome: np.ndarray) -> float:
    """log N(y; 0, K) by one dense solve."""
    covariance = model.outcomes(people, people)
    _, log_determinant = np.linalg.slogdet(covariance)
    fit = outcome @ np.linalg.solve(covariance, outcome)
    return float(-0.5 * (fit + log_determinant + len(outcome) * np.log(2.0 * np.pi)))


def effects(model: Model, people: People, outcome: np.ndarray, new: People) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and covariance of f₁(x) − f₀(x) of new people."""
    cross = model.functions(new.in_arm(1), people) - model.functions(new.in_arm(0), people)
    prior = sum(
        sign * model.functions(new.in_arm(a), new.in_arm(b))
        for a, b, sign in ((1, 1, 1.0), (0, 0, 1.0), (1, 0, -1.0), (0, 1, -1.0))
    )
    return _condition(model, people, outcome, cross, prior)


def function(model: Model, people: People, outcome: np.ndarray, new: People) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and covariance of f_a(x) of new people in their arm."""
    return _condition(model, people, outcome, model.functions(new, people), model.functions(new, new))


def missing_outcomes(
    model: Model, people: People, outcome: np.ndarray, wanted: People
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and covariance of the outcomes that were not seen, the people's own being known."""
    return _condition(model, people, outcome, model.outcomes(wanted, people), model.outcomes(wanted, wanted))


def _condition(
    model: Model, people: People, outcome: np.ndarray, cross: np.ndarray, prior: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    gain = np.linalg.solve(model.outcomes(people, people), cross.T).T
    return gain @ outcome, prior - gain @ cross.T


# ------------------------------------------------------------------- kernels


def correlation(family: str, distance: np.ndarray) -> np.ndarray:
    """k(r), textbook form."""
    if family == "squared_exponential":
        return np.exp(-0.5 * distance**2)
    if family == "matern32":
        return (1.0 + np.sqrt(3.0) * distance) * np.exp(-np.sqrt(3.0) * distance)
    assert family == "matern52"
    return (1.0 + np.sqrt(5.0) * distance + 5.0 * distance**2 / 3.0) * np.exp(-np.sqrt(5.0) * distance)


def kernel(family: str, left: np.ndarray, right: np.ndarray, length: np.ndarray | float) -> np.ndarray:
    """k(x, x') from every difference, one by one."""
    return correlation(family, np.sqrt((((left[:, None, :] - right[None, :, :]) / length) ** 2).sum(axis=2)))


def explained(
    family: str,
    left: np.ndarray,
    right: np.ndarray,
    inducing: np.ndarray,
    length: np.ndarray | float,
    jitter: float,
) -> np.ndarray:
    """q(x, x') = k(x, u) K_uu⁻¹ k(u, x')."""
    inner = kernel(family, inducing, inducing, length) + jitter * np.eye(len(inducing))
    return kernel(family, left, inducing, length) @ np.linalg.solve(
        inner, kernel(family, inducing, right, length)
    )


def arm_covariance(parameters: np.ndarray, coupled: bool = True) -> np.ndarray:
    """Ψ from (log ψ*₁₁, ψ*₂₁, log ψ*₂₂)."""
    a, b, c = parameters
    root = np.array([[np.exp(a), 0.0], [b if coupled else 0.0, np.exp(c)]])
    return root @ root.T


def effect_covariance(parameters: np.ndarray, coupled: bool = True) -> np.ndarray:
    """Ψ of f_w = m + (w − ½)τ, with τ = s_τ(c·m/s_m + e) and e independent of m; by arm if not coupled."""
    if not coupled:
        return arm_covariance(parameters, coupled)
    log_prognostic, c, log_effect = parameters
    prognostic, effect = np.exp(log_prognostic), np.exp(log_effect)
    variances = {"m": prognostic**2, "τ": effect**2 * (1.0 + c**2)}
    cross, signs = prognostic * effect * c, (-0.5, 0.5)
    return np.array(
        [[variances["m"] + (s + t) * cross + s * t * variances["τ"] for t in signs] for s in signs]
    )


# -------------------------------------------------------------------- models


@dataclass(frozen=True)
class Setting:
    """What is known beside the hyperparameters. Jitters are those of the package, so that they cancel."""

    family: str
    site_distances: np.ndarray
    shifts: bool
    coupled: bool = True
    propensity: np.ndarray | None = None
    """A direction along which the slope, the same in both coupled arms, has a scale of its own."""
    intercept_sd: float = 3.0
    basis_jitter: float = 1e-8
    site_jitter: float = 1e-6
    noise_jitter: float = 0.0


def projection_model(
    free: Free, setting: Setting, *, covariance: np.ndarray, grid: np.ndarray, noise_correlation: float = 0.0
) -> Model:
    """Σ_c f_c(p_cᵀx / sd), each function known through its values on a grid."""
    processes = [*_base(free, setting, effect_covariance(free["linear"], setting.coupled))]
    for direction, log_length, arms in zip(free["direction"], free["length"], free["arms"], strict=True):

        def line(
            left: People,
            right: People,
            direction: np.ndarray = direction / np.sqrt(direction @ covariance @ direction + 1e-12),
            length: float = np.exp(log_length),
        ) -> np.ndarray:
            ends = [(people.covariates @ direction)[:, None] for people in (left, right)]
            return explained(setting.family, *ends, grid[:, None], length, setting.basis_jitter)

        processes.append(Process(arm_covariance(arms, setting.coupled), line))
    if setting.shifts:
        processes.append(_shifts(free, setting, effect_covariance(free["shift"], setting.coupled)))
    return Model(tuple(processes), noise_covariance(free["noise"], noise_correlation, setting.noise_jitter))


def kernel_model(
    free: Free,
    setting: Setting,
    *,
    inducing: np.ndarray,
    tied: bool,
    diagonal: bool = False,
    noise_correlation: float = 0.0,
) -> Model:
    """f(x) with one length-scale or many: what the basis explains is everybody's, the rest the site's."""
    psi = (arm_covariance if tied else effect_covariance)(free["arms"], setting.coupled)
    length = np.exp(free["length"]) * np.sqrt(inducing.shape[1])
    # Eq. (the-model): one Ψ^½ around everything, so linear part and shifts have Ψ's correlation too.
    linear = (
        np.exp(2.0 * free["linear"][0]) * psi if tied else effect_covariance(free["linear"], setting.coupled)
    )
    processes = [*_base(free, setting, linear)]

    def shared(left: People, right: People) -> np.ndarray:
        ends = (left.covariates, right.covariates)
        return explained(setting.family, *ends, inducing, length, setting.basis_jitter)

    def rest(left: People, right: People) -> np.ndarray:
        whole = kernel(setting.family, left.covariates, right.covariates, length)
        return whole - shared(left, right) if len(inducing) else whole

    if len(inducing):
        processes.append(Process(psi, shared))
    processes.append(Process(psi, rest, "person" if diagonal else "site"))
    if setting.shifts:
        own = effect_covariance(free["shift"], setting.coupled)
        shift = np.exp(2.0 * free["shift"][0]) * psi if tied else own
        processes.append(_shifts(free, setting, shift))
    return Model(tuple(processes), noise_covariance(free["noise"], noise_correlation, setting.noise_jitter))


def noise_covariance(log_sd: np.ndarray, noise_correlation: float, jitter: float = 0.0) -> np.ndarray:
    """Σ: two variances that data tell, and a correlation that no data can."""
    sd = np.exp(log_sd)
    cross = noise_correlation * sd[0] * sd[1]
    return np.array([[sd[0] ** 2 + jitter, cross], [cross, sd[1] ** 2 + jitter]])


def site_covariance(free: Free, setting: Setting) -> np.ndarray:
    """M: a squared exponential in the differences of the sites' covariate moments."""
    squared = setting.site_distances / np.exp(free["closeness"]) ** 2
    return np.exp(-0.5 * squared) + setting.site_jitter * np.eye(len(squared))


def _base(free: Free, setting: Setting, linear: np.ndarray) -> list[Process]:
    def one(left: People, right: People) -> np.ndarray:
        return np.ones((len(left.arm), len(right.arm)))

    def dot(left: People, right: People) -> np.ndarray:
        return left.covariates @ right.covariates.T

    found = [Process(setting.intercept_sd**2 * np.eye(2), one), Process(linear, dot)]
    if setting.propensity is None:
        return found

    def along(left: People, right: People) -> np.ndarray:
        return np.outer(left.covariates @ setting.propensity, right.covariates @ setting.propensity)

    arms = np.ones((2, 2)) if setting.coupled else np.eye(2)
    return [*found, Process(np.exp(2.0 * free["propensity_slope"]) * arms, along)]


def _shifts(free: Free, setting: Setting, arms: np.ndarray) -> Process:
    between = site_covariance(free, setting)
    return Process(arms, lambda left, right: between[np.ix_(left.site, right.site)])


# -------------------------------------------------------------------- lemmas


def lemma_1(
    psi: np.ndarray, sigma: np.ndarray, within: np.ndarray, mean_0: np.ndarray, mean_1: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (y(0), y(1)) of one site: Ψ^½ ⊗ I around μ + g, Ψ ⊗ K + Σ ⊗ I."""
    people = len(within)
    mean = np.kron(np.linalg.cholesky(psi), np.eye(people)) @ np.concatenate([mean_0, mean_1])
    return mean, np.kron(psi, within) + np.kron(sigma, np.eye(people))


def lemma_2(
    psi: np.ndarray,
    sigma: np.ndarray,
    within: np.ndarray,
    mean_0: np.ndarray,
    mean_1: np.ndarray,
    w: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (y_obs, y_mis), element by element.

    The lemma prints k_om with ψ₁₁ and ψ₂₂ exchanged: for w_i = 0 and w_j = 1 both outcomes are y(0), so their
    covariance is ψ₁₁ (Lemma 1).
    """
    root = np.linalg.cholesky(psi)
    m0, m1 = root[0, 0] * mean_0, root[1, 0] * mean_0 + root[1, 1] * mean_1
    mean = np.concatenate([(1 - w) * m0 + w * m1, w * m0 + (1 - w) * m1])
    people = len(w)
    observed, missing, both = np.empty((3, people, people))
    for i in range(people):
        for j in range(people):
            a, b, k, same = w[i], w[j], within[i, j], float(i == j)
            observed[i, j] = (
                (1 - a) * (1 - b) * psi[0, 0]
                + a * b * psi[1, 1]
                + (1 - a) * b * psi[0, 1]
                + a * (1 - b) * psi[1, 0]
            ) * k + ((1 - a) * sigma[0, 0] + a * sigma[1, 1]) * same
            missing[i, j] = (
                a * b * psi[0, 0]
                + (1 - a) * (1 - b) * psi[1, 1]
                + (1 - a) * b * psi[1, 0]
                + a * (1 - b) * psi[0, 1]
            ) * k + (a * sigma[0, 0] + (1 - a) * sigma[1, 1]) * same
            both[i, j] = (
                (1 - a) * (1 - b) * psi[1, 0]
                + a * b * psi[0, 1]
                + (1 - a) * b * psi[0, 0]
                + a * (1 - b) * psi[1, 1]
            ) * k + ((1 - a) * sigma[1, 0] + a * sigma[0, 1]) * same
    return mean, np.block([[observed, both], [both.T, missing]])


# --------------------------------------------------------------------- masks


def wave_features(
    family: str, at: np.ndarray, inducing: np.ndarray, length: np.ndarray | float, jitter: float
) -> np.ndarray:
    """φ(x): cosine waves over the inducing values, made uncorrelated one after the other."""
    size = len(inducing)
    waves = np.array(
        [
            [np.cos(np.pi * order * (2 * place + 1) / (2 * size)) for place in range(size)]
            for order in range(size)
        ]
    )
    waves /= np.linalg.norm(waves, axis=1, keepdims=True)
    inner = waves @ (kernel(family, inducing, inducing, length) + jitter * np.eye(size)) @ waves.T
    cross = waves @ kernel(family, inducing, at, length)
    features = np.zeros((len(at), size))
    for order in range(size):  # the part of a wave that slower waves do not predict, in units of its sd
        gain = np.linalg.solve(inner[:order, :order], inner[:order, order]) if order else np.zeros(0)
        variance = inner[order, order] - gain @ inner[:order, order]
        features[:, order] = (cross[order] - gain @ cross[:order]) / np.sqrt(variance)
    return features


def rests_on(contributions: np.ndarray) -> float:
    """Σv / max v of one sum."""
    return float(contributions.sum() / contributions.max()) if contributions.max() > 1e-12 else 0.0


def factor(contributions: np.ndarray, least: float) -> float:
    """0 up to `least` people, 1 from 1.2 times as many, linear between."""
    return float(np.clip((rests_on(contributions) / least - 1.0) / 0.2, 0.0, 1.0)) if least else 1.0


def capped(values: np.ndarray, least: float) -> np.ndarray:
    """Values ≥ 0 capped at the largest c for which Σ min(v, c)² / c² exceeds `least`.

    With the k largest values capped, k + Σ_rest v²/c² = least, so that c² = Σ_rest v² / (least − k).
    """
    if rests_on(values**2) > least:
        return values
    ordered = np.sort(values)[::-1]
    for capped_people in range(1, int(least) + 1):
        rest = float(np.sum(ordered[capped_people:] ** 2))
        cap = np.sqrt(rest / (least - capped_people)) if capped_people < least else 0.0
        if cap >= ordered[capped_people]:
            return np.minimum(values, cap)
    return np.zeros_like(values)


def counts(basis: np.ndarray, least: float) -> np.ndarray:
    """How much the people of one arm count, person by person: two passes of a smooth maximum of shares."""
    weights = np.ones(len(basis))
    for _ in range(2):
        totals = (weights[:, None] * basis**2).sum(axis=0)
        after = weights.copy()
        for person, values in enumerate(basis):
            excess = sum(
                (1.2 * least * weights[person] * value**2 / total) ** 8
                for value, total in zip(values, totals, strict=True)
                if total > 1e-12
            )
            after[person] *= (1.0 + excess) ** (-1 / 8)
        weights = after
    return weights

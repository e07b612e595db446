"""Effects computed at the sites under posterior draws.

Given one draw of the hyperparameters θ and J draws of (β, g), an effect has a mean per draw and a variance
from the site's remainder process and the noise: for known outcomes by Lemma 2, for new people by the
conditional of the Gaussian process. The module holds these conditionals, and the stage that returns average
effects. Effects that stay at the site are exact; averages that leave it rest on enough people, whatever
weights the features have.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.covariance import between_arms
from unpooled.methods.fedci.bounds import WEIGHTS
from unpooled.methods.fedci.mixture import mix
from unpooled.methods.fedci.stages import Evidence, KernelEvidence, arm_indicators
from unpooled.models.effects import REVEALS, average, bootstrap_weights
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage


class WeightDraws(NamedTuple):
    """J draws of the weights and of this site's shift under one θ."""

    free: Arrays
    beta: Float[Array, "j 2 p"]
    shift: Float[Array, "j 2"]


def shared_arms(evidence: Evidence, draws: WeightDraws, covariates: Array) -> Float[Array, "j n 2"]:
    """φ(x)ᵀβ + g in both arms: the predictor without the site's remainder."""
    features = evidence.structure.features(draws.free, covariates)
    return jnp.einsum("nf,jaf->jna", features, draws.beta) + draws.shift[:, None, :]


def as_sent(evidence: Evidence, draws: WeightDraws, rows: Rows, weights: Array) -> WeightDraws:
    """The draws with the factors that features have in the site's own sums over the rows with weight 1."""
    return draws._replace(beta=draws.beta * evidence.kept(draws.free, rows, weights))


def factual(evidence: Evidence, draws: WeightDraws, rows: Rows, weights: Array) -> Float[Array, "j n"]:
    """Expected outcome of every row in its own arm, given the rows with weight 1."""
    shared = jnp.sum(shared_arms(evidence, draws, rows.covariates) * arm_indicators(rows.treatment), axis=2)
    if not isinstance(evidence, KernelEvidence) or evidence.diagonal:
        return shared
    cross = _cross(evidence, draws.free, rows.treatment, rows.covariates, rows) * weights
    return shared + _conditional_mean(evidence, draws, rows, weights, cross)


def outcome_variance(evidence: Evidence, free: Arrays, rows: Rows, weights: Array) -> Float[Array, " n"]:
    """Variance of every row's outcome in its own arm given weights and shifts, and the rows with weight 1."""
    noise = arm_indicators(rows.treatment) @ jnp.exp(2.0 * free["noise"])
    if not isinstance(evidence, KernelEvidence):
        return noise
    scale = arm_indicators(rows.treatment) @ jnp.diagonal(evidence.structure.arm_covariance(free))
    remainder = scale * evidence.structure.remainder_diagonal(free, rows.covariates)
    if evidence.diagonal:
        return noise + remainder
    cross = _cross(evidence, free, rows.treatment, rows.covariates, rows) * weights
    explained = _explained(evidence, free, rows, weights, cross.T)
    return noise + jnp.maximum(remainder - jnp.sum(explained**2, axis=0), 0.0)


def conditional_effect(
    evidence: Evidence, draws: WeightDraws, rows: Rows, covariates: Array
) -> tuple[Float[Array, "j k"], Float[Array, " k"]]:
    """CATE at the given covariates: means and variances."""
    both = shared_arms(evidence, draws, covariates)
    mean = both[..., 1] - both[..., 0]
    if not isinstance(evidence, KernelEvidence):
        return mean, jnp.zeros(covariates.shape[0])
    prior = _spread(evidence, draws.free) * evidence.structure.remainder_diagonal(draws.free, covariates)
    if evidence.diagonal:
        return mean, prior
    cross = _contrast(evidence, draws.free, covariates, rows)
    mean = mean + _conditional_mean(evidence, draws, rows, rows.present, cross)
    explained = _explained(evidence, draws.free, rows, rows.present, cross.T)
    return mean, jnp.maximum(prior - jnp.sum(explained**2, axis=0), 0.0)


def average_variance(
    evidence: Evidence, draws: WeightDraws, rows: Rows, weights: Float[Array, "k n"]
) -> Float[Array, " k"]:
    """Variance of weighted average CATEs that is due to the site's remainder."""
    if not isinstance(evidence, KernelEvidence):
        return jnp.zeros(len(weights))
    spread, structure = _spread(evidence, draws.free), evidence.structure
    if evidence.diagonal:
        return spread * weights**2 @ structure.remainder_diagonal(draws.free, rows.covariates)
    cross = weights @ _contrast(evidence, draws.free, rows.covariates, rows)
    explained = _explained(evidence, draws.free, rows, rows.present, cross.T)
    remainder = structure.remainder(draws.free, rows.covariates, rows.covariates)
    joint = spread * jnp.sum((weights @ remainder) * weights, axis=1)
    return jnp.maximum(joint - jnp.sum(explained**2, axis=0), 0.0)


def individual_effect(
    evidence: Evidence, draws: WeightDraws, rows: Rows, others: Rows | None, noise_correlation: Array
) -> tuple[Float[Array, "j k"], Float[Array, " k"]]:
    """ITE of people with known outcomes: means and variances of (2w − 1)(y − y_mis), Lemma 2.

    The people are the site's own rows or, if given, `others`, whose outcomes are then conditioned on too.
    """
    people = rows if others is None else others
    known = rows if others is None else join(rows, others)
    mean, variance = _missing_outcome(evidence, draws, known, people, noise_correlation)
    return (2.0 * people.treatment - 1.0) * (people.outcome - mean), variance


def _missing_outcome(
    evidence: Evidence, draws: WeightDraws, known: Rows, people: Rows, noise_correlation: Array
) -> tuple[Array, Array]:
    """Mean and variance of y_mis; `people` are the last rows of `known`."""
    own, other = arm_indicators(people.treatment), arm_indicators(1.0 - people.treatment)
    both = shared_arms(evidence, draws, people.covariates)
    residual = people.outcome - jnp.sum(both * own, axis=2)
    sd = jnp.exp(draws.free["noise"])
    noise_cross = noise_correlation * (own @ sd) * (other @ sd)  # σ₁₂: a prior choice, not identified
    missing = jnp.sum(both * other, axis=2)
    variance = other @ sd**2
    if not isinstance(evidence, KernelEvidence):
        observed = own @ sd**2
        return missing + residual * noise_cross / observed, variance - noise_cross**2 / observed
    covariance = evidence.structure.arm_covariance(draws.free)
    remainder = evidence.structure.remainder_diagonal(draws.free, people.covariates)
    variance = variance + (other @ jnp.diagonal(covariance)) * remainder
    if evidence.diagonal:
        observed = evidence.noise(draws.free, people.treatment) + (own @ jnp.diagonal(covariance)) * remainder
        cross = covariance[0, 1] * remainder + noise_cross
        return missing + residual * cross / observed, variance - cross**2 / observed
    # K_om R⁻¹ e; the noise covariance of a person's two outcomes is added on the people's own diagonal.
    cross = _cross(evidence, draws.free, 1.0 - people.treatment, people.covariates, known)
    person = jnp.arange(len(noise_cross))
    cross = cross.at[person, person + len(known.present) - len(noise_cross)].add(noise_cross) * known.present
    missing = missing + _conditional_mean(evidence, draws, known, known.present, cross)
    explained = _explained(evidence, draws.free, known, known.present, cross.T)
    return missing, jnp.maximum(variance - jnp.sum(explained**2, axis=0), 0.0)


def join(rows: Rows, people: Rows) -> Rows:
    """Append further people to the site's rows."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]) if a.ndim else a, rows, people)


def _spread(evidence: KernelEvidence, free: Arrays) -> Array:
    """Prior Var(f₁ − f₀) per unit of the kernel."""
    covariance = evidence.structure.arm_covariance(free)
    return covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1]


def _cross(evidence: KernelEvidence, free: Arrays, treatment: Array, covariates: Array, rows: Rows) -> Array:
    """Ψ[a, w_j]·k̃(x, x_j) between people in arm a and the site's rows."""
    between = between_arms(evidence.structure.arm_covariance(free), treatment, rows.treatment)
    return between * evidence.structure.remainder(free, covariates, rows.covariates)


def _contrast(evidence: KernelEvidence, free: Arrays, covariates: Array, rows: Rows) -> Array:
    """Cov(f₁(x) − f₀(x), y_j)."""
    covariance = evidence.structure.arm_covariance(free)
    between = arm_indicators(rows.treatment) @ (covariance[1] - covariance[0])
    return between * evidence.structure.remainder(free, covariates, rows.covariates) * rows.present


def _explained(evidence: KernelEvidence, free: Arrays, rows: Rows, weights: Array, cross: Array) -> Array:
    """R^{−½}·cross; its squares sum to the variance explained by the rows with weight 1."""
    root = jnp.linalg.cholesky(evidence.observed_covariance(free, rows, weights))
    return jsl.solve_triangular(root, cross, lower=True)


def _conditional_mean(
    evidence: KernelEvidence, draws: WeightDraws, rows: Rows, weights: Array, cross: Array
) -> Array:
    """cross·R⁻¹·(y − shared): the conditional mean of the remainder."""
    shared = jnp.sum(shared_arms(evidence, draws, rows.covariates) * arm_indicators(rows.treatment), axis=2)
    residual = (rows.outcome - shared) * weights
    root = jnp.linalg.cholesky(evidence.observed_covariance(draws.free, rows, weights))
    return (cross @ jsl.cho_solve((root, True), residual.T)).T


class GaussianProcessAverage(Stage):
    """The site's average effects under each draw: the CATE averaged over its people and their population."""

    evidence: Evidence
    reveals: ClassVar[str] = REVEALS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed = parameters.fixed
        draws = WeightDraws(parameters.free, fixed["beta"], parameters.per_site["site_shift"])
        effects = conditional_effect(self.evidence, draws, rows, rows.covariates)[0]
        key = rows.own_key(jax.random.wrap_key_data(fixed["key"]))
        for_noise, for_weights = jax.random.split(key)
        # Whatever the weights of the features, the averages rest on enough people. Padding has no weight.
        weights = {
            "sample": jnp.broadcast_to(rows.present, effects.shape),
            "population": bootstrap_weights(for_weights, rows, effects.shape[:1]),
        }
        found = {}
        for name, weight in weights.items():
            shares = weight / weight.sum(axis=1, keepdims=True)
            variance = average_variance(self.evidence, draws, rows, shares)
            noise = jax.random.normal(for_noise, variance.shape)
            found[name] = average(effects, weight, rows) + jnp.sqrt(variance) * noise
        return Statistics(per_site=found)

    def bounds(self) -> Bounds:
        return {**self.evidence.structure.bounds(), **WEIGHTS}


def conditional_effects(
    evidences: dict[str, Evidence], draws: Arrays, rows: Rows, people: Rows, count: int
) -> np.ndarray:
    """CATE draws [count, people]."""
    parts = draws["structures"].items()
    return mix(
        {n: _each_theta(evidences[n], part, rows, people, None) for n, part in parts}, draws["weights"], count
    )


def individual_effects(
    evidences: dict[str, Evidence],
    draws: Arrays,
    rows: Rows,
    people: Rows | None,
    count: int,
    noise_correlation: float,
) -> np.ndarray:
    """ITE draws [count, people] for people with known outcomes."""
    rho, parts = np.asarray(noise_correlation), draws["structures"].items()
    return mix(
        {n: _each_theta(evidences[n], part, rows, people, rho) for n, part in parts}, draws["weights"], count
    )


def _each_theta(
    evidence: Evidence, part: Arrays, rows: Rows, people: Rows | None, noise_correlation: np.ndarray | None
) -> np.ndarray:
    return np.asarray(_compiled_each_theta(evidence, part, rows, people, noise_correlation))


@eqx.filter_jit
def _compiled_each_theta(
    evidence: Evidence, part: Arrays, rows: Rows, people: Rows | None, noise_correlation: np.ndarray | None
) -> Array:
    """Sequential over θ, so that memory use does not grow with the number of draws."""

    def one(leaves: Arrays) -> Array:
        drawn = WeightDraws(leaves["free"], leaves["beta"], leaves["shift"][:, :, rows.site])
        if noise_correlation is None:
            assert people is not None
            mean, variance = conditional_effect(evidence, drawn, rows, people.covariates)
        else:
            mean, variance = individual_effect(evidence, drawn, rows, people, jnp.asarray(noise_correlation))
        noise = jax.random.normal(jax.random.wrap_key_data(leaves["key"]), mean.shape)
        return mean + jnp.sqrt(variance) * noise

    return jax.lax.map(one, part)

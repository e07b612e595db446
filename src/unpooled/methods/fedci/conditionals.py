"""Outcomes and effects of people given one draw of the hyperparameters θ and J draws of (β, g).

An effect has a mean per draw and a variance from the site's remainder process and the noise: for known
outcomes by Lemma 2, for new people by the conditional of the Gaussian process.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.maths.covariance import between_arms
from unpooled.maths.linear_algebra import forward
from unpooled.methods.fedci.stages import Evidence, KernelEvidence, arm_indicators
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows


class WeightDraws(NamedTuple):
    """J draws of the weights and of this site's shift under one θ."""

    free: Arrays
    beta: Float[Array, "j 2 p"]
    shift: Float[Array, "j 2"]
    about: Arrays | None = None
    """With a link, the point of expansion."""


def shared_arms(evidence: Evidence, draws: WeightDraws, covariates: Array) -> Float[Array, "j n 2"]:
    """φ(x)ᵀβ + g in both arms: the predictor without the site's remainder."""
    features = evidence.structure.features(draws.free, covariates)
    return jnp.einsum("nf,jaf->jna", features, draws.beta) + draws.shift[:, None, :]


def as_sent(evidence: Evidence, draws: WeightDraws, rows: Rows, weights: Array) -> WeightDraws:
    """The draws with the factors that features have in the site's own sums over the rows in use."""
    return draws._replace(beta=draws.beta * evidence.kept(draws.free, rows, weights))


class Conditioned(NamedTuple):
    """The site's remainder process, conditioned on some of its rows: R = LLᵀ."""

    rows: Rows
    present: Float[Array, " n"]
    """1 for the rows on which it is conditioned."""
    root: Float[Array, "n n"]
    """L."""
    residual: Float[Array, "j n"]
    """L⁻¹(y − shared), for each draw of the weights."""

    def explained(self, cross: Float[Array, "k n"]) -> tuple[Float[Array, "j k"], Float[Array, "n k"]]:
        """The conditional mean, and L⁻¹·crossᵀ, whose squares sum to the explained variance."""
        whitened = forward(self.root, (cross * self.present).T)
        return self.residual @ whitened, whitened


def condition(evidence: KernelEvidence, draws: WeightDraws, rows: Rows, present: Array) -> Conditioned:
    """Condition the remainder on the rows whose weight in `present` is above 0."""
    seen = evidence.observed(draws.free, draws.about, rows, present)
    root = jnp.linalg.cholesky(evidence.observed_covariance(draws.free, rows, present, seen.variance))
    used = (present > 0.0).astype(float)
    residual = (seen.outcome - _own_arm(evidence, draws, rows)) * used
    return Conditioned(rows, used, root, forward(root, residual.T).T)


def _own_arm(evidence: Evidence, draws: WeightDraws, rows: Rows) -> Float[Array, "j n"]:
    """The shared predictor of every row in its own arm."""
    return jnp.sum(shared_arms(evidence, draws, rows.covariates) * arm_indicators(rows.treatment), axis=2)


def factual(
    evidence: Evidence, draws: WeightDraws, rows: Rows, weights: Array
) -> tuple[Float[Array, "j n"], Float[Array, " n"]]:
    """Every row's outcome in its own arm given the rows in use: means, and variance without noise."""
    shared = _own_arm(evidence, draws, rows)
    if not isinstance(evidence, KernelEvidence):
        return shared, jnp.zeros(len(rows.present))
    scale = arm_indicators(rows.treatment) @ jnp.diagonal(evidence.structure.arm_covariance(draws.free))
    variance = scale * evidence.structure.remainder_diagonal(draws.free, rows.covariates)
    if evidence.diagonal:
        return shared, variance
    cross = cross_covariance(evidence, draws.free, rows.treatment, rows.covariates, rows)
    mean, whitened = condition(evidence, draws, rows, weights).explained(cross)
    return shared + mean, jnp.maximum(variance - jnp.sum(whitened**2, axis=0), 0.0)


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
    remainder, whitened = condition(evidence, draws, rows, rows.present).explained(cross)
    return mean + remainder, jnp.maximum(prior - jnp.sum(whitened**2, axis=0), 0.0)


def outcomes(
    evidence: Evidence, draws: WeightDraws, rows: Rows, shares: Float[Array, "s g n"]
) -> tuple[Float[Array, "j n 2"], Float[Array, "s k k"]]:
    """Mean outcomes of the site's own rows in both arms, and the covariance that averages with these shares
    have due to the remainder: for each set of shares between all k = (group, arm)."""
    both = shared_arms(evidence, draws, rows.covariates)
    size = 2 * shares.shape[1]
    if not isinstance(evidence, KernelEvidence):
        return both, jnp.zeros((len(shares), size, size))
    between, structure = evidence.structure.arm_covariance(draws.free), evidence.structure
    if evidence.diagonal:
        remainder = structure.remainder_diagonal(draws.free, rows.covariates)
        products = jnp.einsum("sgn,shn,n->sgh", shares, shares, remainder)
        return both, jax.vmap(jnp.kron, (0, None))(products, between)
    arms = [
        cross_covariance(evidence, draws.free, jnp.full_like(rows.treatment, arm), rows.covariates, rows)
        for arm in (0.0, 1.0)
    ]
    known = condition(evidence, draws, rows, rows.present)
    means, whitened = zip(*(known.explained(cross) for cross in arms), strict=True)
    joint = structure.remainder(draws.free, rows.covariates, rows.covariates)
    products = jnp.einsum("sgn,shn->sgh", shares @ joint, shares)
    prior = jax.vmap(jnp.kron, (0, None))(products, between)
    explained = jnp.einsum("apn,sgn->spga", jnp.stack(whitened), shares).reshape(len(shares), -1, size)
    return both + jnp.stack(means, axis=-1), prior - jnp.einsum("spk,spl->skl", explained, explained)


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
    # y_mis = f_other + c·(y − f_own) + what is left of the noise, where c = σ₁₂/σ²; then K_om R⁻¹ e is
    # that of f_other − c·f_own. In R, the noise of a person with a weight is not that of one outcome.
    ratio = noise_cross / evidence.noise(draws.free, people.treatment)
    contrast = other - ratio[:, None] * own
    local = evidence.structure.remainder(draws.free, people.covariates, known.covariates)
    cross = local * (contrast @ covariance @ arm_indicators(known.treatment).T)
    mean, whitened = condition(evidence, draws, known, known.present).explained(cross)
    variance = other @ sd**2 - ratio * noise_cross
    variance = variance + remainder * jnp.einsum("ka,ab,kb->k", contrast, covariance, contrast)
    left = jnp.maximum(variance - jnp.sum(whitened**2, axis=0), 0.0)
    return missing + ratio * residual + mean, left


def join(rows: Rows, people: Rows) -> Rows:
    """Append further people to the site's rows."""
    own, others = rows.by_row(), people.by_row()
    return rows.having({name: jnp.concatenate([own[name], others[name]]) for name in own})


def _spread(evidence: KernelEvidence, free: Arrays) -> Array:
    """Prior Var(f₁ − f₀) per unit of the kernel."""
    covariance = evidence.structure.arm_covariance(free)
    return covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1]


def cross_covariance(
    evidence: KernelEvidence, free: Arrays, treatment: Array, covariates: Array, rows: Rows
) -> Array:
    """Ψ[a, w_j]·k̃(x, x_j) between people in arm a and the site's rows."""
    between = between_arms(evidence.structure.arm_covariance(free), treatment, rows.treatment)
    return between * evidence.structure.remainder(free, covariates, rows.covariates)


def _contrast(evidence: KernelEvidence, free: Arrays, covariates: Array, rows: Rows) -> Array:
    """Cov(f₁(x) − f₀(x), y_j)."""
    covariance = evidence.structure.arm_covariance(free)
    between = arm_indicators(rows.treatment) @ (covariance[1] - covariance[0])
    return between * evidence.structure.remainder(free, covariates, rows.covariates)

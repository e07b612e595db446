"""Effects computed at the sites under posterior draws.

Given one draw of the hyperparameters θ and J draws of (β, g), an effect has a mean per draw and a variance
from the site's remainder process and the noise: for known outcomes by Lemma 2, for new people by the
conditional of the Gaussian process. The module holds these conditionals, and the stage that returns average
effects. Effects that stay at the site are exact; averages that leave it rest on enough people, whatever
weights the features have.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.blocks import sum_over_blocks
from unpooled.maths.compilation import Program
from unpooled.maths.covariance import between_arms
from unpooled.maths.linear_algebra import forward
from unpooled.methods.fedci.bounds import WEIGHTS
from unpooled.methods.fedci.mixture import mix
from unpooled.methods.fedci.stages import Evidence, KernelEvidence, arm_indicators
from unpooled.methods.fedci.subsample import is_large
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
    """Condition the remainder on the rows with `present` 1."""
    root = jnp.linalg.cholesky(evidence.observed_covariance(draws.free, rows, present))
    residual = (rows.outcome - _own_arm(evidence, draws, rows)) * present
    return Conditioned(rows, present, root, forward(root, residual.T).T)


def _own_arm(evidence: Evidence, draws: WeightDraws, rows: Rows) -> Float[Array, "j n"]:
    """The shared predictor of every row in its own arm."""
    return jnp.sum(shared_arms(evidence, draws, rows.covariates) * arm_indicators(rows.treatment), axis=2)


def factual(
    evidence: Evidence, draws: WeightDraws, rows: Rows, weights: Array
) -> tuple[Float[Array, "j n"], Float[Array, " n"]]:
    """Every row's outcome in its own arm given the rows with weight 1: means, and variance without noise."""
    shared = _own_arm(evidence, draws, rows)
    if not isinstance(evidence, KernelEvidence):
        return shared, jnp.zeros(len(rows.present))
    scale = arm_indicators(rows.treatment) @ jnp.diagonal(evidence.structure.arm_covariance(draws.free))
    variance = scale * evidence.structure.remainder_diagonal(draws.free, rows.covariates)
    if evidence.diagonal:
        return shared, variance
    cross = _cross(evidence, draws.free, rows.treatment, rows.covariates, rows)
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


def average_effect(
    evidence: Evidence, draws: WeightDraws, rows: Rows, shares: Float[Array, "k n"]
) -> tuple[Float[Array, "j n"], Float[Array, " k"]]:
    """CATE of the site's own rows, and the variances of averages with these shares due to the remainder."""
    both = shared_arms(evidence, draws, rows.covariates)
    mean = both[..., 1] - both[..., 0]
    if not isinstance(evidence, KernelEvidence):
        return mean, jnp.zeros(len(shares))
    spread, structure = _spread(evidence, draws.free), evidence.structure
    if evidence.diagonal:
        return mean, spread * shares**2 @ structure.remainder_diagonal(draws.free, rows.covariates)
    cross = _contrast(evidence, draws.free, rows.covariates, rows)
    remainder, whitened = condition(evidence, draws, rows, rows.present).explained(cross)
    joint = structure.remainder(draws.free, rows.covariates, rows.covariates)
    variance = spread * jnp.sum((shares @ joint) * shares, axis=1)
    return mean + remainder, jnp.maximum(variance - jnp.sum((whitened @ shares.T) ** 2, axis=0), 0.0)


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
    cross = cross.at[person, person + len(known.present) - len(noise_cross)].add(noise_cross)
    mean, whitened = condition(evidence, draws, known, known.present).explained(cross)
    return missing + mean, jnp.maximum(variance - jnp.sum(whitened**2, axis=0), 0.0)


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
    return between * evidence.structure.remainder(free, covariates, rows.covariates)


class GaussianProcessAverage(Stage):
    """The site's average effects under each draw: the CATE averaged over its people and their population."""

    evidence: Evidence
    often: ClassVar[bool] = False
    of_effects: ClassVar[bool] = True
    reveals: ClassVar[str] = REVEALS

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed = parameters.fixed
        draws = WeightDraws(parameters.free, fixed["beta"], parameters.per_site["site_shift"])
        key = rows.own_key(jax.random.wrap_key_data(fixed["key"]))
        for_noise, for_weights = jax.random.split(key)
        if is_large(len(rows.present)) and not rows.least:
            return Statistics(per_site=self._of_many(draws, rows, for_noise, for_weights))
        # One average over the site's people, and for each draw one over their population.
        count = len(fixed["beta"])
        weights = jnp.concatenate([rows.present[None], bootstrap_weights(for_weights, rows, (count,))])
        shares = weights / weights.sum(axis=1, keepdims=True)
        effects, variance = average_effect(self.evidence, draws, rows, shares)
        noise = jax.random.normal(for_noise, (count,))
        # Whatever the weights of the features, the averages rest on enough people. Padding has no weight.
        found = {
            "sample": average(effects, weights[:1], rows) + jnp.sqrt(variance[0]) * noise,
            "population": average(effects, weights[1:], rows) + jnp.sqrt(variance[1:]) * noise,
        }
        return Statistics(per_site=found)

    def _of_many(self, draws: WeightDraws, rows: Rows, for_noise: Array, for_weights: Array) -> Arrays:
        """The averages of a large site from sums over its people.

        A mean with the random weights of a Bayesian bootstrap is normal if people are many. Its mean and
        variance, and the expected squares of the weights, are known, so that no weights are drawn.
        """

        def of_block(draws: WeightDraws, block: tuple[Array, Array]) -> tuple[Array, ...]:
            covariates, present = block
            effects, variance = conditional_effect(self.evidence, draws, rows, covariates)
            return effects @ present, effects**2 @ present, variance @ present

        total, squares, remainder = sum_over_blocks(of_block, draws, (rows.covariates, rows.present))
        people = rows.present.sum()
        mean, pairs = total / people, people * (people + 1.0)
        spread = jnp.maximum(squares - people * mean**2, 0.0) / pairs
        noise = jax.random.normal(for_noise, mean.shape)
        across = jax.random.normal(for_weights, mean.shape)
        return {
            "sample": mean + jnp.sqrt(remainder) / people * noise,
            "population": mean + jnp.sqrt(spread) * across + jnp.sqrt(2.0 * remainder / pairs) * noise,
        }

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
    """Effects of people; sequential over θ, so that memory use does not grow with the number of draws."""
    return np.asarray(_program(evidence, part, rows, people, noise_correlation))


@Program
def _program(
    evidence: Evidence, part: Arrays, rows: Rows, people: Rows | None, noise_correlation: Array | None
) -> Array:

    def one(leaves: Arrays) -> Array:
        drawn = WeightDraws(leaves["free"], leaves["beta"], leaves["shift"][:, :, rows.site])
        if noise_correlation is None:
            assert people is not None
            mean, variance = conditional_effect(evidence, drawn, rows, people.covariates)
        else:
            mean, variance = individual_effect(evidence, drawn, rows, people, noise_correlation)
        noise = jax.random.normal(jax.random.wrap_key_data(leaves["key"]), mean.shape)
        return mean + jnp.sqrt(variance) * noise

    return jax.lax.map(one, part)

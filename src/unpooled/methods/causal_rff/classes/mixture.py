"""The M-step of the latent classes at the coordinator: from the sites' counts to class log-likelihoods.

Every part of the model is conjugate given the counts, so the bound is the entropy of the class memberships
plus the log evidence of each part, and it never decreases. Unused classes have zero counts, so that models
with different numbers of classes have the same shape.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, digamma, gammaln
from jaxtyping import Array, Float

from unpooled.methods.causal_rff.classes.cells import (
    Cells,
    Component,
    Counted,
    Means,
    Variances,
    improve,
    log_chance,
    make_cells,
)
from unpooled.methods.causal_rff.classes.log_likelihoods import (
    ABSENT,
    ClassLogLikelihoods,
    ColumnKinds,
    log_likelihoods_of,
)
from unpooled.models.link import Link
from unpooled.protocol.messages import Statistics

_CLASS_AXIS = {"people": -1, "outcome": -1, "ones": -2, "numbers": -2, "squares": -2}
"""Axis of the classes in each part of the counts."""
CONCENTRATION = 50.0
"""Concentration of the Dirichlet prior of a site's class shares about the common shares."""
BETA = 0.5
"""Both parameters of the beta prior of a 0/1 covariate's rate within a class."""
NORMAL = (0.1, 1.0, 0.5)
"""κ₀, a₀, b₀ of the normal-gamma prior of a standardised number within a class (with mean 0)."""


class Mixture(eqx.Module):
    """The model's cells: outcome cells (arm × class) and treatment cells (class)."""

    outcome: Cells
    treatment: Cells
    columns: ColumnKinds
    most: int = eqx.field(static=True)


class MixtureState(NamedTuple):
    """The state of a model between rounds."""

    active: Float[Array, " k"]
    shares: Float[Array, " k"]
    outcome: Variances
    treatment: Variances


class Counts(NamedTuple):
    """The sites' replies: sums over people by class; `people` and `outcome` also by site and arm."""

    people: Float[Array, "m 2 k"]
    outcome: Float[Array, "m 2 k"]
    ones: Float[Array, "k b"]
    numbers: Float[Array, "k c"]
    squares: Float[Array, "k c"]
    square: Float[Array, " 2"]
    entropy: Float[Array, ""]
    dispersion: Float[Array, "2 k"] | None = None


def make_mixture(most: int, columns: ColumnKinds, *, binary: bool, link: Link | None = None) -> Mixture:
    """A mixture with at most `most` classes; `link` is that of counts.

    Outcome means have components common to all cells, by arm and by cell; sites deviate at the same three
    levels. As in the paper, a class's means in the two arms are independent a priori given the arms' means.
    """
    every, arms = np.ones((2 * most, 1)), np.kron(np.eye(2), np.ones((most, 1)))
    scale = 4.0 if binary else 1.0  # logits spread more than standardised outcomes
    outcome = make_cells(
        (
            Component(every, scale, learned=False),
            Component(arms, scale, learned=False),
            Component(np.eye(2 * most), 0.5 * scale),
        ),
        (
            Component(every, 0.05 * scale),
            Component(arms, 0.02 * scale),
            Component(np.eye(2 * most), 0.01 * scale),
        ),
        arm=(0,) * most + (1,) * most,
        binary=binary,
        link=link,
    )
    treatment = make_cells(
        (Component(np.ones((most, 1)), 4.0, learned=False), Component(np.eye(most), 4.0)),
        (Component(np.ones((most, 1)), 0.5),),
        arm=(0,) * most,
        binary=True,
    )
    return Mixture(outcome, treatment, columns, most)


def begin(mixture: Mixture, classes: int, sites: int) -> MixtureState:
    active = jnp.asarray(np.arange(mixture.most) < classes, float)
    return MixtureState(
        active, active / classes, mixture.outcome.start(sites), mixture.treatment.start(sites)
    )


def first_log_likelihoods(
    mixture: Mixture, state: MixtureState, sites: int, rates: np.ndarray, rng: np.random.Generator
) -> ClassLogLikelihoods:
    """A random start: class centres about the columns' means; treatment and outcome not yet informative."""
    most, numbers = mixture.most, len(mixture.columns.continuous)
    logit = np.log(rates / (1.0 - rates)) + 1.5 * rng.standard_normal((most, len(rates)))
    everywhere = np.zeros((sites, 2, most))
    return log_likelihoods_of(
        classes=np.tile(np.where(np.asarray(state.active) > 0, 0.0, ABSENT), (sites, 1)),
        one=-np.logaddexp(0.0, -logit),
        zero=-np.logaddexp(0.0, logit),
        centre=rng.standard_normal((most, numbers)),
        weight=np.ones((most, numbers)),
        level=np.zeros(most),
        treatment=everywhere,
        outcome=everywhere,
        variance=everywhere,
        noise=np.full(2, 1.0),
        chance=np.zeros((sites, 2 if mixture.outcome.binary else 0, 2, most)),
    )


def counts_of(reply: Statistics, most: int) -> Counts:
    """The counts of an aggregated reply, [batch, …]; classes that were not sent get zeros."""
    parts = {**reply.summed, **reply.per_site}
    found = {name: _widened(parts[name], axis, most) for name, axis in _CLASS_AXIS.items()}
    square = parts.get("square", np.zeros((len(parts["entropy"]), 2)))
    return Counts(
        **found, square=jnp.asarray(square), entropy=parts["entropy"], dispersion=parts.get("dispersion")
    )


def _widened(value: np.ndarray, axis: int, most: int) -> Array:
    width = [(0, 0)] * value.ndim
    width[axis] = (0, most - value.shape[axis])
    return jnp.asarray(np.pad(value, width))


def maximise(
    leaves: tuple[MixtureState, Counts], mixture: Mixture
) -> tuple[MixtureState, ClassLogLikelihoods, Float[Array, ""]]:
    """The posterior of every part of one model given the counts, and the bound."""
    state, counts = leaves
    active = state.active
    shares, classes, class_evidence = _classes(active, state.shares, counts.people.sum(axis=1))
    one, zero, binary_evidence = _binary(active, counts)
    numbers, number_evidence = _numbers(active, counts)
    outcome, means = improve(mixture.outcome, jnp.tile(active, 2), outcome_counts(counts), state.outcome)
    treatment, logits = improve(mixture.treatment, active, treatment_counts(counts), state.treatment)
    by_arm = (counts.people.shape[0], 2, mixture.most)
    likelihoods = ClassLogLikelihoods(
        classes=classes,
        one=one,
        zero=zero,
        **numbers,
        treatment=jnp.stack(
            [log_chance(logits.mean, logits.variance, treatment.tight, sign) for sign in (-1.0, 1.0)], axis=1
        ),
        outcome=means.mean.reshape(by_arm),
        variance=means.variance.reshape(by_arm),
        noise=jnp.ones(2) if mixture.outcome.binary else outcome.values[-2:],
        chance=_chances(mixture, means, outcome, by_arm),
    )
    bound = counts.entropy + class_evidence + binary_evidence + number_evidence
    # The bound covers one of K! equivalent labellings of the classes.
    bound = bound + means.evidence + logits.evidence + gammaln(active.sum() + 1.0)
    return MixtureState(active, shares, outcome, treatment), likelihoods, bound


def _chances(mixture: Mixture, means: Means, outcome: Variances, by_arm: tuple[int, int, int]) -> Array:
    if not mixture.outcome.binary:
        return jnp.zeros((by_arm[0], 0, *by_arm[1:]))
    both = [log_chance(means.mean, means.variance, outcome.tight, sign) for sign in (-1.0, 1.0)]
    return jnp.stack([each.reshape(by_arm) for each in both], axis=1)


def outcome_counts(counts: Counts) -> Counted:
    sites = counts.people.shape[0]
    people, outcome = counts.people.reshape(sites, -1), counts.outcome.reshape(sites, -1)
    return Counted(people, outcome, counts.square, counts.dispersion)


def treatment_counts(counts: Counts) -> Counted:
    return Counted(counts.people.sum(axis=1), counts.people[:, 1], jnp.zeros(2))


def _classes(active: Array, shares: Array, count: Array) -> tuple[Array, Array, Array]:
    """Posterior of π_s ~ Dirichlet(50·π̄); π̄ is updated by two monotone steps with one prior person per
    class."""
    safe = jnp.where(active > 0, shares, 1.0)
    for _ in range(2):
        prior = CONCENTRATION * safe
        terms = safe * jnp.sum(digamma(count + prior) - digamma(prior), axis=0) * CONCENTRATION
        raised = active * (terms + 1.0)
        safe = jnp.where(active > 0, raised / raised.sum(), 1.0)
    prior = CONCENTRATION * safe
    total = count.sum(axis=1)
    logs = digamma(count + prior) - digamma(CONCENTRATION + total)[:, None]
    evidence = jnp.sum(active * (gammaln(count + prior) - gammaln(prior)))
    evidence = evidence + jnp.sum(gammaln(CONCENTRATION) - gammaln(CONCENTRATION + total))
    return active * safe, jnp.where(active > 0, logs, ABSENT), evidence + jnp.sum(active * jnp.log(safe))


def _binary(active: Array, counts: Counts) -> tuple[Array, Array, Array]:
    count = counts.people.sum(axis=(0, 1))[:, None]
    ones, zeros = BETA + counts.ones, BETA + count - counts.ones
    both = digamma(ones + zeros)
    evidence = jnp.sum(active[:, None] * (betaln(ones, zeros) - betaln(BETA, BETA)))
    return digamma(ones) - both, digamma(zeros) - both, evidence


class _NormalGamma(NamedTuple):
    centre: Array
    weight: Array
    shape: Array
    rate: Array


def normal_gamma(counts: Counts) -> _NormalGamma:
    """Posterior of a number's mean and precision in each class: (m, κ, a, b)."""
    kappa, shape, rate = NORMAL
    count = counts.people.sum(axis=(0, 1))[:, None]
    centre = counts.numbers / (kappa + count)
    spread = jnp.maximum(counts.squares - (kappa + count) * centre**2, 0.0)
    return _NormalGamma(centre, kappa + count, shape + 0.5 * count, rate + 0.5 * spread)


def _numbers(active: Array, counts: Counts) -> tuple[dict[str, Array], Array]:
    kappa, shape, rate = NORMAL
    found = normal_gamma(counts)
    count = counts.people.sum(axis=(0, 1))[:, None]
    level = digamma(found.shape) - jnp.log(found.rate) - 1.0 / found.weight - jnp.log(2.0 * jnp.pi)
    evidence = (
        gammaln(found.shape) - gammaln(shape) + shape * jnp.log(rate) - found.shape * jnp.log(found.rate)
    )
    evidence = evidence + 0.5 * (jnp.log(kappa / found.weight) - count * jnp.log(2.0 * jnp.pi))
    parts = {
        "centre": found.centre,
        "weight": found.shape / found.rate,
        "level": 0.5 * jnp.sum(level, axis=1),
    }
    return parts, jnp.sum(active[:, None] * evidence)

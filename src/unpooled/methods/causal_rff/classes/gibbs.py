"""Gibbs sampling: sites draw everybody's class, the coordinator draws all parameters, for parallel chains.

A chain's classes depend on its current parameters only, so the sites keep no state between rounds. Means are
drawn exactly: Gaussian ones, logits by Pólya–Gamma weights, and those of counts by elliptical slices about
Laplace's approximation. The variances of counts' components are drawn with θ integrated out by Laplace.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from polyagamma import random_polyagamma

from unpooled.maths import partial_pooling as pooling
from unpooled.maths.compilation import Program
from unpooled.maths.streams import key_data, stream
from unpooled.methods.causal_rff.classes import cells as cell
from unpooled.methods.causal_rff.classes import count_cells
from unpooled.methods.causal_rff.classes.cells import Cells, Counted, Variances
from unpooled.methods.causal_rff.classes.em import Learned, most_classes
from unpooled.methods.causal_rff.classes.log_likelihoods import (
    ABSENT,
    ClassLogLikelihoods,
    as_draws,
    log_likelihoods_of,
)
from unpooled.methods.causal_rff.classes.mixture import (
    BETA,
    CONCENTRATION,
    Counts,
    Mixture,
    MixtureState,
    counts_of,
    normal_gamma,
    outcome_counts,
    treatment_counts,
)
from unpooled.models.chain_checks import Mixing, measure
from unpooled.models.dispersion import draw_dispersion
from unpooled.models.link import Link
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.records import Draws, Parameters

STEPS = 5
"""Metropolis steps of the variances per round, at the coordinator."""
NEWTON, SLICES = 8, 3
"""Counts: Newton's steps to the mode, and steps of slice sampling, per round, at the coordinator."""
STRIDE = 0.4
"""Proposal sd of the log-variances."""


def kept(sweeps: int) -> int:
    """Number of rounds whose draws are kept: the last two thirds."""
    return sweeps - sweeps // 3


class GibbsSample(NamedTuple):
    """Draws of all class parameters, [kept sweeps × chains], and how well the chains have mixed."""

    draws: Draws
    mixing: Mixing


def sample(
    mixture: Mixture, mode: Learned, *, chains: int, sweeps: int, required: float, seed: int
) -> Procedure[GibbsSample]:
    """Sample from chains that start at the mode; `required` is the number of effective draws."""
    states, likelihoods = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf), chains, axis=0), mode[:2])
    classes = most_classes(mode)
    rng = stream(seed, "class draws")
    found, seen = [], []
    for number in range(sweeps):
        keys = _keys(seed, number, chains)
        sent = as_draws(likelihoods, classes)
        fixed = {"views": sent.shared, "fold": np.full(chains, -1), "key": keys}
        reply = yield from ask("classes/drawn", Parameters(fixed=fixed, per_site=sent.by_site))
        counts = counts_of(reply, mixture.most)
        states, likelihoods = draw(mixture, states, counts, likelihoods, rng)
        if number >= sweeps - kept(sweeps):
            found.append(as_draws(likelihoods, classes))
            outcome = mixture.outcome
            seen.append(monitored(counts, likelihoods, binary=outcome.binary, link=outcome.link))
    every: dict[str, np.ndarray] = jax.tree.map(lambda *leaves: np.stack(leaves), *seen)
    effect = every.pop("average effect")
    mixing = measure(every, effect, required, unjudged=tuple(every))
    return GibbsSample(jax.tree.map(lambda *leaves: np.concatenate(leaves), *found), mixing)


def monitored(
    counts: Counts, likelihoods: ClassLogLikelihoods, *, binary: bool, link: Link | None = None
) -> dict[str, np.ndarray]:
    """Quantities of every chain that do not depend on the labels of the classes, [chain, …].

    The parameters of single classes are left out: classes may swap labels without a change of the model. The
    average effect is that of the drawn classes, Σ n_sk (μ_s1k − μ_s0k) / n. It alone is judged; the others
    mix more slowly and are shown.
    """
    people = np.asarray(counts.people.sum(axis=2))
    total = people.sum(axis=(1, 2))
    means = np.asarray(likelihoods.outcome)
    if binary:
        means = np.exp(-np.logaddexp(0.0, -means))
    if link is not None:
        means = np.asarray(link.mean(jnp.asarray(means)))
    by_class = people.sum(axis=1)
    outcomes = np.einsum("csk,csak->ca", people, means) / total[:, None]
    between = np.einsum("csk,csak->ca", people, means**2) / total[:, None] - outcomes**2
    return {
        "sorted class shares": np.sort(by_class, axis=1) / total[:, None],
        "outcome's noise": np.asarray(likelihoods.noise),
        "outcome's mean and variance between classes": np.concatenate([outcomes, between], axis=1),
        "average effect": outcomes[:, 1] - outcomes[:, 0],
    }


def _keys(seed: int, number: int, chains: int) -> np.ndarray:
    return key_data(stream(seed, "class sweeps", number), chains)


def draw(
    mixture: Mixture,
    states: MixtureState,
    counts: Counts,
    likelihoods: ClassLogLikelihoods,
    rng: np.random.Generator,
) -> tuple[MixtureState, ClassLogLikelihoods]:
    """Draw all parameters given the sites' counts, for every chain."""
    active = np.asarray(states.active)
    logit = np.asarray(likelihoods.treatment[:, :, 1] - likelihoods.treatment[:, :, 0])
    treatment, treatment_logit = _cells(
        mixture.treatment, active, jax.vmap(treatment_counts)(counts), states.treatment, logit, rng
    )
    chains, sites, _, most = counts.people.shape
    logit = np.zeros((chains, sites, 2 * most))
    if mixture.outcome.binary or mixture.outcome.link is not None:
        logit = np.asarray(likelihoods.outcome).reshape(logit.shape)
    variances, counted = states.outcome, jax.vmap(outcome_counts)(counts)
    if mixture.outcome.link is not None:
        variances = _dispersed(mixture.outcome, counted, variances, logit, rng)
    outcome, means = _cells(mixture.outcome, np.tile(active, 2), counted, variances, logit, rng)
    means = means.reshape(chains, sites, 2, most)
    numbers = _numbers(counts, rng)
    ones = rng.beta(BETA + counts.ones, BETA + counts.people.sum(axis=(1, 2))[:, :, None] - counts.ones)
    ones = np.clip(ones, 1e-12, 1.0 - 1e-12)
    drawn = log_likelihoods_of(
        classes=_classes(active, np.asarray(states.shares), np.asarray(counts.people.sum(axis=2)), rng),
        one=np.log(ones),
        zero=np.log1p(-ones),
        **numbers,
        treatment=_log_probabilities(treatment_logit),
        outcome=means,
        variance=np.zeros_like(means),
        noise=np.ones((chains, 2)) if mixture.outcome.binary else np.asarray(outcome.values[:, -2:]),
        chance=_chances(mixture, means),
    )
    return MixtureState(states.active, states.shares, outcome, treatment), drawn


def _chances(mixture: Mixture, logit: np.ndarray) -> np.ndarray:
    if not mixture.outcome.binary:
        return np.zeros((*logit.shape[:2], 0, *logit.shape[2:]))
    return _log_probabilities(logit)


def _log_probabilities(logit: np.ndarray) -> np.ndarray:
    """Log probabilities of 0 and 1, stacked along axis 2."""
    return np.stack([-np.logaddexp(0.0, logit), -np.logaddexp(0.0, -logit)], axis=2)


def _classes(
    active: np.ndarray, shares: np.ndarray, count: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Log shares of the classes at every site, drawn from their Dirichlet posterior."""
    gamma = rng.standard_gamma(np.maximum(CONCENTRATION * shares[:, None] + count, 1e-3))
    gamma = np.where(active[:, None] > 0, np.maximum(gamma, 1e-300), 0.0)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(gamma / gamma.sum(axis=2, keepdims=True)), ABSENT)


def _numbers(counts: Counts, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Means and precisions of numeric covariates by class, drawn from their normal-gamma posterior."""
    found = jax.tree.map(np.asarray, jax.vmap(normal_gamma)(counts))
    weight = rng.standard_gamma(np.broadcast_to(found.shape, found.rate.shape)) / found.rate
    centre = found.centre + rng.standard_normal(weight.shape) / np.sqrt(found.weight * weight)
    level = 0.5 * (np.log(weight) - np.log(2.0 * np.pi)).sum(axis=2)
    return {"centre": centre, "weight": weight, "level": level}


def _dispersed(
    cells: Cells, counted: Counted, variances: Variances, theta: np.ndarray, rng: np.random.Generator
) -> Variances:
    """Draw the dispersions of counts given their cells' means."""
    found = np.asarray(_log_dispersions(cells, counted, theta))
    values = jnp.asarray(variances.values).at[:, -2:].set(draw_dispersion(found, rng))
    return Variances(values, variances.tight)


@Program
@partial(jax.vmap, in_axes=(None, 0, 0))
def _log_dispersions(cells: Cells, counted: Counted, theta: Array) -> Array:
    return cell.log_dispersions(cells, counted, theta, jnp.zeros_like(theta))


def _cells(
    cells: Cells, active: np.ndarray, counted: Counted, variances: Variances, logit: Any,
    rng: np.random.Generator,
) -> tuple[Variances, np.ndarray]:  # fmt: skip
    """Draw the variances of every chain by Metropolis with θ integrated out, then θ given the variances.

    `logit` is the last θ; that of Gaussian outcomes is not needed.
    """
    weight = np.zeros(counted.people.shape)
    if cells.binary:
        # Given Pólya–Gamma weights the logit likelihood is Gaussian (Polson, Scott & Windle 2013).
        people: Any = np.asarray(counted.people)
        some: Any = np.where(people > 0, people, 1.0)
        drawn = random_polyagamma(some, logit, random_state=rng)
        weight = np.where(people > 0, drawn, 0.0)
    keys, tight = key_data(rng, len(weight)), None
    if cells.link is not None:
        weight, tight = logit, variances.tight
    values, theta = _compiled(cells, active, counted, variances.values, weight, keys, tight)
    return Variances(values, variances.tight), np.asarray(theta)


@partial(Program, often=True)
@partial(jax.vmap, in_axes=(None, 0, 0, 0, 0, 0, 0))
def _compiled(
    cells: Cells, active: Array, counted: Counted, values: Array, last: Array, key: Array, tight: Array | None
) -> tuple[Array, Array]:
    """`last` holds the weights of logits, or the last θ of counts, which are expanded about their mode.

    The mode is found from `tight`, which is the same in every round: the expansion may not depend on θ.
    """
    said = last
    if cells.link is not None:
        assert tight is not None
        said = _mode(cells, active, counted, Variances(values, tight))

    def evidence(log_values: Array) -> Array:
        return _log_density(cells, active, counted, jnp.exp(log_values), said)

    def step(carry: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], None]:
        current, density = carry
        first, second = jax.random.split(key)
        move = STRIDE * jax.random.normal(first, current.shape) * jnp.asarray(cells.learned)
        proposed = evidence(current + move)
        accept = jnp.log(jax.random.uniform(second)) < proposed - density
        return (jnp.where(accept, current + move, current), jnp.where(accept, proposed, density)), None

    steps, final_key = jax.random.split(jax.random.wrap_key_data(key))
    initial = jnp.log(values)
    (final, _), _ = jax.lax.scan(step, (initial, evidence(initial)), jax.random.split(steps, STEPS))
    values = jnp.exp(final)
    prior = cell.prior_of(cells, active, values)
    fitted = pooling.posterior(cell.sums_of(*_precision(cells, counted, values, said)), prior)
    if cells.link is not None:
        return values, _sliced(cells, counted, Variances(values, said), fitted, prior, last, final_key)
    found = pooling.coefficients(fitted, prior, final_key)
    return values, found.common + found.site


def _mode(cells: Cells, active: Array, counted: Counted, variances: Variances) -> Float[Array, "m c"]:
    """Of counts: the most probable θ given the variances, by Newton's steps."""
    assert cells.link is not None
    link, prior = cells.link, cell.prior_of(cells, active, variances.values)

    def step(_: int, tight: Array) -> Array:
        sums = cell.sums_of(*cell.precision(cells, counted, Variances(variances.values, tight)))
        found = pooling.coefficients(pooling.posterior(sums, prior), prior)
        return count_cells.moved(link, tight, found.common + found.site)

    return jax.lax.fori_loop(0, NEWTON, step, variances.tight)


def _sliced(
    cells: Cells, counted: Counted, variances: Variances, fitted: pooling.PoolingPosterior,
    prior: pooling.PoolingPrior, last: Array, key: Array,
) -> Float[Array, "m c"]:  # fmt: skip
    """Of counts: θ by steps of slice sampling about Laplace's approximation, from the last θ.

    The approximation has the same prior, so that the densities differ in the likelihood alone.
    """
    assert cells.link is not None
    link, dispersion = cells.link, variances.values[-2:][np.array(cells.arm)]
    said = cell.expansion(cells, counted, variances)
    centre = pooling.coefficients(fitted, prior)

    def excess(theta: Array) -> Array:
        log = count_cells.log_likelihood(link, counted.people, counted.total, theta, dispersion)
        return jnp.sum(log - said.score * theta + 0.5 * said.weight * theta**2)

    def step(theta: Array, key: Array) -> tuple[Array, None]:
        for_draw, for_slice = jax.random.split(key)
        drawn = pooling.coefficients(fitted, prior, for_draw)
        mean = centre.common + centre.site
        return count_cells.slice_sampled(excess, theta, mean, drawn.common + drawn.site, for_slice), None

    return jax.lax.scan(step, last, jax.random.split(key, SLICES))[0]


def _precision(cells: Cells, counted: Counted, values: Array, said: Array) -> tuple[Array, Array]:
    """As `cells.precision`, with Pólya–Gamma weights for logits."""
    if cells.binary:
        return said, counted.total - 0.5 * counted.people
    return cell.precision(cells, counted, Variances(values, said))


def _log_density(cells: Cells, active: Array, counted: Counted, values: Array, said: Array) -> Array:
    """Log posterior density of the log-variances with θ integrated out: the evidence plus the prior of EM."""
    sums = cell.sums_of(*_precision(cells, counted, values, said))
    found = pooling.posterior(sums, cell.prior_of(cells, active, values)).log_evidence
    log = found + cell.log_prior(cells, values)
    return log if cells.binary or cells.link is not None else log + cell.log_noise(cells, counted, values)

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
import jax.scipy.linalg as jsl
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
from unpooled.methods.fedci.working_response import Link
from unpooled.models.calibration import odds
from unpooled.models.effects import OutcomeAverages, average, bootstrap_weights, group_weights
from unpooled.models.outcome_family import individual_effect as family_effect
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import LOGIT, Bounds

JITTER = 1e-6
"""Added to the prior variance of a remainder that is drawn."""


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
    seen = evidence.observed(draws.free, draws.about, rows, present)
    root = jnp.linalg.cholesky(evidence.observed_covariance(draws.free, rows, present, seen.variance))
    residual = (seen.outcome - _own_arm(evidence, draws, rows)) * present
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
        _cross(evidence, draws.free, jnp.full_like(rows.treatment, arm), rows.covariates, rows)
        for arm in (0.0, 1.0)
    ]
    known = condition(evidence, draws, rows, rows.present)
    means, whitened = zip(*(known.explained(cross) for cross in arms), strict=True)
    joint = structure.remainder(draws.free, rows.covariates, rows.covariates)
    products = jnp.einsum("sgn,shn->sgh", shares @ joint, shares)
    prior = jax.vmap(jnp.kron, (0, None))(products, between)
    explained = jnp.einsum("apn,sgn->spga", jnp.stack(whitened), shares).reshape(len(shares), -1, size)
    return both + jnp.stack(means, axis=-1), prior - jnp.einsum("spk,spl->skl", explained, explained)


def latent_of_people(
    evidence: Evidence, draws: WeightDraws, rows: Rows, covariates: Array, key: Array
) -> Float[Array, "j k 2"]:
    """With a link, draws of the latent function in both arms at the given covariates, person by person."""
    both = shared_arms(evidence, draws, covariates)
    if not isinstance(evidence, KernelEvidence):
        return both
    between = evidence.structure.arm_covariance(draws.free)
    prior = evidence.structure.remainder_diagonal(draws.free, covariates)[:, None, None] * between
    if not evidence.diagonal:
        known = condition(evidence, draws, rows, rows.present)
        each = [
            known.explained(_cross(evidence, draws.free, jnp.full(len(covariates), arm), covariates, rows))
            for arm in (0.0, 1.0)
        ]
        means, whitened = (jnp.stack(part) for part in zip(*each, strict=True))
        both = both + jnp.moveaxis(means, 0, -1)
        prior = prior - jnp.einsum("ank,bnk->kab", whitened, whitened)
    return both + jnp.einsum("kab,jkb->jka", _roots(prior), _normal(key, both))


def latent_of_rows(evidence: Evidence, draws: WeightDraws, rows: Rows, key: Array) -> Float[Array, "j n 2"]:
    """With a link, joint draws of the latent function in both arms of people whose outcomes are known.

    By Matheron's rule: a draw from the prior is moved by what its own observations would have missed.
    """
    both = shared_arms(evidence, draws, rows.covariates)
    if not isinstance(evidence, KernelEvidence):
        return both
    free, structure, own = draws.free, evidence.structure, arm_indicators(rows.treatment)
    between, root = structure.arm_covariance(free), structure.kernel_factor(free)
    for_prior, for_noise = jax.random.split(key)
    normal = _normal(for_prior, both)
    if evidence.diagonal:
        scale = structure.remainder_diagonal(free, rows.covariates)
        prior = jnp.sqrt(scale)[:, None] * normal @ root.T
    else:
        scale = structure.remainder(free, rows.covariates, rows.covariates)
        lower = jnp.linalg.cholesky(scale + JITTER * jnp.eye(len(scale)))
        prior = jnp.einsum("nm,jma->jna", lower, normal @ root.T)
    seen = evidence.observed(free, draws.about, rows, rows.present)
    missed = jnp.sqrt(seen.variance) * _normal(for_noise, both)[..., 0]
    left = (seen.outcome - jnp.sum((both + prior) * own, axis=2) - missed) * rows.present
    if evidence.diagonal:
        weight = left / (scale * (own @ jnp.diagonal(between)) + seen.variance) * scale
        return both + prior + weight[..., None] * (own @ between)
    lower = jnp.linalg.cholesky(evidence.observed_covariance(free, rows, rows.present, seen.variance))
    solved = jsl.cho_solve((lower, True), left.T) * rows.present[:, None]
    return both + prior + jnp.einsum("nm,mj,ma->jna", scale, solved, own @ between)


def _normal(key: Array, like: Float[Array, "j n 2"]) -> Float[Array, "j n 2"]:
    """Standard normal numbers; those of a person do not depend on how many others there are."""
    return jax.vmap(lambda one: jax.random.normal(one, like.shape[1:]))(jax.random.split(key, len(like)))


def drawn_individual_effect(
    evidence: Evidence, link: Link, draws: WeightDraws, rows: Rows, others: Rows | None,
    dispersion: Array, key: Array,
) -> Float[Array, "j k"]:  # fmt: skip
    """ITE of people with known outcomes and a link: the outcome in the other arm is drawn."""
    people = rows if others is None else others
    known = rows if others is None else join(rows, others)
    for_latent, for_outcome = jax.random.split(key)
    latent = latent_of_rows(evidence, draws, known, for_latent)[:, -len(people.present) :]
    keys = jax.random.split(for_outcome, len(latent))
    return jax.vmap(
        lambda both, key: family_effect(link.family, both, dispersion, people, jnp.zeros(()), key)
    )(link.predictor(latent), keys)


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
    own, others = rows.by_row(), people.by_row()
    return rows.having({name: jnp.concatenate([own[name], others[name]]) for name in own})


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


class GaussianProcessAverage(OutcomeAverages):
    """The site's mean outcomes under each draw: those expected of its people, averaged over groups of them
    and over their population."""

    evidence: Evidence
    often: ClassVar[bool] = False

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed = parameters.fixed
        shift, about = parameters.per_site["site_shift"], fixed.get("about")
        draws = WeightDraws(parameters.free, fixed["beta"], shift, about)
        key = rows.own_key(jax.random.wrap_key_data(fixed["key"]))
        for_noise, for_weights = jax.random.split(key)
        chances = odds(fixed["log_odds"], rows.covariates) if "log_odds" in fixed else None
        groups = group_weights(rows, None if chances is None else chances / (1.0 + chances))
        count = len(fixed["beta"])
        noise = jax.random.normal(for_noise, (count, 2 * len(groups)))
        if is_large(len(rows.present)) and not rows.least:
            return Statistics(per_site=self._of_many(draws, rows, groups, noise, for_weights))
        # One average over the site's people, and for each draw one over their population.
        weights = groups * bootstrap_weights(for_weights, rows, (count,))[:, None]
        every = jnp.concatenate([groups[None], weights])
        if self.evidence.link is None:
            both, covariance = outcomes(self.evidence, draws, rows, _shares(every))
        else:
            both = self.evidence.link.mean(latent_of_rows(self.evidence, draws, rows, for_noise))
            covariance = jnp.zeros((len(every), 2 * len(groups), 2 * len(groups)))
        remainder = jnp.einsum("skl,jl->sjk", _roots(covariance), noise)
        # Whatever the weights of the features, the averages rest on enough people. Padding has no weight.
        found = {
            "sample": average(both, groups, rows) + remainder[0].reshape(count, -1, 2),
            "population": average(both, weights, rows) + jnp.diagonal(remainder[1:]).T.reshape(count, -1, 2),
            "weight": jnp.broadcast_to(groups.sum(axis=1), (count, len(groups))),
        }
        return Statistics(per_site=found)

    def _of_many(
        self, draws: WeightDraws, rows: Rows, groups: Array, noise: Array, for_weights: Array
    ) -> Arrays:
        """The averages of a large site from sums over its people.

        Means with the random weights of a Bayesian bootstrap are normal if people are many. Their means and
        covariances are known, so that no weights are drawn. With a link, the remainder enters the means of
        people, and hardly varies their average.
        """
        evidence, link, size = self.evidence, self.evidence.link, len(groups)

        def of_block(draws: WeightDraws, block: tuple[Array, Array]) -> tuple[Array, Array]:
            covariates, groups = block
            both = shared_arms(evidence, draws, covariates)
            variance = _remainder_variance(evidence, draws.free, covariates)
            if link is not None:
                between = jnp.diagonal(_between(evidence, draws.free))
                both, variance = link.mean(both, variance[:, None] * between), jnp.zeros_like(variance)
            each = jnp.concatenate([jnp.ones_like(both[..., :1]), both], axis=-1)
            each = (groups[None, :, :, None] * each[:, :, None, :]).reshape(*both.shape[:2], -1)
            return jnp.einsum("jnp,jnq->jpq", each, each), jnp.einsum("ng,nh,n->gh", groups, groups, variance)

        products, variance = sum_over_blocks(of_block, draws, (rows.covariates, groups.T))
        people = groups.sum(axis=1)
        total = jnp.where(people > 0.0, people, 1.0)
        # The first "group" is everybody, so that its row of products has the sums.
        products = products.reshape(len(products), size, 3, size, 3)
        mean = products[:, 0, 0, :, 1:] / total[:, None]
        centred = _centred(products, mean) / (total[:, None, None, None] * total[:, None])
        prior = jnp.kron(variance / (total[:, None] * total), _between(evidence, draws.free))
        bootstrap = _roots(centred.reshape(-1, 2 * size, 2 * size))
        across = jnp.einsum("jkl,jl->jk", bootstrap, jax.random.normal(for_weights, noise.shape))
        remainder = (noise @ _roots(prior).T).reshape(mean.shape)
        return {
            "sample": mean + remainder,
            "population": mean + across.reshape(mean.shape) + jnp.sqrt(2.0) * remainder,
            "weight": jnp.broadcast_to(people, (len(mean), size)),
        }

    def bounds(self) -> Bounds:
        return {**self.evidence.bounds(), **WEIGHTS, "log_odds": LOGIT}


def _shares(weights: Float[Array, "*s n"]) -> Float[Array, "*s n"]:
    """Weights that add up to one; zeros for nobody."""
    total = weights.sum(axis=-1, keepdims=True)
    return weights / jnp.where(total > 0.0, total, 1.0)


def _roots(covariance: Float[Array, "*s k k"]) -> Float[Array, "*s k k"]:
    """Symmetric square roots of covariances that may be singular."""
    values, vectors = jnp.linalg.eigh(covariance)
    return (vectors * jnp.sqrt(jnp.maximum(values, 0.0))[..., None, :]) @ jnp.swapaxes(vectors, -1, -2)


def _centred(products: Array, mean: Array) -> Float[Array, "j g 2 h 2"]:
    """Sums of products of weighted deviations from the groups' means, from those about zero."""
    square, left, right = products[:, :, 0, :, 0], products[:, :, 1:, :, 0], products[:, :, 0, :, 1:]
    return (
        products[:, :, 1:, :, 1:]
        - left[..., None] * mean[:, None, None]
        - mean[:, :, :, None, None] * right[:, :, None]
        + mean[:, :, :, None, None] * mean[:, None, None] * square[:, :, None, :, None]
    )


def _remainder_variance(evidence: Evidence, free: Arrays, covariates: Array) -> Float[Array, " n"]:
    """The remainder's variance per unit of the arms' covariance, if people's remainders are independent."""
    if not isinstance(evidence, KernelEvidence):
        return jnp.zeros(len(covariates))
    return evidence.structure.remainder_diagonal(free, covariates)


def _between(evidence: Evidence, free: Arrays) -> Float[Array, "2 2"]:
    """Prior covariance between the arms per unit of the kernel."""
    return evidence.structure.arm_covariance(free) if isinstance(evidence, KernelEvidence) else jnp.eye(2)


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
        shift = leaves["shift"][:, :, rows.site]
        drawn = WeightDraws(leaves["free"], leaves["beta"], shift, leaves.get("about"))
        key = jax.random.wrap_key_data(leaves["key"])
        if evidence.link is not None and noise_correlation is not None:
            dispersion = leaves["about"]["dispersion"]
            return drawn_individual_effect(evidence, evidence.link, drawn, rows, people, dispersion, key)
        if evidence.link is not None:
            assert people is not None
            both = evidence.link.mean(latent_of_people(evidence, drawn, rows, people.covariates, key))
            return both[..., 1] - both[..., 0]
        if noise_correlation is None:
            assert people is not None
            mean, variance = conditional_effect(evidence, drawn, rows, people.covariates)
        else:
            mean, variance = individual_effect(evidence, drawn, rows, people, noise_correlation)
        noise = jax.random.normal(key, mean.shape)
        return mean + jnp.sqrt(variance) * noise

    return jax.lax.map(one, part)

"""Effects computed at the sites under posterior draws: the stage of average effects, and effects of people.

Effects that stay at the site are exact; averages that leave it rest on enough people, whatever weights the
features have.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.blocks import sum_over_blocks
from unpooled.maths.compilation import Program
from unpooled.maths.linear_algebra import symmetric_root
from unpooled.methods.fedci.conditionals import (
    WeightDraws,
    conditional_effect,
    individual_effect,
    outcomes,
    shared_arms,
)
from unpooled.methods.fedci.latent import drawn_individual_effect, latent_of_people, latent_of_rows
from unpooled.methods.fedci.mixture import mix
from unpooled.methods.fedci.stages import Evidence, KernelEvidence
from unpooled.methods.fedci.subsample import is_large
from unpooled.models.calibration import odds
from unpooled.models.effects import OutcomeAverages, average, bootstrap_weights, group_weights
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import LOGIT, Bounds


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
        remainder = jnp.einsum("skl,jl->sjk", symmetric_root(covariance), noise)
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
        bootstrap = symmetric_root(centred.reshape(-1, 2 * size, 2 * size))
        across = jnp.einsum("jkl,jl->jk", bootstrap, jax.random.normal(for_weights, noise.shape))
        remainder = (noise @ symmetric_root(prior).T).reshape(mean.shape)
        return {
            "sample": mean + remainder,
            "population": mean + across.reshape(mean.shape) + jnp.sqrt(2.0) * remainder,
            "weight": jnp.broadcast_to(people, (len(mean), size)),
        }

    def bounds(self) -> Bounds:
        return {**self.evidence.bounds(), **self.evidence.weight_bounds(), "log_odds": LOGIT}


def _shares(weights: Float[Array, "*s n"]) -> Float[Array, "*s n"]:
    """Weights that add up to one; zeros for nobody."""
    total = weights.sum(axis=-1, keepdims=True)
    return weights / jnp.where(total > 0.0, total, 1.0)


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

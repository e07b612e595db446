"""Draws of the latent function, from which effects follow if outcomes have a link."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from unpooled.maths.linear_algebra import symmetric_root
from unpooled.methods.fedci.conditionals import (
    WeightDraws,
    condition,
    cross_covariance,
    join,
    shared_arms,
)
from unpooled.methods.fedci.stages import Evidence, KernelEvidence, arm_indicators
from unpooled.methods.fedci.working_response import shared_noise
from unpooled.models.link import Link
from unpooled.models.outcome_family import individual_effect as family_effect
from unpooled.protocol.rows import Rows

JITTER = 1e-6
"""Added to the prior variance of a remainder that is drawn."""


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
            known.explained(
                cross_covariance(evidence, draws.free, jnp.full(len(covariates), arm), covariates, rows)
            )
            for arm in (0.0, 1.0)
        ]
        means, whitened = (jnp.stack(part) for part in zip(*each, strict=True))
        both = both + jnp.moveaxis(means, 0, -1)
        prior = prior - jnp.einsum("ank,bnk->kab", whitened, whitened)
    return both + jnp.einsum("kab,jkb->jka", symmetric_root(prior), _normal(key, both))


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
    variance = seen.variance if evidence.diagonal else shared_noise(seen.variance, rows.present)
    missed = jnp.sqrt(variance) * _normal(for_noise, both)[..., 0]
    left = (seen.outcome - jnp.sum((both + prior) * own, axis=2) - missed) * rows.people
    if evidence.diagonal:
        weight = left / (scale * (own @ jnp.diagonal(between)) + variance) * scale
        return both + prior + weight[..., None] * (own @ between)
    lower = jnp.linalg.cholesky(evidence.observed_covariance(free, rows, rows.present, seen.variance))
    solved = jsl.cho_solve((lower, True), left.T) * rows.people[:, None]
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

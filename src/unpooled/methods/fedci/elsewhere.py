"""Outcomes at a site that took no part: its shift given those of the others, and a remainder of its own.

The shifts of all sites have the covariance A ⊗ T_gT_gᵀ, where A depends on the distances between the sites'
moments. With the new site last, A = RRᵀ, and its shift given draws g of the others is normal with mean
R_new,old R_old⁻¹ g and covariance R_new,new² T_gT_gᵀ.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.compilation import Program
from unpooled.methods.fedci.mixture import mix
from unpooled.methods.fedci.stages import Evidence, KernelEvidence
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows

MOST_JOINTLY = 400
"""With more people than this, their remainders are drawn independently, as in large sites."""
JITTER = 1e-6
SHIFT, REMAINDER = 7, 8
"""What the keys of the draws are folded with."""


def outcomes_elsewhere(
    evidences: dict[str, Evidence],
    draws: Arrays,
    people: Rows,
    distances: Float[np.ndarray, " r"],
    count: int,
    seed: int,
) -> np.ndarray:
    """Draws [count, people, 2] of the mean outcomes in both arms."""
    found = {
        name: np.asarray(_program(with_new_site(evidences[name], distances), part, people, jnp.asarray(seed)))
        for name, part in draws["structures"].items()
    }
    return mix(found, draws["weights"], count)


def with_new_site(evidence: Evidence, distances: Float[np.ndarray, " r"]) -> Evidence:
    """The same model with one more site, the last."""
    every = jnp.concatenate([evidence.structure.site_distances, jnp.asarray(distances)[None]])
    return eqx.tree_at(lambda one: one.structure.site_distances, evidence, every)


@Program
def _program(evidence: Evidence, part: Arrays, people: Rows, seed: Array) -> Float[Array, "k j n 2"]:
    def one(leaves: Arrays) -> Float[Array, "j n 2"]:
        free, key = leaves["free"], jax.random.wrap_key_data(leaves["key"])
        both = jnp.einsum("nf,jaf->jna", evidence.structure.features(free, people.covariates), leaves["beta"])
        shift = new_shift(evidence, free, leaves["shift"], jax.random.fold_in(key, SHIFT))
        own = jax.random.fold_in(jax.random.fold_in(key, REMAINDER), seed)
        found = both + shift[:, None] + _remainder(evidence, free, people.covariates, own, len(both))
        return found if evidence.link is None else evidence.link.mean(found)

    return jax.lax.map(one, part)


def new_shift(
    evidence: Evidence, free: Arrays, shift: Float[Array, "j 2 m"], key: Array
) -> Float[Array, "j 2"]:
    """A draw of the last site's shift for each draw of the others'."""
    if not evidence.structure.shifts:
        return jnp.zeros(shift.shape[:2])
    weights, spread = given_others(evidence.structure.site_root(free))
    noise = jax.random.normal(key, shift.shape[:2]) @ evidence.structure.shift_factor(free).T
    return shift @ weights + spread * noise


def given_others(root: Float[Array, "m m"]) -> tuple[Float[Array, " others"], Array]:
    """The regression of the last of several normal numbers with covariance RRᵀ on the others, and its sd."""
    return jsl.solve_triangular(root[:-1, :-1], root[-1, :-1], lower=True, trans=1), root[-1, -1]


def _remainder(
    evidence: Evidence, free: Arrays, covariates: Array, key: Array, count: int
) -> Float[Array, "j n 2"]:
    """The part of the outcome functions that only the site's own people could tell."""
    people = len(covariates)
    if not isinstance(evidence, KernelEvidence):
        return jnp.zeros((count, people, 2))
    structure = evidence.structure
    noise = jax.random.normal(key, (count, people, 2)) @ structure.kernel_factor(free).T
    if evidence.diagonal or people > MOST_JOINTLY:
        return jnp.sqrt(structure.remainder_diagonal(free, covariates))[:, None] * noise
    covariance = structure.remainder(free, covariates, covariates) + JITTER * jnp.eye(people)
    return jnp.einsum("nk,jka->jna", jnp.linalg.cholesky(covariance), noise)

"""Redraw the missing values of one numeric column at the coordinator, from sums alone.

If much of a column u_j is missing, imputed values dominate the sums, and parameters move by little steps from
round to round. In arms whose outcome is linear and Gaussian, u_j given everything else of a person is normal
with a mean that is linear in h = (g, w*, y), where g = (1, x, u) and w* is the treatment's probit latent:

    1/v + b_j² + β_j²/σ² = P,    E u_j = [c'g/v + b_j(w* − b'g) + β_j(y − β'g − o_s)/σ²]/P    (g without u_j)

The sums of the model depend on u_j through Σ u_j h and Σ u_j² only. Given Σ h hᵀ and, by site, Σ h over the
people whose u_j is redrawn, these are the sums of u_j = mean + ε/√P, where (Σ ε h, Σ_s ε) is normal and what
is left of Σ ε² is chi-square. They can therefore be drawn again and again without another round, exactly as
if the sites had drawn every person's value.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unpooled.maths.linear_algebra import unpack
from unpooled.methods.causal_fi.columns import Layout
from unpooled.protocol.records import Arrays

SEEN = 1e-10
"""Directions with an eigenvalue below this fraction of the largest one are empty."""


class Redrawn(NamedTuple):
    """Sums over the people whose u_j is redrawn, by arm."""

    products: Float[Array, "2 q q"]
    """Σ h hᵀ."""
    sites: Float[Array, "m 2 q"]
    """Σ h at each site."""
    root: Float[Array, "2 r r"]
    """A root of the products of (h without u_j, indicators of the sites)."""
    rank: Float[Array, "2 r"]
    """1 for columns of the root that are not empty."""

    @property
    def people(self) -> Float[Array, " 2"]:
        return self.products[:, 0, 0]


def redrawn_of(sums: Arrays, position: Int[Array, ""]) -> Redrawn:
    """The sums of a reply; `position` is that of u_j in g."""
    products, sites = unpack(sums["redrawn"]), sums["redrawn_sites"]
    without = jnp.ones(products.shape[1]).at[position].set(0.0)

    def root(gram: Array, by_site: Array) -> tuple[Array, Array]:
        cross = by_site * without
        both = jnp.block([[gram * without * without[:, None], cross.T], [cross, jnp.diag(by_site[:, 0])]])
        values, vectors = jnp.linalg.eigh(both)
        there = values > SEEN * jnp.maximum(values[-1], 1.0)
        return vectors * jnp.sqrt(jnp.where(there, values, 0.0)), there.astype(float)

    return Redrawn(products, sites, *jax.vmap(root, (0, 1))(products, sites))


def scaled(sums: Arrays, redrawn: Redrawn, scale: Array) -> tuple[Arrays, Redrawn]:
    """The sums after everybody's w* is multiplied by `scale`."""
    size = redrawn.products.shape[1]
    factor = jnp.ones(size).at[size - 2].set(scale)
    inner = jnp.ones(redrawn.root.shape[1]).at[size - 2].set(scale)
    changed = Redrawn(
        redrawn.products * factor * factor[:, None], redrawn.sites * factor,
        redrawn.root * inner[:, None], redrawn.rank,
    )  # fmt: skip
    probit = {
        "treatment": scale * sums["treatment"],
        "treatment_square": scale**2 * sums["treatment_square"],
    }
    return sums | probit, changed


class Regressions(NamedTuple):
    """Everything that u_j depends on, of one draw."""

    confounders: Arrays
    treatment: Float[Array, " p"]
    outcome: Float[Array, "2 p"]
    offset: Float[Array, "m 2"]
    noise: Float[Array, " 2"]


def given_confounders(
    confounders: Arrays, layout: Layout, first: int, position: Array
) -> tuple[Array, Array]:
    """Coefficients on g, and variance, of u_j given x, the levels and the other numbers."""
    places = first + jnp.asarray(layout.numbers)
    own = jnp.argmax(places == position)
    precision = jnp.linalg.inv(confounders["covariance"])
    row = precision[own] / precision[own, own]
    means = jnp.concatenate([confounders["intercept"][None], confounders["slopes"]])
    found = jnp.zeros(first + len(layout.mean)).at[layout.before_numbers(first)].set(means @ row)
    return found.at[places].set(jnp.where(places == position, 0.0, -row)), 1.0 / precision[own, own]


def redraw(
    found: Regressions, redrawn: Redrawn, layout: Layout, position: Int[Array, ""], key: Array
) -> Redrawn:
    """Draw the sums that involve u_j anew, given the parameters and everything else."""
    size = redrawn.products.shape[1] - 2
    first = size - len(layout.mean)
    mean, variance = given_confounders(found.confounders, layout, first, position)
    without = jnp.ones(size).at[position].set(0.0)
    treatment = found.treatment

    def arm(
        outcome: Array, offset: Array, noise: Array, products: Array, sites: Array, root: Array, rank: Array,
        key: Array,
    ) -> tuple[Array, Array]:  # fmt: skip
        for_sums, for_rest = jax.random.split(key)
        precision = 1.0 / variance + treatment[position] ** 2 + outcome[position] ** 2 / noise
        on_g = mean / variance - treatment[position] * treatment - outcome[position] * outcome / noise
        line = jnp.append(without * on_g, jnp.stack([treatment[position], outcome[position] / noise]))
        line = line / precision
        shift = -outcome[position] * offset / (noise * precision)
        standard = jax.random.normal(for_sums, rank.shape) * rank
        drawn = root @ standard / jnp.sqrt(precision)
        on_h, on_sites = drawn[: size + 2], drawn[size + 2 :]
        people, of_sites = products[0, 0], sites[:, 0]
        rest = 2.0 * jax.random.gamma(for_rest, 0.5 * jnp.maximum(people - rank.sum(), 1e-6))
        known = jnp.append(without, jnp.ones(2))
        fitted = known * (products @ line + shift @ sites)
        by_site = sites @ line + shift * of_sites
        square = line @ fitted + shift @ by_site + 2.0 * (line @ on_h + shift @ on_sites)
        square = square + (jnp.sum(standard**2) + jnp.where(people > 0.0, rest, 0.0)) / precision
        cross = fitted + known * on_h
        products = products.at[position].set(cross).at[:, position].set(cross)
        products = products.at[position, position].set(square)
        return products, sites.at[:, position].set(by_site + on_sites)

    products, sites = jax.vmap(arm, (0, 1, 0, 0, 1, 0, 0, 0), (0, 1))(
        found.outcome, found.offset, found.noise, redrawn.products, redrawn.sites, redrawn.root,
        redrawn.rank, jax.random.split(key),
    )  # fmt: skip
    return redrawn._replace(products=products, sites=sites)


def moved(sums: Arrays, before: Redrawn, after: Redrawn) -> Arrays:
    """The sums over everybody, as matrices, after u_j has been redrawn."""
    size = before.products.shape[1] - 2
    change, at_sites = after.products - before.products, after.sites - before.sites
    return {
        **sums,
        "confounders": sums["confounders"] + change[:, :size, :size].sum(axis=0),
        "treatment": sums["treatment"] + change[:, :size, size].sum(axis=0),
        "outcome": sums["outcome"].at[:, :size, :size].add(change[:, :size, :size]),
        "score": sums["score"].at[:, :size].add(change[:, :size, size + 1]),
        "site_cross": sums["site_cross"].at[:, :, :size].add(at_sites[:, :, :size]),
    }

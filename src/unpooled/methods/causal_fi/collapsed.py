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

import numpy as np
from jaxtyping import Float

from unpooled.maths.linear_algebra import unpack
from unpooled.methods.causal_fi.columns import Layout
from unpooled.protocol.records import Arrays

SEEN = 1e-10
"""Directions with an eigenvalue below this fraction of the largest one are empty."""


class Redrawn(NamedTuple):
    """Sums over the people whose u_j is redrawn, by arm."""

    products: Float[np.ndarray, "c 2 q q"]
    """Σ h hᵀ."""
    sites: Float[np.ndarray, "c m 2 q"]
    """Σ h at each site."""
    root: Float[np.ndarray, "c 2 r r"]
    """A root of the products of (h without u_j, indicators of the sites).

    The symmetric one, but for the scale of w*: unlike eigenvectors, it does not jump if a sum changes in its
    last digit."""
    span: Float[np.ndarray, "c 2 r r"]
    """The projection on all directions that are not empty."""

    @property
    def people(self) -> Float[np.ndarray, "c 2"]:
        return self.products[..., 0, 0]


def redrawn_of(sums: Arrays, position: int) -> Redrawn:
    """The sums of a reply; `position` is that of u_j in g."""
    products, sites = unpack(sums["redrawn"]), sums["redrawn_sites"]
    without = np.ones(products.shape[-1])
    without[position] = 0.0
    by_site = np.swapaxes(sites, 1, 2)
    cross, of_sites = by_site * without, by_site[..., 0, None] * np.eye(sites.shape[1])
    both = np.block([[products * without * without[:, None], np.swapaxes(cross, 2, 3)], [cross, of_sites]])
    values, vectors = np.linalg.eigh(both)
    there = values > SEEN * np.maximum(values[..., -1:], 1.0)
    across = np.swapaxes(vectors, 2, 3)
    root = (vectors * np.sqrt(np.where(there, values, 0.0))[..., None, :]) @ across
    return Redrawn(products, sites, root, (vectors * there[..., None, :]) @ across)


def scaled(sums: Arrays, redrawn: Redrawn, scale: Float[np.ndarray, " c"]) -> tuple[Arrays, Redrawn]:
    """The sums after everybody's w* is multiplied by `scale`."""
    size = redrawn.products.shape[-1]
    factor, inner = (np.ones((len(scale), 1, width)) for width in (size, redrawn.root.shape[-1]))
    factor[:, 0, size - 2] = inner[:, 0, size - 2] = scale
    changed = Redrawn(
        redrawn.products * factor[..., None] * factor[:, :, None], redrawn.sites * factor[:, :, None],
        redrawn.root * inner[..., None], redrawn.span,
    )  # fmt: skip
    probit = {
        "treatment": scale[:, None] * sums["treatment"],
        "treatment_square": scale**2 * sums["treatment_square"],
    }
    return sums | probit, changed


class Regressions(NamedTuple):
    """Everything that u_j depends on, of one draw by chain."""

    confounders: Arrays
    treatment: Float[np.ndarray, "c p"]
    outcome: Float[np.ndarray, "c 2 p"]
    offset: Float[np.ndarray, "c m 2"]
    noise: Float[np.ndarray, "c 2"]


def given_confounders(
    confounders: Arrays, layout: Layout, first: int, position: int
) -> tuple[Float[np.ndarray, "c p"], Float[np.ndarray, " c"]]:
    """Coefficients on g, and variance, of u_j given x, the levels and the other numbers."""
    places = first + layout.numbers
    own = int(np.argmax(places == position))
    precision = np.linalg.inv(confounders["covariance"])[:, own]
    row = precision / precision[:, own, None]
    means = np.concatenate([confounders["intercept"][:, None], confounders["slopes"]], axis=1)
    found = np.zeros((len(row), first + len(layout.mean)))
    found[:, layout.before_numbers(first)] = np.einsum("cij,cj->ci", means, row)
    found[:, places] = -row
    found[:, position] = 0.0
    return found, 1.0 / precision[:, own]


def redraw(
    found: Regressions, redrawn: Redrawn, layout: Layout, position: int, rng: np.random.Generator
) -> Redrawn:
    """Draw the sums that involve u_j anew, given the parameters and everything else."""
    size = redrawn.products.shape[-1] - 2
    mean, variance = given_confounders(found.confounders, layout, size - len(layout.mean), position)
    known = np.ones(size + 2)
    known[position] = 0.0
    variance, noise = variance[:, None, None], found.noise[..., None]
    on_latent = found.treatment[:, None, position, None]
    on_outcome = found.outcome[..., position, None] / noise
    precision = 1.0 / variance + on_latent**2 + on_outcome**2 * noise
    on_g = mean[:, None] / variance - on_latent * found.treatment[:, None] - on_outcome * found.outcome
    both = np.broadcast_to(on_latent, on_outcome.shape), on_outcome
    # E u_j = lineᵀh + shift_s.
    line = known * np.concatenate([on_g, *both], axis=-1) / precision
    shift = -on_outcome * np.swapaxes(found.offset, 1, 2) / precision
    standard = np.einsum("cars,cas->car", redrawn.span, rng.standard_normal(redrawn.root.shape[:3]))
    drawn = np.einsum("cars,cas->car", redrawn.root, standard) / np.sqrt(precision)
    on_h, on_sites = drawn[..., : size + 2], drawn[..., size + 2 :]
    people, sites = redrawn.people, np.swapaxes(redrawn.sites, 1, 2)
    rank = np.trace(redrawn.span, axis1=2, axis2=3)
    rest = rng.chisquare(np.maximum(people - rank, 2e-6))
    fitted = np.einsum("caij,caj->cai", redrawn.products, line) + np.einsum("cam,cami->cai", shift, sites)
    fitted = known * fitted
    by_site = np.einsum("cami,cai->cam", sites, line) + shift * sites[..., 0]
    square = np.sum(line * (fitted + 2.0 * on_h), axis=-1) + np.sum(
        shift * (by_site + 2.0 * on_sites), axis=-1
    )
    left = np.sum(standard**2, axis=-1) + np.where(people > 0.0, rest, 0.0)
    products, sites = redrawn.products.copy(), redrawn.sites.copy()
    products[..., position, :] = products[..., position] = fitted + known * on_h
    products[..., position, position] = square + left / precision[..., 0]
    sites[..., position] = np.swapaxes(by_site + on_sites, 1, 2)
    return redrawn._replace(products=products, sites=sites)


def moved(sums: Arrays, before: Redrawn, after: Redrawn) -> Arrays:
    """The sums over everybody, as matrices, after u_j has been redrawn."""
    size = before.products.shape[-1] - 2
    change, at_sites = after.products - before.products, after.sites - before.sites
    found = {**sums, **{name: sums[name].copy() for name in ("outcome", "score", "site_cross")}}
    found["confounders"] = sums["confounders"] + change[..., :size, :size].sum(axis=1)
    found["treatment"] = sums["treatment"] + change[..., :size, size].sum(axis=1)
    found["outcome"][..., :size, :size] += change[..., :size, :size]
    found["score"][..., :size] += change[..., :size, size + 1]
    found["site_cross"][..., :size] += at_sites[..., :size]
    return found

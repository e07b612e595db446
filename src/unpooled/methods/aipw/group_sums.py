"""Sums over people from which mean outcomes by group follow, with their covariances.

Every mean is a quotient m = Σs/Σd of contributions of people. For doubly robust means, d says who belongs to
the group, with h(e) = E[d | x] for a propensity e, and s = dμ + 1(w = a)·h(e)/e_a·(y − μ):

    group         d            h(e)
    everybody     1            1
    treated       w            e
    controls      1 − w        1 − e
    overlap       (w − e)²     e(1 − e)
    named         0 or 1       d

These are the efficient scores (Hirano, Imbens and Ridder 2003; Crump et al. 2009), whose means do not change,
to first order, if e or μ do. For means with inverse-propensity weights, d = 1(w = a)·h(e)/e_a and s = dy.

Contributions have the axes [q, r, n]: r means share the weights d [q, n]. Products of u = s − dm are the
covariances; with those of u and d, and of d and d, they can be told about other means. With sampling weights,
s and d are multiplied by them. With clusters, products are of sums over each cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import capped
from unpooled.maths.linear_algebra import pack, unpack
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows, sums_by_cluster

SYMMETRIC = ("products", "noise", "weights")
"""Sums that are symmetric matrices."""


class Groups(NamedTuple):
    """Groups of people, in the order of `records.GROUPS`, then those that the study names."""

    member: Float[Array, "g n"]
    """d of doubly robust means."""
    expected: Float[Array, "g n"]
    """h(e)."""


def groups_of(rows: Rows, chance: Float[Array, " n"], *, adjusted: bool, named: bool) -> Groups:
    """The groups of a site's people; without adjustment for covariates, only everybody and named groups.

    With limits, nobody belongs to a named group that has too few people.
    """
    w, everybody = rows.treatment, jnp.ones_like(rows.treatment)
    own, expected = [everybody], [everybody]
    if adjusted:
        # Propensities may be chosen so that few people overlap.
        own += [w, 1.0 - w, capped(rows.people * (w - chance) ** 2, rows.least)]
        expected += [chance, 1.0 - chance, chance * (1.0 - chance)]
    if named and rows.groups is not None:
        people = (rows.groups * rows.people).sum(axis=1, keepdims=True)
        others = list(rows.groups * (people > rows.least))
        own, expected = [*own, *others], [*expected, *others]
    return Groups(rows.present * jnp.stack(own), rows.present * jnp.stack(expected))


def arm_weights(rows: Rows, chance: Float[Array, " n"], groups: Groups) -> Float[Array, "g 2 n"]:
    """h(e)/e_a for the people of each arm, control first."""
    arms = jnp.stack([1.0 - rows.treatment, rows.treatment]) / jnp.stack([1.0 - chance, chance])
    return groups.expected[:, None] * arms


def quotients(total: Float[Array, "q r n"], weight: Float[Array, "q n"], rows: Rows) -> Arrays:
    """The means Σs/Σd, and products of the deviations of their contributions; see `recentred`."""
    sizes = weight.sum(axis=-1)
    mean = total.sum(axis=-1) / _positive(sizes)[:, None]
    apart = (total - mean[..., None] * weight[:, None]).reshape(-1, weight.shape[-1])
    apart, weight = sums_by_cluster(apart, rows), sums_by_cluster(weight, rows)
    return {
        "people": (weight > 0.0).sum(axis=-1).astype(float),
        "weight": sizes,
        "mean": mean,
        "products": products(apart, rows, total.shape[1]),
        "crossed": _summed(apart, weight, rows.least),
        "weights": products(weight, rows, 1),
    }


def products(values: Float[Array, "j n"], rows: Rows, block: int) -> Float[Array, "j j"]:
    """Σ v_j v_k of contributions of people, or of clusters.

    With limits, the terms of a product are capped, so that none rests on few people. A small site sends
    only products within blocks of the matrix.
    """
    found = _summed(values, values, rows.least)
    if not rows.least:
        return found
    place = np.arange(len(values))
    enough = rows.people.sum() >= rows.per_feature * len(values)
    found = jnp.where(enough | (place[:, None] // block == place // block), found, 0.0)
    return jnp.where(place[:, None] == place, jnp.sum(values**2, axis=1), found)


def _summed(left: Float[Array, "j n"], right: Float[Array, "k n"], least: float) -> Float[Array, "j k"]:
    if not least:
        return left @ right.T

    def against(one: Array) -> Array:
        terms = one * right
        return jnp.sum(jnp.sign(terms) * capped(jnp.abs(terms), least), axis=-1)

    return jax.lax.map(against, left)


def recentred(own: Arrays, shift: Array) -> Arrays:
    """The same sums about means that are lower by `shift` [..., q, r].

    u' = u + δd, so that Σu'u'ᵀ = Σuuᵀ + δ_k Σu_j d_k + δ_j Σd_j u_k + δ_j δ_k Σd_j d_k.
    """
    place = np.repeat(np.arange(shift.shape[-2]), shift.shape[-1])
    by = shift.reshape(*shift.shape[:-2], -1)
    crossed, weights = own["crossed"], own["weights"]
    step = crossed[..., place] * by[..., None, :]
    between = weights[..., place[:, None], place] * by[..., :, None] * by[..., None, :]
    return {
        **own,
        "mean": own["mean"] - shift,
        "products": own["products"] + step + step.swapaxes(-1, -2) + between,
        "crossed": crossed + by[..., :, None] * weights[..., place, :],
    }


def stacked(parts: Arrays) -> Arrays:
    """The sums of several tables, along the first axis, as one."""
    total = (parts["weight"][..., None] * parts["mean"]).sum(axis=0)
    mean = total / _positive(parts["weight"].sum(axis=0))[..., None]
    moved = recentred(parts, parts["mean"] - mean)
    return {**{name: value.sum(axis=0) for name, value in moved.items()}, "mean": mean}


def people_sums(own: Arrays) -> Arrays:
    """What can be added up over sites: sums about 0."""
    total = own["weight"][..., None] * own["mean"]
    return _mapped(pack, {**recentred(own, own["mean"]), "mean": total})


def of_people(sums: Arrays) -> Arrays:
    """The inverse of `people_sums`."""
    mean = sums["mean"] / _positive(sums["weight"])[..., None]
    return recentred(_mapped(unpack, {**sums, "mean": 0.0 * mean}), -mean)


def sent(own: Arrays) -> Arrays:
    """What the coordinator needs of each site: not whether groups have people in common."""
    return _mapped(pack, {name: value for name, value in own.items() if name not in ("crossed", "weights")})


def _mapped(change: Callable[[Array], Array], sums: Arrays) -> Arrays:
    return {name: change(value) if name in SYMMETRIC else value for name, value in sums.items()}


def _positive(sizes: Array) -> Array:
    """Sizes to divide by, where what is divided is 0 if they are."""
    return sizes + (sizes == 0.0)

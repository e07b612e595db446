"""All parameters given everybody completed, drawn at the coordinator from sums: one chain's round.

The outcome's model is linear about its mode, coefficients are normal by group, and so is a site's offset in
either arm, all with variances that are learned.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unpooled.maths import partial_pooling as pooling
from unpooled.maths.linear_algebra import unpack
from unpooled.maths.mcmc import NormalTerms, draw_variances
from unpooled.methods.causal_fi.chain import OFFSET, SLOPE, Chain, Setting
from unpooled.methods.causal_fi.confounder_draws import draw_numbers, draw_probit, draw_steps
from unpooled.methods.causal_fi.structures import DIRECTION, EXPECTED, LEARNED, SLOPES
from unpooled.protocol.messages import Tree

NOISE = 0.3
"""Expected variance of the outcome's noise."""
FURTHEST = 1.0
"""How many prior sds what bends the outcome may move in a round; what is linear needs no such care."""


def advance(leaves: tuple[Chain, Tree, Array], setting: Setting) -> Chain:
    """All parameters anew."""
    chain, sums, key = leaves
    parts = jax.random.split(jax.random.wrap_key_data(key), 7)
    for_u, for_w, for_steps, for_common, for_variances, *for_y = parts
    gram = unpack(sums["confounders"])
    products = unpack(sums["treatment_products"]) if "treatment_products" in sums else gram
    all_ = jnp.ones(len(gram), bool)
    treatment = draw_probit(products, sums["treatment"], chain.spreads[0], all_, for_w)
    steps = draw_steps(gram, sums["steps"], chain.spreads[1:], setting.layout, for_steps)
    common = _common(chain, setting.groups, for_common)
    arms, terms = jax.vmap(partial(_outcome, setting, common))(_by_arm(chain, sums), jnp.stack(for_y))
    squares, counts = (jnp.append(treatment[part], steps[part]) for part in (1, 2))
    terms["spreads"] = NormalTerms(squares, counts, SLOPE)
    terms["common"] = NormalTerms(jnp.sum(common**2), jnp.sum(setting.groups == SLOPES), EXPECTED[SLOPES])
    drawn = draw_variances(terms, for_variances)
    first = len(gram) - len(setting.layout.mean)
    given = setting.layout.before_numbers(first)
    order = np.concatenate([given, first + setting.layout.numbers])
    return chain._replace(
        confounders={"steps": steps.coefficients, **draw_numbers(gram[order][:, order], len(given), for_u)},
        treatment=treatment.coefficients,
        spreads=drawn["spreads"],
        common=drawn["common"],
        outcome=arms["outcome"],
        mode=arms["mode"],
        offset=arms["offset"].T,
        mode_offset=arms["mode_offset"].T,
        noise=drawn["noise"] if setting.family.learns_noise else chain.noise,
        variances=jnp.where(jnp.asarray(LEARNED), drawn["variances"], jnp.asarray(EXPECTED)),
        site=drawn["site"],
    )


class _Arm(NamedTuple):
    gram: Array
    score: Array
    square: Array
    people: Array
    cross: Array
    site_score: Array
    mode: Array
    noise: Array
    variances: Array
    site: Array


def _by_arm(chain: Chain, sums: Tree) -> _Arm:
    """Arms come first."""
    return _Arm(
        unpack(sums["outcome"]), sums["score"], sums["square"], sums["people"].T,
        jnp.swapaxes(sums["site_cross"], 0, 1), sums["site_score"].T, chain.mode, chain.noise,
        chain.variances, chain.site,
    )  # fmt: skip


def _common(chain: Chain, groups: Array, key: Array) -> Array:
    """What the slopes of both arms have in common; other coefficients have nothing."""
    slopes, own = groups == SLOPES, chain.variances[:, SLOPES, None]
    precision = 1.0 / chain.common + jnp.sum(1.0 / own)
    mean = jnp.sum(chain.outcome / own, axis=0) / precision
    drawn = mean + jax.random.normal(key, mean.shape) / jnp.sqrt(precision)
    return jnp.where(slopes, drawn, 0.0)


def _outcome(setting: Setting, common: Array, arm: _Arm, key: Array) -> tuple[Tree, dict[str, NormalTerms]]:
    """Coefficients and offsets of one arm by the exact solve; and all terms that have a variance."""
    groups = setting.groups
    scale = jnp.sqrt(arm.variances[groups])
    prior = pooling.PoolingPrior(jnp.diag(scale), jnp.sqrt(arm.site * setting.several).reshape(1, 1))
    weight = 1.0 / arm.noise
    sums = pooling.PoolingSums(
        weight * arm.gram, weight * (arm.score - arm.gram @ common), weight * arm.people[:, None, None],
        weight * arm.cross[:, None, :], weight * (arm.site_score - arm.cross @ common)[:, None],
    )  # fmt: skip
    fitted = pooling.posterior(sums, prior)
    mean, drawn = pooling.coefficients(fitted, prior), pooling.coefficients(fitted, prior, key)
    step = mean.common + common - arm.mode
    far = jnp.max(jnp.where(groups >= DIRECTION, jnp.abs(step) / scale, 0.0))
    mode = arm.mode + step / jnp.maximum(1.0, far / FURTHEST)
    offset = drawn.site[:, 0]
    left = _squares(arm, drawn.common + common, offset)
    found = mode + drawn.common - mean.common
    totals = jnp.zeros(len(EXPECTED)).at[groups].add((found - common) ** 2)
    levels = jnp.zeros(len(EXPECTED)).at[groups].add(1.0)
    terms = {
        "noise": NormalTerms(left, arm.people.sum(), NOISE),
        "variances": NormalTerms(totals, levels, jnp.asarray(EXPECTED)),
        "site": NormalTerms(jnp.sum(offset**2), float(len(offset)), OFFSET),
    }
    return {"outcome": found, "mode": mode, "offset": offset, "mode_offset": mean.site[:, 0]}, terms


def _squares(arm: _Arm, coefficients: Array, offset: Array) -> Array:
    """Σ (response − slopesᵀβ − offset)², from the sums."""
    found = arm.square - 2.0 * (coefficients @ arm.score + offset @ arm.site_score)
    found = found + coefficients @ arm.gram @ coefficients + 2.0 * offset @ (arm.cross @ coefficients)
    return jnp.maximum(found + arm.people @ offset**2, 1e-9)

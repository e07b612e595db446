"""How sums over a site's people are kept from resting on too few of them.

The columns [1, x] are exempt: `Ridge` sends their sums anyway, and they depend on no parameter. Every other
feature must rest on more than `rows.least` effective people of an arm. Two steps see to that, and neither
changes anything if `rows.least` is 0:

1. `counted`: people who would dominate a feature count less, in all sums alike. Their share of the likelihood
   becomes smaller, which loses information but does not bias the weights.
2. `kept`: a feature that still rests on too few people is left out at this site and in this arm.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unpooled.disclosure.effective_people import TINY, enough

FULL = 1.2
"""A feature counts in full from this multiple of the least number of effective people."""
PASSES = 2
"""Passes of `counted`: whoever counts less makes the others' shares larger."""
SHARPNESS = 8
"""Exponent of the smooth maximum over features."""


def counted(
    features: Float[Array, "n p"], arms: Float[Array, "2 n"], least: float, plain: int
) -> Float[Array, "2 n"]:
    """How much each person counts in their arm, at most as in `arms`.

    A person whose largest share of an arm's Σφ² is r/(FULL·least) counts about 1/max(1, r).
    """
    squares = features[:, plain:] ** 2
    member = jnp.sign(arms)
    for _ in range(PASSES):
        totals = member.T @ (arms @ squares)
        shares = jnp.sum(arms, axis=0)[:, None] * squares / jnp.where(totals > TINY, totals, jnp.inf)
        excess = jnp.sum((FULL * least * shares) ** SHARPNESS, axis=1)
        arms = arms * (1.0 + excess) ** (-1.0 / SHARPNESS)
    return jax.lax.stop_gradient(arms)  # the derivative would be that of single people


def kept(contributions: Float[Array, "*k p n"], least: float, plain: int) -> Float[Array, "*k p"]:
    """The factor of each feature: 0 if it rests on `least` people or fewer, 1 from FULL times as many."""
    factor = jnp.minimum(enough(contributions, least) / (FULL - 1.0), 1.0)
    return factor.at[..., :plain].set(1.0)

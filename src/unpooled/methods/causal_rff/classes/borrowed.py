"""The borrowed shares of latent classes: of what the sites say about the outcome cells, arm × class."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.partial_pooling import borrowed_shares
from unpooled.methods.causal_rff.classes.cells import Cells, Counted, Variances, precision, prior_of, sums_of
from unpooled.methods.causal_rff.classes.em import Learned
from unpooled.methods.causal_rff.classes.mixture import Mixture


def borrowed(mixture: Mixture, mode: Learned) -> np.ndarray:
    """Of one model, given everybody's chances of belonging to a class."""
    state, people = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), (mode.states, mode.people))
    by_cell = people.reshape(people.shape[0], -1)
    return np.asarray(of_cells(mixture.outcome, jnp.tile(state.active, 2), by_cell, state.outcome))


@jax.jit
def of_cells(
    cells: Cells, active: Array, people: Float[Array, "m c"], variances: Variances
) -> Float[Array, "m m"]:
    """The outcomes themselves do not matter, only how much the people of each cell tell."""
    counted = Counted(people, jnp.zeros_like(people), jnp.zeros(2))
    seen = sums_of(*precision(cells, counted, variances))
    return borrowed_shares(seen, prior_of(cells, active, variances.values))

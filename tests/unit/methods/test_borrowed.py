"""The borrowed shares of latent classes, against what changed outcomes do to the cells."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from unpooled.methods.causal_rff.classes.candidate import of_cells
from unpooled.methods.causal_rff.classes.cells import Counted, Variances, precision, solve
from unpooled.methods.causal_rff.classes.log_likelihoods import ColumnKinds
from unpooled.methods.causal_rff.classes.mixture import make_mixture

SITES, MOST, CLASSES = 3, 4, 3
ACTIVE = np.tile(np.arange(MOST) < CLASSES, 2).astype(float)
RNG = np.random.default_rng(14)
PEOPLE = RNG.uniform(0.2, 30.0, (SITES, 2 * MOST)) * ACTIVE
TOTAL = PEOPLE * RNG.uniform(0.1, 0.9, PEOPLE.shape)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(
    "binary", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["numbers", "0/1"]
)
def test_shares_are_what_changed_outcomes_do_to_the_cells(binary: bool) -> None:
    none = jnp.zeros(0, int)
    cells = make_mixture(MOST, ColumnKinds(none, none), binary=binary).outcome
    begun = cells.start(SITES)
    variances = Variances(begun.values, jnp.asarray(RNG.uniform(0.1, 2.0, PEOPLE.shape)))
    counted = Counted(jnp.asarray(PEOPLE), jnp.asarray(TOTAL), jnp.ones(2))
    weight = np.asarray(precision(cells, counted, variances)[0])
    # In the units in which outcomes enter: numbers are divided by their noise, logits are not.
    unit = weight if binary else PEOPLE
    before = np.asarray(solve(cells, ACTIVE, counted, variances).mean)
    together = np.zeros((SITES, SITES))
    for v in range(SITES):
        for cell in np.flatnonzero(ACTIVE):
            raised = TOTAL.copy()
            raised[v, cell] += unit[v, cell]
            after = solve(cells, ACTIVE, counted._replace(total=jnp.asarray(raised)), variances).mean
            rise = np.asarray(after)[:, cell] - before[:, cell]
            together[:, v] += weight[:, cell] / weight[:, cell].sum() * rise
    found = of_cells(cells, jnp.asarray(ACTIVE), jnp.asarray(PEOPLE), variances)
    np.testing.assert_allclose(found, together / together.sum(axis=1, keepdims=True), rtol=1e-8)

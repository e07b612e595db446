"""Conditional and individual effects at a site, by the boosted models.

A prediction is the mean of the models without each fold. How far they are apart is the error of that mean, by
the jackknife that leaves out a group (Shao and Wu 1989); draws are random combinations of their deviations.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unpooled.maths.compilation import Program
from unpooled.methods.boosted_arms.settings import PARTS
from unpooled.methods.boosted_arms.stages import Models
from unpooled.models.other_arm import other_arm
from unpooled.models.outcome_family import Family, possible
from unpooled.models.trees import bins_of
from unpooled.protocol.records import Arrays
from unpooled.protocol.rows import Rows


def conditional(family: Family, models: Models, draws: Arrays, people: Rows) -> np.ndarray:
    """CATE draws [K, people]; nobody's is impossible."""
    means = arm_draws(family, models, draws, people)
    return means[..., 1] - means[..., 0]


def individual(family: Family, models: Models, draws: Arrays, people: Rows, seed: int) -> np.ndarray:
    """ITE draws (2w − 1)(y − y_mis) [K, people], with y_mis drawn about the mean of the other arm."""
    return other_arm(family, arm_draws(family, models, draws, people), draws["noise"], people, seed)


def arm_draws(family: Family, models: Models, draws: Arrays, people: Rows) -> np.ndarray:
    """Draws [K, people, 2] of the mean outcome in both arms."""
    sent = jax.tree.map(lambda leaf: np.asarray(leaf)[0], {name: draws[name] for name in ("edges", "models")})
    return np.asarray(_arm_draws(models, family, sent, draws["normals"], people))


@Program
def _arm_draws(
    models: Models, family: Family, sent: Arrays, normals: Array, people: Rows
) -> Float[Array, "k n 2"]:
    found = models.predictions(sent["models"], bins_of(sent, people))
    arms = found.reshape(models.folds, len(PARTS), -1)[:, :2]
    mean = arms.mean(axis=0)
    deviation = (arms - mean) * jnp.sqrt(1.0 - 1.0 / models.folds)
    drawn = mean + jnp.einsum("kf,fan->kan", normals, deviation)
    return possible(family, jnp.swapaxes(drawn, 1, 2))

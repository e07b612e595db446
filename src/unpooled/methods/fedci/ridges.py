"""Where the descents start, and what their priors rest on: a ridge regression per arm."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from unpooled.maths.linear_algebra import unpack
from unpooled.protocol.messages import Tree

RIDGE = 5.0


@dataclass(frozen=True)
class Ridges:
    """Directions (of length one), residual sds and numbers of people of a ridge regression per arm."""

    directions: np.ndarray
    noise: np.ndarray
    rows: np.ndarray


def ridges_of(total: Tree) -> Ridges:
    gram = np.asarray(unpack(jnp.asarray(total["gram"])))
    penalty = np.diag([1e-6, *np.full(gram.shape[-1] - 1, RIDGE)])
    coefficient = np.stack(
        [np.linalg.solve(g + penalty, m) for g, m in zip(gram, total["moment"], strict=True)]
    )
    fitted = np.einsum("af,af->a", coefficient, total["moment"])
    residual = total["square"] - 2.0 * fitted + np.einsum("af,afg,ag->a", coefficient, gram, coefficient)
    spent = np.array([np.trace(np.linalg.solve(g + penalty, g)) for g in gram])
    count = gram[:, 0, 0]
    freedom = np.maximum(count - spent, 0.1 * count)
    sd = np.sqrt(np.maximum(residual, 1e-12) / freedom)
    slopes = coefficient[:, 1:] + 1e-9
    directions = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
    return Ridges(directions, np.clip(0.7 * sd, 0.02, 1.5), count)


def fixed_by(starts: list[Ridges], held: np.ndarray) -> Tree:
    """Which fold is held out, and what the priors of noise and directions rest on."""
    return {
        "fold": held,
        "noise": np.log(np.stack([ridge.noise for ridge in starts])),
        "direction": np.stack([ridge.directions for ridge in starts]),
        "rows": np.stack([ridge.rows for ridge in starts]),
    }

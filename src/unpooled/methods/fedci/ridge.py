"""Ridge regressions before the fit: starting values, and who is likely to be treated.

One round gives the sums of [1, x] and the outcome by arm. From them the coordinator knows the directions of
the outcome's slopes, the scale of the noise, and how the treatment depends on the covariates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from unpooled.maths.linear_algebra import pack, unpack
from unpooled.methods.fedci.bounds import FIXED
from unpooled.methods.fedci.stages import arm_indicators, in_use
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import Bounds, Stage

RIDGE = 5.0
"""Penalty of the regressions."""
MOST = 14.0
"""Largest coefficient of the log odds, within what sites answer to."""


class Ridge(Stage):
    """A ridge regression per arm, which gives starting directions and the scale of the noise."""

    def bounds(self) -> Bounds:
        return FIXED

    often: ClassVar[bool] = False
    reveals: ClassVar[str] = (
        "per arm: Gram matrix of the covariates summed over people, their products with the outcome"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        features = jnp.concatenate([jnp.ones_like(rows.treatment)[:, None], rows.covariates], axis=1)
        weights = arm_indicators(rows.treatment).T * in_use(rows, parameters.fixed)
        gram = jnp.einsum("an,nf,ng->afg", weights, features, features)
        moment = jnp.einsum("an,nf,n->af", weights, features, rows.outcome)
        return Statistics({"gram": pack(gram), "moment": moment, "square": weights @ rows.outcome**2})


@dataclass(frozen=True)
class Ridges:
    """A ridge regression per arm: unit directions of the slopes, residual sds, and numbers of people."""

    directions: np.ndarray
    noise: np.ndarray
    rows: np.ndarray
    propensity: np.ndarray
    """Slopes of a linear regression of the treatment on the covariates, scaled so that its fit has sd one."""
    log_odds: np.ndarray
    """Log odds of treatment, as coefficients of [1, x]: linear discriminant analysis."""


def ridges_of(total: Arrays) -> Ridges:
    """Solve the ridge regressions from sums over sites."""
    gram = unpack(np.asarray(total["gram"]))
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
    return Ridges(directions, np.clip(0.7 * sd, 0.02, 1.5), count, propensity_of(gram), log_odds_of(gram))


def propensity_of(gram: np.ndarray) -> np.ndarray:
    """The linear regression of the treatment on the covariates, from the Gram matrices of both arms."""
    both = gram.sum(axis=0)
    people, mean = both[0, 0], both[0, 1:] / both[0, 0]
    covariance = both[1:, 1:] / people - np.outer(mean, mean)
    cross = gram[1, 0, 1:] / people - mean * gram[1, 0, 0] / people
    slopes = np.linalg.solve(covariance + np.eye(len(mean)) / people, cross)
    # Where a few people have nearly all the weight, covariates may hardly vary along the slopes.
    return np.clip(slopes / np.sqrt(slopes @ covariance @ slopes + 1e-12), *FIXED["propensity"])


def log_odds_of(gram: np.ndarray) -> np.ndarray:
    """Coefficients of [1, x] in the log odds of treatment, if covariates were normal in both arms."""
    count, sums = gram[:, 0, 0], gram[:, 0, 1:]
    means = sums / count[:, None]
    within = gram[:, 1:, 1:].sum(axis=0) - np.einsum("af,ag->fg", means, sums)
    # The penalty keeps the covariance of constant columns from being singular.
    slopes = count.sum() * np.linalg.solve(within + RIDGE * np.eye(len(within)), means[1] - means[0])
    intercept = np.log(count[1] / count[0]) - slopes @ means.mean(axis=0)
    return np.clip(np.append(intercept, slopes), -MOST, MOST)


def fixed_parameters(starts: list[Ridges], held: np.ndarray) -> Arrays:
    """Fixed parameters: the held-out fold, and the centres of the priors of noise and directions."""
    return {
        "fold": held,
        "noise": np.log(np.stack([ridge.noise for ridge in starts])),
        "direction": np.stack([ridge.directions for ridge in starts]),
        "rows": np.stack([ridge.rows for ridge in starts]),
        "propensity": np.stack([ridge.propensity for ridge in starts]),
    }

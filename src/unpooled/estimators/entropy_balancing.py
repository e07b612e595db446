"""Weights with which the study's people have the moments of a target population (entropy balancing).

Person i counts w_i ∝ exp(λᵀh(x_i)), where h(x) holds the covariates, and their squares where sds are given.
Of all weights with these moments they are the closest to equal ones in relative entropy. λ minimises
log Σ exp(λᵀ(h(x_i) − m)), by Newton steps on three sums: of w, of w·h and of w·hhᵀ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from unpooled.errors import FitError, StudyError, nearest
from unpooled.protocol.records import Scaling
from unpooled.study import Schema

Moment = float | tuple[float, float]
"""The mean of a covariate, or its mean and standard deviation."""
STEPS, HALVINGS = 60, 30
ENOUGH = 1e-10
"""Squared Newton decrement below which the weights have the moments."""
NEAR = 1e-5
"""Largest difference from a moment, in sds."""
SHARE = 1e-4
"""A step is halved until it lowers the objective by this share of what its slope promises."""


class Balance(NamedTuple):
    """What is balanced: means of features, and of squares of features, in standard units."""

    features: np.ndarray
    squares: np.ndarray
    target: np.ndarray

    def of(self, covariates: np.ndarray) -> np.ndarray:
        """h(x) − m of people [n, features]."""
        return np.hstack([covariates[:, self.features], covariates[:, self.squares] ** 2]) - self.target


def balance_of(moments: Mapping[str, Moment], schema: Schema, scaling: Scaling) -> Balance:
    """The moments in standard units; the names are those of the schema's features."""
    names, binary = list(schema.features), np.isfinite(np.asarray(scaling.binary_rate, float))
    features, squares, means, seconds = [], [], [], []
    for name, moment in moments.items():
        if name not in names:
            raise StudyError(
                "every moment must be of a covariate of the study",
                found=f"'{name}'",
                remedy=f"{nearest(name, names)}; a level of a text column is written as column=level",
            )
        place = names.index(name)
        mean, sd = moment if isinstance(moment, tuple) else (moment, None)
        if not np.isfinite(mean) or (sd is not None and (binary[place] or not sd > 0.0)):
            raise StudyError(
                "a moment must be a mean, or the mean and sd of a numeric covariate",
                found=f"'{name}': {moment}",
                remedy="give a share for a 0/1 covariate, and a mean or (mean, sd) for a number",
            )
        centre, scale = scaling.mean[place], scaling.sd[place]
        features.append(place)
        means.append((mean - centre) / scale)
        if sd is not None:
            squares.append(place)
            seconds.append((sd**2 + (mean - centre) ** 2) / scale**2)
    if not features:
        raise StudyError("a target must have moments", found="none", remedy="give the means of covariates")
    return Balance(np.array(features), np.array(squares, int), np.array([*means, *seconds]))


class Sums(NamedTuple):
    """Σw, Σwh and Σwhhᵀ of a site's people, all times exp(−`largest`)."""

    largest: float
    weight: float
    first: np.ndarray
    second: np.ndarray


def sums_at(deviations: np.ndarray, tilt: np.ndarray) -> Sums:
    """What one site tells about λ."""
    exponent = deviations @ tilt
    largest = float(exponent.max())
    weight = np.exp(exponent - largest)
    return Sums(largest, weight.sum(), weight @ deviations, (deviations * weight[:, None]).T @ deviations)


def tilt_to(target: Balance, sites: Sequence[np.ndarray]) -> np.ndarray:
    """λ, from the covariates at each site, of which only sums are combined."""
    deviations = [target.of(covariates) for covariates in sites]

    def at(tilt: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return _together([sums_at(one, tilt) for one in deviations])

    tilt = np.zeros(len(target.target))
    value, slope, curvature = at(tilt)
    for _ in range(STEPS):
        step = -np.linalg.lstsq(curvature, slope, rcond=1e-10)[0]
        gain = float(-slope @ step)
        if gain < ENOUGH and np.abs(slope).max() < NEAR:
            return tilt
        there = at(tilt + step)
        for _ in range(HALVINGS):
            if there[0] <= value - SHARE * gain:
                break
            step, gain = 0.5 * step, 0.5 * gain
            there = at(tilt + step)
        tilt, (value, slope, curvature) = tilt + step, there
    raise FitError(
        "people of the study must be able to have the moments of the target by weighting",
        found="moments at the edge of the study's people or beyond",
        remedy="give fewer moments, or a target whose people are like some of the study's",
    )


def _together(sums: Sequence[Sums]) -> tuple[float, np.ndarray, np.ndarray]:
    """log Σ exp(λᵀ(h − m)), its gradient and its Hessian."""
    largest = max(one.largest for one in sums)
    factors = [np.exp(one.largest - largest) for one in sums]
    total = sum(factor * one.weight for factor, one in zip(factors, sums, strict=True))
    first = np.sum([f * one.first for f, one in zip(factors, sums, strict=True)], axis=0) / total
    second = np.sum([f * one.second for f, one in zip(factors, sums, strict=True)], axis=0) / total
    return largest + float(np.log(total)), first, second - np.outer(first, first)

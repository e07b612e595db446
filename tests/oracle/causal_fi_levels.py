"""u given x and what is seen, by listing every filling of the levels and a grid over every missing number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import logsumexp

LARGEST = 30
POINTS = 61


@dataclass
class Points:
    """Values of all of u, and how likely each is."""

    u: np.ndarray
    log: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        return np.exp(self.log - logsumexp(self.log))

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean = self.weight @ self.u
        return mean, np.sqrt(np.maximum(self.weight @ self.u**2 - mean**2, 0.0))


def count_chances(step: np.ndarray, design: np.ndarray) -> np.ndarray:
    """Log chances of 0, 1, …: stop at each number or go on."""
    at = np.arange(float(LARGEST))
    eta = design @ step[: len(design)] + step[-2] * np.log1p(at) + step[-1] * at / 10.0
    passed = np.concatenate([[0.0], np.cumsum(stats.norm.logcdf(-eta))])
    return passed + np.append(stats.norm.logcdf(eta), 0.0)


def posterior(told: dict[str, Any], confounders: dict[str, Any], x: np.ndarray, u: np.ndarray) -> Points:
    """For the columns number, 0/1, category of three, count, number."""
    mean, sd = told["mean"], told["sd"]
    choices = [
        [(value - mean[4]) / sd[4] for value in range(LARGEST + 1)] if np.isnan(u[4]) else [u[4]],
        [tuple((np.array(d) - mean[2:4]) / sd[2:4]) for d in ((1, 0), (0, 1), (0, 0))]
        if np.isnan(u[2])
        else [(u[2], u[3])],
        [(value - mean[1]) / sd[1] for value in (0, 1)] if np.isnan(u[1]) else [u[1]],
    ]
    numbers, found, logs = [0, 5], [], []
    for count, category, flag in product(*choices):
        full = u.copy()
        full[4], full[2:4], full[1] = count, category, flag
        log = log_levels(told, confounders["steps"], x, full)
        given = np.concatenate([x, [count], category, [flag]])
        centre = confounders["intercept"] + given @ confounders["slopes"]
        grids = [
            centre[k] + np.sqrt(confounders["covariance"][k, k]) * np.linspace(-6, 6, POINTS)
            if np.isnan(u[place])
            else np.array([u[place]])
            for k, place in enumerate(numbers)
        ]
        both = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
        points = np.tile(full, (len(both), 1))
        points[:, numbers] = both
        found.append(points)
        logs.append(log + stats.multivariate_normal.logpdf(both, centre, confounders["covariance"]))
    return Points(np.concatenate(found), np.concatenate([np.atleast_1d(log) for log in logs]))


def log_levels(told: dict[str, Any], steps: np.ndarray, x: np.ndarray, u: np.ndarray) -> float:
    """The count first, then the category, then the flag."""
    raw = u * told["sd"] + told["mean"]
    base = np.array([1.0, *x])
    log = count_chances(steps[0], base)[round(raw[4])]
    eta = steps[1:3, :4] @ np.append(base, u[4])
    stop, on = stats.norm.logcdf(eta), stats.norm.logcdf(-eta)
    log += [stop[0], on[0] + stop[1], on[0] + on[1]][int(np.argmax([*np.round(raw[2:4]), 0.5]))]
    last = steps[3, :6] @ np.concatenate([base, [u[4]], u[2:4]])
    return float(log + stats.norm.logcdf(last if round(raw[1]) == 1 else -last))


def draw_levels(
    told: dict[str, Any], steps: np.ndarray, x: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Levels of many people, as features of all columns; numbers stay zero."""
    found = np.zeros((len(x), 6))
    for person, one in enumerate(x):
        base = np.array([1.0, *one])
        count = rng.choice(LARGEST + 1, p=np.exp(count_chances(steps[0], base)))
        raw = np.array([0.0, 0.0, 0.0, 0.0, count, 0.0])
        u = (raw - told["mean"]) / told["sd"]
        stop = rng.random(2) < stats.norm.cdf(steps[1:3, :4] @ np.append(base, u[4]))
        raw[2:4] = stop[0], stop[1] and not stop[0]
        u = (raw - told["mean"]) / told["sd"]
        raw[1] = rng.random() < stats.norm.cdf(steps[3, :6] @ np.concatenate([base, [u[4]], u[2:4]]))
        found[person] = (raw - told["mean"]) / told["sd"]
    return found


def given(
    before: Points, log_outcome: Callable[[np.ndarray], np.ndarray], treatment: np.ndarray, x: np.ndarray
) -> Points:
    """Also given an outcome, and that the person is treated."""
    g = np.column_stack([np.ones(len(before.u)), np.tile(x, (len(before.u), 1)), before.u])
    return Points(before.u, before.log + log_outcome(before.u) + stats.norm.logcdf(g @ treatment))

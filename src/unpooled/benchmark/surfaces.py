"""Simulated outcomes of real people: what they would have untreated, and what treatment changes.

Every surface is written in the columns of one table of real covariates. a, b, c, d are numeric columns in
standard units, clipped at ±2.5, because real columns have values ten sds from their mean; p and q are 0/1
columns. Which columns of the table they are is drawn from the seed, so that one surface in two data sets is
not one function. Outcomes are Gaussian with the sd `NOISE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

NOISE, PROGNOSTIC_SD, FARTHEST = 1.0, 2.0, 2.5
NUMBERS, FLAGS = 4, 2
FEWEST_VALUES = 10
"""Distinct values of a numeric column that a surface may use."""
COMMON = 0.15
"""Smallest share of either value of a 0/1 column that a surface may use; sites may refuse rare ones."""
SMALLEST_PROPENSITY = 0.05


@dataclass(frozen=True)
class Columns:
    """The columns of a surface, each with one value per person.

    `all_numbers` are the table's numeric columns [people, columns], `flags` the names of p and q.
    """

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d: np.ndarray
    p: np.ndarray
    q: np.ndarray
    all_numbers: np.ndarray
    flags: tuple[str, ...]

    @classmethod
    def drawn(cls, covariates: pd.DataFrame, rng: np.random.Generator) -> Columns:
        """Draw a, b, c, d among the numeric columns of a table, and p and q among its 0/1 columns."""
        values = covariates.to_numpy(float)
        flag = np.isin(values, (0, 1)).all(axis=0)
        rarer = np.minimum(values.mean(axis=0), 1.0 - values.mean(axis=0))
        several = np.array([len(np.unique(column)) >= FEWEST_VALUES for column in values.T])
        numeric = values[:, ~flag & several]
        numbers = np.clip((numeric - numeric.mean(axis=0)) / numeric.std(axis=0), -FARTHEST, FARTHEST)
        a, b, c, d = numbers[:, rng.permutation(numbers.shape[1])[:NUMBERS]].T
        flags = rng.permutation(np.flatnonzero(flag & (rarer >= COMMON)))[:FLAGS]
        p, q = values[:, flags].T
        return cls(a, b, c, d, p, q, numbers, tuple(covariates.columns[flags]))


Effect = Callable[[Columns, np.random.Generator], np.ndarray]
"""(columns, rng of the coefficients) → each person's effect."""


def prognosis(of: Columns) -> np.ndarray:
    """a + b²/2 + sin 2c + 1.5·[d > 0.3] + p·a − q, moved and scaled to mean 0 and sd 2.

    A line, a parabola, a wave, a step and an interaction, so that no single kind of model has it all.
    """
    raw = of.a + of.b**2 / 2 + np.sin(2 * of.c) + 1.5 * (of.d > 0.3) + of.p * of.a - of.q
    return PROGNOSTIC_SD * (raw - raw.mean()) / raw.std()


def none(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """0: the treatment does nothing."""
    return np.zeros_like(of.a)


def constant(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """1.5 for everybody."""
    return np.full_like(of.a, 1.5)


def linear(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """1 + a − b/2 + p."""
    return 1.0 + of.a - of.b / 2 + of.p


def smooth(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """1 + 1.5 sin(1.5a) + c²/2."""
    return 1.0 + 1.5 * np.sin(1.5 * of.a) + of.c**2 / 2


def steps(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """2·[a > 0] + 1.5·[b > 0.5] − [c < −0.5]."""
    return 2.0 * (of.a > 0) + 1.5 * (of.b > 0.5) - (of.c < -0.5)


def interaction(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """1 + 2·[a > 0]·p + b·c."""
    return 1.0 + 2.0 * (of.a > 0) * of.p + of.b * of.c


def tree(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """Where a > 0, 4 or 1 as b > 0.3 or not; elsewhere −1 or 0.5 as p is 1 or 0."""
    return np.where(of.a > 0, np.where(of.b > 0.3, 4.0, 1.0), np.where(of.p == 1, -1.0, 0.5))


def few(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """3·[a > 0.8]: nothing for most people, and much for a few."""
    return 3.0 * (of.a > 0.8)


def dense(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """1 + a sum over all numeric columns with Gaussian coefficients, of sd 1.5."""
    index = of.all_numbers @ rng.standard_normal(of.all_numbers.shape[1])
    return 1.0 + 1.5 * index / index.std()


def index(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """The softplus of 2(a + b − c + q): one direction, bent once."""
    return np.logaddexp(0.0, 2.0 * (of.a + of.b - of.c + of.q))


def mixed(of: Columns, rng: np.random.Generator) -> np.ndarray:
    """1 + 1.5·[a > 0.3] + sin 2b + 0.7·q·d: a step, a wave and an interaction."""
    return 1.0 + 1.5 * (of.a > 0.3) + np.sin(2 * of.b) + 0.7 * of.q * of.d


EFFECTS: dict[str, Effect] = {
    function.__name__: function
    for function in (none, constant, linear, smooth, steps, interaction, tree, few, dense, index, mixed)
}


def propensity(of: Columns) -> np.ndarray:
    """The share treated: logistic in −1 + 0.8a + [b > 0.5] − 0.5c·p, and between 0.05 and 0.95."""
    logit = -1.0 + 0.8 * of.a + (of.b > 0.5) - 0.5 * of.c * of.p
    return np.clip(1.0 / (1.0 + np.exp(-logit)), SMALLEST_PROPENSITY, 1.0 - SMALLEST_PROPENSITY)


def simulated(
    of: Columns, treatment: np.ndarray | None, surface: str, rng: np.random.Generator
) -> pd.DataFrame:
    """The columns w, y, y0, y1, mu0 and mu1 of a table of people with one of the effects.

    Without a real treatment, people are treated by `propensity`, whose columns are those of the outcome.
    """
    w = (rng.random(len(of.a)) < propensity(of)).astype(int) if treatment is None else treatment
    mu0 = prognosis(of)
    mu1 = mu0 + EFFECTS[surface](of, rng)
    y0, y1 = (mean + NOISE * rng.standard_normal(len(mean)) for mean in (mu0, mu1))
    return pd.DataFrame({"w": w, "y": np.where(w == 1, y1, y0), "y0": y0, "y1": y1, "mu0": mu0, "mu1": mu1})

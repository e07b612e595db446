"""The data of the paper's CausalRFF experiments: a latent confounder, and sites that differ by a shift.

Treatment, outcomes and covariates depend on a latent z that is in no table: one of five classes or, in
`causalrff-continuous`, a standard normal in two dimensions. The shift Δ of a site is added to the linear
predictors of the treatment and both outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from unpooled.data.simulation.simulation import (
    Simulation,
    Tables,
    observed,
    require_at_least,
    sigmoid,
    site_tables,
)
from unpooled.errors import StudyError

CLASSES = np.array([0.11, 0.17, 0.34, 0.26, 0.12])  # ρ
COVARIATES, BINARY_COVARIATES = 30, 20
"""The number of covariates, and how many of them are 0/1 if z is continuous; with classes all are 0/1."""
LARGEST_SHIFT = 8.0
COEFFICIENT_SEED = 3
LEAST, TRIES = 2, 1_000_000
"""Fewest people in an arm of a training table, and the number of attempts to draw such a table."""

_COMMON = ("coefficient_sd", "coefficient_seed", "least_in_arm")
OPTIONS = {
    "causalrff-same": _COMMON,
    "causalrff-diff": _COMMON,
    "causalrff-delta": (*_COMMON, "delta"),
    "causalrff-large-same": _COMMON,
    "causalrff-large-diff": _COMMON,
    "causalrff-continuous": _COMMON,
}
"""The options of each simulation in addition to its sizes and its seed."""


@dataclass(frozen=True)
class _CausalRffProcess:
    """The process shared by all sites: how z is drawn, and (intercept, slopes in z) of everything else."""

    latent: Callable[[int, np.random.Generator], np.ndarray]
    flags: tuple[np.ndarray, np.ndarray]  # a_j0, a_j1 of the 0/1 covariates
    numbers: np.ndarray  # slopes of the others
    propensity: np.ndarray  # b₁; b₀ is 0
    control: tuple[float, np.ndarray]  # c₀, c₁
    treated: tuple[float, np.ndarray]  # d₀, d₁


def simulate(
    name: str,
    *,
    sites: int,
    rows: int,
    seed: int,
    test_rows: int = 0,
    coefficient_sd: float = 2.0,
    coefficient_seed: int = COEFFICIENT_SEED,
    delta: float = 4.0,
    least_in_arm: int = LEAST,
) -> Simulation:
    """Tables of ``rows`` people per site; ``coefficient_seed`` draws the coefficients, ``seed`` the people.

    ``mu0`` and ``mu1`` of the truth are means given the latent z, as in the paper, not given the covariates:
    an estimate from covariates cannot have an error of 0.

    With large shifts nearly everybody is treated. A site's training people are therefore drawn again until
    each arm has ``least_in_arm`` people; its test people are drawn once. With 0, training people are drawn
    once too, and a site may have people in one arm only.

    >>> data = simulate("causalrff-diff", sites=2, rows=50, seed=7)
    >>> data.frames["site2"]["w"].mean() > data.frames["site1"]["w"].mean()
    np.True_
    """
    sizes = {
        "sites": (sites, 1),
        "rows": (rows, max(2 * least_in_arm, 1)),
        "seed": (seed, 0),
        "test_rows": (test_rows, 0),
    }
    drawn = {"coefficient_sd": (coefficient_sd, 0), "coefficient_seed": (coefficient_seed, 0)}
    require_at_least({**sizes, **drawn, "delta": (delta, 0), "least_in_arm": (least_in_arm, 0)})
    process = (_plane if name == "causalrff-continuous" else _classes)(coefficient_seed, coefficient_sd)
    shifts = _shifts(name, sites, delta, coefficient_seed)
    train, tested = (partial(_people, process, shifts, least) for least in (least_in_arm, 0))
    frames, truth = site_tables(train, sites=sites, rows=rows, seed=seed, part=0)
    test, test_truth = site_tables(tested, sites=sites, rows=test_rows, seed=seed, part=1)
    return Simulation(name, "continuous", seed, frames, test, truth, test_truth, method="causal_rff")


def _shifts(name: str, sites: int, delta: float, seed: int) -> np.ndarray:
    """Δ of each site; the first site, on which estimates are scored, is not shifted."""
    if name == "causalrff-large-diff":
        return np.random.default_rng([seed, 1]).uniform(0.0, LARGEST_SHIFT, sites)
    others = {"causalrff-diff": 4.0, "causalrff-delta": delta}.get(name, 0.0)
    return np.where(np.arange(sites) == 0, 0.0, others)


def _classes(seed: int, sd: float) -> _CausalRffProcess:
    generator = np.random.default_rng(seed)
    classes = len(CLASSES)
    intercepts = generator.normal(0.0, sd, COVARIATES)
    slopes = generator.normal(0.0, sd, (classes, COVARIATES))
    b1, c1, d1 = generator.normal(0.0, sd, (3, classes))
    return _CausalRffProcess(_one_hot, (intercepts, slopes), np.empty((classes, 0)), b1, (0.9, c1), (7.9, d1))


def _plane(seed: int, sd: float) -> _CausalRffProcess:
    """A continuous z; slopes of treatment and outcomes have half the sd, since arms would hardly overlap."""
    generator = np.random.default_rng(seed)
    intercepts = generator.normal(0.0, sd, BINARY_COVARIATES)
    slopes = generator.normal(0.0, sd, (2, COVARIATES))
    b1, c1, d1 = generator.normal(0.0, sd / 2.0, (3, 2))
    flags, numbers = np.split(slopes, [BINARY_COVARIATES], axis=1)
    return _CausalRffProcess(_point, (intercepts, flags), numbers / 2.0, b1, (0.9, c1), (3.0, d1))


def _one_hot(rows: int, generator: np.random.Generator) -> np.ndarray:
    return np.eye(len(CLASSES))[generator.choice(len(CLASSES), rows, p=CLASSES)]


def _point(rows: int, generator: np.random.Generator) -> np.ndarray:
    return generator.standard_normal((rows, 2))


def _people(
    process: _CausalRffProcess,
    shifts: np.ndarray,
    least: int,
    site: int,
    rows: int,
    generator: np.random.Generator,
) -> Tables:
    shift = float(shifts[site - 1])
    z, w = _treated(process, shift, rows, least, generator)
    flags = generator.binomial(1, sigmoid(process.flags[0] + z @ process.flags[1]))
    numbers = z @ process.numbers
    numbers = numbers + generator.standard_normal(numbers.shape)
    arms = (process.control, process.treated)
    means = tuple(np.logaddexp(0.0, start + z @ slopes + shift) for start, slopes in arms)
    outcomes = tuple(generator.normal(mean, 1.0) for mean in means)
    return observed([*flags.T, *numbers.T], w, outcomes, means)


def _treated(
    process: _CausalRffProcess, shift: float, rows: int, least: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw z and w again until each arm has at least `least` people."""
    for _ in range(TRIES):
        z = process.latent(rows, generator)
        w = generator.binomial(1, sigmoid(z @ process.propensity + shift))
        if least <= w.sum() <= rows - least:
            return z, w
    raise StudyError(
        f"each arm of a site must have at least {least} people",
        found=f"fewer in {TRIES:,} draws of {rows} people with a shift of {shift:.3g}",
        remedy="draw more rows, use a smaller 'delta', or another 'coefficient_seed'",
    )

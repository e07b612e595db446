"""The data of the paper's CausalRFF experiments: what confounds is latent, and sites differ by a shift.

Treatment, outcomes and covariates follow from a latent z that no table holds: one of five classes, or, in
`causalrff-continuous`, a point of the plane. A site's shift Δ is added to the treatment's and to both
outcomes' linear terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from unpooled.data.simulation.simulation import Simulation
from unpooled.data.simulation.sites import Tables, observed, require_at_least, sigmoid, site_tables
from unpooled.errors import StudyError

CLASSES = np.array([0.11, 0.17, 0.34, 0.26, 0.12])  # ρ
COVARIATES, BINARY_COVARIATES = 30, 20
"""All of them, and how many are 0/1 where the latent is continuous; where it is a class, all are."""
LARGEST_SHIFT = 8.0
COEFFICIENT_SEED = 3
LEAST, TRIES = 2, 1_000_000
"""Fewest people in an arm of a training table, and how often one is drawn before giving up."""

_COMMON = ("coefficient_sd", "coefficient_seed")
OPTIONS = {
    "causalrff-same": _COMMON,
    "causalrff-diff": _COMMON,
    "causalrff-delta": (*_COMMON, "delta"),
    "causalrff-large-same": _COMMON,
    "causalrff-large-diff": _COMMON,
    "causalrff-continuous": _COMMON,
}
"""Which words each of these simulations understands beside its sizes and its seed."""


@dataclass(frozen=True)
class _World:
    """The ground truth all sites share: how z is drawn, and (intercept, slopes in z) of all that follows."""

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
) -> Simulation:
    """Tables of ``rows`` people per site; coefficients are drawn once per data set, people anew by ``seed``.

    ``mu0`` and ``mu1`` of the truth are the means given the person's latent z, which is how the paper
    scores, not given the covariates: an estimate from covariates alone cannot reach an error of 0.

    With large shifts nearly everybody is treated. A site's training people are drawn again until each arm
    has two; its test people are taken as they come.

    >>> data = simulate("causalrff-diff", sites=2, rows=50, seed=7)
    >>> data.frames["site2"]["w"].mean() > data.frames["site1"]["w"].mean()
    np.True_
    """
    sizes = {"sites": (sites, 1), "rows": (rows, 2 * LEAST), "seed": (seed, 0), "test_rows": (test_rows, 0)}
    drawn = {"coefficient_sd": (coefficient_sd, 0), "coefficient_seed": (coefficient_seed, 0)}
    require_at_least({**sizes, **drawn, "delta": (delta, 0)})
    world = (_plane if name == "causalrff-continuous" else _classes)(coefficient_seed, coefficient_sd)
    shifts = _shifts(name, sites, delta, coefficient_seed)
    train, tested = (partial(_people, world, shifts, least) for least in (LEAST, 0))
    frames, truth = site_tables(train, sites=sites, rows=rows, seed=seed, part=0)
    test, test_truth = site_tables(tested, sites=sites, rows=test_rows, seed=seed, part=1)
    return Simulation(name, "continuous", seed, frames, test, truth, test_truth, method="causal_rff")


def _shifts(name: str, sites: int, delta: float, seed: int) -> np.ndarray:
    """Δ of each site. The first is the one that the others may mislead, so it stands unshifted."""
    if name == "causalrff-large-diff":
        return np.random.default_rng([seed, 1]).uniform(0.0, LARGEST_SHIFT, sites)
    others = {"causalrff-diff": 4.0, "causalrff-delta": delta}.get(name, 0.0)
    return np.where(np.arange(sites) == 0, 0.0, others)


def _classes(seed: int, sd: float) -> _World:
    generator = np.random.default_rng(seed)
    classes = len(CLASSES)
    intercepts = generator.normal(0.0, sd, COVARIATES)
    slopes = generator.normal(0.0, sd, (classes, COVARIATES))
    b1, c1, d1 = generator.normal(0.0, sd, (3, classes))
    return _World(_one_hot, (intercepts, slopes), np.empty((classes, 0)), b1, (0.9, c1), (7.9, d1))


def _plane(seed: int, sd: float) -> _World:
    """Half the spread where arms are concerned: with all of it they would hardly overlap."""
    generator = np.random.default_rng(seed)
    intercepts = generator.normal(0.0, sd, BINARY_COVARIATES)
    slopes = generator.normal(0.0, sd, (2, COVARIATES))
    b1, c1, d1 = generator.normal(0.0, sd / 2.0, (3, 2))
    flags, numbers = np.split(slopes, [BINARY_COVARIATES], axis=1)
    return _World(_point, (intercepts, flags), numbers / 2.0, b1, (0.9, c1), (3.0, d1))


def _one_hot(rows: int, generator: np.random.Generator) -> np.ndarray:
    return np.eye(len(CLASSES))[generator.choice(len(CLASSES), rows, p=CLASSES)]


def _point(rows: int, generator: np.random.Generator) -> np.ndarray:
    return generator.standard_normal((rows, 2))


def _people(
    world: _World, shifts: np.ndarray, least: int, site: int, rows: int, generator: np.random.Generator
) -> Tables:
    shift = float(shifts[site - 1])
    z, w = _treated(world, shift, rows, least, generator)
    flags = generator.binomial(1, sigmoid(world.flags[0] + z @ world.flags[1]))
    numbers = z @ world.numbers
    numbers = numbers + generator.standard_normal(numbers.shape)
    arms = (world.control, world.treated)
    means = tuple(np.logaddexp(0.0, start + z @ slopes + shift) for start, slopes in arms)
    outcomes = tuple(generator.normal(mean, 1.0) for mean in means)
    return observed([*flags.T, *numbers.T], w, outcomes, means)


def _treated(
    world: _World, shift: float, rows: int, least: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """z and w, drawn again until each arm has as many people as it must."""
    for _ in range(TRIES):
        z = world.latent(rows, generator)
        w = generator.binomial(1, sigmoid(z @ world.propensity + shift))
        if least <= w.sum() <= rows - least:
            return z, w
    raise StudyError(
        f"each arm of a site must have at least {least} people",
        found=f"fewer in {TRIES:,} draws of {rows} people with a shift of {shift:.3g}",
        remedy="draw more rows, use a smaller 'delta', or another 'coefficient_seed'",
    )

"""The data of the paper's FedCI experiments: DATA-1, DATA-2, and DATA-1 with binary and count outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from unpooled.data.simulation.simulation import (
    Simulation,
    Tables,
    observed,
    require_at_least,
    sigmoid,
    site_tables,
)
from unpooled.errors import StudyError, nearest
from unpooled.study.family import Family

CountLink = Literal["softplus", "exp"]
LARGEST_LOG_RATE = 40.0  # beyond this NumPy cannot draw a Poisson count


@dataclass(frozen=True)
class _Setting:
    """The intercepts, the means of the slopes, the family of the outcome, and the seed of the slopes."""

    control: tuple[float, float]  # b₀, mean of b₁
    treated: tuple[float, float]  # c₀, mean of c₁
    family: Family
    coefficient_seed: int


_SETTINGS = {
    "fedci-data1": _Setting((0.9, 0.0), (2.0, 1.0), "continuous", 1),
    "fedci-data2": _Setting((6.0, 10.0), (30.0, 15.0), "continuous", 2),
    "fedci-binary": _Setting((0.9, 0.0), (2.0, 1.0), "binary", 1),  # DATA-1's coefficients
    "fedci-count": _Setting((0.9, 0.0), (2.0, 1.0), "count", 1),
}
OPTIONS = dict.fromkeys(_SETTINGS, ("coefficient_sd", "coefficient_seed", "count_link", "dimension"))
"""The options of each simulation in addition to its sizes and its seed."""


@dataclass(frozen=True)
class _FedciProcess:
    """The process shared by all sites: (intercept, slopes) of the treatment and both outcomes."""

    propensity: tuple[float, np.ndarray]  # a₀, a₁
    control: tuple[float, np.ndarray]  # b₀, b₁
    treated: tuple[float, np.ndarray]  # c₀, c₁
    family: Family
    count_link: CountLink


def simulate(
    name: str,
    *,
    sites: int,
    rows: int,
    seed: int,
    test_rows: int = 0,
    coefficient_sd: float = 2.0,
    coefficient_seed: int | None = None,
    count_link: CountLink = "softplus",
    dimension: int = 20,
) -> Simulation:
    """Tables of ``rows`` people per site; ``coefficient_seed`` draws the coefficients, ``seed`` the people.

    >>> data = simulate("fedci-data1", sites=2, rows=5, seed=7)
    >>> {site: frame.shape for site, frame in data.frames.items()}
    {'site1': (5, 22), 'site2': (5, 22)}
    """
    sizes = {"sites": (sites, 1), "rows": (rows, 1), "seed": (seed, 0), "test_rows": (test_rows, 0)}
    require_at_least({**sizes, "dimension": (dimension, 1)})
    _require_link(count_link)
    setting = _SETTINGS[name]
    drawn_by = setting.coefficient_seed if coefficient_seed is None else coefficient_seed
    process = _process(setting, drawn_by, coefficient_sd, dimension, count_link)
    people = partial(_people, process)
    frames, truth = site_tables(people, sites=sites, rows=rows, seed=seed, part=0)
    test, test_truth = site_tables(people, sites=sites, rows=test_rows, seed=seed, part=1)
    return Simulation(name, setting.family, seed, frames, test, truth, test_truth)


def _process(setting: _Setting, seed: int, sd: float, dimension: int, count_link: CountLink) -> _FedciProcess:
    generator = np.random.default_rng(seed)
    slopes = generator.normal(0.0, sd, size=(3, dimension))
    return _FedciProcess(
        propensity=(0.6, slopes[0]),
        control=(setting.control[0], setting.control[1] + slopes[1]),
        treated=(setting.treated[0], setting.treated[1] + slopes[2]),
        family=setting.family,
        count_link=count_link,
    )


def _people(process: _FedciProcess, site: int, rows: int, generator: np.random.Generator) -> Tables:
    x = generator.uniform(-1.0, 1.0, size=(rows, len(process.propensity[1])))
    w = generator.binomial(1, sigmoid(_linear(x, process.propensity)))
    mu0, mu1 = (_mean(_linear(x, arm), process) for arm in (process.control, process.treated))
    y0, y1 = (_outcome(mu, process.family, generator) for mu in (mu0, mu1))
    return observed(x.T, w, (y0, y1), (mu0, mu1))


def _linear(x: np.ndarray, line: tuple[float, np.ndarray]) -> np.ndarray:
    return line[0] + x @ line[1]


def _mean(linear: np.ndarray, process: _FedciProcess) -> np.ndarray:
    """E[y | x]: softplus λ for continuous outcomes, sigmoid φ for binary ones, λ or exp for counts."""
    if process.family == "binary":
        return sigmoid(linear)
    if process.family == "count" and process.count_link == "exp":
        if linear.max(initial=0.0) > LARGEST_LOG_RATE:
            raise StudyError(
                "the rate of a count must be small enough to be drawn",
                found=f"a log rate above {LARGEST_LOG_RATE:.0f}",
                remedy='use a smaller coefficient_sd, or count_link="softplus"',
            )
        return np.exp(linear)
    return np.logaddexp(0.0, linear)


def _outcome(mean: np.ndarray, family: Family, generator: np.random.Generator) -> np.ndarray:
    if family == "binary":
        return generator.binomial(1, mean)
    if family == "count":
        return generator.poisson(mean)
    return generator.normal(mean, 1.0)


def _require_link(count_link: str) -> None:
    known = ("softplus", "exp")
    if count_link not in known:
        raise StudyError(
            "count_link must be known", found=f"'{count_link}'", remedy=nearest(count_link, known)
        )

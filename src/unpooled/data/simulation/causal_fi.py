"""The data of the paper's CausalFI experiments: confounders that are missing more often with high outcomes.

Twenty confounders are correlated. Treatment and outcomes depend on ten of them, u, which may be missing; the
other ten, x, are always observed and predict u. All sites have the same distribution. Details that the paper
does not specify are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from unpooled.data.simulation.causal_fi_process import (
    COMPLETE,
    FACTORS,
    INCOMPLETE,
    KINDS,
    CausalFiProcess,
    Kinds,
    U,
    conditional_truth,
    draw_process,
    linear,
    softplus,
)
from unpooled.data.simulation.simulation import (
    Simulation,
    Tables,
    observed,
    require_at_least,
    sigmoid,
    site_tables,
)
from unpooled.errors import StudyError, nearest

COEFFICIENT_SEED = 4
OPTIONS = {"causalfi": ("coefficient_sd", "coefficient_seed", "incomplete", "kinds", "mechanism")}
"""The options of the simulation in addition to its sizes and its seed."""
Mechanism = Literal["mar", "mcar"]
MECHANISMS = ("mar", "mcar")

__all__ = ["COEFFICIENT_SEED", "OPTIONS", "CausalFiProcess", "conditional_truth", "draw_process", "simulate"]


@dataclass(frozen=True, eq=False)
class _MissingnessModel:
    """The log-odds that u_j is observed are e_j0 + e_j1 w + e_j2 y + e_j3ᵀx."""

    treatment: np.ndarray  # e₁ of each column
    outcome: np.ndarray  # e₂
    covariates: np.ndarray  # e₃, one column per u_j
    intercept: float = 5.0  # e₀


@dataclass(frozen=True)
class _People:
    """The complete data of simulated people, with the Gaussian variables behind u as `latent`."""

    latent: np.ndarray
    x: np.ndarray
    w: np.ndarray
    means: tuple[np.ndarray, np.ndarray]
    outcomes: tuple[np.ndarray, np.ndarray]

    @property
    def y(self) -> np.ndarray:
        return np.where(self.w == 1, self.outcomes[1], self.outcomes[0])


def simulate(
    name: str,
    *,
    sites: int,
    rows: int,
    seed: int,
    test_rows: int = 0,
    coefficient_sd: float = 2.0,
    coefficient_seed: int = COEFFICIENT_SEED,
    incomplete: int = INCOMPLETE,
    kinds: Kinds = "numbers",
    mechanism: Mechanism = "mar",
) -> Simulation:
    """Tables of ``rows`` people per site; ``coefficient_seed`` draws the coefficients, ``seed`` the people.

    The first ``incomplete`` of u1 … u10 have missing values, in the training and the test tables. With "mar",
    whether a value is missing depends on treatment, outcome and x; the coefficients of this depend on
    ``seed``. With "mcar", each person has the missing pattern of an independently drawn person. With
    ``kinds="mixed"``, some of u are 0/1, categories of three levels, or counts.

    The truth contains all of u, the means ``mu0`` and ``mu1`` given u, and, as ``conditional``, the expected
    effect given the observed values. Only relative to the latter can an estimate have an error of 0.

    >>> data = simulate("causalfi", sites=2, rows=50, seed=7, incomplete=2)
    >>> data.frames["site1"].columns[data.frames["site1"].isna().any()].tolist()
    ['u1', 'u2']
    """
    sizes = {"sites": (sites, 1), "rows": (rows, 1), "seed": (seed, 0), "test_rows": (test_rows, 0)}
    drawn = {"coefficient_sd": (coefficient_sd, 0), "coefficient_seed": (coefficient_seed, 0)}
    require_at_least({**sizes, **drawn, "incomplete": (incomplete, 1)})
    _require_possible(incomplete, kinds, mechanism)
    process = draw_process(coefficient_seed, coefficient_sd, kinds)
    people = partial(_tables, process, _missingness_model(seed), incomplete, mechanism)
    frames, truth = site_tables(people, sites=sites, rows=rows, seed=seed, part=0)
    test, test_truth = site_tables(people, sites=sites, rows=test_rows, seed=seed, part=1)
    return Simulation(
        name,
        "continuous",
        seed,
        frames,
        test,
        _with_conditional(truth, frames, process),
        _with_conditional(test_truth, test, process),
        method="causal_fi",
        incomplete=U[:incomplete],
    )


def _with_conditional(
    truth: pd.DataFrame, frames: dict[str, pd.DataFrame], process: CausalFiProcess
) -> pd.DataFrame:
    if not frames:
        return truth
    return truth.assign(conditional=conditional_truth(process, pd.concat(frames.values())))


def _missingness_model(seed: int) -> _MissingnessModel:
    generator = np.random.default_rng([seed, 0])  # sites are numbered from 1
    treatment, outcome = generator.uniform(-2.0, 0.0, (2, INCOMPLETE))
    factor = generator.uniform(0.0, 0.5, (COMPLETE, FACTORS))  # L, and e₃ ~ N(0, LLᵀ)
    return _MissingnessModel(treatment, outcome, factor @ generator.standard_normal((FACTORS, INCOMPLETE)))


def _tables(
    process: CausalFiProcess,
    missingness: _MissingnessModel,
    incomplete: int,
    mechanism: Mechanism,
    site: int,
    rows: int,
    generator: np.random.Generator,
) -> Tables:
    people = _people(process, rows, generator)
    cause = people if mechanism == "mar" else _people(process, rows, generator)
    seen = _seen(missingness, cause, generator)
    seen[:, incomplete:] = True
    whole = {
        name: kind.show(people.latent[:, j])
        for j, (name, kind) in enumerate(zip(U, process.kinds, strict=True))
    }
    shown = {name: pd.Series(values).where(seen[:, j]) for j, (name, values) in enumerate(whole.items())}
    frame, truth = observed(people.x.T, people.w, people.outcomes, people.means)
    frame = pd.concat([frame.drop(columns=["w", "y"]), pd.DataFrame(shown), frame[["w", "y"]]], axis=1)
    return frame, truth.assign(**whole)


def _people(process: CausalFiProcess, rows: int, generator: np.random.Generator) -> _People:
    z = generator.standard_normal((rows, INCOMPLETE + COMPLETE)) @ np.linalg.cholesky(process.covariance).T
    latent, x = np.split(z, [INCOMPLETE], axis=1)
    u = process.standard(latent)
    w = generator.binomial(1, sigmoid(linear(u, process.propensity)))
    mu0, mu1 = (softplus(linear(u, arm)) for arm in (process.control, process.treated))
    y0, y1 = (generator.normal(mean, 1.0) for mean in (mu0, mu1))
    return _People(latent, x, w, (mu0, mu1), (y0, y1))


def _seen(missingness: _MissingnessModel, people: _People, generator: np.random.Generator) -> np.ndarray:
    """r, with one column per u_j: whether the value is observed."""
    causes = np.outer(people.w, missingness.treatment) + np.outer(people.y, missingness.outcome)
    chance = sigmoid(missingness.intercept + causes + people.x @ missingness.covariates)
    return generator.random(chance.shape) < chance


def _require_possible(incomplete: int, kinds: str, mechanism: str) -> None:
    if incomplete > INCOMPLETE:
        raise StudyError(
            f"'incomplete' must be at most {INCOMPLETE}",
            found=str(incomplete),
            remedy="give a smaller 'incomplete'",
        )
    for word, given, known in (("kinds", kinds, KINDS), ("mechanism", mechanism, MECHANISMS)):
        if given not in known:
            raise StudyError(f"'{word}' must be known", found=f"'{given}'", remedy=nearest(given, known))

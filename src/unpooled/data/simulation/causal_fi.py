"""The data of the paper's CausalFI experiments: confounders with holes, more where outcomes are high.

Twenty confounders hang together; treatment and outcomes follow from ten of them, u, which may have holes. The
other ten, x, are always seen and tell about them. All sites are alike. What the paper leaves out is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from unpooled.data.simulation.causal_fi_truth import conditional_truth
from unpooled.data.simulation.causal_fi_world import (
    COMPLETE,
    FACTORS,
    INCOMPLETE,
    KINDS,
    Kinds,
    U,
    World,
    draw_world,
    linear,
    softplus,
)
from unpooled.data.simulation.simulation import Simulation
from unpooled.data.simulation.sites import Tables, observed, require_at_least, sigmoid, site_tables
from unpooled.errors import StudyError, nearest

COEFFICIENT_SEED = 4
OPTIONS = {"causalfi": ("coefficient_sd", "coefficient_seed", "incomplete", "kinds", "mechanism")}
"""Which words the simulation understands beside its sizes and its seed."""
Mechanism = Literal["mar", "mcar"]
MECHANISMS = ("mar", "mcar")

__all__ = ["COEFFICIENT_SEED", "OPTIONS", "World", "conditional_truth", "draw_world", "simulate"]


@dataclass(frozen=True, eq=False)
class _Holes:
    """When u_j is seen: the log-odds are e_j0 + e_j1 w + e_j2 y + e_j3ᵀx."""

    treatment: np.ndarray  # e₁ of each column
    outcome: np.ndarray  # e₂
    covariates: np.ndarray  # e₃, a column for each
    intercept: float = 5.0  # e₀


@dataclass(frozen=True)
class _People:
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
    """Tables of ``rows`` people per site; coefficients are drawn once per data set, people anew by ``seed``.

    The first ``incomplete`` of u1 … u10 have holes, training and test people alike. When a value is seen
    depends on treatment, outcome and x ("mar"), in another way for each ``seed``; or everybody has the holes
    of somebody who is drawn for this alone ("mcar"). With ``kinds="mixed"`` some of u are 0/1, categories of
    three levels and counts.

    The truth holds all of u beside ``mu0`` and ``mu1``, which are the means given it, and as ``conditional``
    the effect that can be expected of what is seen of the person: the error of an estimate reaches 0 against
    that one only.

    >>> data = simulate("causalfi", sites=2, rows=50, seed=7, incomplete=2)
    >>> data.frames["site1"].columns[data.frames["site1"].isna().any()].tolist()
    ['u1', 'u2']
    """
    sizes = {"sites": (sites, 1), "rows": (rows, 1), "seed": (seed, 0), "test_rows": (test_rows, 0)}
    drawn = {"coefficient_sd": (coefficient_sd, 0), "coefficient_seed": (coefficient_seed, 0)}
    require_at_least({**sizes, **drawn, "incomplete": (incomplete, 1)})
    _require_possible(incomplete, kinds, mechanism)
    world = draw_world(coefficient_seed, coefficient_sd, kinds)
    people = partial(_tables, world, _holes(seed), incomplete, mechanism)
    frames, truth = site_tables(people, sites=sites, rows=rows, seed=seed, part=0)
    test, test_truth = site_tables(people, sites=sites, rows=test_rows, seed=seed, part=1)
    return Simulation(
        name,
        "continuous",
        seed,
        frames,
        test,
        _with_conditional(truth, frames, world),
        _with_conditional(test_truth, test, world),
        method="causal_fi",
        incomplete=U[:incomplete],
    )


def _with_conditional(truth: pd.DataFrame, frames: dict[str, pd.DataFrame], world: World) -> pd.DataFrame:
    if not frames:
        return truth
    return truth.assign(conditional=conditional_truth(world, pd.concat(frames.values())))


def _holes(seed: int) -> _Holes:
    generator = np.random.default_rng([seed, 0])  # sites count from 1
    treatment, outcome = generator.uniform(-2.0, 0.0, (2, INCOMPLETE))
    factor = generator.uniform(0.0, 0.5, (COMPLETE, FACTORS))  # L, and e₃ ~ N(0, LLᵀ)
    return _Holes(treatment, outcome, factor @ generator.standard_normal((FACTORS, INCOMPLETE)))


def _tables(
    world: World,
    holes: _Holes,
    incomplete: int,
    mechanism: Mechanism,
    site: int,
    rows: int,
    generator: np.random.Generator,
) -> Tables:
    people = _people(world, rows, generator)
    cause = people if mechanism == "mar" else _people(world, rows, generator)
    seen = _seen(holes, cause, generator)
    seen[:, incomplete:] = True
    whole = {
        name: kind.show(people.latent[:, j])
        for j, (name, kind) in enumerate(zip(U, world.kinds, strict=True))
    }
    shown = {name: pd.Series(values).where(seen[:, j]) for j, (name, values) in enumerate(whole.items())}
    frame, truth = observed(people.x.T, people.w, people.outcomes, people.means)
    frame = pd.concat([frame.drop(columns=["w", "y"]), pd.DataFrame(shown), frame[["w", "y"]]], axis=1)
    return frame, truth.assign(**whole)


def _people(world: World, rows: int, generator: np.random.Generator) -> _People:
    z = generator.standard_normal((rows, INCOMPLETE + COMPLETE)) @ np.linalg.cholesky(world.covariance).T
    latent, x = np.split(z, [INCOMPLETE], axis=1)
    u = world.standard(latent)
    w = generator.binomial(1, sigmoid(linear(u, world.propensity)))
    mu0, mu1 = (softplus(linear(u, arm)) for arm in (world.control, world.treated))
    y0, y1 = (generator.normal(mean, 1.0) for mean in (mu0, mu1))
    return _People(latent, x, w, (mu0, mu1), (y0, y1))


def _seen(holes: _Holes, people: _People, generator: np.random.Generator) -> np.ndarray:
    """r, a column for each of u: whether the value is there."""
    causes = np.outer(people.w, holes.treatment) + np.outer(people.y, holes.outcome)
    chance = sigmoid(holes.intercept + causes + people.x @ holes.covariates)
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

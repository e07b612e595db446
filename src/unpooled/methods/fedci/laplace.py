"""Hyperparameters about their posterior mode: the Hessian there, and draws from the Laplace approximation."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri

from unpooled.maths.pareto import pareto_shape
from unpooled.maths.streams import key_data, stream
from unpooled.methods.fedci.bounds import limits_of
from unpooled.methods.fedci.expansion import Expanded, expansion_about
from unpooled.methods.fedci.model import Structure
from unpooled.methods.fedci.posterior import Posterior, log_prior_slopes, posteriors, weights_and_shifts
from unpooled.methods.fedci.refinement import REFINEMENT, STRETCH, refine
from unpooled.methods.fedci.ridge import Ridges, fixed_parameters
from unpooled.methods.fedci.settings import FedCISettings
from unpooled.methods.fedci.stages import Evidence
from unpooled.methods.fedci.subsample import first_stage
from unpooled.optimise.objective import curvature, flatten, ravel
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.stage import Bounds

SHORTEST, LONGEST = 0.2, 2.0
"""Smallest and largest factor by which the way of a draw from the mode is stretched."""
TINY = 1e-6
STEP = 1e-4
"""Step of the differences of the log prior's gradient."""
PLAUSIBLE = 0.999
"""Probability of the region about the mode from which draws are kept."""
FEWER = 4
"""Factor by which there are fewer hyperparameters, with more draws of weights each, if sites are large: with
thousands of people hyperparameters hardly vary, and each takes two passes over all rows."""
OWN_EXPANSIONS = 1
"""Expansions about the posterior under each draw of the hyperparameters, if outcomes have a link."""
LOOSEST = 0.5
"""Minimum prior precision in any direction of the hyperparameter space."""


class PosteriorMode(NamedTuple):
    """The posterior mode of the hyperparameters, the objective there, and the precision about it."""

    free: Arrays
    value: float
    precision: np.ndarray


def posterior_mode(
    name: str, evidence: Evidence, found: Expanded, start: Ridges, settings: FedCISettings, share: float
) -> Procedure[PosteriorMode]:
    """The mode and its precision; after a subsample, the minimum is refined on all people."""
    minima, expansion = found.minima, found.of_all
    best, value = jax.tree.map(lambda leaf: leaf[0], minima.free), float(minima.values[0])
    fixed = _of_all(replace(start, rows=share * start.rows), expansion)

    def curvatures(two_sided: bool) -> Procedure[tuple[np.ndarray, np.ndarray]]:
        """Of the objective and of the prior at the best point so far, scaled to all people."""
        found = yield from curvature(first_stage(name, share), evidence, best, fixed, two_sided=two_sided)
        prior = prior_curvature(evidence.structure, best, fixed)
        return prior + (found - prior) / share, prior

    # A subsample tells most about the posterior's precision at its own minimum.
    hessian, prior = yield from curvatures(two_sided=True)
    precision = precision_of(hessian, prior)
    for stretch in range(REFINEMENT // STRETCH if share < 1.0 else 0):
        if stretch:
            hessian, _ = yield from curvatures(two_sided=False)
        everybody = _of_all(start, expansion)
        refined = yield from refine(name, evidence, best, hessian, everybody, settings.tolerance)
        best, value = jax.tree.map(lambda leaf: leaf[0], refined.free), float(refined.values[0])
        if refined.evaluations < STRETCH:
            break
    return PosteriorMode(best, value, precision)


def _of_all(start: Ridges, expansion: Arrays) -> Arrays:
    """Fixed parameters of the fit to all people, with the point of expansion."""
    return {**jax.tree.map(lambda leaf: leaf[0], fixed_parameters([start], np.array([-1]))), **expansion}


def precision_of(hessian: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Prior plus likelihood curvature, with negative likelihood curvature set to zero, so that no direction
    has a wider spread than under the prior."""
    return _not_below(prior, LOOSEST) + _not_below(hessian - prior, 0.0)


def _not_below(matrix: np.ndarray, least: float) -> np.ndarray:
    """The matrix with its eigenvalues raised to at least `least`."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.maximum(values, least)) @ vectors.T


def prior_curvature(structure: Structure, free: Arrays, fixed: Arrays) -> np.ndarray:
    """The Hessian of −log prior, by differences of its exact gradient, without the sites."""
    flat, unravel = flatten(jax.tree.map(lambda leaf: np.asarray(leaf)[None], free))
    size = flat.shape[1]
    points = flat + STEP * np.concatenate([-np.eye(size), np.eye(size)])
    many = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], len(points), axis=0), fixed)
    slopes = ravel(log_prior_slopes(structure, unravel(points), many))
    hessian = (slopes[:size] - slopes[size:]) / (2.0 * STEP)
    return 0.5 * (hessian + hessian.T)


class HyperparameterDraws(NamedTuple):
    """Draws of hyperparameters, weights and shifts, and how well they represent the posterior."""

    draws: Arrays
    replaced: float
    """Share of the hyperparameters that were replaced because they are implausible."""
    pareto_shape: float
    """k̂ of their importance ratios; NaN if there are few."""


def draw_hyperparameters(
    name: str,
    evidence: Evidence,
    mode: PosteriorMode,
    start: Ridges,
    expansion: Arrays,
    settings: FedCISettings,
    share: float,
    seed: int,
) -> Procedure[HyperparameterDraws]:
    """Draw hyperparameters about their mode, weights and shifts from their exact posterior.

    A first round tells how far the objective rises at draws from the normal approximation. Each is then moved
    along its line through the mode, to where the objective rises by as much as the approximation says. With
    the many people of a study that starts on a subsample, the approximation is good and draws stay.
    """
    per_theta = evidence.structure.draws_per_theta * (1 if share == 1.0 else FEWER)
    count = -(-settings.draws // per_theta)
    fixed = _of_all(start, expansion)
    many = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], count, axis=0), fixed)
    rng = stream(seed, "weights and shifts")
    normal = np.random.default_rng(seed).standard_normal((count, len(mode.precision)))
    expected = 0.5 * np.sum(normal**2, axis=1)
    box = evidence.structure.bounds()

    def fitted_to(free: Arrays, fixed: Arrays) -> Procedure[list[Posterior]]:
        statistics = yield from ask(name, Parameters(free, fixed))
        return posteriors(evidence, free, fixed, statistics)

    def drawn(reach: np.ndarray) -> Procedure[tuple[Arrays, list[Posterior], np.ndarray]]:
        free = about(mode, reach[:, None] * normal, box)
        fitted = yield from fitted_to(free, many)
        return free, fitted, np.array([one.value for one in fitted])

    free, fitted, values = yield from drawn(np.ones(count))
    shape = pareto_shape(expected - values)
    if share == 1.0:
        free, fitted, values = yield from drawn(reach_of(values - mode.value, expected))
    likely = plausible(values, mode)
    if evidence.link is not None and share == 1.0:
        # The expansion about the mode suits other hyperparameters less.
        for _ in range(OWN_EXPANSIONS):
            many = {**many, "about": {**many["about"], **expansion_about(evidence, free, fitted)}}
            fitted = yield from fitted_to(free, many)
    beta, shift = weights_and_shifts(evidence, fitted, rng, per_theta)
    free, beta, shift = jax.tree.map(
        lambda leaf: np.asarray(leaf)[np.resize(likely, count)], (free, beta, shift)
    )
    noise = key_data(stream(seed, "site draws"), count)
    found = {"free": free, "beta": beta, "shift": shift, "key": noise}
    if evidence.link is not None:
        found["about"] = jax.tree.map(lambda leaf: np.asarray(leaf)[np.resize(likely, count)], many["about"])
    return HyperparameterDraws(found, 1.0 - len(likely) / count, shape)


def about(mode: PosteriorMode, normal: np.ndarray, bounds: Bounds) -> Arrays:
    """The mode plus normal draws with the inverse of its precision as covariance, clipped to the bounds."""
    flat, unravel = flatten(jax.tree.map(lambda leaf: np.asarray(leaf)[None], mode.free))
    # If CCᵀ is the precision, C⁻ᵀz has its inverse as covariance.
    deviation = solve_triangular(np.linalg.cholesky(mode.precision), normal.T, lower=True, trans=1).T
    return unravel(np.clip(flat + deviation, *limits_of(bounds, mode.free)))


def reach_of(rise: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """By how much to stretch the way from the mode, so that the objective rises as expected.

    The rise is taken to be quadratic along the way (the random map of implicit sampling: Chorin and Tu 2009).
    A draw at which the objective is not a number is moved as near as possible.
    """
    known = np.where(np.isfinite(rise), np.maximum(rise, TINY), np.inf)
    return np.sqrt(np.clip(expected / known, SHORTEST**2, LONGEST**2))


def plausible(values: np.ndarray, mode: PosteriorMode) -> np.ndarray:
    """Indices of the draws whose objective is not far above that of the mode.

    Twice the difference is χ² distributed if the posterior is normal. Draws beyond its 99.9 % point would
    dominate means and sds. At least the better half is kept.
    """
    lowest = min(mode.value, float(np.nanmin(values)))
    furthest = 0.5 * chdtri(len(mode.precision), 1.0 - PLAUSIBLE)
    found = np.flatnonzero(values - lowest <= furthest)
    return found if 2 * len(found) >= len(values) else np.sort(np.argsort(values)[: -(-len(values) // 2)])

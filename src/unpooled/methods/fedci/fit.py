"""FedCI's collapsed inference as a procedure.

Ridge regressions give the starting values; the negative log evidence of each structure is minimised on all
people and without each fold; held-out errors give the stacking weights; the hyperparameters are drawn from a
Laplace approximation with Student-t tails, weights and shifts from their exact posterior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.stats import chi2

from unpooled.disclosure.by_site import Trace
from unpooled.maths.linear_algebra import unpack
from unpooled.maths.regression import draw
from unpooled.methods.fedci.bounds import limits_of
from unpooled.methods.fedci.mixture import mix
from unpooled.methods.fedci.model import Structure
from unpooled.methods.fedci.settings import FedCISettings
from unpooled.methods.fedci.stages import Evidence
from unpooled.methods.fedci.subsample import refine, subsampled
from unpooled.methods.method import Fit
from unpooled.optimise.lbfgs import Stopping
from unpooled.optimise.minimise import minimise
from unpooled.optimise.objective import Minima, curvature, flatten
from unpooled.optimise.procedure import Procedure, ask, side_by_side
from unpooled.protocol.batch import one_by_one
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, AverageEffects, Check, Draws, Parameters
from unpooled.protocol.stage import Bounds

NEGLIGIBLE = 0.02
"""Structures with a smaller stacking weight are dropped."""
FOLDS_COARSER = 10.0
"""Factor on the tolerance of the fits without a fold, which only serve to compare the structures."""
RIDGE = 5.0
"""Penalty of the ridge regressions that give the starting values."""
DEGREES = 5
"""Degrees of freedom of the t distribution from which hyperparameters are drawn."""
PLAUSIBLE, REPLACED = 0.999, 0.5
"""Probability of the region about the mode from which draws are kept, and the most that may lie outside."""
LOOSEST = 0.5
"""Minimum prior precision in any direction of the hyperparameter space."""


@dataclass(frozen=True)
class Ridges:
    """A ridge regression per arm: unit directions of the slopes, residual sds, and numbers of people."""

    directions: np.ndarray
    noise: np.ndarray
    rows: np.ndarray
    propensity: np.ndarray
    """Slopes of a linear regression of the treatment on the covariates, scaled so that its fit has sd one."""


class PosteriorMode(NamedTuple):
    """The posterior mode of the hyperparameters, the objective there, and the precision about it."""

    free: Arrays
    value: float
    precision: np.ndarray


def fit(
    settings: FedCISettings, evidences: dict[str, Evidence], folds: int, seed: int, share: float = 1.0
) -> Procedure[Fit]:
    """Fit and weight all structures; with `folds` equal to 0 there is a single structure.

    If `share` is below one, the steps before the draws use a subsample with that share of the people.
    """
    held = np.arange(-1, folds)
    ridge = yield from ask("ridge", Parameters(fixed={"fold": held}))
    starts = [ridges_of(jax.tree.map(lambda leaf, i=i: leaf[i], ridge.summed)) for i in range(len(held))]
    scaled = [replace(ridge, rows=share * ridge.rows) for ridge in starts]
    names = list(evidences)
    found = yield from side_by_side(
        *[_minimise(_first(name, share), evidences[name], scaled, held, settings) for name in names]
    )
    minima = dict(zip(names, found, strict=True))
    weights = {names[0]: 1.0}
    if folds:
        weights = yield from _stack(evidences, minima, held, scaled)
    modes = yield from side_by_side(
        *[_mode(name, evidences[name], minima[name], starts[0], settings, share) for name in weights]
    )
    drawn = yield from side_by_side(
        *[
            _draw(name, evidences[name], mode, starts[0], settings, seed + i)
            for i, (name, mode) in enumerate(zip(weights, modes, strict=True))
        ]
    )
    draws = {name: found for name, (found, _) in zip(weights, drawn, strict=True)}
    replaced = float(sum(weight * share for weight, (_, share) in zip(weights.values(), drawn, strict=True)))
    effects = yield from side_by_side(*[_average(name, draws[name]) for name in weights])
    diagnostics = {
        name: {
            "objective": float(m.values[0]),
            "evaluations": m.evaluations,
            "history": Trace(m.history),
            "slopes": Trace(m.slopes),
        }
        for name, m in minima.items()
    }
    site_effects = AverageEffects(
        *(
            mix(
                {name: one[target] for name, one in zip(weights, effects, strict=True)},
                weights,
                settings.draws,
            )
            for target in ("sample", "population")
        )
    )
    shared = Draws({"weights": weights, "structures": draws})
    return Fit(
        shared, site_effects, {"weights": weights, "structures": diagnostics}, (draws_check(replaced),)
    )


def draws_check(replaced: float) -> Check:
    return Check(
        "draws of the hyperparameters", replaced <= REPLACED, replaced, REPLACED,
        "Share of the drawn hyperparameters that the data contradict and that were replaced by others. Above "
        "the threshold, the normal approximation of their posterior is poor, and intervals may be too narrow "
        "or too wide: use more draws, or name a structure.",
    )  # fmt: skip


def ridges_of(total: Arrays) -> Ridges:
    """Solve the ridge regressions from sums over sites."""
    gram = np.asarray(unpack(jnp.asarray(total["gram"])))
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
    return Ridges(directions, np.clip(0.7 * sd, 0.02, 1.5), count, propensity_of(gram))


def propensity_of(gram: np.ndarray) -> np.ndarray:
    """The linear regression of the treatment on the covariates, from the Gram matrices of both arms."""
    both = gram.sum(axis=0)
    people, mean = both[0, 0], both[0, 1:] / both[0, 0]
    covariance = both[1:, 1:] / people - np.outer(mean, mean)
    cross = gram[1, 0, 1:] / people - mean * gram[1, 0, 0] / people
    slopes = np.linalg.solve(covariance + np.eye(len(mean)) / people, cross)
    return slopes / np.sqrt(slopes @ covariance @ slopes + 1e-12)


def fixed_parameters(starts: list[Ridges], held: np.ndarray) -> Arrays:
    """Fixed parameters: the held-out fold, and the centres of the priors of noise and directions."""
    return {
        "fold": held,
        "noise": np.log(np.stack([ridge.noise for ridge in starts])),
        "direction": np.stack([ridge.directions for ridge in starts]),
        "rows": np.stack([ridge.rows for ridge in starts]),
        "propensity": np.stack([ridge.propensity for ridge in starts]),
    }


def _first(name: str, share: float) -> str:
    """The stage of the first minimisation: subsampled if the share is below one."""
    return name if share == 1.0 else subsampled(name)


def _minimise(
    name: str, evidence: Evidence, starts: list[Ridges], held: np.ndarray, settings: FedCISettings
) -> Procedure[Minima]:
    """Minimise one structure's objective on all people and without each fold, in one batch."""
    evaluations = settings.evaluations or evidence.structure.evaluations
    stopping = Stopping(evaluations, settings.tolerance, FOLDS_COARSER)
    points = [evidence.structure.start(ridge.directions, ridge.noise) for ridge in starts]
    scales = [evidence.structure.scales(ridge.noise, float(ridge.rows.min())) for ridge in starts]
    batch, units = (jax.tree.map(lambda *leaves: np.stack(leaves), *part) for part in (points, scales))
    box = limits_of(evidence.structure.bounds(), points[0])
    fixed = fixed_parameters(starts, held)
    return (yield from minimise(name, evidence, batch, units, fixed, stopping, box))


def _stack(
    evidences: dict[str, Evidence], minima: dict[str, Minima], held: np.ndarray, starts: list[Ridges]
) -> Procedure[dict[str, float]]:
    """Stacking weights of the structures from their held-out squared errors."""
    fitted, shifts = [], []
    for name, evidence in evidences.items():
        at = (minima[name].free, fixed_parameters(starts, held), minima[name].statistics, None)
        beta, shift, _ = one_by_one(_weights_and_shifts, at, evidence)
        free, weights, own = jax.tree.map(
            lambda leaf: np.asarray(leaf)[None, 1:], (minima[name].free, beta, shift)
        )
        fitted.append({"free": free, "beta": weights})
        shifts.append(_by_site(own))
    asked = Parameters(fixed={"fitted": tuple(fitted)}, per_site={"site_shift": tuple(shifts)})
    reply = yield from ask("held_out", asked)
    products, count = reply.summed["products"][0], reply.summed["count"][0]
    # Both arms have equal weight, whatever their sizes: the effect depends on both equally.
    weights = simplex_weights(np.mean(products / count[:, None, None], axis=0))
    kept = {
        name: float(weight) for name, weight in zip(evidences, weights, strict=True) if weight > NEGLIGIBLE
    }
    return {name: weight / sum(kept.values()) for name, weight in kept.items()}


def _by_site(shift: np.ndarray) -> np.ndarray:
    """Shifts [batch, …, site] as they are addressed to the sites, [batch, site, …]."""
    return np.moveaxis(np.asarray(shift), -1, 1)


def simplex_weights(errors: np.ndarray) -> np.ndarray:
    """Non-negative weights with sum one that minimise wᵀEw, the squared error of the weighted prediction."""
    size = len(errors)
    scale = np.trace(errors) / size
    result = minimize(
        lambda w: w @ errors @ w / scale,
        np.full(size, 1.0 / size),
        jac=lambda w: 2.0 * errors @ w / scale,
        bounds=[(0.0, 1.0)] * size,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(size)},
        method="SLSQP",
    )
    return result.x


def _weights_and_shifts(
    leaves: tuple[Arrays, Arrays, Statistics, Array | None], evidence: Evidence
) -> tuple[Array, Array, Array]:
    """β and g under one θ, J draws if keys are given, otherwise the posterior mean; and the objective."""
    free, fixed, statistics, keys = leaves
    asked = Parameters(free, fixed)
    fitted = evidence.posterior(asked, statistics)
    value = -fitted.log_evidence - evidence.structure.log_prior(free, fixed)
    if keys is None:
        return *evidence.weights(asked, draw(fitted, None)), value
    many = jax.random.wrap_key_data(keys)
    return *jax.lax.map(lambda key: evidence.weights(asked, draw(fitted, key)), many), value


def _mode(
    name: str, evidence: Evidence, minima: Minima, start: Ridges, settings: FedCISettings, share: float
) -> Procedure[PosteriorMode]:
    """The mode and its precision; after a subsample, the minimum is refined on all people."""
    best, value = jax.tree.map(lambda leaf: leaf[0], minima.free), minima.values[0]
    fixed = _of_all(replace(start, rows=share * start.rows))
    hessian = yield from curvature(_first(name, share), evidence, best, fixed, two_sided=True)
    prior = prior_curvature(evidence.structure, best, fixed)
    if share < 1.0:
        hessian = prior + (hessian - prior) / share
        refined = yield from refine(name, evidence, best, hessian, _of_all(start), settings.tolerance)
        best, value = jax.tree.map(lambda leaf: leaf[0], refined.free), refined.values[0]
    return PosteriorMode(best, float(value), precision_of(hessian, prior))


def _of_all(start: Ridges) -> Arrays:
    """Fixed parameters of the fit to all people."""
    return jax.tree.map(lambda leaf: leaf[0], fixed_parameters([start], np.array([-1])))


def precision_of(hessian: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Prior plus likelihood curvature, with negative likelihood curvature set to zero, so that no direction
    has a wider spread than under the prior."""
    return _not_below(prior, LOOSEST) + _not_below(hessian - prior, 0.0)


def _not_below(matrix: np.ndarray, least: float) -> np.ndarray:
    """The matrix with its eigenvalues raised to at least `least`."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.maximum(values, least)) @ vectors.T


def prior_curvature(structure: Structure, free: Arrays, fixed: Arrays) -> np.ndarray:
    """The Hessian of −log prior, computed at the coordinator without the sites."""
    return np.asarray(_prior_curvature(structure, free, fixed))


@jax.jit
def _prior_curvature(structure: Structure, free: Arrays, fixed: Arrays) -> jax.Array:
    flat, unravel = ravel_pytree(free)
    return jax.hessian(lambda point: -structure.log_prior(unravel(point), fixed))(flat)


def _draw(
    name: str, evidence: Evidence, mode: PosteriorMode, start: Ridges, settings: FedCISettings, seed: int
) -> Procedure[tuple[Arrays, float]]:
    """Draw hyperparameters from the Laplace approximation, weights and shifts from their exact posterior.

    Returns the draws, and the share of the hyperparameters that were replaced because they are implausible.
    """
    per_theta = evidence.structure.draws_per_theta
    count = -(-settings.draws // per_theta)
    free = draw_about(mode.free, mode.precision, count, seed, evidence.structure.bounds())
    many = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], count, axis=0), _of_all(start))
    statistics = yield from ask(name, Parameters(free, many))
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(seed), (count, per_theta))))
    beta, shift, values = one_by_one(_weights_and_shifts, (free, many, statistics, keys), evidence)
    noise = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1), count)
    likely = plausible(np.asarray(values), mode)
    free, beta, shift = jax.tree.map(
        lambda leaf: np.asarray(leaf)[np.resize(likely, count)], (free, beta, shift)
    )
    drawn = {"free": free, "beta": beta, "shift": shift, "key": np.asarray(jax.random.key_data(noise))}
    return drawn, 1.0 - len(likely) / count


def plausible(values: np.ndarray, mode: PosteriorMode) -> np.ndarray:
    """Indices of the draws whose objective is not far above that of the mode.

    Twice the difference is χ² distributed if the posterior is normal. The tails of the t distribution, and a
    posterior that is not normal, give draws beyond its 99.9 % point, which would dominate means and sds. At
    least the better half is kept.
    """
    lowest = min(mode.value, float(np.min(values)))
    furthest = 0.5 * chi2.ppf(PLAUSIBLE, len(mode.precision))
    found = np.flatnonzero(values - lowest <= furthest)
    return found if 2 * len(found) >= len(values) else np.sort(np.argsort(values)[: -(-len(values) // 2)])


def draw_about(
    mode: Arrays, precision: np.ndarray, count: int, seed: int, bounds: Bounds | None = None
) -> Arrays:
    """Draw θ ~ t(θ̂, precision⁻¹), clipped to the bounds; the t distribution allows for tails heavier than the
    curvature implies."""
    flat, unravel = flatten(jax.tree.map(lambda leaf: np.asarray(leaf)[None], mode))
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((count, flat.shape[1]))
    student = normal * np.sqrt(DEGREES / rng.chisquare(DEGREES, (count, 1)))
    # If CCᵀ is the precision, C⁻ᵀz has its inverse as covariance.
    deviation = solve_triangular(np.linalg.cholesky(precision), student.T, lower=True, trans=1).T
    drawn = flat + deviation
    return unravel(drawn if bounds is None else np.clip(drawn, *limits_of(bounds, mode)))


def _average(name: str, draws: Arrays) -> Procedure[Arrays]:
    """Draws of the average effects [θ, j, site], of the sample and of the population."""
    fixed = {key: draws[key] for key in ("beta", "key")}
    own = {"site_shift": _by_site(draws["shift"])}
    reply = yield from ask(f"effect/{name}", Parameters(draws["free"], fixed, own))
    return {target: np.moveaxis(np.asarray(found), 1, 2) for target, found in reply.per_site.items()}

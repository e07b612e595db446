"""Predictions of held-out people: the weights of the structures, and the calibration of individual effects.

Every structure is fitted without each fold. The sites then predict the people of a fold by the fit without
it, first by the posterior mean to weight the structures, then with the spread of the weighted prediction to
count outcomes that are far from it. The second question travels with the Hessian's and takes no round.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from unpooled.disclosure.effective_people import spread_out
from unpooled.maths.blocks import map_over_blocks
from unpooled.maths.streams import stream
from unpooled.methods.fedci.conditionals import WeightDraws, as_sent, factual
from unpooled.methods.fedci.expansion import Expanded
from unpooled.methods.fedci.posterior import posteriors, weights_and_shifts
from unpooled.methods.fedci.ridge import Ridges, fixed_parameters
from unpooled.methods.fedci.stages import Evidence, KernelEvidence, arm_indicators, in_use
from unpooled.models.calibration import Calibration, arm_variances, exceedances, odds
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Parameters
from unpooled.protocol.rows import Rows
from unpooled.protocol.stage import LOGIT, Bounds, Stage, union

NEGLIGIBLE = 0.02
"""Structures with a smaller stacking weight are dropped."""
PREDICTIVE_DRAWS = 16
"""Draws of the weights from which the spread of a prediction is computed."""


class HeldOutErrors(Stage):
    """Cross-products of the structures' prediction errors on held-out people, for stacking."""

    evidences: tuple[Evidence, ...]
    often: ClassVar[bool] = False
    reveals: ClassVar[str] = "per arm: summed squared prediction errors, and number of people"

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        errors = jnp.stack([rows.outcome - one for one in _means(self.evidences, parameters, rows)])
        weights = arm_indicators(rows.treatment).T * rows.present
        control, treated = (spread_out(errors, jnp.sqrt(arm), rows.least) for arm in weights)
        errors = jnp.where(rows.treatment > 0.5, treated, control)
        products = jnp.einsum("an,in,jn->aij", weights, errors, errors)
        return Statistics({"products": products, "count": jnp.sum(weights, axis=1)})

    def bounds(self) -> Bounds:
        return _bounds(self.evidences)


class HeldOutDistances(Stage):
    """How many held-out outcomes are further from the weighted prediction than a number of its sds."""

    evidences: tuple[Evidence, ...]
    often: ClassVar[bool] = False
    reveals: ClassVar[str] = (
        "for sums over sites, by arm: how many held-out outcomes, weighted by the odds of treatment, are "
        "further from their prediction than each of 34 numbers of sds; and sums of their squared errors and "
        "of the squares of these"
    )

    def statistics(self, parameters: Parameters, rows: Rows) -> Statistics:
        fixed = parameters.fixed
        each = zip(*_each(self.evidences, parameters, rows), strict=True)
        means, spreads, noise, common = (jnp.stack(one) for one in each)
        share = fixed["share"]
        mean = share @ means
        spread = share @ (spreads + (means - mean) ** 2)
        chances = odds(fixed["log_odds"][jnp.maximum(rows.fold, 0)], rows.covariates)
        errors = rows.outcome - mean
        # About the share of the noise in a squared error. With the arm's own noise in place of what both arms
        # have in common, errors of its estimate would count as differences between the arms.
        squares = errors**2 * (share @ common) / (share @ common + spread)
        distances = errors / jnp.sqrt(share @ noise + spread)
        return Statistics(exceedances(distances, chances, rows) | arm_variances(squares, chances, rows))

    def bounds(self) -> Bounds:
        return {**_bounds(self.evidences), "share": (0.0, 1.0), "log_odds": LOGIT}


def _bounds(evidences: tuple[Evidence, ...]) -> Bounds:
    return union(*({**one.bounds(), **one.weight_bounds()} for one in evidences))


def _each(evidences: tuple[Evidence, ...], parameters: Parameters, rows: Rows) -> list[Float[Array, "4 n"]]:
    """Everybody's outcome under each structure, fitted without them: its mean, the variance of the mean, the
    noise variance, and the geometric mean of the noise variances of both arms."""
    asked = zip(evidences, parameters.fixed["fitted"], parameters.per_site["site_shift"], strict=True)
    return [_predicted(evidence, fitted, shift, rows) for evidence, fitted, shift in asked]


def _means(evidences: tuple[Evidence, ...], parameters: Parameters, rows: Rows) -> list[Float[Array, " n"]]:
    """Everybody's mean outcome under each structure, fitted without them."""
    each = zip(evidences, _each(evidences, parameters, rows), strict=True)
    return [one[0] if evidence.link is None else evidence.link.mean(one[0], one[1]) for evidence, one in each]


def _predicted(evidence: Evidence, fitted: Arrays, shift: Array, rows: Rows) -> Float[Array, "4 n"]:
    # With limits, or an exact remainder, a prediction depends on the other people of the site.
    if rows.least or (isinstance(evidence, KernelEvidence) and not evidence.diagonal):
        return _predict(evidence, fitted, shift, rows)
    return map_over_blocks(
        lambda block: _predict(evidence, fitted, shift, rows.having(block)).T, rows.by_row()
    ).T


def _predict(evidence: Evidence, fitted: Arrays, shift: Array, rows: Rows) -> Float[Array, "4 n"]:
    def without(leaves: tuple[Array, Arrays, Array]) -> Float[Array, "4 n"]:
        fold, found, own = leaves
        free, weights = found["free"], in_use(rows, {"fold": fold})
        drawn = WeightDraws(free, found["beta"], own, found.get("about"))
        draws = as_sent(evidence, drawn, rows, weights)
        each, remainder = factual(evidence, draws, rows, weights)
        spread = jnp.var(each, axis=0) + remainder
        log_sd = free["noise"] if evidence.link is None else jnp.full(2, jnp.log(evidence.link.noise))
        noise = arm_indicators(rows.treatment) @ jnp.exp(2.0 * log_sd)
        common = jnp.full_like(noise, jnp.exp(jnp.sum(log_sd)))
        return jnp.stack([each.mean(axis=0), spread, noise, common])

    folds = jnp.arange(fitted["beta"].shape[0])
    found = jax.lax.map(without, (folds, fitted, shift))
    return jnp.take_along_axis(found, jnp.maximum(rows.fold, 0)[None, None, :], axis=0)[0]


def stack(
    evidences: dict[str, Evidence], found: dict[str, Expanded], held: np.ndarray, starts: list[Ridges]
) -> Procedure[dict[str, float]]:
    """Stacking weights of the structures from their held-out squared errors."""
    asked = fits_without_folds(evidences, found, held, starts, None)
    reply = yield from ask("held_out", asked)
    products, count = reply.summed["products"][0], reply.summed["count"][0]
    # Both arms have equal weight, whatever their sizes: the effect depends on both equally.
    weights = simplex_weights(np.mean(products / count[:, None, None], axis=0))
    kept = {
        name: float(weight) for name, weight in zip(evidences, weights, strict=True) if weight > NEGLIGIBLE
    }
    return {name: weight / sum(kept.values()) for name, weight in kept.items()}


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


def calibrate(
    evidences: dict[str, Evidence],
    found: dict[str, Expanded],
    held: np.ndarray,
    starts: list[Ridges],
    weights: dict[str, float],
    seed: int,
) -> Procedure[Calibration | None]:
    """The distances of held-out outcomes from the weighted prediction: one round.

    None if no fold was held out, if the sites are too small to tell, or if outcomes have no noise whose scale
    could be wrong.
    """
    if len(held) == 1 or any(evidence.link is not None for evidence in evidences.values()):
        return None
    asked = fits_without_folds(evidences, found, held, starts, seed)
    log_odds = np.stack([ridge.log_odds for ridge in starts])
    share = np.array([[weights.get(name, 0.0) for name in evidences]])
    fixed = {**asked.fixed, "share": share, "log_odds": log_odds[None, 1:]}
    reply = yield from ask("held_out/distances", Parameters(fixed=fixed, per_site=asked.per_site))
    counted = {name: np.asarray(value[0]) for name, value in reply.summed.items()}
    calibration = Calibration(**counted, log_odds=log_odds[0])
    return calibration if calibration.known else None


def fits_without_folds(
    evidences: dict[str, Evidence],
    found: dict[str, Expanded],
    held: np.ndarray,
    starts: list[Ridges],
    seed: int | None,
) -> Parameters:
    """The fits without each fold: the posterior mean of their weights, or draws if there is a seed."""
    fitted, shifts, fixed = [], [], fixed_parameters(starts, held)
    rng = None if seed is None else stream(seed, "predictive draws")
    for name, evidence in evidences.items():
        minima, about = found[name]
        assert minima.statistics is not None
        fits = posteriors(evidence, minima.free, fixed, minima.statistics)
        beta, shift = weights_and_shifts(evidence, fits, rng, PREDICTIVE_DRAWS)
        of_folds = {"free": minima.free, "beta": beta, **about}
        fitted.append(jax.tree.map(lambda leaf: np.asarray(leaf)[None, 1:], of_folds))
        shifts.append(by_site(shift[None, 1:]))
    return Parameters(fixed={"fitted": tuple(fitted)}, per_site={"site_shift": tuple(shifts)})


def by_site(shift: np.ndarray) -> np.ndarray:
    """Shifts [batch, …, site] as they are addressed to the sites, [batch, site, …]."""
    return np.moveaxis(np.asarray(shift), -1, 1)

"""A meta-analysis as a procedure: every site's own doubly robust estimate, then the pooling of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from unpooled.errors import FitError
from unpooled.maths.meta_analysis import SMALLEST_ERROR, Heterogeneity, heterogeneity, pool, shrunken
from unpooled.maths.normal import independent_normals
from unpooled.methods.aipw.estimates import Estimates, of_scores, told, told_with_interval
from unpooled.methods.aipw.fit import score_question, told_of_fit
from unpooled.methods.aipw.nuisances import EVERYBODY, coefficient_draws, judged_without, nuisances
from unpooled.methods.meta_analysis.apart import Apart
from unpooled.methods.meta_analysis.settings import Settings
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.messages import Tree


class Fit(NamedTuple):
    """Draws of the sites' outcome regressions, their effects [K, m], and every estimate exactly."""

    draws: Tree
    effects: np.ndarray
    diagnostics: dict[str, Any]


def fit(settings: Settings, sharing: Apart, seed: int, scale: float) -> Procedure[Fit]:
    """`scale` is the outcome's sd: what is told is in the outcome's units."""
    without = judged_without(settings.folds)
    asked = without if without[-1] == EVERYBODY else np.append(without, EVERYBODY)
    known = yield from nuisances(sharing, settings.ridge, without, asked)
    reply = yield from ask("scores", score_question(known, len(without)))
    sums = jax.tree.map(lambda leaf: leaf[0], reply["each"])
    sites = of_scores(sums)
    _require_spread(sites)
    spread = heterogeneity(*sites)
    variance = spread.tau_squared if settings.effects == "random" else 0.0
    drawn = coefficient_draws(sharing, known.outcome, settings.draws, [seed, 4])
    effects = site_draws(sites, variance, sums["people"], settings.draws, seed)
    diagnostics = {**_told(settings, sites, spread, scale), **told_of_fit(known, reply)}
    return Fit({"fixed": {}, "each": drawn}, effects, diagnostics)


def site_draws(sites: Estimates, tau_squared: float, people: np.ndarray, count: int, seed: int) -> np.ndarray:
    """[K, m]: each site's effect given all estimates, μ being one normal draw that all sites share."""
    pooled, given = pool(*sites, tau_squared), shrunken(*sites, tau_squared)
    share = people / people.sum()
    # The sum over sites is what `ate` looks at: there μ has the slopes' average, a site its own share.
    sizes = np.append(share @ given.slope * pooled.error, share * given.sd)
    drawn = independent_normals(count, sizes, [seed, 5])
    mean = pooled.estimate + drawn[:, :1] / (share @ given.slope)
    return given.constant + given.slope * mean + drawn[:, 1:] / share


def _told(settings: Settings, sites: Estimates, spread: Heterogeneity, scale: float) -> dict[str, Any]:
    """Both poolings, and how much the sites differ; τ² is in the outcome's units squared."""
    pooled = {"fixed": pool(*sites), "random": pool(*sites, spread.tau_squared)}
    both = {
        name: {
            **told_with_interval(Estimates(np.array(one.estimate), np.array(one.error)), scale),
            "weights": one.weights.tolist(),
        }
        for name, one in pooled.items()
    }
    return {
        "effects": settings.effects,
        "sites": told(sites, scale),
        "overall": both[settings.effects],
        **both,
        "heterogeneity": {**spread._asdict(), "tau_squared": scale**2 * spread.tau_squared},
    }


def _require_spread(sites: Estimates) -> None:
    if not np.all(sites.error > SMALLEST_ERROR):  # in standard units: sds of the outcome
        raise FitError(
            "every site's estimate must have a standard error above 0",
            found="a site whose scores are all alike",
            remedy="leave the site out, or use AIPW, which judges all sites by one regression",
        )

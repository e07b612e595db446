"""Meta-analysis as a procedure: a doubly robust estimate for each site, then inverse-variance pooling."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from unpooled.disclosure.by_site import BySite
from unpooled.errors import FitError
from unpooled.maths.linear_algebra import unpack
from unpooled.maths.meta_analysis import SMALLEST_ERROR, Heterogeneity, heterogeneity, pool, shrunken
from unpooled.maths.normal import independent_normals
from unpooled.maths.streams import stream
from unpooled.methods.aipw.fit import (
    EVERYBODY,
    coefficient_draws,
    held_out_folds,
    nuisances,
    propensity_summary,
    score_question,
)
from unpooled.methods.aipw.model import Estimates, System, of_scores, site_numbers, with_interval
from unpooled.methods.meta_analysis.settings import MetaAnalysisSettings
from unpooled.methods.method import Fit
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Draws


class SiteRegressions(NamedTuple):
    """Separate regressions for each site; solutions are [batch, site, regression, feature].

    See `unpooled.methods.aipw.model.Pooling`.
    """

    sites: int
    width: int

    def shape(self, batch: int, regressions: int) -> tuple[int, ...]:
        return batch, self.sites, regressions, self.width

    def system(self, reply: Statistics) -> System:
        sums = dict(reply.per_site)
        return System(np.asarray(unpack(sums.pop("gram"))), np.asarray(sums.pop("score")), sums)

    def own(self, solution: np.ndarray) -> np.ndarray:
        return solution


def fit(settings: MetaAnalysisSettings, pooling: SiteRegressions, seed: int, scale: float) -> Procedure[Fit]:
    """Estimate every site's effect, then pool; `scale` is the outcome's sd, the unit of diagnostics."""
    without = held_out_folds(settings.folds)
    asked = without if without[-1] == EVERYBODY else np.append(without, EVERYBODY)
    known = yield from nuisances(pooling, settings.ridge, without, asked)
    reply = yield from ask("scores", score_question(known, len(without)))
    sums = jax.tree.map(lambda leaf: leaf[0], reply.per_site)
    sites = of_scores(sums)
    _require_spread(sites)
    spread = heterogeneity(*sites)
    variance = spread.tau_squared if settings.effects == "random" else 0.0
    drawn = coefficient_draws(pooling, known.outcome, settings.draws, stream(seed, "coefficient draws"))
    effects = site_draws(sites, variance, sums["people"], settings.draws, seed)
    diagnostics = {**_diagnostics(settings, sites, spread, scale), **propensity_summary(known, reply)}
    return Fit(Draws(by_site=drawn), effects, diagnostics)


def _require_spread(sites: Estimates) -> None:
    if not np.all(sites.error > SMALLEST_ERROR):  # in standard units: sds of the outcome
        raise FitError(
            "every site's estimate must have a standard error above 0",
            found="a site whose scores are all equal",
            remedy="leave the site out, or use AIPW, which shares its regressions between sites",
        )


def site_draws(sites: Estimates, tau_squared: float, people: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Draws [K, m] of the sites' effects given all estimates, with a common draw of the pooled mean μ."""
    pooled, given = pool(*sites, tau_squared), shrunken(*sites, tau_squared)
    share = people / people.sum()
    # `ate` averages over sites: there μ enters with the average slope, a site with its share of people.
    sizes = np.append(share @ given.slope * pooled.error, share * given.sd)
    drawn = independent_normals(count, sizes, stream(seed, "site effects"))
    mean = pooled.estimate + drawn[:, :1] / (share @ given.slope)
    return given.constant + given.slope * mean + drawn[:, 1:] / share


def _diagnostics(
    settings: MetaAnalysisSettings, sites: Estimates, spread: Heterogeneity, scale: float
) -> dict[str, object]:
    """Both pooled estimates and the heterogeneity between sites; τ² is in squared outcome units."""
    pooled = {"fixed": pool(*sites), "random": pool(*sites, spread.tau_squared)}
    both = {
        name: {
            **with_interval(Estimates(np.array(one.estimate), np.array(one.error)), scale),
            "weights": BySite(one.weights),
        }
        for name, one in pooled.items()
    }
    return {
        "effects": settings.effects,
        "sites": site_numbers(sites, scale),
        "overall": both[settings.effects],
        **both,
        "heterogeneity": {**spread._asdict(), "tau_squared": scale**2 * spread.tau_squared},
    }

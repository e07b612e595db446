"""Meta-analysis as a procedure: a doubly robust estimate for each site, then inverse-variance pooling."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.disclosure.by_site import BySite
from unpooled.errors import FitError
from unpooled.maths.linear_algebra import unpack
from unpooled.maths.meta_analysis import (
    SMALLEST_ERROR,
    Heterogeneity,
    RandomEffects,
    heterogeneity,
    pool,
    quantile,
    random_effects,
)
from unpooled.maths.streams import stream
from unpooled.methods.aipw.checks import weight_checks, weights_of
from unpooled.methods.aipw.fit import (
    by_draw,
    coefficient_draws,
    regression_summary,
    score_question,
    together,
)
from unpooled.methods.aipw.fold_draws import median
from unpooled.methods.aipw.group_means import median_by_site, of_scores_by_group
from unpooled.methods.aipw.model import (
    ALPHA,
    Estimates,
    System,
    of_scores,
    scores_of_everybody,
    site_numbers,
    with_interval,
)
from unpooled.methods.aipw.regressions import held_out, nuisances
from unpooled.methods.aipw.settings import AIPWContext, outcome_family
from unpooled.methods.meta_analysis.draws import outcome_draws
from unpooled.methods.meta_analysis.settings import MetaAnalysisSettings
from unpooled.methods.method import Fit
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import GROUPS, AverageOutcomes, Draws


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


def fit(
    settings: MetaAnalysisSettings, pooling: SiteRegressions, seed: int, context: AIPWContext
) -> Procedure[Fit]:
    """Estimate every site's effect, then pool; diagnostics are in units of the outcome."""
    scale, family = context.outcome_sd, outcome_family(context)
    folds, draws = settings.folds, settings.fold_draws
    without = held_out(folds, draws)
    known = yield from nuisances(pooling, settings.ridge, without, without, family=family)
    reply = yield from ask("scores", score_question(known, folds, draws))
    each = together([of_scores(sums) for sums in by_draw(scores_of_everybody(reply.per_site))])
    _require_spread(each)
    sites = median(each)
    spread = heterogeneity(*sites)
    drawn = coefficient_draws(pooling, known.outcome, settings.draws, stream(seed, "coefficient draws"))
    by_group = median_by_site(of_scores_by_group(reply.per_site))
    random = settings.pooling == "random"
    outcomes, people = outcome_draws(by_group, random=random, count=settings.draws, seed=seed)
    weights = weights_of(reply)
    diagnostics = {
        **_diagnostics(settings, sites, spread, scale),
        **regression_summary(known),
        "weights": weights._asdict(),
    }
    # A site's own people get the interval of their population, which is never too short.
    average = AverageOutcomes(GROUPS, outcomes, outcomes, people)
    return Fit(Draws(by_site=drawn), average, diagnostics, weight_checks(weights, settings.trim))


def _require_spread(sites: Estimates) -> None:
    if not np.all(sites.error > SMALLEST_ERROR):  # in standard units: sds of the outcome
        raise FitError(
            "every site's estimate must have a standard error above 0",
            found="a site whose scores are all equal",
            remedy="leave the site out, or use AIPW, which shares its regressions between sites",
        )


def _diagnostics(
    settings: MetaAnalysisSettings, sites: Estimates, spread: Heterogeneity, scale: float
) -> dict[str, object]:
    """Both pooled estimates and the heterogeneity between sites; τ² is in squared outcome units."""
    fixed, random = pool(*sites), random_effects(*sites, spread.tau_squared)
    common = with_interval(Estimates(np.array(fixed.estimate), np.array(fixed.error)), scale)
    both = {
        "fixed": {**common, "weights": BySite(fixed.weights)},
        "random": {**_random_effects(random, scale), "weights": BySite(random.weights)},
    }
    return {
        "pooling": settings.pooling,
        "sites": site_numbers(sites, scale),
        "overall": both[settings.pooling],
        **both,
        "heterogeneity": {**spread._asdict(), "tau_squared": scale**2 * spread.tau_squared},
    }


def _random_effects(found: RandomEffects, scale: float) -> dict[str, object]:
    """The pooled mean with its interval, and the interval in which the effect of another site would be."""
    reach = quantile(1.0 - ALPHA / 2.0, found.degrees)
    centre, errors = scale * found.estimate, (scale * found.error, scale * found.prediction_error)
    (lower, upper), (lowest, highest) = ((centre - reach * one, centre + reach * one) for one in errors)
    return {
        "estimate": centre,
        "standard_error": errors[0],
        "degrees": found.degrees,
        "lower": lower,
        "upper": upper,
        "prediction_error": errors[1],
        "prediction_lower": lowest,
        "prediction_upper": highest,
    }

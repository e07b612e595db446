"""The candidate with observed confounders: one round of sums, then everything at the coordinator.

The fit is repeated for several length-scales, which contribute draws in proportion to their evidence. 0/1
outcomes and counts take several rounds of Newton steps; the dispersion of counts is updated with them and is
drawn from the sums of the last step. `make_terms` selects the site terms from the settings.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from unpooled.disclosure.by_site import BySite
from unpooled.maths.streams import stream
from unpooled.methods.causal_rff.fit import CandidateFit, noise_of
from unpooled.methods.causal_rff.observed import modes
from unpooled.methods.causal_rff.observed.modes import SiteTerms, VarianceMode
from unpooled.methods.causal_rff.observed.regression import (
    Design,
    PartlyShared,
    RegressionStatistics,
    outline,
    sums_of,
)
from unpooled.methods.causal_rff.observed.transfer import Covariance, Transfer, make_paired
from unpooled.methods.causal_rff.settings import CausalRFFSettings
from unpooled.models.dispersion import draw_dispersion, most_probable
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.messages import Statistics
from unpooled.protocol.records import Arrays, Draws, Parameters

FOLD_DRAWS = 50
"""Number of draws for the held-out density of a fold."""
STEPS, FOLD_STEPS = 7, 4
"""Newton steps of a regression with a link from zero, and from the fit to all people."""
DISPERSED = 1.0
"""Dispersion of counts in the first Newton step."""
HELD = 2
"""Newton steps of counts in which variances keep their expectation. About the mean count, the large noise of
large counts looks like a signal."""


class LengthFit(NamedTuple):
    """The sums for one length-scale (with a link those of the last Newton step) and their mode."""

    sums: RegressionStatistics
    mode: VarianceMode
    dispersion: np.ndarray | None = None
    """Of counts: the sums of log densities at given dispersions, [arm, grid]."""


class Regressed(NamedTuple):
    """The fit of every length-scale, and the fits without each fold at the best length-scale."""

    fits: list[LengthFit]
    best: int
    without: list[LengthFit]


class RegressionCandidate(NamedTuple):
    """See `unpooled.methods.causal_rff.fit.Candidate`."""

    design: Design
    terms: SiteTerms
    width: int
    sites: int
    draws: int
    seed: int
    counts: bool = False

    def learn(self, folds: int) -> Procedure[Regressed]:
        lengths = self.design.lengths
        if not self.terms.linked:
            return (yield from self._gaussian(folds))
        zeros = [self._zeros() for _ in lengths]
        fits = yield from self._linked([(length, -1) for length in lengths], zeros, STEPS)
        best = _best(fits)
        if not folds:
            return Regressed(fits, best, [])
        near = self._next(fits[best])
        grid = [(lengths[best], fold) for fold in range(folds)]
        return Regressed(fits, best, (yield from self._linked(grid, [near] * folds, FOLD_STEPS)))

    def sample(self, learned: Regressed, folds: int) -> Procedure[CandidateFit]:
        """Needs no further round: given the variances, the posterior is known exactly or by Laplace."""
        yield from ()
        drawn = self._drawn(learned)
        best = learned.fits[learned.best]
        between = modes.between_sites(self.terms, best.sums, best.mode)
        evidence = [fit.mode.evidence for fit in learned.fits]
        diagnostics = {
            **noise_of(drawn, counts=self.counts),
            "length_scale": float(self.design.lengths[learned.best]),
            "evidence": {
                f"{length:.3g}": one for length, one in zip(self.design.lengths, evidence, strict=True)
            },
            **{name: BySite(found, axes=2) for name, found in between.items()},
        }
        return CandidateFit(drawn, self._without(learned), diagnostics)

    def _gaussian(self, folds: int) -> Procedure[Regressed]:
        """Gaussian outcomes: one round for every length-scale, on all people and without each fold."""
        lengths = self.design.lengths
        grid = [(length, fold) for fold in range(-1, folds) for length in lengths]
        reply = yield from ask("regression", Parameters(fixed=_fixed(grid)))
        every = [sums_of(reply, index, self.sites) for index in range(len(grid))]
        fits = [LengthFit(sums, modes.find_mode(self.terms, sums)) for sums in every[: len(lengths)]]
        best = _best(fits)
        start = fits[best].mode.point
        held = every[len(lengths) + best :: len(lengths)]
        without = [
            LengthFit(sums, modes.find_mode(self.terms, sums, start, curvature=False)) for sums in held
        ]
        return Regressed(fits, best, without)

    def _linked(
        self, grid: list[tuple[float, int]], points: list[Arrays], steps: int
    ) -> Procedure[list[LengthFit]]:
        """Newton steps for all grid entries in one batch, with variances updated in between."""
        fits: list[LengthFit] = []
        for step in range(steps):
            every = {name: np.stack([point[name] for point in points]) for name in points[0]}
            own = {"site": every.pop("site")}
            reply = yield from ask("regression", Parameters(fixed=_fixed(grid) | every, per_site=own))
            start = [fit.mode.point for fit in fits] or [None] * len(grid)
            held, last = self.counts and steps == STEPS and step < HELD, step + 1 == steps
            fits = [
                self._fitted(reply, index, at, held=held, curvature=last) for index, at in enumerate(start)
            ]
            points = [self._next(fit) for fit in fits]
        return fits

    def _fitted(
        self, reply: Statistics, index: int, start: np.ndarray | None, *, held: bool, curvature: bool
    ) -> LengthFit:
        sums = sums_of(reply, index, self.sites)
        if held:
            mode = modes.expected(self.terms)
        else:
            mode = modes.find_mode(self.terms, sums, start, curvature=curvature)
        return LengthFit(sums, mode, np.asarray(reply.summed["dispersion"][index]) if self.counts else None)

    def _next(self, fit: LengthFit) -> Arrays:
        """Where the next Newton step expands: the posterior mean, and the most probable dispersions."""
        found = modes.mean(self.terms, fit.sums, fit.mode)
        at = {name: found[name] for name in ("common", "site")}
        if fit.dispersion is None:
            return at
        return at | {"dispersion": np.asarray(most_probable(fit.dispersion))}

    def _zeros(self) -> Arrays:
        return {
            "common": np.zeros((2, self.design.width)),
            "site": np.zeros((self.sites, 2, self.width)),
            **({"dispersion": np.full(2, DISPERSED)} if self.counts else {}),
        }

    def _draws(self, fit: LengthFit, count: int, rng: np.random.Generator) -> Arrays:
        """Draws of the coefficients and of the noise, whose place the dispersion of counts takes."""
        drawn = modes.draw(self.terms, fit.sums, fit.mode, count, rng)
        if fit.dispersion is None:
            return drawn
        return drawn | {"noise": draw_dispersion(np.tile(fit.dispersion, (count, 1, 1)), rng)}

    def _drawn(self, learned: Regressed) -> Draws:
        """Draws from every length-scale in proportion to its evidence."""
        evidence = np.array([fit.mode.evidence for fit in learned.fits])
        weight = np.exp(evidence - evidence.max())
        shares = np.floor(weight / weight.sum() * self.draws).astype(int)
        shares[learned.best] += self.draws - shares.sum()
        rng = stream(self.seed, "regression draws")
        parts = [
            _at(length, self._draws(fit, int(share), rng))
            for length, fit, share in zip(self.design.lengths, learned.fits, shares, strict=True)
            if share
        ]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def _without(self, learned: Regressed) -> Draws | None:
        """Draws from the fits without each fold, at the best length-scale."""
        if not learned.without:
            return None
        rng = stream(self.seed, "held-out regression draws")
        length = self.design.lengths[learned.best]
        drawn = [_at(length, self._draws(fit, FOLD_DRAWS, rng)) for fit in learned.without]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)


def _best(fits: list[LengthFit]) -> int:
    return int(np.argmax([fit.mode.evidence for fit in fits]))


def _fixed(grid: list[tuple[float, int]]) -> Arrays:
    return {"length": np.array([at[0] for at in grid]), "fold": np.array([at[1] for at in grid])}


def _at(length: float, drawn: dict[str, np.ndarray]) -> Draws:
    rest = {
        "common": drawn["common"],
        "noise": drawn["noise"],
        "length": np.full(len(drawn["noise"]), length),
    }
    new = {"site": drawn["elsewhere"]} if "elsewhere" in drawn else {}
    return Draws(rest, {"site": drawn["site"]}, elsewhere=new)


def width(settings: CausalRFFSettings, design: Design) -> int:
    """Number of features in which sites may differ."""
    return 1 if settings.site_terms in ("offsets", "none") else design.width


def make_terms(settings: CausalRFFSettings, design: Design, *, sites: int, family: str) -> SiteTerms:
    """The site terms that the settings select."""
    differ = settings.site_terms in ("offsets", "deviations")
    coefficients = outline(design, width(settings, design), differ=differ, family=family)
    if settings.site_terms == "covariance":
        return make_paired(coefficients, Covariance(sites))
    if settings.site_terms == "transfer":
        return make_paired(coefficients, Transfer(sites, settings.symmetric, settings.transfer))
    return PartlyShared(coefficients)

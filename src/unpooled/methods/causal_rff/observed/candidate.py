"""The candidate with observed confounders: one round of sums, then everything at the coordinator.

The fit is repeated for several length-scales, which contribute draws in proportion to their evidence. 0/1
outcomes take several rounds of Newton steps. `make_terms` selects the site terms from the settings.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from unpooled.disclosure.by_site import BySite
from unpooled.maths.streams import stream
from unpooled.methods.causal_rff.fit import CandidateFit, noise_sd
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
from unpooled.optimise.procedure import Procedure, ask
from unpooled.protocol.records import Arrays, Draws, Parameters

FOLD_DRAWS = 50
"""Number of draws for the held-out density of a fold."""
STEPS, FOLD_STEPS = 7, 4
"""Newton steps of a logistic regression from zero, and from the fit to all people."""


class LengthFit(NamedTuple):
    """The sums for one length-scale (for 0/1 outcomes those of the last Newton step) and their mode."""

    sums: RegressionStatistics
    mode: VarianceMode


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

    def learn(self, folds: int) -> Procedure[Regressed]:
        lengths = self.design.lengths
        if not self.terms.binary:
            return (yield from self._gaussian(folds))
        zeros = [self._zeros() for _ in lengths]
        fits = yield from self._logits([(length, -1) for length in lengths], zeros, STEPS)
        best = _best(fits)
        if not folds:
            return Regressed(fits, best, [])
        near = modes.mean(self.terms, *fits[best])
        grid = [(lengths[best], fold) for fold in range(folds)]
        return Regressed(fits, best, (yield from self._logits(grid, [near] * folds, FOLD_STEPS)))

    def sample(self, learned: Regressed, folds: int) -> Procedure[CandidateFit]:
        """Needs no further round: given the variances, the posterior is known exactly or by Laplace."""
        yield from ()
        drawn = self._drawn(learned)
        between = modes.between_sites(self.terms, *learned.fits[learned.best])
        evidence = [fit.mode.evidence for fit in learned.fits]
        diagnostics = {
            "noise": noise_sd(drawn),
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

    def _logits(
        self, grid: list[tuple[float, int]], points: list[Arrays], steps: int
    ) -> Procedure[list[LengthFit]]:
        """0/1 outcomes: Newton steps for all grid entries in one batch, with variances updated in between."""
        fits: list[LengthFit] = []
        for step in range(steps):
            common, own = [np.stack([point[name] for point in points]) for name in ("common", "site")]
            fixed = {**_fixed(grid), "common": common}
            reply = yield from ask("regression", Parameters(fixed=fixed, per_site={"site": own}))
            every = [sums_of(reply, index, self.sites) for index in range(len(grid))]
            start = [fit.mode.point for fit in fits] or [None] * len(grid)
            last = step + 1 == steps
            fits = [
                LengthFit(sums, modes.find_mode(self.terms, sums, at, curvature=last))
                for sums, at in zip(every, start, strict=True)
            ]
            points = [modes.mean(self.terms, *fit) for fit in fits]
        return fits

    def _zeros(self) -> Arrays:
        return {
            "common": np.zeros((2, self.design.width)),
            "site": np.zeros((self.sites, 2, self.width)),
        }

    def _drawn(self, learned: Regressed) -> Draws:
        """Draws from every length-scale in proportion to its evidence."""
        evidence = np.array([fit.mode.evidence for fit in learned.fits])
        weight = np.exp(evidence - evidence.max())
        shares = np.floor(weight / weight.sum() * self.draws).astype(int)
        shares[learned.best] += self.draws - shares.sum()
        rng = stream(self.seed, "regression draws")
        parts = [
            _at(length, modes.draw(self.terms, *fit, int(share), rng))
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
        drawn = [_at(length, modes.draw(self.terms, *fit, FOLD_DRAWS, rng)) for fit in learned.without]
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


def make_terms(settings: CausalRFFSettings, design: Design, *, sites: int, binary: bool) -> SiteTerms:
    """The site terms that the settings select."""
    differ = settings.site_terms in ("offsets", "deviations")
    coefficients = outline(design, width(settings, design), differ=differ, binary=binary)
    if settings.site_terms == "covariance":
        return make_paired(coefficients, Covariance(sites))
    if settings.site_terms == "transfer":
        return make_paired(coefficients, Transfer(sites, settings.symmetric, settings.transfer))
    return PartlyShared(coefficients)
